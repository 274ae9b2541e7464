#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests runs on data of several files and sources.

usage: sources.py PENSTOCK MODEL.pt2 TEXT
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402

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
        other_weights(b)
    print("ok")


if __name__ == "__main__":
    main()
