#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that commands that cut a MODEL.pt2 print the notes of `split
MODEL.pt2`, once.

usage: notes.py PENSTOCK UNREAD.pt2

With --quiet `run` prints none. For a plan they print none either, since split
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
        data = "--data", "none.safetensors"
        for words in (("eval", *data), ("infer", *data, "-o", "o.safetensors"),
                      ("verify", *data), ("plan",)):
            for path, expected in (model, want), ("plan", []):
                done = b.done(words[0], path, *words[1:], code=None)
                assert notes(done.stderr) == expected, (words, done.stderr)
    print("ok")


if __name__ == "__main__":
    main()
