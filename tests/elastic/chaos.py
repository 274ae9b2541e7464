#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Causes random faults in a supervised job, again and again.

usage: chaos.py PENSTOCK TINY.pt2 SECONDS PERIOD [SEED [LEAST]]

Every PERIOD seconds, if the job has saved a checkpoint since the last fault, a
rank is killed, crashed or stopped permanently, or mpirun is killed; the seed
draws which. The job has to recover without help. After SECONDS it is stopped.
It must have the bits of an undisturbed run of as many steps on one rank, and
leave neither processes nor files. LEAST: required share of effective time.
The time from the last step before a fault to the first new step after it is
not effective.
"""
import datetime
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402
import restart_job  # noqa: E402
from patience import PATIENCE  # noqa: E402

FAULTS = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV,
          "stop": signal.SIGSTOP, "mpirun": signal.SIGKILL}
WATCHDOG_S = 2
JOB = f"storm-{os.getpid()}"
COMMON = ["run", "tiny.plan", "-m", "2", "--data", "data.safetensors", "--lr",
          "0.001", "--quiet"]
STORM = ["-n", "2", "--transport", "mpi", "--watchdog", str(WATCHDOG_S),
         "--max-restarts", "5", "--job", JOB,
         "--checkpoint", "storm", "--log-dir", "storm", "--steps", str(10 ** 9)]
ALONE = ["-n", "1", "--transport", "self", "--threads", "1", "--checkpoint",
         "alone"]


def at(line):
    """Returns the time of a log line, in seconds since 1970."""
    text = line.split("ts=", 1)[1].split()[0].replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(text).timestamp()


def steps_seen(b, name):
    lines = b.events(name, "step", "rank-0")
    return int(job.field(lines[-1], "step")) if lines else 0


def pids(b, name):
    """Returns the process ids of both ranks and of their mpirun; none while
    these are being started."""
    found = []
    for rank in 0, 1:
        lines = b.events(name, "start", f"rank-{rank}")
        pid = int(job.field(lines[-1], "pid")) if lines else 0
        if pid == 0 or not restart_job.is_alive(pid):
            return []
        found.append(pid)
    try:
        found.append(restart_job.parent(found[0]))
    except FileNotFoundError:
        return []
    return found


def saved(b, name):
    """Returns the step of the newest checkpoint."""
    found = [int(x[5:]) for x in os.listdir(b.path(name))
             if x.startswith("step-") and x[5:].isdigit()] \
        if os.path.isdir(b.path(name)) else []
    return max(found, default=0)


def cause_fault(b, name, rng, seen):
    """Causes a fault. Returns False if no job was running."""
    fault = rng.choice(list(FAULTS))
    found = pids(b, name)
    if not found:
        return False
    seen.update(found)
    pid = found[2] if fault == "mpirun" else found[rng.randrange(2)]
    try:
        os.kill(pid, FAULTS[fault])
    except ProcessLookupError:
        return False
    print(f"{fault} {pid} at step {steps_seen(b, name)}", flush=True)
    return True


def run_with_faults(b, seconds, period, rng):
    """Runs the job with faults until it is stopped. Returns the number of
    faults."""
    seen, n, newest = set(), 0, 0
    begin = last = time.monotonic()
    # A short run on a slow disk would wait for minutes until its saves have
    # taken less than 1 % of its time.
    run = b.begin(*COMMON, *STORM, "--checkpoint-cost",
                  "1" if seconds >= 300 else "20")
    while time.monotonic() - begin < seconds or saved(b, "storm") <= newest:
        assert run.poll() is None, (run.returncode, run.communicate())
        assert time.monotonic() - last < period + PATIENCE, "it hangs"
        if time.monotonic() - last > period:
            step = saved(b, "storm")
            if step > newest and cause_fault(b, "storm", rng, seen):
                last, n, newest = time.monotonic(), n + 1, step
        time.sleep(.02)
    b.call("stop", "--job", JOB)
    b.ended(run, 130)
    until = time.monotonic() + PATIENCE
    while [p for p in seen if restart_job.is_alive(p)]:
        assert time.monotonic() < until, "processes are left"
        time.sleep(.02)
    b.no_files_left()
    return n


def times(b, name):
    """Returns the seconds from the first step to the last, and the seconds
    lost: those from the last new step before a fault to the next new step
    after it."""
    first = newest = best = None
    lost, again = 0, False
    for line in b.events(name, "step", "rank-0"):
        step, now = int(job.field(line, "step")), at(line)
        if first is None:
            first = newest = now
        elif step <= best:
            again = True
            continue
        elif again:
            lost += now - newest
        best, newest, again = step, now, False
    return newest - first, lost


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    seconds, period = map(float, sys.argv[3:5])
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    least = float(sys.argv[6]) if len(sys.argv) > 6 else 0
    print(f"seed {seed}")
    job.PATIENCE += 3 * seconds
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        n = run_with_faults(b, seconds, period, random.Random(seed))
        assert n > 0, "nothing has happened"
        whole, lost = times(b, "storm")
        steps, effective = saved(b, "storm"), 1 - lost / whole
        print(f"{n} faults in {whole:.1f} s, {steps} steps: {lost:.1f} s lost, "
              f"{100 * effective:.1f} % effective", flush=True)
        b.call(*COMMON, *ALONE, "--steps", str(steps))
        assert b.weights("storm") == b.weights("alone")
        assert effective >= least, (effective, least)
    print("ok")


if __name__ == "__main__":
    main()
