#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints of runs in the library, saves them, and resumes the runs.

usage: with_runs.py ROOT LIBRARY PENSTOCK

A session that has made no step saves the position in the data that it has
loaded, so that the run goes on as if it had not been there. If it has made
steps, with rows of its own, the resume says that the position is unknown.
"""
import array
import filecmp
import os
import shutil
import struct
import sys
import tempfile

ROOT, LIBRARY, PENSTOCK = map(os.path.abspath, sys.argv[1:4])
sys.path[:0] = [os.path.join(os.path.dirname(LIBRARY), "python"),
                os.path.join(ROOT, "tests", "daemon")]
sys.dont_write_bytecode = True
import penstock  # noqa: E402
import tensor_file  # noqa: E402
from job import Bench  # noqa: E402

MODEL = os.path.join(ROOT, "tests", "golden", "order.pt2")
ROWS = 4  # of a microbatch


def run(b, folder, steps, *more):
    """Trains with two microbatches, and five from step 4 on."""
    return b.done("run", MODEL, "--stages", "1", "-n", "1", "--transport",
                  "self", "--threads", "1", "--optimizer", "adamw", "--lr",
                  ".01", "-m", "2:0,5:4", "--data", "rows.safetensors",
                  "--checkpoint", folder, "--steps", steps, "--quiet",
                  "--dump", folder + ".dump", *more)


def main():
    penstock.load(LIBRARY)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(PENSTOCK, folder) as b:
        n = 40 * ROWS
        tensor_file.save(b.path("rows.safetensors"), {
            name: ("I64", [n], struct.pack(f"<{n}q", *(
                (k * k + k // 3) % high for k in range(n))))
            for name, high in (("word", 16), ("label", 5))})
        run(b, "plain", 6)
        for name in "saved", "trained":
            shutil.copytree(b.path("plain"), b.path(name))
        given = array.array("q", [3, 1, 15, 9]), array.array("q", [0, 4, 2, 1])
        with penstock.Model(MODEL) as model, \
                model.session(lr=.01, threads=1) as session:
            assert session.load(b.path("saved")) == 6
            session.save(b.path("saved"))
            assert session.load(b.path("trained")) == 6
            session.train_step(*given)
            session.save(b.path("trained"))
        for name in "plain", "saved":
            said = run(b, name, 9, "--resume").stderr
            assert "position in the data" not in said, said
        assert filecmp.cmp(b.path("plain.dump"), b.path("saved.dump"), False)
        # The warning is of the first resume: the run then knows its place.
        for steps, known in ("9", False), ("10", True):
            said = run(b, "trained", steps, "--resume").stderr
            assert ("position in the data was unknown (a program made the "
                    "steps after step 6," in said) != known, said
    print("ok")


main()
