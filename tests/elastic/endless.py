#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that memory, descriptors and step time do not grow in a long run of
tiny steps.

usage: endless.py PENSTOCK TINY.pt2 STEPS [TIMES]

From step 2000 (or two fifths of the run) on, when the ring of the newest 1024
events is full, the resident memory of a rank may grow by 1 % and 256 KiB, and
its number of descriptors not at all (but while a save has files open). The
reported 99th percentile must be that
of the logged steps. With TIMES, for otherwise idle machines, the 99th
percentile of an unwatched run of STEPS steps is at most TIMES the median of a
run of 1000 steps.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402
from patience import PATIENCE  # noqa: E402

JOB = f"long-{os.getpid()}"
KEPT = 10000  # a run keeps the times of this number of steps
SLACK = 256  # KiB: memory pools of the C library are touched late


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        text = file.read()
    return int(text.split("VmRSS:")[1].split()[0])


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def sample(pids, before=None):
    """Returns the smallest memory and number of descriptors of each rank over
    some samples, since a save opens files. A save to a slow disk takes long:
    waits until no rank has more descriptors than `before`, an earlier result."""
    samples = []
    until = time.monotonic() + PATIENCE
    while len(samples) < 20 or before is not None and any(
            min(s[k][1] for s in samples) > before[k][1]
            for k in range(len(pids))) and time.monotonic() < until:
        samples.append([(resident(p), descriptors(p)) for p in pids])
        time.sleep(.01)
    return [(min(s[k][0] for s in samples), min(s[k][1] for s in samples))
            for k in range(len(pids))]


def words(name, steps):
    return ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--steps", str(steps), "--log-dir", name, "--quiet"]


def step_of(b, file):
    """Reads the new lines of a log. Returns the newest step."""
    for line in file:
        if " event=step " in line and line.endswith("\n"):
            b.times.append(float(job.field(line, "step_s")))
            b.step = int(job.field(line, "step"))
    return b.step


def run(b, steps):
    job_ = b.begin(*words("long", 1000000000), "--checkpoint", "long", "--job",
                   JOB, "--checkpoint-every", str(steps // 50), "--log-every",
                   "1")
    pids = [b.pid("long", rank) for rank in (0, 1)]
    first = newest = None
    b.times, b.step = [], 0
    with open(b.path("long", "rank-0.log"), encoding="utf-8") as file:
        while step_of(b, file) < steps:
            assert job_.poll() is None, job_.communicate()
            if first is None and b.step >= min(2000, steps * 2 // 5):
                first = sample(pids)
            time.sleep(.01)
        newest = sample(pids, first)
        b.call("stop", "--job", JOB)
        assert job_.wait(PATIENCE) == 130, job_.communicate()
        step_of(b, file)
    return first, newest


def lengths(b, name):
    """Returns median and 99th percentile of a job's step times, in seconds."""
    end = b.events(name, "train_end", "rank-0")[0]
    return [float(job.field(end, x)) for x in ("step_s", "step_p99_s")]


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    steps = int(sys.argv[3])
    times = float(sys.argv[4]) if len(sys.argv) > 4 else None
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        first, newest = run(b, steps)
        for rank, (was, now) in enumerate(zip(first, newest)):
            print(f"rank {rank}: {was[0]} KiB, {was[1]} descriptors became "
                  f"{now[0]} KiB, {now[1]} by step {steps}")
            assert now[0] <= 1.01 * was[0] + SLACK, "memory grows"
            assert now[1] <= was[1], "descriptors are left open"
        _, reported = lengths(b, "long")
        newest = sorted(b.times[-KEPT:][2:])
        # If events were dropped, the log has not the times of all steps.
        by = 0 if len(b.times) == b.step else len(newest) // 200
        at = -(-len(newest) * 99 // 100) - 1
        low = newest[at - by]
        high = newest[min(at + by, len(newest) - 1)]
        assert .999 * low < reported < 1.001 * high, (low, reported, high)
        if times:
            b.call(*words("short", 1000))
            b.call(*words("whole", steps))
            half, _ = lengths(b, "short")
            middle, late = lengths(b, "whole")
            print(f"step: {half * 1e6:.0f} us at first, {middle * 1e6:.0f} us "
                  f"at last, {late * 1e6:.0f} us at its 99th percentile")
            assert late <= times * half, "steps become slower"
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
