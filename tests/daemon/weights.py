#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock weights`: the keys of the state_dict, of a plan and of a
checkpoint, parts of a storage as tensors of their own; what is damaged is
passed over or refused.

usage: weights.py PENSTOCK BYTEGPT.pt2 SHARED.pt2 TEXT
"""
import json
import os
import struct
import subprocess
import sys
import tempfile


def load(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    with open(path, "rb") as file:
        data = file.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    about = header.pop("__metadata__", {})
    body = data[8 + n:]
    return {name: (e["dtype"], e["shape"],
                   body[e["data_offsets"][0]:e["data_offsets"][1]])
            for name, e in header.items()}, about


def floats(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder, self.n = penstock, folder, 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def new(self):
        self.n += 1
        return self.path("p%d" % self.n)

    def run(self, *words):
        return subprocess.run([self.penstock, *map(str, words)],
                              capture_output=True, text=True, check=False,
                              timeout=120)

    def good(self, *words):
        done = self.run(*words)
        assert done.returncode == 0, (words, done)
        return done

    def refused(self, code, text, *words):
        done = self.run(*words)
        assert done.returncode == code, (words, code, done)
        assert text in done.stderr, (words, text, done.stderr)
        assert done.stdout == "", (words, done.stdout)

    def split(self, model, *options):
        """The plan's tensors and what was said."""
        plan = self.new()
        said = self.good("split", model, "-o", plan, *options).stdout
        return plan, tensors_of(plan), said

    def weights(self, of):
        path = self.new() + ".safetensors"
        self.good("weights", of, "-o", path)
        return path, *load(path)


def tensors_of(plan):
    ret = {}
    for name in sorted(os.listdir(plan)):
        if name.endswith(".safetensors"):
            ret.update(load(os.path.join(plan, name))[0])
    return ret


def check_plan(b, model):
    """The start values, without the buffer that is not persistent."""
    plan, want, _ = b.split(model, "--stages", 2)
    _, got, about = b.weights(plan)
    assert about == {"format": "pt"}, about
    assert set(want) - set(got) == {"positions"}, set(want) ^ set(got)
    assert all(want[n] == got[n] for n in got)


def check_windows(b, model):
    """Parts of one storage are tensors of their own in the file."""
    plan, want, _ = b.split(model)
    path, got, _ = b.weights(plan)
    assert set(got) >= {"whole", "front", "front_again", "odd", "upper",
                        "lower", "turned", "even_columns", "odd_columns"}
    assert not any("+" in name for name in got), sorted(got)
    values = {n: floats(data) for n, (_, _, data) in got.items()}
    assert values["odd"] == values["whole"][1::2]
    assert values["front"] == values["front_again"] == values["whole"][:5]
    lower = values["lower"]
    assert values["turned"] == lower[0::3] + lower[1::3] + lower[2::3]
    assert values["upper"][3:] == lower[:3]


def check_checkpoints(b, model):
    folder = b.path("ck")
    b.good("run", model, "--stages", 2, "--transport", "self", "--data",
           b.text, "--steps", 3, "--checkpoint", folder,
           "--checkpoint-every", 1, "--keep", 0, "--quiet")
    path, newest, _ = b.weights(folder)
    parts = {}
    step = os.path.join(folder, "step-00000003")
    for name in os.listdir(step):
        if name.startswith("rank-"):
            parts.update(load(os.path.join(step, name))[0])
    assert len(newest) > 40 and newest == {
        n.split(".", 1)[1]: t for n, t in parts.items()
        if n.startswith("param.")}
    assert b.weights(step + "/")[1] == newest
    os.symlink(step, b.path("latest"))
    assert b.weights(b.path("latest"))[1] == newest
    first = b.weights(os.path.join(folder, "step-00000001"))[1]
    assert first != newest
    done = b.good("weights", folder, "-o", path, "--json")
    assert json.loads(done.stdout) == {
        "file": path, "tensors": len(newest), "step": 3,
        "bytes": sum(len(t[2]) for t in newest.values())}

    shard = os.path.join(step, "rank-000.safetensors")
    with open(shard, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read()
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    b.refused(65, "is damaged", "weights", step, "-o", b.path("x"))
    second = b.good("weights", folder, "-o", path, "--json")
    assert json.loads(second.stdout)["step"] == 2
    assert "passed over: step-00000003" in second.stderr, second.stderr
    os.makedirs(b.path("empty"))
    b.refused(65, "no checkpoint", "weights", b.path("empty"), "-o",
              b.path("x"))
    b.refused(65, "no such", "weights", b.path("nowhere"), "-o", b.path("x"))
    b.refused(64, "is a file", "weights", model, "-o", b.path("x"))
    b.refused(64, "-o FILE", "weights", folder)
    assert not os.path.exists(b.path("x"))
    with open(path, "rb") as file:
        before = file.read()
    b.refused(65, "is damaged", "weights", step, "-o", path)
    with open(path, "rb") as file:
        assert file.read() == before  # still whole


def main():
    penstock, model, shared, text = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(penstock, folder)
        b.text = text
        check_plan(b, model)
        check_windows(b, shared)
        check_checkpoints(b, model)
    print("weights out")


if __name__ == "__main__":
    main()
