#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A supervised job to which something happens again and again.

usage: chaos.py PENSTOCK TINY.pt2 SECONDS PERIOD [SEED [LEAST]]

The job would take about SECONDS by itself, by the pace of a short one. Every PERIOD seconds, once it
has saved a checkpoint since, a rank is killed, crashed or stopped for good, or
mpirun is killed, drawn by the seed. It has to come
to its end by itself, with the bits of a run that nothing happened to, and leave
neither processes nor files. LEAST: share of the time that has to be effective.
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
import restarts  # noqa: E402

FAULTS = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV,
          "stop": signal.SIGSTOP, "mpirun": signal.SIGKILL}
WATCHDOG_S = 2
FEWEST = 2000  # steps that tell how long one takes


def words(name, steps, every):
    return ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--steps", str(steps), "--checkpoint", name, "--checkpoint-every",
            str(every), "--log-dir", name, "--watchdog", str(WATCHDOG_S),
            "--max-restarts", "5", "--quiet"]


def at(line):
    """Seconds since 1970."""
    text = line.split("ts=", 1)[1].split()[0].replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(text).timestamp()


def steps_seen(b, name):
    lines = b.events(name, "step", "rank-0")
    return int(job.field(lines[-1], "step")) if lines else 0


def pids(b, name):
    """Of both ranks as they are now, and of their mpirun; none while they are
    started."""
    found = []
    for rank in 0, 1:
        lines = b.events(name, "start", f"rank-{rank}")
        pid = int(job.field(lines[-1], "pid")) if lines else 0
        if pid == 0 or not restarts.is_alive(pid):
            return []
        found.append(pid)
    try:
        found.append(restarts.parent(found[0]))
    except FileNotFoundError:
        return []
    return found


def saved(b, name):
    """Step of the newest checkpoint."""
    found = [int(x[5:]) for x in os.listdir(b.path(name))
             if x.startswith("step-") and x[5:].isdigit()] \
        if os.path.isdir(b.path(name)) else []
    return max(found, default=0)


def strike(b, name, rng, seen):
    """True if there was a job to strike."""
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


def chaos(b, steps, period, rng):
    """Seconds that the run took with faults, and how many there were."""
    every = max(50, int(steps / 20))
    begin = time.monotonic()
    b.call(*words("calm", steps, every))
    calm = time.monotonic() - begin
    seen, n, newest = set(), 0, 0
    begin = last = time.monotonic()
    run = b.begin(*words("storm", steps, every))
    while run.poll() is None:
        assert time.monotonic() - begin < 20 * calm + 100, "it does not advance"
        step = saved(b, "storm")
        if (time.monotonic() - last > period and step > newest and
                strike(b, "storm", rng, seen)):
            last, n, newest = time.monotonic(), n + 1, step
        time.sleep(.02)
    took = time.monotonic() - begin
    assert run.returncode == 0, (run.returncode, run.communicate())
    assert b.weights("storm") == b.weights("calm")
    until = time.monotonic() + 5
    while [p for p in seen if restarts.is_alive(p)]:
        assert time.monotonic() < until, "processes are left"
        time.sleep(.02)
    b.no_files_left()
    return calm, took, n


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    seconds, period = map(float, sys.argv[3:5])
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    least = float(sys.argv[6]) if len(sys.argv) > 6 else 0
    print(f"seed {seed}")
    job.PATIENCE = 100 + 20 * seconds
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        b.call(*words("pace", FEWEST, 0))
        began, ended = (b.events("pace", name, "rank-0")[0]
                        for name in ("train_begin", "train_end"))
        # Without the start, which is the longest part of a short job.
        steps = int(seconds * FEWEST / (at(ended) - at(began)))
        calm, took, n = chaos(b, steps, period, random.Random(seed))
        assert n > 0, "nothing has happened"
        print(f"{n} faults: {calm:.1f} s became {took:.1f} s, "
              f"{100 * calm / took:.0f} % effective")
        assert calm / took >= least, (calm, took, least)
    print("ok")


if __name__ == "__main__":
    main()
