#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the number of lines that a job logs, and reports of dropped lines.

usage: lines.py PENSTOCK PENSTOCKD TINY.pt2 mpi|self [SECONDS]

default  fastest steps, default options: at most 300 lines in any second, over
         all ranks of the host
all      --log-every 1: each step once, none omitted
dropped  the loop thread is blocked for a while: dropped lines are reported as
         soon as possible, and steps have continued meanwhile
"""
import collections
import glob
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import clients  # noqa: E402
import hostile_clients  # noqa: E402
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402

MOST = 300
# Seconds for which the loop thread is blocked. It gets 20 events per second,
# of which 96 fit into the queue.
HELD_S = 9
# The loop thread is blocked when it writes this line, in the middle of the
# steps.
HELD_AT = 60


class Bench(job.Bench):
    def __init__(self, penstock, model, folder, transport):
        super().__init__(penstock, folder)
        self.transport = transport
        clients.write_data(self.path("data.safetensors"))
        self.call("split", model, "-o", "tiny.plan")


def run(b, name, steps, *more):
    b.call("run", "tiny.plan", "-n", "2", "-m", "2", "--data",
           "data.safetensors", "--transport", b.transport, "--steps", steps,
           "--log-dir", name, "--quiet", "--threads", "1", *more)


def lines(b, name):
    found = []
    for path in glob.glob(os.path.join(b.folder, name, "rank-*.log")):
        with open(path, encoding="utf-8") as file:
            found += file.read().splitlines()
    return found


def check_default(b, seconds):
    steps, took = 500, 0
    while took < seconds:  # includes the seconds of the start
        steps *= 4
        begin, name = time.monotonic(), f"default-{steps}"
        run(b, name, steps)
        took = time.monotonic() - begin
    counts = collections.Counter(re.match(r"ts=(\S{19})", x)[1]
                                 for x in lines(b, name))
    most = max(counts.values())
    print(f"{b.transport}: {steps} steps in {took:.1f} s: {most} lines in a "
          f"second at most", flush=True)
    assert len(counts) >= 2 and most <= MOST, counts


def check_all(b):
    run(b, "all", 3000, "--log-every", "1")
    for rank in range(2 if b.transport == "mpi" else 1):
        got = [int(x.split(" step=")[1].split()[0]) for x in lines(b, "all")
               if " event=step " in x and f" rank={rank} " in x]
        assert got == list(range(1, 3001)), (len(got), got[:5], got[-5:])


class Held(hostile_clients.Daemon):
    """A job whose loop thread is blocked once, while it writes its log."""

    def begin(self, penstockd, env):
        env["PENSTOCK_FAULT"] = f"log:{HELD_AT}:{1000 * HELD_S}"
        super().begin(penstockd, env)

    def words(self):
        return []

    def text(self):
        with open(os.path.join(self.folder, "log", "rank-0.log"),
                  encoding="utf-8") as file:
            return file.read()


def check_dropped(penstock, penstockd, model, folder):
    daemon = Held(penstock, penstockd, model, folder)
    lost = r" event=log_lost .*lines=(\d+) text=\"events came faster"
    until = time.monotonic() + PATIENCE
    while not re.search(lost, daemon.text()):
        assert time.monotonic() < until, daemon.text()[-2000:]
        time.sleep(.05)
    time.sleep(.5)
    daemon.stop()
    seen = [int(x) for x in re.findall(r" event=step .* step=(\d+)",
                                       daemon.text())]
    lost_lines = [int(x) for x in re.findall(lost, daemon.text())]
    gap = max(b - a for a, b in zip(seen, seen[1:]))
    print(f"held up for {HELD_S} s: {lost_lines} events without room; "
          f"{seen[-1]} steps, {gap} of them in a row not told of", flush=True)
    assert lost_lines[0] > 10 and gap > 50, (lost_lines, gap)


def main():
    penstock, penstockd, model = map(os.path.abspath, sys.argv[1:4])
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 3
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        if sys.argv[4] == "self":
            check_dropped(penstock, penstockd, model, folder)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, folder, sys.argv[4]) as b:
        check_default(b, seconds)
        check_all(b)
    print("ok")


if __name__ == "__main__":
    main()
