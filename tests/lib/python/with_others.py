#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other programs change the checkpoint folder of a session.

usage: with_others.py ROOT LIBRARY PENSTOCK

A session saves only to a folder that is as it has left it: a job may have gone
back since (--resume=STEP), another session may have replaced the checkpoint of
the same step, and the session may have gone on with another run. It loads only
what is in the past of the run, and if it goes back itself, it forgets the
evaluations of the steps that it leaves, like a job.
"""
import array
import math
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
ROWS = 40
GIVEN = array.array("q", [3, 1, 15, 9]), array.array("q", [0, 4, 2, 1])


def run(b, folder, steps, *more):
    return b.done("run", MODEL, "--stages", "1", "-n", "1", "--transport",
                  "self", "--threads", "1", "--lr", ".01", "-m", "2", "--data",
                  "rows.safetensors", "--checkpoint", folder, "--steps", steps,
                  "--checkpoint-every", "2", "--keep", "9", "--quiet", *more)


class Session:
    """A session with a model of its own, since a model has one at a time."""

    def __init__(self, **options):
        self.said = []
        self.model = penstock.Model(MODEL)
        self.session = self.model.session(
            lr=.01, threads=1, keep=9, message=self.said.append, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.close()
        self.model.close()

    def train(self, n=1):
        for _ in range(n):
            self.session.train_step(*GIVEN)

    def refused(self, b, folder, *words):
        """The session cannot save there, and changes nothing there."""
        before = content(b, folder)
        try:
            self.session.save(b.path(folder))
        except penstock.Error as error:
            assert error.id == "checkpoint.other-run", error
            assert all(word in error.text for word in words), error.text
            assert "penstock_load" in error.text, error.text
        else:
            raise AssertionError(f"saved to {folder}")
        assert content(b, folder) == before


def content(b, folder):
    """The files of the checkpoints and evaluations, with their times."""
    found = {}
    for path, _, names in os.walk(b.path(folder)):
        for name in names:
            at = os.path.join(path, name)
            if name not in ("owner.json", "lock"):
                found[at] = os.stat(at).st_mtime_ns
    return found


def steps(b, *folder):
    return sorted(int(name[5:]) for name in os.listdir(b.path(*folder))
                  if name.startswith("step-"))


def goes_back(b):
    """A job goes back while a session is open, with and without a later save."""
    for name, end, saved in ("trained", 3, [2, 3]), ("idle", 2, [2]):
        run(b, name, 6)
        with Session() as s:
            assert s.session.load(b.path(name)) == 6
            run(b, name, end, "--resume=2")
            assert steps(b, name) == saved
            for _ in range(2):
                s.train()
                s.refused(b, name, "has gone back to step 2")
            # Another program may go on with the folder.
            run(b, name, 4, "--resume")
            assert s.session.load(b.path(name)) == 4
            s.train()
            s.session.save(b.path(name))
        rows = b.done("checkpoints", name).stdout
        assert "past of the run" not in rows, rows
        assert "position in the data was unknown" in run(
            b, name, 6, "--resume").stderr
    with Session() as s:  # the run is the session's, which saves elsewhere, too
        s.train(2)
        s.session.save(b.path("own"))
        s.train(2)
        s.session.save(b.path("own"))
        s.session.save(b.path("elsewhere"))
        run(b, "own", 3, "--resume=2")
        s.refused(b, "own", "has gone back to step 2")
        s.train()
        s.refused(b, "own", "has gone back to step 2")
        s.session.save(b.path("elsewhere"))


def other_run(b):
    """A session that has saved to the folder of a run goes on with another."""
    for name in "a", "b":
        run(b, name, 4)
    with Session() as s:
        assert s.session.load(b.path("a")) == 4
        s.train()
        s.session.save(b.path("a"))
        assert s.session.load(b.path("b")) == 4
        for _ in range(2):
            s.train()
            s.refused(b, "a", "of another run")
        s.session.save(b.path("b"))
        assert s.session.load(b.path("a")) == 5
        s.train()
        s.session.save(b.path("a"))


def same_step(b):
    """Two sessions change the same checkpoint."""
    run(b, "same", 4)
    with Session() as late:
        assert late.session.load(b.path("same")) == 4
        weight = late.model.parameters[0]
        sevens = array.array("f", [7] * math.prod(weight.shape))
        with Session() as quick:
            assert quick.session.load(b.path("same")) == 4
            quick.session.set(weight.name, sevens)
            quick.session.save(b.path("same"))
            quick.session.save(b.path("same"))
        late.refused(b, "same", "replaced the checkpoint of step 4")
        late.train()
        late.refused(b, "same", "replaced the checkpoint of step 4")
        assert late.session.load(b.path("same")) == 4
        found = array.array("f", [0] * len(sevens))
        late.session.get(weight.name, out=found)
        assert found == sevens
        late.session.save(b.path("same"))


def left(b):
    """A checkpoint that the run has left is not loaded, and is moved away."""
    run(b, "left", 6)
    run(b, "left", 3, "--resume=2")
    os.rename(b.path("left", "former-1", "step-00000006"),
              b.path("left", "step-00000006"))
    shutil.copytree(b.path("left"), b.path("alone"))
    with Session() as s:
        assert s.session.load(b.path("left")) == 3
        assert "step-00000006: is not in the past of the run" in s.said[0]
        s.train()
        s.session.save(b.path("left"))
        assert "up to step 6, are now in " in s.said[-1], s.said
    assert steps(b, "left") == [2, 3, 4]
    assert steps(b, "left", "former-2") == [6]
    for step in 2, 3:
        shutil.rmtree(b.path("alone", f"step-{step:08}"))
    with Session() as s:
        try:
            s.session.load(b.path("alone"))
        except penstock.Error as error:
            assert error.id == "checkpoint.none", error
            assert "in the past of the run" in error.text, error.text
        else:
            raise AssertionError("a checkpoint that was left is loaded")


def evaluations(b):
    """A session goes back in the folder of a run with evaluations."""
    more = ("--eval-data", "rows.safetensors", "--eval-every", "2",
            "--keep-best")
    run(b, "evals", 4, *more)
    shutil.copytree(b.path("evals"), b.path("early"))
    run(b, "evals", 8, "--resume", *more)
    shutil.copytree(b.path("evals"), b.path("job"))
    with Session() as s:
        assert s.session.load(b.path("evals")) == 8
        assert s.session.load(b.path("early")) == 4
        s.session.save(b.path("evals"))
        assert any("best checkpoints of steps that the run has left" in text
                   for text in s.said), s.said
    run(b, "job", 4, "--resume=4", *more)
    for name in "evals", "job":
        assert steps(b, name) == [2, 4], name
        assert steps(b, name, "former-1") == [6, 8], name
        assert not set(steps(b, name, "best")) - {4}, name
        assert steps(b, name, "best", "former-1") == [8], name
        with open(b.path(name, "evaluations"), encoding="utf-8") as file:
            found = [line.split()[0] for line in file]
        assert found[-2:] == ["2", "4"], (name, found)


def main():
    penstock.load(LIBRARY)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(PENSTOCK, folder) as b:
        tensor_file.save(b.path("rows.safetensors"), {
            name: ("I64", [ROWS], struct.pack(f"<{ROWS}q", *(
                (k * k + k // 3) % high for k in range(ROWS))))
            for name, high in (("word", 16), ("label", 5))})
        goes_back(b)
        other_run(b)
        same_step(b)
        left(b)
        evaluations(b)
    print("ok")


main()
