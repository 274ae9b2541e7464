#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plugin through the library has PyTorch's loss and gradients, and the same
bits whether it is a file or part of the program.

usage: library.py PROGRAM OURS.so OTHER.so GOLDEN
"""
import os
import struct
import subprocess
import sys
import tempfile

from bench import compare, flat, known_of


def main():
    program, ours, other, golden = map(os.path.abspath, sys.argv[1:])
    known = known_of(golden, "plugin")
    rows = flat(known["x"]) + flat(known["y"])
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data")
        with open(data, "wb") as file:
            file.write(struct.pack(f"<{len(rows)}f", *rows))
        texts = [subprocess.run(
            [program, os.path.join(golden, "plugin.pt2"), data, plugin, other],
            stdout=subprocess.PIPE, text=True, check=True).stdout
            for plugin in ("own", ours)]
    if texts[0] != texts[1]:
        raise SystemExit("".join(texts))
    got = [float.fromhex(line) for line in texts[0].split()]
    compare("loss", got[:1], [known["loss"]], 2e-6)
    if not got[1] < got[0]:
        raise SystemExit("the second step has no smaller loss")


if __name__ == "__main__":
    main()
