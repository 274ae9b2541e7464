#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that flight records show which rank keeps a job waiting.

usage: flight.py PENSTOCK TINY.pt2 mpi [NUMBER [SEED]]

One of four ranks (two stages, two replicas) hangs at a point that is drawn
with the seed. `penstock flight` has to name this rank, both while the job hangs
and after all its processes were killed.
"""
import contextlib
import glob
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402
from restart_job import is_alive  # noqa: E402

POINTS = {"F": 40, "B": 40, "report": 20, "update": 20, "updated": 20,
          "step": 20, "SEND_F": 30, "RECV_F": 30, "SEND_B": 30, "RECV_B": 30}
OF_STAGE = {"SEND_F": 0, "RECV_B": 0, "RECV_F": 1, "SEND_B": 1}


def pids(folder):
    found = []
    for path in glob.glob(folder + "/rank-*.log"):
        with open(path, encoding="utf-8") as file:
            starts = [x for x in file if " event=start " in x]
        found.append(int(starts[-1].split(" pid=")[1].split()[0]))
    return found


def records(folder):
    return sorted(glob.glob(folder + "/rank-*.flight"))


def content(path):
    """Returns the records of a file without the times at which the rank polled
    for messages."""
    with open(path, "rb") as file:
        data = file.read()
    return b"".join(data[at:at + 48] for at in range(0, len(data), 56))


def wait_until_still(folder):
    """Waits until no rank adds records, and until the hanging rank has not
    polled for messages for more than a second."""
    before, since, until = None, 0, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        now = [content(path) for path in records(folder)]
        if now != before or len(now) < 4:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 1.5:
            return
        time.sleep(.05)
    raise AssertionError("the job goes on")


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        self.n = 0
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        clients.write_data(os.path.join(folder, "data.safetensors"))

    def ask(self, log, *words, code=0):
        return self.call("flight", log, *words, code=code)

    def await_blamed(self, log, rank):
        # At first the command may name a rank that only waits for a processor.
        until = time.monotonic() + PATIENCE
        while True:
            said = json.loads(self.ask(log, "--json"))
            if said["verdict"]["rank"] == rank:
                break
            assert time.monotonic() < until, said["verdict"]
            time.sleep(.5)
        assert len(said["ranks"]) == 4
        assert f"rank {rank} has not" in self.ask(log)
        return said

    def hang(self, name, point, nth, rank):
        # Each job gets a new name: the client of a killed job may still hold
        # the name of that job.
        self.n += 1
        self.call("run", "tiny.pt2", "-n", "2x2", "-m", "4", "--data",
                  "data.safetensors", "--transport", "mpi", "--steps",
                  "1000000", "--log-dir", name, "--quiet", "--watchdog", "0",
                  "--detach", "--job", f"{name}-{self.n}",
                  PENSTOCK_FAULT=f"{point}:{nth}:hang",
                  PENSTOCK_FAULT_RANK=str(rank))
        log = os.path.join(self.folder, name)
        try:
            wait_until_still(log)
            self.await_blamed(name, rank)
        finally:  # ends the job, which would hang forever
            left = pids(log)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        assert len(left) == 4
        while any(is_alive(pid) for pid in left):
            time.sleep(.01)
        self.await_unused(name)
        return self.await_blamed(name, rank)


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    number, seed = (int(a) for a in (*sys.argv[4:], *(
        "4", "1")[len(sys.argv[4:]):]))
    rng = random.Random(seed)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, folder) as b:
        for i in range(number):
            point = rng.choice(list(POINTS))
            rank = rng.randrange(4)
            if point in OF_STAGE:
                rank = rank // 2 * 2 + OF_STAGE[point]
            b.hang(f"log{i}", point, rng.randint(2, POINTS[point]), rank)
        # The rank hangs in an action that had to wait for a message, after the
        # message has arrived.
        for i in range(2):
            b.hang(f"waits{i}", "F", 4, 1)
            b.hang(f"waited{i}", "B", 38, 0)
        # Only the newest records are kept. The file of the previous start is
        # kept, too.
        b.hang("long", "update", 700, 1)
        said = b.hang("long", "step", 3, 2)
        assert len(said["ranks"][0]["records"]) < 200
        said = json.loads(b.ask("long", "--json", "--before"))
        for rank in said["ranks"]:
            seqs = [r["seq"] for r in rank["records"]]
            assert len(seqs) >= 4095 and seqs == list(
                range(seqs[0], seqs[0] + len(seqs))), len(seqs)
            assert seqs[0] > 1
        assert said["verdict"]["rank"] == 1, said["verdict"]
        # A file that is no flight record is refused.
        assert "no flight records" in b.ask(".", code=65)
        for size in 0, 10, 56 * 4097:
            with open(f"{folder}/long/rank-1.flight", "wb") as file:
                file.write(b"x" * size)
            assert "not a flight record" in b.ask("long", code=65)
    print(f"{number + 6} hangs, each blamed on the rank that hung")


if __name__ == "__main__":
    main()
