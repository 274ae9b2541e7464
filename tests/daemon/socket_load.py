#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the control socket under load, with an idle job and a training job.

usage: socket_load.py PENSTOCK PENSTOCKD LOAD TINY.pt2 [full]

idle      1 client, then 64, request the status as fast as they can
knock     connections send one request each
many      1000 clients send one request per second each
beside    clients send 100 requests per second while the job trains; steps must
          not slow down
watch     100 watchers get about 100 events per second; some of them never read
drip      clients send a byte per second; they are closed after
          --client-timeout

No request may be refused, no event lost, and rank 0 may grow by less than 100
MiB. `full` is for an otherwise idle machine and applies the required times;
without it a twentieth of the speed is enough.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import hostile_clients

from patience import PATIENCE

GROWTH = 100 << 20


class Idle(hostile_clients.Daemon):
    """A job that is ready and has no run."""

    def begin(self, penstockd, env):
        self.process = subprocess.Popen(
            [penstockd, "tiny.plan", "--transport", "self", "--ranks", "2",
             "--socket", "s"], cwd=self.folder, env=env)
        self.await_state("ready")


class Busy(hostile_clients.Daemon):
    """A job that trains and has about 1000 / sleep_ms step events per
    second."""

    def __init__(self, *args, sleep_ms=0, timeout_s=10):
        self.sleep_ms, self.timeout_s = sleep_ms, timeout_s
        super().__init__(*args)

    def words(self):
        return ["--client-timeout", str(self.timeout_s), "--log-every",
                "1" if self.sleep_ms else "200"]

    def begin(self, penstockd, env):
        if self.sleep_ms:
            env = dict(env, PENSTOCK_FAULT=f"F:1+:{self.sleep_ms}")
        super().begin(penstockd, env)


class Bench:
    def __init__(self, load, full, args):
        self.load, self.full, self.args = load, full, args

    def ask(self, job, *words):
        before = job.memory()
        done = subprocess.run([self.load, words[0], job.path,
                               *map(str, words[1:])], check=True, text=True,
                              capture_output=True, timeout=PATIENCE)
        grown = job.memory() - before
        assert grown < GROWTH, (words, grown)
        said = json.loads(done.stdout)
        print(f"{' '.join(map(str, words))}: {done.stdout.strip()}; "
              f"{grown >> 10} KiB more", flush=True)
        return said

    def within(self, value, most):
        """Checks that a time is small enough, or with exchanged arguments that
        a rate is large enough. Without `full` the limit is loose, since other
        processes may take any share of the machine."""
        assert not self.full or value <= most, (value, most)

    def times(self, quick, full):
        return full if self.full else quick


def check_idle(b, job):
    for n, least, p99 in (1, 30000, .2), (64, 50000, 50):
        said = b.ask(job, "ask", n, b.times(1, 5), 0)
        assert said["lost"] == said["faults"] == 0, said
        b.within(1 / said["per_s"], 1 / least)
        b.within(said["p99_ms"], p99)


def check_knock(b, job):
    said = b.ask(job, "knock", b.times(4000, 20000))
    assert said["answers"] == b.times(4000, 20000), said
    b.within(said["seconds"], b.times(.4, 2))


def check_many(b, job):
    n = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 4 - 8)
    said = b.ask(job, "ask", n, b.times(2, 10), 1)
    assert said["lost"] == said["faults"] == 0, said
    assert said["answers"] >= b.times(1, 9 * n), said
    b.within(said["p99_ms"], 100)


def check_beside(b, job):
    """Checks that requests do not slow down steps: compares processor times,
    which do not depend on other processes."""
    seconds = b.times(1, 10)
    ratios = []
    for _ in range(b.times(1, 5)):
        first = job.work()
        time.sleep(seconds)
        alone = hostile_clients.per_step(first, job.work(first[1]))
        first = job.work()
        said = b.ask(job, "ask", 1, seconds, 100)
        ratios.append(hostile_clients.per_step(first, job.work(first[1])) / alone - 1)
        assert said["lost"] == said["faults"] == 0, said
        b.within(said["p99_ms"], 50)
    change = sorted(ratios)[len(ratios) // 2]
    print(f"a step takes {100 * change:+.2f} % of a core more")
    assert not b.full or change < .01, ratios


def check_watch(b, job):
    seconds, mute = b.times(3, 12), 10
    said = b.ask(job, "watch", 100 + mute, seconds, mute)
    assert said["lost"] == said["faults"] == said["gaps"] == 0, said
    assert said["events_least"] > b.times(1, 20 * seconds), said


def check_drip(b, job):
    n = b.times(100, 500)
    slow = subprocess.Popen([b.load, "drip", job.path, str(n),
                             str(job.timeout_s + 4)], text=True,
                            stdout=subprocess.PIPE)
    time.sleep(.5)
    said = b.ask(job, "ask", 1, job.timeout_s, 10)
    assert said["lost"] == said["faults"] == 0, said
    b.within(said["p99_ms"], 100)
    result = json.loads(slow.communicate(timeout=PATIENCE)[0])
    print(f"drip: {result}")
    assert result["lost"] == n, result
    b.within(result["last_lost_s"], job.timeout_s + 3)


def main():
    penstock, penstockd, load, model = map(os.path.abspath, sys.argv[1:5])
    b = Bench(load, sys.argv[5:] == ["full"], (penstock, penstockd, model))
    parts = ((lambda f: Idle(*b.args, f), (check_idle, check_knock, check_many)),
             (lambda f: Busy(*b.args, f), (check_beside,)),
             (lambda f: Busy(*b.args, f, sleep_ms=2,
                             timeout_s=b.times(2, 10)),
              (check_watch, check_drip)))
    for make, checks in parts:
        with tempfile.TemporaryDirectory(prefix="pst-") as folder:
            job = make(folder)
            try:
                for check in checks:
                    check(b, job)
            finally:
                job.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
