#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that go on with other steps, which draw the samples that come next.

usage: goes_on.py PENSTOCK TINY.pt2
"""
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402


def write_data(path, rows):
    """These samples of the endless many, one of them has 1, 1, 4, 8 rows."""
    tensor_file.save(path, {
        "tokens": ("I64", [len(rows), 3], b"".join(struct.pack(
            "<3q", *[(5 * r + i) % 12 for i in range(3)]) for r in rows)),
        "labels": ("I64", [len(rows), 3], b"".join(struct.pack(
            "<3q", *[(7 * r + 3 * i) % 16 for i in range(3)]) for r in rows)),
        "extra.scale": ("F32", [4 * len(rows)], b"".join(struct.pack(
            "<4f", *[1 + .01 * r + .1 * i for i in range(4)]) for r in rows)),
        "extra.pair.0": ("F32", [8 * len(rows)], b"".join(struct.pack(
            "<8f", *[.1 * (i % 7) - .02 * r for i in range(8)])
            for r in rows))})


class Bench(job.Bench):
    def run(self, steps, *words, model="tiny.pt2", m=2, data="all",
            folder=None):
        words = ["run", model, "-n", "1", "-m", m, "--steps", steps, "--data",
                 f"{data}.safetensors", "--quiet", "--transport", "self",
                 *(["--checkpoint", folder] if folder else []), *words]
        return self.done(*words).stderr

    def dumped(self, name):
        return tensor_file.load(self.path(name))[0]

    def manifest(self, folder, step):
        path = self.path(folder, f"step-{step:08d}", "manifest.json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def other_steps(b):
    """The same loss as of these rows alone, whatever steps were before."""
    write_data(b.path("all.safetensors"), range(20))
    none = "--optimizer", "none"
    b.run(3, *none, folder="place")
    assert b.manifest("place", 3)["data"] == {
        "tokens": False, "pass": 0, "at": 12, "step": 4, "unit": 2}
    said = b.run(4, *none, "--resume", "--dump", "got", m=3, folder="place")
    assert "warning: rows of a step was 4 in the run that saved this " \
        "checkpoint, and is 6 now: the data goes on after the last sample, " \
        "with rows 12 to 13 of 'tokens' in all.safetensors (counted from 0)" \
        in said.replace(b.folder + "/", ""), said
    write_data(b.path("these.safetensors"), range(12, 18))
    b.run(1, *none, "--dump", "want", m=3, data="these")
    assert b.dumped("got")["loss"] == b.dumped("want")["loss"]
    # Later passes, and steps as they were.
    said = b.run(6, *none, "--resume", folder="place")
    assert "with rows 18 to 19 of" in said, said
    said = b.run(7, *none, "--resume", "--dump", "got", m=1, folder="place")
    assert "with rows 6 to 7 of" in said, said
    assert b.manifest("place", 7)["data"]["pass"] == 1
    write_data(b.path("these.safetensors"), range(6, 8))
    b.run(1, *none, "--dump", "want", m=1, data="these")
    assert b.dumped("got")["loss"] == b.dumped("want")["loss"]
    assert "rows of a step" not in b.run(8, *none, "--resume", m=1,
                                         folder="place")


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        os.symlink(model, b.path("tiny.pt2"))
        other_steps(b)
    print("ok")


if __name__ == "__main__":
    main()
