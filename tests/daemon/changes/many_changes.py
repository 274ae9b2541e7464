#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests many model changes in a running job on three ranks over MPI.

usage: many_changes.py PENSTOCK FOLDER mpi [SWAPS [KILLS [SEED]]]

Modules are replaced again and again. One rank is killed while a change is
prepared, while the ranks agree on it, just after it, and after the next
checkpoint. Memory must not grow, except for the events of the first 1024 swaps
(about 1 KiB each on three ranks). After a kill, the resumed run must have
either the old module on all ranks, with the bits of a run without the change,
or the new one on all ranks. With SWAPS of 1000 and more, step times are
compared as well.
"""
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
from attr import rank_of  # noqa: E402
from patience import PATIENCE  # noqa: E402
from swap import MICROBATCHES, STEPS, Bench, daemons, memory  # noqa: E402

SWAPS, KILLS, SEED = (int(a) for a in (*sys.argv[4:], *(
    "40", "2", os.environ.get("PST_TEST_SEED", random.randrange(1 << 30)))[
        len(sys.argv[4:]):]))
LONG = 2 * STEPS
SLOW = "step:1+:2"  # each step sleeps for 2 ms, so that no run ends too early
EVENTS = 1024  # events that each rank keeps; a swap has one or more
OPTIONS = ["--checkpoint", "saved", "--checkpoint-every", "200"]


def step_times(b):
    with open(f"{b.folder}/log/rank-0.log", encoding="utf-8") as f:
        return [float(x) for x in re.findall(
            r"event=step .*?\bstep_s=(\S+)", f.read())]


def swap_often(b):
    """Swaps modules many times, one swap right after the other."""
    b.env["ASAN_OPTIONS"] += (
        ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
    # Steps of a few microseconds would only take the processor from others.
    b.env["PENSTOCK_FAULT"] = SLOW
    run = b.train("many", "--log-dir", "log", steps=100000 * STEPS)
    del b.env["PENSTOCK_FAULT"]
    b.ask("resume")
    pids = [p for p in daemons(b) if rank_of(p) is not None]
    assert len(pids) == 3, pids
    time.sleep(1)
    before = statistics.median(step_times(b))
    for i in range(SWAPS):
        if i == 20:
            least = memory(pids)
        if i == EVENTS:
            full = memory(pids)
        b.swap("n", ("u05", "u06")[i % 2])
    grown = memory(pids) - least
    assert grown < 4096 * len(pids), f"{grown} KiB more after {SWAPS} swaps"
    if SWAPS >= 2 * EVENTS:
        late = memory(pids) - full
        print(f"{late} KiB more after the first {EVENTS} swaps")
        assert late * 1024 < 200 * (SWAPS - EVENTS), late
    n = len(step_times(b))
    time.sleep(1)
    after = statistics.median(step_times(b)[n:])
    said = json.loads(b.ask("status", "--json"))
    assert said["state"] == "training" and not said["paused"], said
    if SWAPS >= 1000:
        print(f"{SWAPS} swaps: {grown} KiB more, a step of {before:.3g} s "
              f"before and {after:.3g} s after")
        assert after < 1.5 * before, (before, after)
    b.ask("stop", "--now")
    b.end(run, resume=False, code=130)
    shutil.rmtree(f"{b.folder}/log")


class Killed:
    def __init__(self, b, name, steps=LONG):
        self.b, self.name = b, name
        shutil.rmtree(f"{b.folder}/saved", ignore_errors=True)
        b.env["PENSTOCK_FAULT"] = SLOW
        self.run = b.train(name, *OPTIONS, steps=steps)
        del b.env["PENSTOCK_FAULT"]
        while not glob.glob(f"{b.folder}/saved/step-*/manifest.json"):
            b.ask("resume")
            time.sleep(.01)
            b.ask("pause")
        self.pids = {int(rank_of(p)): int(p) for p in daemons(b)
                     if rank_of(p) is not None}

    def swap(self):
        """Requests a swap, which may fail. Returns the process of the
        client."""
        return self.b.begin("swap", "n", f"{self.b.models}/u06.pt2", "--job",
                            self.b.job)

    def kill(self, rank):
        os.kill(self.pids[rank], signal.SIGKILL)

    def resume(self, steps=LONG):
        """Resumes the run. Returns "old" or "new": the model that all ranks
        have."""
        b = self.b
        b.ended(self.run, code=1)
        b.call("run", "plan", "--transport", "mpi", *b.ranks, "-m",
               MICROBATCHES, "--steps", str(steps), "--lr", "1e-3",
               "--optimizer", "adamw", "--data", "x.safetensors", "--dump",
               self.name, "--quiet", *OPTIONS, "--resume")
        # --verify has compared the copies of all ranks.
        have = b.result(self.name)
        if have == b.result("plain"):
            return "old"
        assert set(have) == {"param.n.n.w"}, sorted(have)
        return "new"


def while_prepared(b, rng):
    """Stops rank 2, so that the others wait for it in a swap, and kills one of
    the others."""
    k = Killed(b, "prepared")
    os.kill(k.pids[2], signal.SIGSTOP)
    asked = k.swap()
    time.sleep(.2)
    k.kill(rng.choice([0, 1]))
    os.kill(k.pids[2], signal.SIGCONT)
    assert k.resume() == "old"
    assert asked.wait(timeout=PATIENCE) != 0


def at_some_time(b, rng):
    """Kills a rank at a random time of a swap, which takes some milliseconds
    from request to end."""
    k = Killed(b, "some time")
    asked = k.swap()
    time.sleep(rng.uniform(0, .03))
    k.kill(rng.randrange(3))
    asked.communicate(timeout=PATIENCE)
    assert k.resume() == "old"  # no checkpoint contains the change


def just_after(b, rng):
    k = Killed(b, "after")
    assert "3 calls" in k.swap().communicate(timeout=PATIENCE)[0]
    k.kill(rng.randrange(3))
    assert k.resume() == "old"


def behind_a_checkpoint(b, rng):
    k = Killed(b, "behind", steps=1000 * STEPS)
    swapped = json.loads(b.swap("n", "u06", "--json"))["step"]
    b.ask("resume")
    while json.loads(b.ask("status", "--json"))["checkpoint_step"] <= swapped:
        time.sleep(.01)
    k.kill(rng.randrange(3))
    k.run.communicate(timeout=PATIENCE)
    newest = max(int(name[5:]) for name in os.listdir(f"{b.folder}/saved")
                 if re.fullmatch(r"step-\d+", name))
    assert k.resume(steps=newest + 50) == "new"


def main():
    penstock, models = map(os.path.abspath, sys.argv[1:3])
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, models, "mpi", folder) as b:
        b.end(b.train("plain", steps=LONG))
        swap_often(b)
        for part in while_prepared, just_after, behind_a_checkpoint:
            part(b, rng)
        for _ in range(KILLS):
            at_some_time(b, rng)
    print("ok")


if __name__ == "__main__":
    main()
