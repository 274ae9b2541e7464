#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints of runs in the library, saves them, and resumes the runs.

usage: with_runs.py ROOT LIBRARY PENSTOCK

A session that has made no step saves the position in the data that it has
loaded, so that the run goes on as if it had not been there. If it has made
steps, with rows of its own, the resume says that the position is unknown.
Averages (--ema) that a session does not keep are dropped with a message, and
the resume says it, too.
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


def averages(b):
    """A session with --ema hands the averages on, one without says that it
    drops them, and what it saves does not claim to have any."""
    run(b, "whole", 6, "--ema", ".9")
    for name in "with", "without", "dropped":
        shutil.copytree(b.path("whole"), b.path(name))
    for name, options in ("with", {"ema": .9}), ("without", {}):
        said = []
        with penstock.Model(MODEL) as model, model.session(
                lr=.01, threads=1, message=said.append, **options) as session:
            assert session.load(b.path(name)) == 6
            session.save(b.path(name))
        text = "\n".join(said)
        assert ('averages are dropped, since there is no "ema" now' in text) \
            == (not options), said
    for name in "whole", "with":
        said = run(b, name, 9, "--ema", ".9", "--resume").stderr
        assert "average" not in said and "--ema was" not in said, said
    assert filecmp.cmp(b.path("whole.dump"), b.path("with.dump"), False)
    said = run(b, "without", 9, "--ema", ".9", "--resume").stderr
    assert "--ema was 0 in the run that saved this checkpoint, and is 0.9 " \
        "now" in said, said
    assert "begin with the values of the checkpoint" in said, said
    said = run(b, "dropped", 9, "--resume").stderr
    assert "--ema was 0.9 in the run" in said, said
    assert "averages are dropped" in said, said


def options(b):
    """The options of a session that has made steps are those that a resume is
    compared with."""
    given = array.array("q", [3, 1, 15, 9]), array.array("q", [0, 4, 2, 1])
    with penstock.Model(MODEL) as model, model.session(
            lr=.02, threads=1, clip_norm=.5) as session:
        session.train_step(*given)
        session.save(b.path("own"))
    said = run(b, "own", 2, "--resume").stderr
    assert "--lr was 0.02 in the run that saved this checkpoint, and is 0.01 " \
        "now" in said and "--clip-norm was 0.5 " in said, said


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
        averages(b)
        options(b)
    print("ok")


main()
