#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluations and best checkpoints in a folder belong to one run.

usage: best.py PENSTOCK NORM.pt2

copied   no run takes the folder `best` of another run; a copy of it is a
         folder to resume from
"""
import glob
import os
import shutil
import sys
import tempfile

import evaluate
import saves

KEEP = "--keep-best", "--checkpoint-every", "3"


class Bench(saves.Bench):
    def train(self, name, *more, **options):
        """Trains with evaluations in the folder `name`."""
        return self.evaluated("log-" + name, "--checkpoint", name, *KEEP,
                              *more, **options)

    def plain(self, name, *more, code=0):
        """Trains without evaluations."""
        return self.call(*self.words("log-" + name, "--checkpoint", name,
                                     *more), code=code)

    def tree(self, name):
        """Returns the bytes of all files below a folder."""
        return {os.path.join(folder, file): self.bytes_of(
            os.path.join(folder, file))
                for folder, _, files in os.walk(self.path(name))
                for file in files}

    def saved(self, *names):
        return sorted(map(os.path.basename,
                          glob.glob(self.path(*names, "step-*"))))


def copied(b):
    _, said = b.train("ck")
    best = f"step-{said['best_step']:08d}"
    before = b.tree("ck")
    os.symlink(b.path("ck"), b.path("link"))
    os.symlink(b.path("ck/best"), b.path("other-name"))
    for name in ("ck/best", "ck/best/", f"{b.path('ck')}//best", "link/best",
                 "other-name"):
        for more in ((), ("--resume",), ("--adopt",)):
            text = b.call(*b.words("log-no", "--checkpoint", name, *more),
                          code=78)
            assert "cp -r" in text and "checkpoint.folder" in text, text
        b.call(*b.words("log-no", "--checkpoint", "free",
                        "--checkpoint-fallback", name), code=78)
    assert b.tree("ck") == before
    assert b.alone("norm.plan", "other", "ck/best")["step"] == said["best_step"]
    shutil.copytree(b.path("ck/best"), b.path("copy"))
    found, _ = b.train("copy", "--resume", "--steps", "18")
    assert found[0][0] > said["best_step"] and found[-1][0] == 18, found
    resumed, = b.events("log-copy", "resume", "rank-0")
    assert f"step={said['best_step']} " in resumed, resumed
    assert b.saved("ck/best") == [best]
    # Not a folder of a run: nobody else writes to it.
    b.plain("runs/best")


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with Bench(penstock, norm, None, "self", folder) as b:
            copied(b)
    print("ok")


if __name__ == "__main__":
    main()
