#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that signals that announce the end of a job are reported at once and
end nothing.

usage: warned.py PENSTOCK TINY.pt2

lost     a rank is killed: the other one reports that before mpirun kills it
stopped  a stopped rank does not report its SIGCONT, a running one does; other
         ranks report for how long the stopped rank was silent
usr1     sent to `penstock run`, as by a batch system: a checkpoint is saved
"""
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402
import patience  # noqa: E402
from patience import PATIENCE  # noqa: E402

STOP_S = 2.8


def words(name, steps=10 ** 9):
    return ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
            "data.safetensors", "--transport", "mpi", "--steps", str(steps),
            "--checkpoint", name, "--log-dir", name, "--quiet"]


def warnings(b, name, rank=0):
    return b.events(name, "early_warning", f"rank-{rank}")


def stopped(b):
    name = "stopped"
    run = b.begin(*words(name))
    b.await_event(name, "step", "rank-0", 3)
    pid = b.pid(name, 0)
    begin = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOP_S)
    os.kill(pid, signal.SIGCONT)
    line = b.await_event(name, "rank_silent", "rank-1")
    assert job.field(line, "of_rank") == "0", line
    assert STOP_S - 1 < float(job.field(line, "seconds")) < \
        time.monotonic() - begin + 1, line  # counted from its last message
    assert not b.events(name, "rank_silent", "rank-0")
    before = len(b.events(name, "step", "rank-0"))
    b.await_event(name, "step", "rank-0", before + 5)
    assert not warnings(b, name), warnings(b, name)
    # Until the rank has noticed that it was stopped, it takes a SIGCONT for
    # the end of the stop, so the signal is repeated.
    def warned():
        os.kill(pid, signal.SIGCONT)
        return warnings(b, name)

    line = patience.wait_until(warned, "SIGCONT is not told", every=.5)[0]
    assert " signal=SIGCONT by=process " in line, line
    assert f" pid={os.getpid()} " in line, line
    # The job must continue.
    before = len(b.events(name, "step", "rank-0"))
    b.await_event(name, "step", "rank-0", before + 5)
    # SIGUSR1, which a batch system sends as a warning, is reported and saves a
    # checkpoint.
    os.kill(run.pid, signal.SIGUSR1)
    b.await_event(name, "checkpoint_saved", "rank-0")
    line = warnings(b, name)[-1]
    assert " signal=SIGUSR1 by=launcher " in line, line
    assert " signal=SIGUSR1 " in b.await_event(name, "early_warning", "rank-1")
    assert run.poll() is None
    b.call("stop", "--job", "tiny.plan-%d" % run.pid)
    assert run.wait(PATIENCE) == 143 or run.returncode in (0, 130), run.returncode


def lost(b):
    name = "lost"
    run = b.begin(*words(name))
    b.await_event(name, "step", "rank-0", 3)
    os.kill(b.pid(name, 1), signal.SIGKILL)
    assert run.wait(PATIENCE) == 1
    line, = warnings(b, name)
    assert " signal=SIGCONT by=launcher " in line, line


def swept(b):
    """Waits until a start finds no folder of a rank: one that mpirun has
    killed may die later than mpirun."""
    def is_swept():
        b.call(*words("swept", 1), "--adopt")
        return not os.listdir(b.path("penstock"))

    patience.wait_until(is_swept, "the folders of killed ranks", every=.5)


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        stopped(b)
        lost(b)
        swept(b)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
