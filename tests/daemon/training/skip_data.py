#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --on-spike rollback,skip-data in runs that leave rows out.

usage: skip_data.py PENSTOCK TINY.pt2 self|mpi

first     without a checkpoint to go back to, with a change of the model after
          it, or if it was removed, the step is made again with the next rows,
          also with ranks that have no data (--data-at first)
epochs    --epochs does not count rows that were left out: a run that is killed
          and resumed has the steps, and the bits, of one that was not
more      a resume with more --epochs makes as many steps as the passes have
old       a manifest without the number of such rows is read as before; a wrong
          number is refused
"""
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import on_spike  # noqa: E402
from on_spike import BAD, FAR, STEPS  # noqa: E402

WORDS = ("--on-spike", "rollback,skip-data", "--spike-window", "6")
FALLS = *WORDS, "--lr-schedule", "cosine"


class Bench(on_spike.Bench):
    def __init__(self, *args):
        super().__init__(*args)
        on_spike.write_data(self.path("both.safetensors"), range(1, STEPS + 1),
                            {BAD: FAR, 12: float("nan")})

    def words(self, data, folder, *words, steps=STEPS, ranks=2):
        ret = super().words(data, folder, *words, steps=steps, ranks=ranks)
        if "--epochs" in words:
            at = ret.index("--steps")
            del ret[at:at + 2]
        return ret

    def steps(self):
        """Returns the number of steps of the newest job."""
        line = self.events(f"log{self.n}", "train_begin", "rank-0")[-1]
        return int(re.search(r" steps=(\d+) ", line)[1])

    def manifest(self, folder, step):
        return self.path(folder, f"step-{step:08d}", "manifest.json")

    def data_of(self, folder, step):
        with open(self.manifest(folder, step), encoding="utf-8") as file:
            return json.load(file)["data"]


def paused(b, way, at):
    """Returns weights and losses of a run that cannot go back to its checkpoint
    of step 6, because of what is done in a pause before the bad step."""
    folder = f"{way}-{at}"
    b.gate(0)
    if os.path.exists(b.path("gate.at")):  # of the job before
        os.remove(b.path("gate.at"))
    run = b.begin(*b.words("far", folder, *WORDS, "--data-at", at, "--job",
                           way), PENSTOCK_GATE=b.path("gate"))
    b.paused_after(BAD - 1, way)
    if way == "frozen":
        b.call("freeze", "fc", "--job", way)
    else:
        for step in 3, 6:
            shutil.rmtree(b.path(folder, f"step-{step:08d}"))
    b.gate(99)
    b.call("resume", "--job", way)
    b.ended(run)
    line, = b.events(f"log{b.n}", "rolled_back", "rank-0")
    assert f" to={BAD - 1} " in line and "step is made again" in line, line
    assert (way == "frozen") == ("model was changed" in line), line
    return b.weights(folder), b.losses(folder)


def first(b):
    found = {}
    for at in "all", "first":
        events, got = b.run("far", *WORDS, "--checkpoint-every", 100,
                            "--data-at", at)
        assert events == [("rolled_back", str(BAD), str(BAD - 1))], events
        found[at] = [(got, b.losses(b.folder_of)),
                     *(paused(b, way, at) for way in ("frozen", "removed"))]
    assert found["all"] == found["first"]
    none, frozen, removed = found["all"]
    assert none == removed != frozen


def epochs(b):
    ramp = "-m", "2:0,1:5,2:9,1:16"
    for name, data, words, kills in (
            ("even", "far", (), (9, 10, 11, 27)),
            ("ramp", "far", ramp, (11, 15, 30)),
            ("nan", "both", ("--on-nan", "rollback"), (13, 14, 27))):
        words = *FALLS, *words, "--epochs", "2"
        events, want = b.run(data, *words, folder=name)
        assert events[0] == ("rolled_back", str(BAD), "6") or name == "ramp"
        steps, losses = b.steps(), b.losses(name)
        assert name == "ramp" or steps == 2 * STEPS, steps
        assert b.data_of(name, steps)["left_out"] > 0
        for step in kills:
            folder = f"{name}-{step}"
            b.run(data, *words, folder=folder, code=None,
                  PENSTOCK_FAULT=f"step:{step}:kill")
            _, got = b.run(data, *words, "--resume", folder=folder, ranks=1)
            assert b.steps() == steps, (name, step, b.steps(), steps)
            assert b.losses(folder) == losses, (name, step)
            assert got == want, (name, step)


def more(b):
    """Runs of one, then two passes have the steps of one run of two."""
    b.run("far", *WORDS, "--epochs", "2", folder="whole")
    losses = b.losses("whole")
    b.run("far", *WORDS, "--epochs", "1", folder="parts")
    assert b.steps() == STEPS
    # 2 steps were left out, of 4 rows each.
    assert b.data_of("parts", STEPS)["left_out"] == 8
    assert "left_out" not in b.data_of("parts", 6)
    b.run("far", *WORDS, "--epochs", "1", "--resume", folder="parts")
    assert b.steps() == STEPS and b.losses("parts") == losses[:STEPS]
    b.run("far", *WORDS, "--epochs", "2", "--resume", folder="parts")
    assert b.steps() == 2 * STEPS, b.steps()
    # With half the batch the remaining pass has twice the steps.
    b.run("far", *WORDS, "--epochs", "3", "-m", "1", "--resume",
          folder="parts")
    assert b.steps() == 4 * STEPS, b.steps()


def write_manifest(b, folder, step, said):
    """Writes a manifest with the digest that its checkpoint needs, which the
    program names."""
    for digest in None, r"digest (\w{32}), it says 0{32}":
        if digest is not None:
            found = b.call("checkpoints", folder, "--json")
            said = {**said, "digest": re.search(digest, found)[1]}
        else:
            said = {**said, "digest": "0" * 32}
        with open(b.manifest(folder, step), "w", encoding="utf-8") as file:
            json.dump(said, file)


def old(b):
    with open(b.manifest("parts", STEPS), encoding="utf-8") as file:
        whole = json.load(file)
    # Without the number, rows that were left out are taken for used.
    for value, steps in (None, 2 * STEPS - 2), (8, 2 * STEPS), \
            (2 ** 62, 3 * STEPS), (-1, None), ("8", None):
        said = {**whole, "data": {**whole["data"], "left_out": value}}
        if value is None:
            del said["data"]["left_out"]
        write_manifest(b, "parts", STEPS, said)
        b.run("far", *WORDS, "--epochs", "2", f"--resume={STEPS}",
              folder="parts", code=65 if steps is None else 0)
        if steps is None:
            assert "'data' is missing or wrong" in b.stderr, b.stderr
        else:
            assert b.steps() == steps, (value, b.steps())


def main():
    penstock, model, transport = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(os.path.abspath(penstock), os.path.abspath(model),
                  transport, folder) as b:
        for test in first, epochs, more, old:
            test(b)
    print("ok")


if __name__ == "__main__":
    main()
