#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `penstock plan` predicts after `calibrate` with real runs.

usage: predict.py PENSTOCK MODEL.pt2=DATA... [--check]

Prints a row for each model on 1 and 2 ranks of one thread: seconds of a step,
bubble, memory of the rank that has the most (the planned memory, plus that of a
process without a model), and the seconds that `plan` took. --check: exit code
1 unless the predicted step is within 20 %, the bubble within 3 percentage
points and the memory within 10 % of the run, and `plan` takes at most 2 s.
Needs an idle core for each rank: the plan does not predict waiting for a core.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

STEP, POINTS, MEMORY, PLAN_S = .2, .03, .1, 2
OWN_MIB = 40  # MiB that penstockd uses without a model, with MPI and libraries
RUN_S = 6


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder = os.path.abspath(penstock), folder
        self.env = dict(os.environ, XDG_CACHE_HOME=folder, TMPDIR=folder,
                        XDG_RUNTIME_DIR=folder)

    def call(self, *words):
        done = subprocess.run([self.penstock, *words], cwd=self.folder,
                              env=self.env, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def compare(self, model, data, ranks):
        words = ["-n", str(ranks), "-m", "4", "--threads", "1", "--json"]
        name = f"{os.path.basename(os.path.dirname(model))}-{ranks}"
        self.call("split", model, "--stages", str(ranks), "-o", name)
        begin = time.monotonic()
        plan = json.loads(self.call("plan", name, *words))
        took = time.monotonic() - begin
        steps = min(max(int(RUN_S / plan["step_s"]), 5), 2000)
        run = json.loads(self.call("run", name, *words, "--transport", "mpi",
                                   "--quiet", "--data", data, "--steps",
                                   str(steps)))
        memory = max((rank["arena_bytes"] / 2 ** 20 + OWN_MIB,
                      there["peak_rss_mib"])
                     for rank, there in zip(plan["ranks"], run["ranks"]))
        print(f"{name:16} step {plan['step_s']:.4g} s, run "
              f"{run['step_s']:.4g} s; bubble {plan['bubble']:.1%}, run "
              f"{run['bubble']:.1%}; MiB {memory[0]:.0f}, run "
              f"{memory[1]:.0f}; plan took {took:.2f} s", flush=True)
        return [what for what, good in (
            ("step", abs(plan["step_s"] / run["step_s"] - 1) <= STEP),
            ("bubble", abs(plan["bubble"] - run["bubble"]) <= POINTS),
            ("memory", abs(memory[0] / memory[1] - 1) <= MEMORY),
            ("time of plan", took <= PLAN_S)) if not good]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    bad = []
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(args.penstock, folder)
        print(b.call("calibrate").strip())
        for model, data in (m.split("=") for m in args.models):
            for ranks in 1, 2:
                wrong = b.compare(os.path.abspath(model),
                                  os.path.abspath(data), ranks)
                bad += [f"{model}, {ranks} ranks: {w}" for w in wrong]
    for line in bad:
        print("off:", line)
    return 1 if args.check and bad else 0


if __name__ == "__main__":
    sys.exit(main())
