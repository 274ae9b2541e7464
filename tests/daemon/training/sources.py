#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests runs on data of several files and sources.

usage: sources.py PENSTOCK MODEL.pt2 TEXT
"""
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from tensor_file import save  # noqa: E402

BLEND = "a.bin:0.7,more/b-?.bin:0.3"


class Bench(job.Bench):
    def run(self, steps, data, *words, ranks=2, folder):
        return self.done(
            "run", "two.plan", "-n", ranks, "-m", 2, "--steps", steps,
            "--optimizer", "adamw", "--lr", ".001", "--quiet", "--threads", 1,
            "--data", data, "--checkpoint", folder, *words).stderr

    def manifest(self, folder, step):
        path = self.path(folder, f"step-{step:08d}", "manifest.json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def write_files(b, text):
    with open(text, "rb") as file:
        text = file.read()
    os.mkdir(b.path("more"))
    for name, part in {"a.bin": text[:2000], "more/b-1.bin": text[5000:5277],
                       "more/b-2.bin": text[5277:6000],
                       "b.bin": text[5000:6000]}.items():
        with open(b.path(name), "wb") as file:
            file.write(part)


def lists(b):
    """Checks that the files of a list are read like one file."""
    b.run(4, "b.bin", "--shuffle", folder="one")
    b.run(4, "more/b-1.bin,more/b-2.bin", "--shuffle", folder="list")
    b.run(4, "more/*.bin", "--shuffle", "--data-at", "first",
          folder="pattern")
    assert b.weights("one") == b.weights("list") == b.weights("pattern")
    want = b.said("eval", "two.plan", "--data", "b.bin")
    assert want == b.said("eval", "two.plan", "--data", "more/b*")
    assert want == b.said("eval", "two.plan", "--data",
                          "more/b-1.bin,more/b-2.bin")
    said = b.call("eval", "two.plan", "--data", "a.bin:1,b.bin:2", code=65)
    assert "leave the weights out" in said, said


def blends(b):
    """Checks that a run that stops in a blend, and continues on another number
    of ranks, draws the same samples as one that never stopped."""
    for words in ([], ["--shuffle"]):
        whole, parts = f"whole{len(words)}", f"parts{len(words)}"
        b.run(9, BLEND, *words, folder=whole)
        b.run(3, BLEND, *words, ranks=1, folder=parts)
        said = b.run(5, BLEND, *words, "--resume", folder=parts)
        assert "--data" not in said, said
        b.run(9, BLEND, *words, "--resume", "--transport", "self",
              "--data-at", "first", folder=parts)
        assert b.weights(whole) == b.weights(parts)
        assert b.manifest(whole, 9)["data"] == b.manifest(parts, 9)["data"]
    place = b.manifest("whole0", 9)["data"]
    assert [s["source"][-12:] for s in place["sources"]] == [
        b.path("a.bin")[-12:], "more/b-?.bin"], place
    drawn = 9 * place["step"]
    # 7 of 10 samples come from the first source
    at = [s["pass"] * size + s["at"] for s, size in zip(
        place["sources"], (1999 // 128 * 128, 999 // 128 * 128))]
    assert sum(at) == drawn and abs(at[0] - .7 * drawn) <= 128, (at, drawn)


def ramps(b):
    """Checks that where the number of microbatches changes, sources and the
    weights of targets continue as in a resume with another number."""
    for words in ([], ["--shuffle", "--data-at", "first"],
                  ["--microbatch-weights", "tokens"],
                  ["--pack", "10", "--microbatch-weights", "tokens"]):
        words = [*words, "--transport", "self"]
        whole, parts = f"ramp-{'-'.join(words)}", f"each-{'-'.join(words)}"
        said = b.run(9, BLEND, *words, "-m", "2:0,5:3,1:6", folder=whole)
        assert "continues" not in said, said
        for m, end in (2, 3), (5, 6), (1, 9):
            b.run(end, BLEND, *words, "-m", m, "--resume=auto", folder=parts)
        assert b.weights(whole) == b.weights(parts), words
        assert b.manifest(whole, 9)["data"] == b.manifest(parts, 9)["data"]


def rows_of(b, name, keys, first):
    """Writes 20 rows of some inputs to a file."""
    with open(b.path("b.bin"), "rb") as file:
        text = file.read()
    tensors = {}
    for key in keys:
        tokens = [text[(first + r) * 20 + t + (key == "y")]
                  for r in range(20) for t in range(128)]
        tensors[key] = ("I64", [20, 128], struct.pack("<2560q", *tokens))
    save(b.path(name), tensors)


def index(b, name, where):
    with open(b.path(name + ".safetensors.index.json"), "w",
              encoding="utf-8") as file:
        json.dump({"weight_map": where}, file)


def indices(b):
    """Checks that the files of an index are read like one file, and that a
    resume reports a change of one of them."""
    data = "split/rows.safetensors.index.json"
    os.mkdir(b.path("split"))
    rows_of(b, "rows.safetensors", ["x", "y"], 0)
    rows_of(b, "split/x.safetensors", ["x"], 0)
    rows_of(b, "split/y.safetensors", ["y"], 0)
    index(b, "split/rows", {"x": "x.safetensors", "y": "y.safetensors"})
    b.run(4, "rows.safetensors", "--shuffle", folder="whole")
    b.run(4, data, "--shuffle", folder="parts")
    b.run(4, "split/rows*.json", "--shuffle", folder="pattern-1")
    assert b.weights("whole") == b.weights("parts") == b.weights(
        "pattern-1")
    want = b.said("eval", "two.plan", "--data", "rows.safetensors")
    assert want == b.said("eval", "two.plan", "--data", data)
    b.call("run", "two.plan", "--transport", "self", "-n", 2, "-m", 2,
           "--steps", 1, "--data", data, "--dump", "split/y.safetensors",
           code=64)
    assert want == b.said("eval", "two.plan", "--data", data)
    said = b.run(5, data, "--shuffle", "--resume", folder="parts")
    assert "digest" not in said, said
    rows_of(b, "split/y.safetensors", ["y"], 1)
    said = b.run(6, data, "--shuffle", "--resume", folder="parts")
    assert "--data" in said and "digest" in said, said
    os.unlink(b.path("split/y.safetensors"))
    said = b.call("eval", "two.plan", "--data", data, code=65)
    assert '"y.safetensors", which is missing' in said, said
    said = b.call("eval", "two.plan", "--data", "split/*.safetensors",
                  code=65)
    assert "x.safetensors has no tensor" in said, said
    said = b.call("eval", "two.plan", "--data", data + ",b.bin", code=65)
    assert "cannot be mixed" in said, said


def other_weights(b):
    """Checks that with other weights each source continues, and that the
    change is reported."""
    before = b.manifest("whole0", 9)["data"]["sources"]
    said = b.run(10, "more/b-?.bin:3,a.bin:1", "--resume", folder="whole0")
    assert "weights 0.7:0.3" in said and "weights 3:1" in said, said
    after = {s["source"]: s for s in
             b.manifest("whole0", 10)["data"]["sources"]}
    for source in before:
        now = after[source["source"]]
        assert (now["pass"], now["at"]) >= (source["pass"], source["at"])
    assert after != {s["source"]: s for s in before}


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        write_files(b, text)
        b.call("split", model, "-o", "two.plan", "--stages", 2)
        lists(b)
        blends(b)
        ramps(b)
        indices(b)
        other_weights(b)
    print("ok")


if __name__ == "__main__":
    main()
