#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a slow rank is named with its cause, and that in a clean job no
rank is named.

usage: slow.py PENSTOCK NORM.pt2 [NUMBER CLEAN]

compute        kernels of a rank become slower at one step
communication  messages of a rank are sent late from one step on
clean          neither: no rank is named

Tests NUMBER slow ranks (two of three by compute) and CLEAN steps; by default 3
and 2000. One false alarm is allowed in 10 000 clean steps.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import eval_job  # noqa: E402

DELAY_MS = 5
STEPS = 120
M = 4  # microbatches: each rank has as many F and B per step
SLOW_FROM = 50  # the step from which on a rank is slow


def words(name, steps=STEPS):
    return ["run", "norm.plan", "-n", "2", "-m", str(M), "--data",
            "data.safetensors", "--transport", "mpi", "--threads", "1",
            "--steps", str(steps), "--log-dir", name, "--log-every", "1",
            "--quiet"]


def stragglers(b, name):
    return b.events(name, "straggler", "rank-0")


def run(b, name, fault, rank):
    """Runs a job with a fault. Returns the first event that names a rank, and
    the number of steps from the begin of the slowness to that event."""
    b.call(*words(name), PENSTOCK_FAULT=fault, PENSTOCK_FAULT_RANK=rank)
    found = [x for x in stragglers(b, name) if job.field(x, "slow") == "1"]
    assert found, b.events(name, "step", "rank-0")[-1]
    return found[0], int(job.field(found[0], "step")) - SLOW_FROM


def compute(b, name, rank):
    """Slows the kernels of a rank down. Returns the number of steps until the
    rank is named."""
    line, after = run(b, name, f"compute:{2 * M * SLOW_FROM}+:{DELAY_MS}", rank)
    assert job.field(line, "kind") == "compute", line
    assert job.field(line, "of_rank") == rank, line
    assert 0 < after <= 30, line
    assert float(job.field(line, "ratio")) > 1.3, line
    assert job.field(line, "stragglers") == "1", line
    # The slow rank is reported once, and once more when the slowness ends with
    # the run.
    states = [job.field(x, "slow") for x in stragglers(b, name)]
    assert states == ["1", "0"], states
    return after


def communication(b, name):
    line, after = run(b, name, f"SEND_F:{M * SLOW_FROM}+:{DELAY_MS}", "0")
    assert job.field(line, "kind") == "communication", line
    assert 0 < after <= 30, line
    assert all(job.field(x, "kind") == "communication"
               for x in stragglers(b, name))
    return after


def clean(b, name, steps):
    """Runs a job without faults. Returns the number of false alarms."""
    b.call(*words(name, steps))
    found = [x for x in stragglers(b, name) if job.field(x, "slow") == "1"]
    assert len(found) <= steps // 10000, found
    return len(found)


def repeat_scene(scene, b, name, *more):
    """Repeats a failed scene, since other processes on the machine also slow
    down ranks."""
    until, n = time.monotonic() + job.PATIENCE, 0
    while True:
        try:
            return scene(b, f"{name}-{n}", *more)
        except AssertionError:
            if time.monotonic() > until:
                raise
            n += 1


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    number, steps = map(int, sys.argv[3:5]) if len(sys.argv) > 3 else (3, 2000)
    after = []
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        eval_job.write_data(b.path("data.safetensors"), 1, x=[96, 4])
        b.call("split", norm, "--at", "conv", "-o", "norm.plan")
        for i in range(number):
            after.append(repeat_scene(communication, b, f"slow-{i}")
                         if i % 3 == 2 else
                         repeat_scene(compute, b, f"slow-{i}", str(i % 2)))
            b.no_files_left()
        alarms = repeat_scene(clean, b, "clean", steps)
        b.no_files_left()
    print(f"{number} of {number} named, after at most {max(after)} steps; "
          f"{alarms} false alarms in {steps} clean steps")


if __name__ == "__main__":
    main()
