#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of penstock and of PyTorch's pipelines, in alternation.

Prints a table with the ratio penstock / PyTorch and its target.

    bench.py PENSTOCK WORKDIR [--rounds 3] [--steps 9] [--only MODEL]
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).resolve().parent / "torch_peer.py"
# Maximum ratios of step time, time to the end of the first step, and memory of
# a rank.
TARGETS = {"gpt-25m": (1, 1 / 5, 1 / 2), "gpt-3m": (1, 1 / 5, 1 / 2),
           "mlp-tiny": (1 / 3, 1 / 5, 1 / 2)}


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)}\n{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()


def ours(penstock, folder, steps):
    out = json.loads(call(
        penstock, "run", folder / "plan", "-n", 2, "--schedule", "1f1b", "-m",
        8, "--steps", steps, "--data", folder / "data.safetensors",
        "--optimizer", "sgd", "--lr", 1e-3, "--threads", 1, "--json")[-1])
    return out["step_s"], out["first_step_at_s"], out["peak_rss_mib"]


def theirs(model, steps):
    out = json.loads(call(sys.executable, PEER, "pipe", model, "--steps",
                          steps)[-1])
    return out["step_s"], out["first_step_at_s"], out["rss_mib"]


def show(seconds):
    return (f"{seconds:.2f} s" if seconds >= 1 else
            f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else
            f"{1e6 * seconds:.0f} us")


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=9)
    p.add_argument("--only", choices=TARGETS)
    a = p.parse_args()
    print("2 ranks, 1 thread each, 1f1b, 8 microbatches, SGD; medians of "
          f"{a.rounds} rounds of {a.steps} steps in alternation\n")
    print("| model | what | penstock | PyTorch | ratio | target |")
    print("| --- | --- | --: | --: | --: | --: |")
    missed = 0
    for model in [a.only] if a.only else TARGETS:
        folder = a.workdir / model
        call(sys.executable, PEER, "export", model, folder)
        call("rm", "-rf", folder / "plan")
        call(a.penstock, "split", folder / "model.pt2", "-o",
             folder / "plan", "--stages", 2)
        rounds = [(ours(a.penstock, folder, a.steps), theirs(model, a.steps))
                  for _ in range(a.rounds)]
        for i, what in enumerate(["step", "first step at", "memory"]):
            mine = statistics.median(r[0][i] for r in rounds)
            peer = statistics.median(r[1][i] for r in rounds)
            text = [f"{v:.0f} MiB" if i == 2 else show(v)
                    for v in (mine, peer)]
            good = mine <= peer * TARGETS[model][i]
            missed += not good
            print(f"| {model} | {what} | {text[0]} | {text[1]} | "
                  f"{mine / peer:.2f} | {'' if good else 'missed: '}"
                  f"{TARGETS[model][i]:.2f} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
