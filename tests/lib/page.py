#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs of the documents against the library, and runs them.

usage: page.py CC LIBRARY PENSTOCK ROOT

The first program of docs/library.md trains tiny.pt2 as it stands in the page,
and leaves a checkpoint that the command reads; the second one prints what the
page says. examples/library/digits.c learns to tell digits apart in 60 steps.
"""
import gzip
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
from patience import PATIENCE  # noqa: E402


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          timeout=PATIENCE)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert done.stderr == "", done.stderr
    return done.stdout


def build(cc, library, root, source, program):
    folder = os.path.dirname(library)
    call(*cc.split(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic",
         source, "-I", os.path.join(root, "include"), "-L", folder,
         "-lpenstock", "-Wl,-rpath," + folder, "-o", program)
    return program


def losses(text):
    return [float(n) for n in re.findall(r"^step \d+: loss (.*)$", text, re.M)]


def page(cc, library, penstock, root, folder):
    with open(os.path.join(root, "docs", "library.md"),
              encoding="utf-8") as file:
        found = re.findall(r"```c\n(.*?)```\n\n((?:    [^\n]*\n)+)", file.read(),
                           re.S)
    programs = []
    for name, (program, _) in zip(["train", "share"], found, strict=True):
        source = os.path.join(folder, name + ".c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        programs.append(build(cc, library, root, source,
                              os.path.join(folder, name)))
    train, share = programs
    said = re.sub("^    ", "", found[1][1], flags=re.M)
    assert call(share) == said, (call(share), said)
    saved = os.path.join(folder, "checkpoint")
    got = losses(call(train, os.path.join(root, "tests", "golden", "tiny.pt2"),
                      saved))
    assert len(got) == 10 and got[-1] < got[0], got
    assert "10" in call(penstock, "checkpoints", saved).split()


def digits(cc, library, root, folder):
    here = os.path.join(root, "examples")
    program = build(cc, library, root, os.path.join(here, "library",
                                                    "digits.c"),
                    os.path.join(folder, "digits"))
    csv = os.path.join(folder, "digits.csv")
    with gzip.open(os.path.join(here, "digits", "digits.csv.gz")) as file:
        with open(csv, "wb") as out:
            out.write(file.read())
    text = call(program, os.path.join(root, "tests", "golden", "digits.pt2"),
                csv, "60")
    got = losses(text)
    right = float(re.search(r"^([\d.]+) % of the test digits", text, re.M)[1])
    assert got[0] > 2 and got[-1] < .5 and right > 85, text


def main():
    cc, library, penstock, root = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        page(cc, os.path.abspath(library), penstock, root, folder)
        digits(cc, os.path.abspath(library), root, folder)


main()
