#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles examples/cpp/windows.cpp, and compares its losses.

usage: windows.py CXX LIBRARY DRIVE ROOT

Its arrays are overlapping views of one vector. The losses are, bit by bit,
those of a program in C (drive.c) on copies of them, and within 1e-5 those that
`export.py --train PREFIX 8` (PyTorch 2.13) printed in examples/fortran/ for
these copies: with a folder as a fifth word, they are written there as
windows.stencil and windows.correction.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
from patience import PATIENCE  # noqa: E402

STEPS, ROWS, WIDTH = 8, 64, 5
BY_PYTORCH = [
    0.5944013893604279, 0.3803468644618988, 0.13210470601916313,
    0.08523399196565151, 0.18175670504570007, 0.19954324513673782,
    0.20244894176721573, 0.1647646650671959]
OPTIONS = ["microbatches=2", "optimizer=adamw", "lr=1e-2", "threads=1",
           "ranks=2"]


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          timeout=PATIENCE)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def write_copies(folder):
    """Writes the rows of all steps. Returns the files."""
    series = [(abs(k % 32 - 16) + abs(k % 24 - 12)) / 16
              for k in range(STEPS * ROWS + WIDTH)]
    files = []
    for name, first, width in ("stencil", 0, WIDTH), ("correction", WIDTH, 1):
        files.append(os.path.join(folder, "windows." + name))
        with open(files[-1], "wb") as file:
            for row in range(STEPS * ROWS):
                file.write(struct.pack(f"<{width}f", *series[
                    row + first:row + first + width]))
    return files


def main():
    cxx, library, drive, root = (
        os.path.abspath(word) for word in sys.argv[1:5])
    if len(sys.argv) > 5:
        write_copies(sys.argv[5])
    folder_of = os.path.dirname(library)
    model = os.path.join(root, "examples", "fortran", "closure.pt2")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "windows")
        call(cxx, "-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror",
             "-pedantic", os.path.join(root, "examples", "cpp", "windows.cpp"),
             "-I", os.path.join(root, "include"), "-L", folder_of, "-lpenstock",
             "-Wl,-rpath," + folder_of, "-o", program)
        losses = [float(x) for x in re.findall(
            r"^step \d+: loss (\S+)$", call(program, model, str(STEPS)), re.M)]
        out = call(drive, "open", model, "stages=2", "session", *OPTIONS,
                   "data", *write_copies(folder), "train", "arrays",
                   str(STEPS))
        in_c = [float.fromhex(x) for x in re.findall(r"^loss (\S+)$", out,
                                                     re.M)]
    assert len(losses) == STEPS and losses == in_c, (losses, in_c)
    for ours, theirs in zip(losses, BY_PYTORCH, strict=True):
        assert abs(ours / theirs - 1) < 1e-5, (losses, BY_PYTORCH)


main()
