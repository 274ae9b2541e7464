#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a supervised job whose output nobody takes.

usage: blocked.py PENSTOCK TINY.pt2 self|mpi
"""
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import restart_job  # noqa: E402
from patience import PATIENCE  # noqa: E402


def full_pipe():
    """Returns both ends of a pipe that takes nothing until it is read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def blocked(b):
    """Checks that a supervisor whose output nobody takes (Ctrl-S, a pager)
    starts its job again, and that the job ends when it is asked to: by `stop`,
    or by a signal to the supervisor, which then does not wait for a reader."""
    for by_signal in False, True:
        name = b.fresh()
        reader, writer = full_pipe()
        words = b.words(name, "--max-restarts", "3", "--log-dir", name,
                        "--job", name, steps=10 ** 9)
        words.remove("--quiet")
        job = subprocess.Popen([b.penstock, *words], cwd=b.folder, env=b.env,
                               stdin=subprocess.DEVNULL, stdout=writer,
                               stderr=writer)
        b.jobs.append(job)
        os.close(writer)
        b.await_step(name, 2 * restart_job.EVERY)
        os.kill(b.pids(name)[-1], signal.SIGKILL)
        b.await_event(name, "job_restart")
        b.await_event(name, "start", "rank-0", n=2)
        if by_signal:
            job.terminate()
        else:
            b.call("stop", "--job", name)
            assert b.last_exit(name)["cause"] == "stopped", b.last_exit(name)
            with open(reader, "rb", closefd=False) as file:
                text = file.read()
            assert b"starting the job again" in text and \
                b"[run.stopped]" in text, text[-2000:]
        assert job.wait(PATIENCE) == (143 if by_signal else 130)
        os.close(reader)


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            restart_job.Bench(penstock, model, sys.argv[3], folder) as b:
        blocked(b)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
