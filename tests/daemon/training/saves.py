#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that checkpoints are saved while steps continue, and that each client
gets the result of the save that it has requested.

usage: saves.py PENSTOCK NORM.pt2 self|mpi

asked   `penstock checkpoint` waits for the save that it requested, not for one
        that was already running, and so does `pause`; a save in a pause works
        at once
best    --keep-best does not make steps wait; one copy serves it and the
        checkpoint of the same step
often   --checkpoint-cost: saves happen by themselves, and their cost is
        reported
again   a save that fails in one folder goes to the other, with the state of
        its own step, although later steps have run
noted   such a save records the run's options, also with --on-spike
copied  a copy of a run's folder may not save into the second folder of that run
moved   a run whose folder was moved away does not touch files that another run
        has made at the same path
spoilt  a checkpoint with a NaN is reported as bad
refused both folders are unwritable for a while: steps continue, also with
        --shard and --keep-best, and the next save works normally
memory  `penstock plan` predicts the memory that evaluations reserve
"""
import ctypes
import json
import os
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402
from patience import PATIENCE, wait_until  # noqa: E402

SLOW_MS = 1500
AT_FDCWD = -100
RENAME_EXCHANGE = 2


class Bench(eval_job.Bench):
    def lines(self, log, rank=0):
        path = self.path(f"{log}/rank-{rank}.log")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [dict(re.findall(r"(\w+)=(\"[^\"]*\"|\S*)", line))
                    for line in file]

    def number_of(self, log, event, step):
        """Returns the line number of an event of a step in the log, or
        None."""
        for i, line in enumerate(self.lines(log)):
            if line["event"] == event and step in (
                    None, int(line.get("step", -1))):
                return i
        return None

    def await_line(self, log, event, step):
        until = time.monotonic() + PATIENCE
        while self.number_of(log, event, step) is None:
            assert time.monotonic() < until, (log, event, step)
            time.sleep(.01)


def check_requested_save(b):
    """Requests a save while the periodic save of step 5, which is slow, is
    running."""
    job = b.begin(*b.words("log-asked", "--job", "asked", "--checkpoint", "ck",
                           "--checkpoint-every", "5", "--steps", "1000000000",
                           "--log-every", "1"),
                  PENSTOCK_FAULT=f"shard:1:{SLOW_MS}",
                  PENSTOCK_FAULT_RANK="0")
    b.await_line("log-asked", "step", 6)
    assert b.number_of("log-asked", "checkpoint_saved", 5) is None, "too fast"
    said = json.loads(b.call("checkpoint", "--job", "asked", "--json"))
    assert said["asked"] == 1 and said["step"] > 6, said
    assert said["stall_s"] > 0, said
    paused(b)
    b.call("stop", "--job", "asked")
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 130, job.returncode
    saved = [x for x in b.lines("log-asked")
             if x["event"] == "checkpoint_saved"]
    assert [x["asked"] for x in saved if x["step"] == str(said["step"])] \
        == ["1"], saved
    assert any(x["step"] == "5" and x["asked"] == "0" for x in saved), saved


def paused(b):
    """Calls `checkpoint` at several times after `pause` was accepted: before
    the pause begins and during it. The job stays paused."""
    for wait in 0, 0, .001, .002, .005, .01, .05:
        b.call("pause", "--job", "asked", "--detach")
        time.sleep(wait)
        saved = json.loads(b.call("checkpoint", "--job", "asked", "--json"))
        at = json.loads(b.call("pause", "--job", "asked", "--json"))
        said = b.call("pause", "--job", "asked")  # the job is already paused
        assert f"paused after step {at['step']};" in said, said
        assert saved["asked"] == 1 and saved["step"] <= at["step"], (saved, at)
        again = json.loads(b.call("checkpoint", "--job", "asked", "--json"))
        assert again["step"] == at["step"], (again, at)
        assert os.path.exists(b.path(f"ck/step-{at['step']:08d}/manifest.json"))
        # trace must return although no step runs.
        b.done("trace", "--job", "asked", "--json", code=None)
        b.call("resume", "--job", "asked")


def check_save_share(b):
    job = b.begin(*b.words("log-often", "--job", "often", "--checkpoint", "own",
                           "--checkpoint-cost", "20", "--steps", "1000000000"),
                  PENSTOCK_FAULT="step:1+:2")  # sleeps, computes less
    until = time.monotonic() + PATIENCE
    saved = []
    while len(saved) < 3:
        assert time.monotonic() < until, saved
        time.sleep(.05)
        saved = [x for x in b.lines("log-often")
                 if x["event"] == "checkpoint_saved"]
    b.call("stop", "--job", "often")
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 130, job.returncode
    steps = [int(x["step"]) for x in saved]
    assert steps == sorted(steps) and steps[0] > 3, steps
    for line in saved:
        assert line["asked"] == "0", line
        assert float(line["cost_s"]) >= float(line["stall_s"]) * .999, line
    for more in (("--checkpoint-every", "3", "--checkpoint", "own"), ()):
        said = b.call(*b.words("log-refused", "--checkpoint-cost", "3", *more),
                      code=64)
        assert "--checkpoint-cost" in said, said


def best(b):
    """Checks that steps do not wait until the checkpoint of step 3, which has
    the best evaluation, is written."""
    for name, more in ("alone", ()), ("both", ("--checkpoint-every", "3")):
        log = f"log-best-{name}"
        job = b.begin(*b.words(log, "--job", name, "--eval-data",
                               "other.safetensors", "--eval-every", "3",
                               "--checkpoint", f"best-{name}", "--keep-best",
                               "--log-every", "1", *more),
                      PENSTOCK_FAULT=f"shard:1:{SLOW_MS}",
                      PENSTOCK_FAULT_RANK="0")
        out, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == 0, (out, err)
        at = b.number_of(log, "best_saved", 3)
        assert at is not None, b.lines(log)
        assert b.number_of(log, "step", 5) < at, b.lines(log)
        if more:
            first = b.number_of(log, "checkpoint_saved", 3)
            assert b.number_of(log, "step", 5) < first < at, b.lines(log)
        folder, = os.listdir(b.path(f"best-{name}/best"))
        assert os.path.exists(b.path(f"best-{name}/best", folder,
                                     "manifest.json"))


def check_fallback(b):
    """Puts plain files at the paths of steps 5 and 10 in the first folder, so
    that these saves go to the second folder."""
    os.mkdir(b.path("again-a"))
    for step in 5, 10:
        with open(b.path("again-a", f"step-{step:08}"), "x", encoding="utf-8"):
            pass
    b.call(*b.words("log-again", "--checkpoint", "again-a",
                    "--checkpoint-fallback", "again-b", "--checkpoint-every",
                    "5", "--keep", "0", "--steps", "13", "--log-every", "1"))
    saved = [(int(x["step"]), os.path.basename(x["dir"]))
             for x in b.lines("log-again") if x["event"] == "checkpoint_saved"]
    assert saved == [(5, "again-b"), (10, "again-b"), (13, "again-a")], saved
    for step, folder in saved:
        assert os.path.exists(b.path(folder, f"step-{step:08}",
                                     "manifest.json")), (step, folder)
    assert b.number_of("log-again", "step", 6) < b.number_of(
        "log-again", "checkpoint_saved", 5), b.lines("log-again")


def noted(b):
    """The first folder cannot be made, so that a save that should begin beside
    the steps is made between them: it has the options and what --on-spike
    compares."""
    b.call(*b.words("log-noted", "--checkpoint", "again-a/step-00000005/ck",
                    "--checkpoint-fallback", "noted", "--checkpoint-every", "3",
                    "--on-spike", "skip", "--keep", "0", "--steps", "8"))
    for step in 3, 6, 8:
        with open(b.path(f"noted/step-{step:08}/manifest.json"),
                  encoding="utf-8") as file:
            options = json.load(file)["options"]
        assert options["--on-spike"] == "skip", (step, options)
        assert options["spikes.loss"].startswith(f"{step} "), (step, options)


def unnamed(b):
    """Checks that a second folder is refused if its name is not UTF-8, since
    the file in the first folder that records the name is JSON."""
    said = b.call(*b.words("log-unnamed", "--checkpoint", "unnamed",
                           "--checkpoint-fallback",
                           os.fsdecode(b.path("fall").encode() + b"\xff")),
                  code=78)
    assert "is not UTF-8" in said and "checkpoint.folder" in said, said


def copied(b):
    """Checks that a copy of a run's folder does not share its second folder,
    and that it may have a copy of that one; a renamed folder is no copy."""
    b.call(*b.words("log-copied", "--checkpoint", "run", "--steps", "3",
                    "--checkpoint-fallback", "run-2"))

    def resume(folder, steps, *more, code=0):
        return b.call(*b.words(f"log-{folder}", "--checkpoint", folder,
                               "--steps", str(steps), "--resume", *more),
                      code=code)
    shutil.copytree(b.path("run"), b.path("copy"))
    for more in [], ["--checkpoint-fallback", "run-2"]:
        said = resume("copy", 5, *more, code=78)
        assert "checkpoint.other-run" in said and "run-2 DIR" in said, said
    shutil.copytree(b.path("run-2"), b.path("copy-2"))
    resume("copy", 5, "--checkpoint-fallback", "copy-2")
    resume("run", 4)
    os.rename(b.path("run"), b.path("renamed"))
    resume("renamed", 6)
    resume("copy", 7)


def moved(b):
    job = b.begin(*b.words("log-moved", "--job", "moved", "--checkpoint",
                           "there", "--keep", "1", "--steps", "1000000000",
                           "--log-every", "1000000", "--checkpoint-fallback",
                           "second"))
    b.await_line("log-moved", "train_begin", None)
    b.call("checkpoint", "--job", "moved")
    os.rename(b.path("there"), b.path("there.old"))
    b.call(*b.words("log-new", "--seed", "9", "--checkpoint", "there"))
    said = json.loads(b.call("checkpoint", "--job", "moved", "--json"))
    assert said["dir"].endswith("second"), said
    b.call("stop", "--job", "moved")
    job.communicate(timeout=PATIENCE)
    failed = [x for x in b.lines("log-moved")
              if x["event"] == "checkpoint_failed"]
    assert any("moved away" in x["text"] for x in failed), failed
    steps = [x for x in os.listdir(b.path("there")) if "step-" in x]
    assert steps == [f"step-{eval_job.STEPS:08}"], steps


def exchange(a, b):
    """Swaps two folders atomically. Two moves would not do: the running job
    would make the missing folder again in between."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, a.encode(), AT_FDCWD, b.encode(),
                      RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2", a)


def block_path(path, how):
    old = path + ".old"
    if how == "file":
        with open(old, "x", encoding="utf-8"):
            pass
    else:
        os.symlink("/proc/self", old)
    exchange(path, old)


def restore_path(path):
    exchange(path, path + ".old")
    os.unlink(path + ".old")


WAYS = {
    "plain": [],
    "shard": ["-n", "2x1", "--shard", "zero1"],
    "best": ["--keep-best", "--eval-data", "other.safetensors", "--eval-every",
             "40"],
}


def refused(b):
    for way, words in WAYS.items():
        name, log = f"refused-{way}", f"log-refused-{way}"
        job = b.begin(*b.words(log, "--job", name, "--checkpoint", f"{way}-a",
                               "--checkpoint-fallback", f"{way}-b",
                               "--checkpoint-every", "40", "--steps",
                               "1000000000", "--log-every", "20", *words))
        b.await_line(log, "checkpoint_saved", None)
        for how in "file", "proc":
            failed = sum(x["event"] == "checkpoint_failed" for x in b.lines(log))
            for folder in f"{way}-a", f"{way}-b":
                block_path(b.path(folder), how)
            until = time.monotonic() + PATIENCE
            while True:
                lines = b.lines(log)
                where = {x["dir"] for x in [
                    y for y in lines if y["event"] == "checkpoint_failed"
                ][failed:]}
                if all(any(d.endswith(f"{way}-{x}") for d in where)
                       for x in "ab"):
                    break
                assert job.poll() is None and time.monotonic() < until, lines
                time.sleep(.02)
            made = max(int(x["step"]) for x in lines if x["event"] == "step")
            b.await_line(log, "step", made + 80)
            for folder in f"{way}-a", f"{way}-b":
                restore_path(b.path(folder))
            # A save that has failed in the first folder before may still end
            # in the second one.
            wait_until(lambda: json.loads(b.call(
                "checkpoint", "--job", name, "--json"))["dir"].endswith(
                    f"{way}-a"), "a checkpoint in the first folder")
        b.call("stop", "--job", name)
        out = job.communicate(timeout=PATIENCE)
        assert job.returncode == 130, (job.returncode, out)
        rows = json.loads(b.call("checkpoints", f"{way}-a", "--verify",
                                 "--json"))["checkpoints"]
        assert rows and all(x["state"] == "good" for x in rows), rows


def check_bad_buffer(b):
    """Sets a buffer that no step reads to NaN. The loss stays finite, but no
    run can resume from later checkpoints."""
    run = b.begin(*b.words("log-spoilt", "--job", "spoilt", "--checkpoint",
                           "spoilt", "--checkpoint-every", "40", "--steps",
                           "1000000000", "--log-every", "20", "--quiet"))
    b.await_line("log-spoilt", "checkpoint_saved", None)
    b.call("pause", "--job", "spoilt")
    good = json.loads(b.call("checkpoint", "--job", "spoilt", "--json"))["step"]
    b.call("attr", "set", "norm.running_mean", "nan", "--job", "spoilt")
    for _ in range(2):  # the second has nothing new to save
        said = b.done("checkpoint", "--job", "spoilt", code=None)
        assert said.returncode == 74 and "not finite" in said.stderr, said
    b.call("resume", "--job", "spoilt")
    line = wait_until(lambda: [
        x for x in b.lines("log-spoilt")
        if x["event"] == "checkpoint_bad" and x["asked"] == "0"],
                      "a bad checkpoint that nobody asked for")[0]
    assert "running_mean" in line["text"], line
    assert line["id"] == "run.not-finite", line
    said = b.done("checkpoint", "--job", "spoilt", code=None)
    assert said.returncode == 74 and "is bad" in said.stderr, said
    status = json.loads(b.call("status", "--job", "spoilt", "--json"))
    assert "running_mean" in status["last_error"], status
    assert good <= status["checkpoint_step"] < status["step"], status
    b.call("stop", "--job", "spoilt")
    said = b.ended(run, code=130).stderr
    assert "warning: the checkpoint of step" in said, said


def memory(b):
    common = ["norm.plan", "-n", "2", "-m", "2", "--eval-data",
              "other.safetensors"]
    said = json.loads(b.call("plan", *common, "--json"))
    want = [rank["eval_bytes"] for rank in said["ranks"]]
    assert all(n > 0 for n in want), want
    assert "for --eval-data besides" in b.call("plan", *common)
    b.call(*b.words("log-memory", "--eval-data", "other.safetensors"))
    got = {}
    for rank in range(2 if b.transport == "mpi" else 1):
        for line in b.lines("log-memory", rank):
            if line["event"] == "eval_memory":
                got[int(line["of_rank"])] = int(line["arena"])
    assert [got[r] for r in sorted(got)] == want, (got, want)


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with Bench(penstock, norm, None, sys.argv[3], folder) as b:
            for part in (check_requested_save, check_save_share, best,
                         check_fallback, noted, unnamed, copied, moved, refused,
                         check_bad_buffer, memory):
                part(b)
    print("ok")


if __name__ == "__main__":
    main()
