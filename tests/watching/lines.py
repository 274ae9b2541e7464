#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many lines a job logs, and what it says of those that it could not.

usage: lines.py PENSTOCK PENSTOCKD TINY.pt2 mpi|self [SECONDS]

default  steps as quick as they can be, with the options that nobody gave: at
         most 300 lines in any second, of all ranks of the node
all      --log-every 1: each step once, none left out
dropped  nobody takes what the loop writes for a while: what found no room is
         told as soon as there is room, and steps went on meanwhile
"""
import collections
import fcntl
import glob
import os
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import clients  # noqa: E402
import greedy  # noqa: E402
import job  # noqa: E402

MOST = 300
HELD_S = 9  # at 20 events a second, of which 96 wait


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
    while took < seconds:  # starting takes time, too
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


class Reader(threading.Thread):
    """Of a log that is a pipe of a page; reads on when it is let."""

    def __init__(self, path):
        super().__init__(daemon=True)
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, 4096)
        self.text, self.may_read = b"", threading.Event()
        self.may_read.set()

    def run(self):
        while True:
            self.may_read.wait()
            try:
                self.text += os.read(self.fd, 65536)
            except BlockingIOError:
                pass
            time.sleep(.01)

    def await_line(self, pattern):
        until = time.monotonic() + 30
        while True:
            found = re.search(pattern, self.text.decode())
            if found:
                return found
            assert time.monotonic() < until, self.text[-2000:]
            time.sleep(.05)

    def step(self):
        return int(re.findall(r" event=step .* step=(\d+)",
                              self.text.decode())[-1])


class Held(greedy.Daemon):
    def begin(self, penstockd, env):
        os.mkdir(os.path.join(self.folder, "log"))
        self.reader = Reader(os.path.join(self.folder, "log", "rank-0.log"))
        self.reader.start()
        super().begin(penstockd, env)

    def words(self):
        return []


def check_dropped(penstock, penstockd, model, folder):
    daemon = Held(penstock, penstockd, model, folder)
    reader = daemon.reader
    reader.await_line(r" event=step ")
    reader.may_read.clear()
    before = reader.step()
    time.sleep(HELD_S)
    reader.may_read.set()
    told = int(reader.await_line(
        r" event=log_lost .*lines=(\d+) text=\"events came faster")[1])
    daemon.stop()
    time.sleep(.2)
    seen = [int(x) for x in re.findall(r" event=step .* step=(\d+)",
                                       reader.text.decode())]
    total = sum(map(int, re.findall(
        r" event=log_lost .*lines=(\d+) text=\"events came faster",
        reader.text.decode())))
    gap = max(b - a for a, b in zip(seen, seen[1:]))
    print(f"held up for {HELD_S} s: {told} events without room, all told "
          f"{total}; {seen[-1] - before} steps meanwhile, {gap} of them not "
          "told of", flush=True)
    assert 10 < told <= total and gap > 50, (told, total, gap)


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
