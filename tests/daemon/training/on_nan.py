#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --on-nan in runs with steps whose loss is NaN, or whose gradient would
make the optimizer's state overflow.

usage: on_nan.py PENSTOCK TINY.pt2 self|mpi
"""
import glob
import json
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

STEPS = 12


OUTLIER = 1e25  # its square overflows in f32


def write_data(path, bad, value=float("nan")):
    """Writes STEPS batches of inputs for tiny.pt2; batches in `bad` contain
    `value`."""
    tensor_file.save(path, {
        "tokens": ("I64", [4 * STEPS, 3],
                   struct.pack("<12q", *range(12)) * STEPS),
        "labels": ("I64", [4 * STEPS, 3], struct.pack(
            "<12q", *[(i + 1) % 16 for i in range(12)]) * STEPS),
        "extra.scale": ("F32", [16 * STEPS], b"".join(struct.pack(
            "<16f", *[value if step in bad and i == 11 else 1 + .05 * i
                      for i in range(16)]) for step in range(1, STEPS + 1))),
        "extra.pair.0": ("F32", [32 * STEPS], struct.pack(
            "<32f", *[.25 + .1 * (i % 7) for i in range(32)]) * STEPS)})


class Bench(job.Bench):
    def __init__(self, penstock, model, transport, folder):
        super().__init__(penstock, folder)
        self.transport, self.n = transport, 0
        os.symlink(model, f"{folder}/tiny.pt2")
        write_data(f"{folder}/none.safetensors", ())
        write_data(f"{folder}/first.safetensors", {1})
        write_data(f"{folder}/all.safetensors", set(range(1, STEPS + 1)))
        write_data(f"{folder}/one.safetensors", {6})
        write_data(f"{folder}/three.safetensors", {6, 7, 8})
        write_data(f"{folder}/far.safetensors", {6}, OUTLIER)
        write_data(f"{folder}/last.safetensors", {STEPS}, OUTLIER)

    def words(self, data, folder):
        self.n += 1
        return [
            "run", "tiny.pt2", "-n", "2", "-m", "2", "--data",
            f"{data}.safetensors", "--lr", "0.01", "--steps", STEPS,
            "--transport", self.transport, "--checkpoint", folder,
            "--checkpoint-every", "4", "--log-dir", f"log{self.n}", "--quiet"]

    def run(self, data, *words, code=0, folder=None):
        """Runs a job. Returns its standard error, its events, and its last
        checkpoint."""
        folder = folder or f"ck{self.n + 1}"
        done = self.done(*self.words(data, folder), *words, code=code)
        return (done.stderr, *self.found(folder))

    def run_frozen(self, data, *words):
        """Runs a job like run(), but freezes "fc" after the checkpoint of step
        5 and before step 6. A pause takes effect after the step that follows
        the current one."""
        folder = f"ck{self.n + 1}"
        self.done(*self.words(data, folder), "--steps", "3")
        run = self.begin(*self.words(data, folder), "--resume", *words,
                         "--checkpoint-every", "1", "--job", "frozen",
                         PENSTOCK_FAULT="F:1:3000")
        log = f"log{self.n}"
        self.await_event(log, "train_begin", "rank-0")
        self.call("pause", "--job", "frozen")
        at = self.await_event(log, "paused", "rank-0")
        assert job.field(at, "step") == "5", at
        self.await_event(log, "checkpoint_saved", "rank-0")
        self.call("freeze", "fc", "--job", "frozen")
        self.call("resume", "--job", "frozen")
        said = self.ended(run).stderr
        return (said, *self.found(folder))

    def log(self):
        """Returns the log of the newest run."""
        with open(self.path(f"log{self.n}", "rank-0.log"),
                  encoding="utf-8") as file:
            return file.read()

    def found(self, folder):
        events = re.findall(
            r" event=(step_skipped|rolled_back|update_partial) .* "
            r"step=(\d+)(?: (?:skipped|to)=(\d+))?", self.log())
        newest = sorted(glob.glob(f"{self.folder}/{folder}/step-*"))[-1]
        state = {}
        for path in glob.glob(newest + "/*.safetensors"):
            with open(path, "rb") as file:
                state[os.path.basename(path)] = file.read()
        return events, (os.path.basename(newest), state)


def partial(b):
    """Checks step 6, in which the loss is finite but squares of some gradients
    overflow: those parameters and their states keep their values, and no
    checkpoint becomes bad."""
    incomplete = ("update_partial", "6", "")
    for way, code, want in (
            ("stop", 65, [incomplete]), ("skip", 0, [incomplete]),
            ("rollback", 0, [incomplete, ("rolled_back", "6", "4"),
                             incomplete])):
        said, events, last = b.run("far", "--on-nan", way, code=code)
        assert events == want, (way, events)
        assert "the update of step 6 left" in said, said
        assert last[0] == f"step-{STEPS if code == 0 else 7:08d}", last[0]
        rows = json.loads(b.call("checkpoints", f"ck{b.n}", "--verify",
                                 "--json"))["checkpoints"]
        assert all(x["state"] == "good" for x in rows), rows
        if way == "skip":
            skipped = last
    assert last == skipped
    # The update is repeated also if a checkpoint of its step is due, or if it
    # is the last one.
    for data, step, to in ("far", "6", "3"), ("last", str(STEPS), "9"):
        incomplete = ("update_partial", step, "")
        said, events, last = b.run(data, "--on-nan", "rollback",
                                   "--checkpoint-every", "3")
        assert events == [incomplete, ("rolled_back", step, to),
                          incomplete], events
    # Without a checkpoint the update cannot be undone.
    said, events, last = b.run("far", "--on-nan", "rollback",
                               "--checkpoint-every", "9")
    assert events == [("update_partial", "6", ""),
                      ("rolled_back", "6", "7")], events
    assert "there is no checkpoint yet: the rest of its update stays" in \
        b.log(), b.log()
    assert last == skipped
    said, events, last = b.run("last", code=65)
    assert events == [incomplete], events
    said, events, last = b.run("last", "--on-nan", "skip")
    assert events == [incomplete], events


def check_first_step(b):
    """Checks that a first step that is repeated leaves no checkpoint or
    evaluation of step 0."""
    b.run("first", "--on-nan", "rollback", "--nan-limit", "9", "--keep", "0",
          "--eval-data", "none.safetensors", "--eval-every", "4", "--keep-best",
          folder="begun")
    for folder in "begun", "begun/best":
        assert not os.path.exists(b.path(folder, "step-00000000")), folder
    assert glob.glob(b.path("begun/best/step-*")), os.listdir(b.path("begun"))
    with open(b.path("begun/evaluations"), encoding="utf-8") as file:
        steps = [x.split()[0] for x in file.readlines()[1:]]
    assert steps == ["4", "8", "12"], steps


def all_left_out(b):
    """Checks that a run whose steps were all left out saves its last step,
    and that steps that a rollback makes again count once for --nan-limit."""
    said, events, last = b.run("all", "--on-nan", "skip", "--nan-limit", "99",
                               folder="left")
    assert last[0] == f"step-{STEPS:08d}" and len(events) == STEPS, events
    b.run("three", "--on-nan", "rollback", "--checkpoint-every", "5",
          "--nan-limit", "3")


def check_second_folder(b, want):
    """Checks that a rollback finds the checkpoints in the second folder if no
    run could ever take the first one."""
    os.makedirs(b.path("first", "lock"))
    _, events, back = b.run("one", "--on-nan", "rollback", "--checkpoint",
                            "first", "--checkpoint-fallback", "second",
                            folder="second")
    assert events == [("rolled_back", "6", "4"),
                      ("step_skipped", "6", "1")], events
    assert back == want


def check_next_run(b):
    """Checks that a second run of a job that stays, which resumes from a
    checkpoint, does not report the fault of the first run's last update for
    its own first step."""
    b.call("split", "tiny.pt2", "-o", "tiny.plan")
    b.call("up", "tiny.plan", "-n", "2", "--transport", b.transport, "--job",
           "stays", "--log-dir", "stays", "--detach")
    try:
        for steps, more, code in (STEPS, [], 65), (STEPS + 4, ["--resume"], 0):
            b.call("train", "--job", "stays", "-m", "2", "--data",
                   "last.safetensors", "--lr", "0.01", "--steps", steps,
                   "--checkpoint", "undone", "--quiet", *more, code=code)
    finally:
        b.call("stop", "--job", "stays")


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, sys.argv[3], folder) as b:
        _, events, clean = b.run("none")
        assert not events
        said, events, stopped = b.run("one", code=65)
        assert "step 6 was not applied: rank 1, stage 1, microbatch 1: the " \
            "loss is not a number" in said, said
        assert "; the first number that is not finite: rank 1, stage 1, " \
            "microbatch 1, the data of input 'extra.scale' has NaN in 1 of 8 " \
            "numbers, the first at [3]; microbatch 1 is rows 22 to 23 of " \
            "'tokens' in " in said, said
        assert not events and stopped[0] == "step-00000005"
        assert "ck2 is bad: no run can continue from it" in said, said
        assert len(b.events(f"log{b.n}", "checkpoint_bad", "rank-0")) == 1
        # The dumped microbatch fails on its own as well.
        b.run("one", "--dump-fault", "found.safetensors", "--resume",
              folder="ck2", code=65)
        said = b.done("run", "tiny.pt2", "-n", "1", "-m", "1", "--data",
                      "found.safetensors", "--steps", "1", "--quiet",
                      "--transport", "self", code=65).stderr
        assert "step 1 was not applied" in said, said
        said, events, skipped = b.run("one", "--on-nan", "skip")
        assert events == [("step_skipped", "6", "1")], events
        assert "it is left out" in said, said
        assert skipped[0] == clean[0] == f"step-{STEPS:08d}"
        assert skipped[1] != clean[1]
        # Rollback ends with the bits of a run that skipped the batch.
        _, events, back = b.run("one", "--on-nan", "rollback")
        assert events == [("rolled_back", "6", "4"),
                          ("step_skipped", "6", "1")], events
        assert back == skipped
        check_second_folder(b, skipped)
        # Without a checkpoint to roll back to, only the step itself is
        # repeated.
        _, events, back = b.run("one", "--on-nan", "rollback",
                                   "--checkpoint-every", "9")
        assert events == [("rolled_back", "6", "5"),
                          ("step_skipped", "6", "1")], events
        assert back == skipped
        # A change of the model after the newest checkpoint is not undone.
        _, events, frozen = b.run_frozen("one", "--on-nan", "skip")
        assert events == [("step_skipped", "6", "1")], events
        assert frozen[0] == skipped[0] and frozen[1] != skipped[1]
        _, events, back = b.run_frozen("one", "--on-nan", "rollback")
        assert events == [("rolled_back", "6", "5"),
                          ("step_skipped", "6", "1")], events
        assert back == frozen
        _, events, three = b.run("three", "--on-nan", "skip")
        assert [e[1:] for e in events] == [("6", "1"), ("7", "2"), ("8", "3")]
        _, events, back = b.run("three", "--on-nan", "rollback")
        assert back == three
        said, events, _ = b.run("three", "--on-nan", "skip", "--nan-limit",
                                "2", code=65)
        assert len(events) == 2 and "step 8 was not applied" in said, said
        # A stop and a resume in between change nothing.
        b.run("three", "--on-nan", "skip", "--steps", "7", folder="parts")
        _, events, again = b.run("three", "--on-nan", "skip", "--resume",
                                 folder="parts")
        assert again == three and len(events) == 1, events
        b.run("one", "--on-nan", "rollback", "--checkpoint-every", "0", code=64,
              folder="ck1")
        partial(b)
        check_first_step(b)
        all_left_out(b)
        check_next_run(b)
    print("ok")


if __name__ == "__main__":
    main()
