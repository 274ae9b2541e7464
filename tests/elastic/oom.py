#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets a job run out of memory in a control group.

usage: oom.py PENSTOCK TINY.pt2 [NUMBER]

The job runs in a control group with a limit. Another process in that group
allocates memory until the kernel kills rank 1, which is made its first choice.
The job must report the cause `oom` and recover, with the weights of an
undisturbed job. This happens NUMBER times, at successive starts of the ranks.
Ends with 77 where no memory control group can be made.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402
import restart_job  # noqa: E402
from patience import PATIENCE  # noqa: E402

NAME, LIMIT = "job", 400 << 20
STEPS = 30000  # steps of the job for each of the NUMBER times
HOG = """
import os, sys, time
kept = []
while os.path.exists(f"/proc/{sys.argv[1]}/fd/0"):
    kept.append(bytearray(os.urandom(1) * (1 << 20)))
    time.sleep(.002)
"""


class Group:
    """A control group of cgroup v1 or v2."""

    def __init__(self, folder, limit):
        self.folder, self.limit = folder, limit

    @staticmethod
    def make():
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                            ("/sys/fs/cgroup", "memory.max")):
            group = Group(f"{root}/pst-{os.getpid()}", limit)
            try:
                os.mkdir(group.folder)
            except OSError:
                continue
            try:
                group.write(limit, LIMIT)
                return group
            except OSError:
                os.rmdir(group.folder)
        return None

    def write(self, name, value):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(str(value))

    def run(self, *words, **more):
        """Runs a process and its children in the group."""
        return subprocess.Popen(
            ["sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"',
             "sh", *words], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def remove(self):
        """Removes the group and kills what a failed test has left in it."""
        with open(f"{self.folder}/cgroup.procs", encoding="utf-8") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                os.rmdir(self.folder)
                return
            except OSError:
                assert time.monotonic() < until
                time.sleep(.1)


def words(b, name, number):
    return [b.penstock, "run", "tiny.plan", "-n", "2", "-m", "2", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--threads", "1", "--steps", str(STEPS * number), "--checkpoint",
            name, "--checkpoint-every", "500", "--log-dir", name,
            "--max-restarts", "3", "--quiet"]


def exhaust_memory(b, group, n):
    """Allocates memory until the kernel has killed rank 1 of the n-th
    start."""
    b.await_event(NAME, "start", "rank-1", n + 1)
    b.await_event(NAME, "checkpoint_saved", "rank-0",
                  len(b.events(NAME, "checkpoint_saved", "rank-0")) + 1)
    pid = int(job.field(b.events(NAME, "start", "rank-1")[-1], "pid"))
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="utf-8") as file:
        file.write("1000")
    hog = group.run(sys.executable, "-c", HOG, str(pid))
    end = b.await_event(NAME, "job_ended", n=n + 1)
    hog.kill()
    hog.communicate()
    assert not restart_job.is_alive(pid)
    assert " cause=oom of_rank=1 " in end and " signal=9 " in end, end
    assert "likely out of memory: " in end, end
    said = b.await_event(NAME, "job_restart", n=n + 1)
    assert int(job.field(said, "checkpoint_step")) > 0, said


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    group = Group.make()
    if group is None:
        print("no control group of memory can be made here")
        return 77
    try:
        with tempfile.TemporaryDirectory(prefix="pst-") as folder:
            b = job.Bench(penstock, folder)
            b.call("split", tiny, "-o", "tiny.plan")
            clients.write_data(b.path("data.safetensors"))
            b.call(*words(b, "want", number)[1:])
            run = group.run(*words(b, NAME, number), cwd=folder, env=b.env)
            for n in range(number):
                exhaust_memory(b, group, n)
            assert run.wait(PATIENCE) == 0, run.communicate()
            run.communicate()
            assert b.weights(NAME) == b.weights("want"), "other bits"
            b.no_files_left()
    finally:
        group.remove()
    print(f"{number} of {number} known as out of memory, and started again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
