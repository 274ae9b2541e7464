#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs compiled against the header of an earlier version (folder 0),
on today's library.

usage: older.py PENSTOCK OLD-DRIVE OLD-CASES TINY.pt2 CASES.json

`drive` has the losses, parameters, gradients and outputs of the command; the
cases of operands that share memory have PyTorch's results.
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import bits  # noqa: E402


def main():
    penstock, drive, cases, tiny, aliasing = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        bench = bits.Bench(penstock, drive, tiny, 16, folder)
        bits.train(bench, [])
        bits.gradients(bench)
        bits.check_split_steps(bench, 1)
        bits.forward(bench)
        bits.evaluate(bench, False)
    out = subprocess.run([cases, aliasing], check=True, capture_output=True,
                         text=True).stdout
    assert int(out.split()[0]) > 50 and ", 0 failed" in out, out


main()
