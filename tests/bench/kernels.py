#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times kernels of penstock and of PyTorch in alternation, on one thread.

    kernels.py BENCH-KERNELS [--only TEXT] [--rounds N] [--strict]

Every round runs each side for a tenth of a second. The table has the medians
of all runs in milliseconds of the thread's CPU time, and the ratio of
PyTorch's time to ours beside its target. On a loaded machine the times mean
little, as other processes share the caches. --strict: exit code 1 if a target
is missed.
"""
import argparse
import statistics
import subprocess
import sys
import time

import torch

from cases import all_cases

SLICE = 0.1  # seconds that each side runs per round


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, c, runs):
        """Returns the milliseconds of each run, summed over all nodes of the
        case."""
        total = [0.0] * runs
        for node in c["nodes"]:
            self.process.stdin.write(f"{runs} {c['flags']} {node}\n")
            self.process.stdin.flush()
            times = self.process.stdout.readline().split()[1:]
            if len(times) != runs:
                raise RuntimeError(f"{c['name']}: no answer to: {node}")
            total = [a + int(b) / 1e6 for a, b in zip(total, times)]
        return total


def theirs(run, runs):
    ret = []
    for _ in range(runs):
        start = time.thread_time()
        run()
        ret.append((time.thread_time() - start) * 1e3)
    return ret


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--strict", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours, missed = Ours(a.program), 0
    print(f"{'kernel':<52} {'ours':>9} {'PyTorch':>9} {'ratio':>6} {'want':>5}")
    for c in all_cases():
        if a.only not in c["name"]:
            continue
        run = c["make"]()
        runs = int(SLICE * 1e3 / max(theirs(run, 3))) + 2
        mine, other = [], []
        for _ in range(a.rounds):
            mine += ours.run(c, runs + 1)[1:]
            other += theirs(run, runs)
        x, y = statistics.median(mine), statistics.median(other)
        bad = y / x < c["want"]
        missed += bad
        want = f"{c['want']:.1f}" if c["want"] else ""
        print(f"{c['name']:<52} {x:9.3f} {y:9.3f} {y / x:6.2f} {want:>5}"
              f"{'  missed' if bad else ''}", flush=True)
    print(f"{missed} ratios missed")
    return 1 if a.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
