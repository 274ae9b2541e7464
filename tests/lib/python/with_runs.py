#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints of runs in the library, saves them, and resumes the runs.

usage: with_runs.py ROOT LIBRARY PENSTOCK

A session that has made no step saves the position in the data that it has
loaded, so that the run goes on as if it had not been there. If it has made
steps, with rows of its own, the resume says that the position is unknown, and
goes on as if the run had made them, with its own batches.
Averages (--ema) that a session does not keep are dropped with a message, and
the resume says it, too.
"""
import array
import filecmp
import json
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
    """Trains with two microbatches, and five from step 4 on. A fractional
    number of steps is one of epochs."""
    return b.done("run", MODEL, "--stages", "1", "-n", "1", "--transport",
                  "self", "--threads", "1", "--optimizer", "adamw", "--lr",
                  ".01", "-m", "2:0,5:4", "--data", "rows.safetensors",
                  "--checkpoint", folder, "--quiet",
                  *(("--epochs", steps) if isinstance(steps, float)
                    else ("--steps", steps)),
                  "--dump", folder + ".dump", *more)


def place(b, folder, step):
    with open(b.path(folder, f"step-{step:08}", "manifest.json")) as f:
        return json.load(f)["data"]


def same(b, folder, other, step):
    assert place(b, folder, step) == place(b, other, step), folder
    read = [tensor_file.load(b.path(name, f"step-{step:08}",
                                    "rank-000.safetensors"))[0]
            for name in (folder, other)]
    assert read[0] == read[1], folder


def train(b, folder, begin, end, rows, ends):
    """Makes steps of the folder's run, or its first ones, in a session, with
    the rows that the run would draw."""
    for step in range(begin, end):
        drawn = range(ends[step - 1] if step > 0 else 0, ends[step])
        with penstock.Model(MODEL) as model, model.session(
                lr=.01, threads=1, optimizer="adamw",
                microbatches=len(drawn) // ROWS) as session:
            if step > begin or begin > 0:
                assert session.load(b.path(folder)) == step
            session.train_step(*(
                array.array("q", (rows[name][k % len(rows[name])]
                                  for k in drawn))
                for name in ("word", "label")))
            session.save(b.path(folder))


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


def in_between(b, rows):
    """Steps of sessions with the rows that the run would have taken, before and
    in its ramp, leave its bits as they are; so do those of two sessions."""
    last = 0  # rows of the run's steps: 2 microbatches, from step 4 on 5
    ends = [last := last + ROWS * (2 if step < 4 else 5) for step in range(12)]
    epochs = ends[11] / len(rows["word"])
    run(b, "all", 12)
    for name, first, stops in ("early", 2, (3,)), ("across", 3, (6,)), \
            ("twice", 5, (6, 8)):
        run(b, name, first)
        for begin, end in zip((first, *stops), stops):
            train(b, name, begin, end, rows, ends)
        # position before the steps of the sessions
        assert place(b, name, stops[-1])["since"] == stops[-1] - first
        # --epochs counts their steps
        said = run(b, name, epochs if name == "across" else 12,
                   "--resume").stderr
        assert f"steps after step {first}, with" in said, said
        assert "rows of a step" not in said, said
        same(b, name, "all", 12)
    # without a position, from the first row on
    train(b, "own", 0, 6, rows, ends)
    run(b, "own", 12, "--resume")
    same(b, "own", "all", 12)
    shutil.rmtree(b.path("own"))
    # A shuffled run goes on at the same position, whatever the session drew.
    run(b, "mixed", 12, "--shuffle")
    shuffled = place(b, "mixed", 12)
    shutil.rmtree(b.path("mixed"))
    run(b, "mixed", 3, "--shuffle")
    train(b, "mixed", 3, 6, rows, ends)
    run(b, "mixed", 12, "--resume", "--shuffle")
    assert place(b, "mixed", 12) == shuffled


def seconds(b, rows):
    """A checkpoint of the session's own step, which another program has made in
    the second folder of the run since the load, is not passed over."""
    run(b, "first", 6, "--checkpoint-fallback", b.path("spare"))
    run(b, "elsewhere", 7)
    for made in False, True:
        with penstock.Model(MODEL) as model, model.session(
                lr=.01, threads=1, optimizer="adamw") as session:
            assert session.load(b.path("first")) == 6 + made
            if made:
                os.rename(b.path("elsewhere", "step-00000007"),
                          b.path("spare", "step-00000007"))
            else:
                session.train_step(rows["word"][:ROWS], rows["label"][:ROWS])
            try:
                session.save(b.path("first"))
                assert not made
            except penstock.Error as error:
                assert made and "step 7, which another program has made" in \
                    str(error) and b.path("spare") in str(error), error


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
        rows = {name: [(k * k + k // 3) % high for k in range(n)]
                for name, high in (("word", 16), ("label", 5))}
        tensor_file.save(b.path("rows.safetensors"), {
            name: ("I64", [n], struct.pack(f"<{n}q", *values))
            for name, values in rows.items()})
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
        in_between(b, rows)
        seconds(b, {name: array.array("q", values)
                    for name, values in rows.items()})
        options(b)
    print("ok")


main()
