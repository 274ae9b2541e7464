#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests operators whose results have other strides in eager PyTorch than in the
file.

usage: layouts.py PENSTOCK GOLDEN

A reshape of such a result is a view or a copy, by its strides in eager mode. A
write to the reshape must reach the result exactly if it does in eager mode.
GOLDEN has layouts.pt2 and layouts.safetensors (make_layouts.py).
"""
import os
import subprocess
import sys
import tempfile

from windows import load


def main():
    penstock, golden = map(os.path.abspath, sys.argv[1:3])
    data = os.path.join(golden, "layouts.safetensors")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        out = os.path.join(folder, "out.safetensors")
        subprocess.run([penstock, "infer", os.path.join(golden, "layouts.pt2"),
                        "--data", data, "--output", out], check=True,
                       capture_output=True)
        have = load(out)
    wrong = []
    for name, (shape, values) in load(data).items():
        if not name.startswith("out."):
            continue
        assert have[name[4:]][0] == shape, (name, have[name[4:]][0], shape)
        off = max(abs(a - b) for a, b in zip(have[name[4:]][1], values,
                                             strict=True))
        if not off <= 1e-5:
            wrong.append(f"{name[4:]} is off by {off:.3g}")
    assert not wrong, "\n".join(wrong)
    print("ok")


if __name__ == "__main__":
    main()
