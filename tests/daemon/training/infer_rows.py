#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `infer` drops the microbatches that only fill up the last step,
of outputs with any number of rows.

usage: infer_rows.py PENSTOCK TINY.pt2 ROWS.pt2

The inputs of TINY.pt2 differ in the rows of a microbatch. The file has two
microbatches of them, and steps of three take a filler. ROWS.pt2 returns a
scalar, and outputs with four rows in a microbatch; of ten rows the last
microbatch has two, which are filled up to four.
"""
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import tensor_file  # noqa: E402
from job import Bench  # noqa: E402


def infer(b, model, data, m, *options):
    """Returns what `infer` prints, and its outputs."""
    said = b.call("infer", model, "--data", data, "-o", "out.safetensors",
                  "-m", str(m), *options)
    return said, tensor_file.load(b.path("out.safetensors"))[0]


def main():
    penstock, tiny, rows = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(penstock, folder)
        clients.write_data(b.path("tiny.safetensors"))
        said, want = infer(b, tiny, "tiny.safetensors", 1)
        assert "outputs for 4 rows of input \"tokens\" in" in said, said
        printed = json.loads(infer(b, tiny, "tiny.safetensors", 2, "--json")[0])
        assert (printed["samples"], printed["input"]) == (4, "tokens"), printed
        assert want["loss"][1] == [2] and want["rest.0"][1] == [4, 3, 16], want
        for m in 2, 3, 5:
            other, got = infer(b, tiny, "tiny.safetensors", m)
            assert got == want and other == said, (m, got, want)

        tensor_file.save(b.path("rows.safetensors"), {
            "x": ("F32", [10, 7], struct.pack("<70f", *range(70))),
            "target": ("I64", [10], struct.pack("<10q", *5 * [0, 1]))})
        assert "input" not in json.loads(
            infer(b, rows, "rows.safetensors", 2, "--json")[0])
        said, want = infer(b, rows, "rows.safetensors", 1)
        assert "outputs for 10 samples in" in said, said
        assert want["0"][1] == [3] and want["1"][1] == [10, 5], want
        for m in 2, 3, 5:
            got = infer(b, rows, "rows.safetensors", m)[1]
            assert got == want, (m, got, want)
    print("ok")


if __name__ == "__main__":
    main()
