#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `run MODEL.pt2` prints the notes of `split MODEL.pt2`, once.

usage: notes.py PENSTOCK UNREAD.pt2

With --quiet `run` prints none. For a plan `run` prints none either, since split
has printed them.
"""
import os
import sys
import tempfile

from job import Bench


def notes(text):
    return sorted(x for x in text.splitlines() if x.startswith("note: "))


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(penstock, folder)
        want = notes(b.said("split", model, "-o", "plan"))
        assert len(want) > 2, want
        # The data file does not exist, so the run ends after it has printed
        # the notes.
        for words, expected in (([model], want), ([model, "--quiet"], []),
                                (["plan"], [])):
            done = b.done("run", *words, "--data", "none.safetensors",
                          "--transport", "self", code=None)
            assert done.returncode != 0
            assert notes(done.stderr) == expected, (words, done.stderr)
    print("ok")


if __name__ == "__main__":
    main()
