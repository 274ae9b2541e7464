#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --resume=auto in a folder whose last job died before its first
checkpoint: the run begins anew, under a new name, and its restarts go on from
its own checkpoints, never from those of other runs.

usage: resume_unsaved.py PENSTOCK TINY.pt2 self|mpi
"""
import glob
import os
import re
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job as jobs  # noqa: E402
from restart_job import EVERY  # noqa: E402
from up import Bench  # noqa: E402

AUTO = "--resume=auto"


def dead(b):
    """Returns a folder whose last job died before its first checkpoint."""
    name = b.fresh()
    b.call(*b.words(name), code=None,
           PENSTOCK_FAULT=f"updated:{EVERY // 2 * b.lanes}:kill")
    assert os.path.exists(b.path(name, "owner.json"))
    assert not glob.glob(b.path(name, "step-*"))
    return name


def restarted(b):
    """Checks the restarts if ranks die before they have taken the folder,
    before the first checkpoint and after the second one."""
    for point, step in (("load", 0), (f"updated:{EVERY // 2 * b.lanes}", 0),
                        (f"updated:{(2 * EVERY + 5) * b.lanes}", 2 * EVERY)):
        name = dead(b)
        env, _ = b.once(point)
        b.call(*b.words(name, AUTO, "--max-restarts", "2", "--log-dir",
                        name + "-log", "--checkpoint-sync"), **env)
        again, = b.events(name + "-log", "job_restart")
        assert int(jobs.field(again, "checkpoint_step")) == step, again
        assert b.weights(name) == b.want


def stays(b):
    """Checks the same restarts in a job that stays (`penstock up`)."""
    for point, step in ((f"updated:{EVERY // 2 * b.lanes}", 0),
                        (f"updated:{(2 * EVERY + 5) * b.lanes}", 2 * EVERY)):
        folder, name = dead(b), b.fresh()
        env, _ = b.once(point)
        b.up(name, **env)
        b.call(*b.train(name, folder, AUTO))
        again = b.await_event(name, "run_again", "rank-0")
        assert f" step={step} " in again, again
        assert b.weights(folder) == b.want
        b.down(name)


def kill_and_replace(b, supervisor, logs, folder, other):
    """Kills the ranks, and puts the folder of another run in the place of the
    job's before it is started again."""
    os.kill(supervisor, signal.SIGSTOP)
    for pid in b.pids(logs):
        os.kill(pid, signal.SIGKILL)
    b.nothing_left(b.pids(logs))
    os.rename(b.path(folder), b.path(folder + "-was"))
    os.rename(b.path(other), b.path(folder))
    os.kill(supervisor, signal.SIGCONT)


def foreign(b):
    """Checks that a run whose folder another run has taken is not started
    again: before its first checkpoint or later, in a folder that was new or
    not."""
    for known, event in (True, "train_begin"), (False, "checkpoint_saved"):
        supervised(b, dead(b) if known else b.fresh(), event)
        check_staying_job(b, dead(b) if known else b.fresh(), event)
    not_resumed(b)


SLOW = {"PENSTOCK_FAULT": "step:1+:50"}


def supervised(b, folder, event):
    logs, other = folder + "-log", b.fresh()
    b.call(*b.words(other))
    run = b.begin(*b.words(folder, AUTO, "--max-restarts", "2", "--log-dir",
                           logs, steps=10 ** 6), **SLOW)
    b.await_event(logs, event, "rank-0")
    kill_and_replace(b, run.pid, logs, folder, other)
    said = b.ended(run, code=78).stderr
    assert "another run has taken the checkpoint folder" in said, said
    assert b.weights(folder) == b.want


def check_staying_job(b, folder, event):
    name, other = b.fresh(), b.fresh()
    b.call(*b.words(other))
    said = b.call("up", "tiny.plan", "-n", "2", "--transport", b.transport,
                  "--job", name, "--log-dir", name, "--detach", **SLOW)
    b.call(*b.train(name, folder, AUTO, "--detach", steps=10 ** 6))
    b.await_event(name, event, "rank-0")
    kill_and_replace(b, int(re.search(r"process (\d+) supervises", said)[1]),
                     name, folder, other)
    given_up = b.await_event(name, "run_given_up", "rank-0")
    assert "id=checkpoint.other-run" in given_up, given_up
    assert b.weights(folder) == b.want
    b.down(name)


def not_resumed(b):
    """Checks the same in a job that stays, for a run without --resume."""
    folder, name, other = b.fresh(), b.fresh(), b.fresh()
    b.call(*b.words(other))
    said = b.call("up", "tiny.plan", "-n", "2", "--transport", b.transport,
                  "--job", name, "--log-dir", name, "--detach", **SLOW)
    run = b.begin(*b.train(name, folder, steps=10 ** 6))
    b.await_event(name, "checkpoint_saved", "rank-0")
    kill_and_replace(b, int(re.search(r"process (\d+) supervises", said)[1]),
                     name, folder, other)
    assert "belongs to another run" in b.ended(run, 78).stderr
    assert b.weights(folder) == b.want
    b.down(name)


def main():
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(*sys.argv[1:4], folder) as b:
        for part in restarted, stays, foreign:
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
