#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of penstock and of PyTorch, in alternation.

Prints the processor and a table with the seconds of both and the speed-up,
PyTorch / penstock. Each line is also appended to HISTORY as a JSON object, with
date, commit, processor, and the instruction set and libraries that were taken.

    bench.py PENSTOCK WORKDIR [--rounds 3] [--steps 9] [--only TEXT] [--short]
             [--history WORKDIR/history.jsonl]

--only: cases whose name has TEXT; --list prints the names. --short times one
round of three steps of the smallest model and never fails. Otherwise the exit
code is 1 if a target is missed.
"""
import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).resolve().parent / "torch_peer.py"
ROOT = PEER.parents[2]

# Peers: pipe is PyTorch's pipeline of two ranks, with one thread each; eager
# and compile are one process with `threads` threads; self is penstock with one
# thread. target: smallest speed-up of a step, None: no target.
# name, model, microbatches, options of penstock, peer, its options, target
PIPE = ["-n", 2, "--schedule", "1f1b", "--threads", 1]
ONE = ["-n", 1, "--schedule", "gpipe", "--threads", 2]
CASES = [
    ("gpt-25m", "gpt-25m", 8, PIPE, "pipe", [], 1.5),
    ("gpt-25m auto", "gpt-25m", 8, ["-n", 2, "--schedule", "auto", "--threads",
                                    1], "pipe", [], 1.55),
    ("gpt-25m bf16", "gpt-25m", 8, [*PIPE, "--dtype", "bf16"], "pipe",
     ["--bf16"], 1.4),
    ("gpt-3m", "gpt-3m", 8, PIPE, "pipe", [], 2.0),
    ("gpt2-124m", "gpt2-124m", 4, PIPE, "pipe", [], 1.63),
    ("llama-100m", "llama-100m", 4, PIPE, "pipe", [], None),
    ("resnet50", "resnet50", 4, PIPE, "pipe", [], None),
    ("mlp-tiny", "mlp-tiny", 8, PIPE, "pipe", [], 63),
    ("gpt-25m 2 threads", "gpt-25m", 8, ONE, "eager", ["--threads", 2], 1.34),
    ("gpt-25m 2 threads bf16", "gpt-25m", 8, [*ONE, "--dtype", "bf16"],
     "compile", ["--threads", 2, "--bf16"], 1.32),
    ("gpt-25m 2 threads of 1", "gpt-25m", 8, ONE, "self", [], 1.9),
]
SHORT = ("mlp-tiny",)
# Time to the end of the first step and memory of a rank, as a share of the
# pipeline's.
FIRST, MEMORY = 1 / 5, 1 / 2


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)}\n{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()


def run_penstock(a, folder, microbatches, options):
    out = json.loads(call(
        a.penstock, "run", folder / f"plan-{options[1]}", "-m", microbatches,
        "--steps", a.steps, "--data", folder / "data.safetensors",
        "--optimizer", "sgd", "--lr", 1e-3, "--log-dir", folder / "log",
        *options, "--json")[-1])
    return out["step_s"], out["first_step_at_s"], out["peak_rss_mib"]


def run_torch(a, mode, model, microbatches, options):
    out = json.loads(call(sys.executable, PEER, mode, model, "-m", microbatches,
                          "--steps", a.steps, *options)[-1])
    return out["step_s"], out["first_step_at_s"], out["rss_mib"]


def prepare(a, model, microbatches):
    """Exports the model and splits it into one and two stages."""
    folder = a.workdir / f"{model}-{microbatches}"
    call(sys.executable, PEER, "export", model, folder, "-m", microbatches)
    for n in 1, 2:
        call("rm", "-rf", folder / f"plan-{n}")
        call(a.penstock, "split", folder / "model.pt2", "-o",
             folder / f"plan-{n}", "--stages", n)
    return folder


def time_case(a, case):
    """Returns the medians of the rounds: ours and the peer's, each (step,
    first step, memory)."""
    name, model, microbatches, options, peer, theirs, _ = case
    folder = prepare(a, model, microbatches)
    rounds = []
    for _ in range(a.rounds):
        ours = run_penstock(a, folder, microbatches, options)
        rounds.append((ours, run_penstock(
            a, folder, microbatches, [*options[:-1], 1]) if peer == "self"
            else run_torch(a, peer, model, microbatches, theirs)))
    return [[statistics.median(r[side][i] for r in rounds) for i in range(3)]
            for side in range(2)]


def show(seconds):
    return (f"{seconds:.2f} s" if seconds >= 1 else
            f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else
            f"{1e6 * seconds:.0f} us")


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def taken(folder):
    """Returns the instruction set and the libraries that the last run took,
    from its log."""
    text = (folder / "log/rank-0.log").read_text()
    return ", ".join(re.search(rf'"?{key}"?[=:] *("[^"]*"|\S+)', text)[1]
                     .strip('"') for key in ("isa", "products"))


def commit():
    """Returns the commit of the tree, read without git, which may be missing
    where this runs."""
    try:
        head = (ROOT / ".git/HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        return (head if name == head
                else (ROOT / ".git" / name).read_text().strip())[:12]
    except OSError:
        return "unknown"


def lines(a, case):
    """Yields (what, ours, peer's, speed-up, target, good) of one case."""
    ours, theirs = time_case(a, case)
    peer, target = case[4], case[6]
    ratio = theirs[0] / ours[0]
    yield ("step", show(ours[0]), show(theirs[0]), ratio, target,
           target is None or ratio >= target)
    if peer != "pipe":
        return
    for i, what, limit in (1, "first step at", FIRST), (2, "memory", MEMORY):
        text = [f"{v:.0f} MiB" if i == 2 else show(v)
                for v in (ours[i], theirs[i])]
        ratio = theirs[i] / ours[i]
        yield what, *text, ratio, 1 / limit, ratio >= 1 / limit


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=9)
    p.add_argument("--only", default="", metavar="TEXT")
    p.add_argument("--list", action="store_true")
    p.add_argument("--short", action="store_true")
    p.add_argument("--history", type=Path)
    a = p.parse_args()
    if a.short:
        a.rounds, a.steps = 1, 3
    cases = [c for c in CASES
             if a.only in c[0] and (not a.short or c[0] in SHORT)]
    if a.list or not cases:
        print("\n".join(c[0] for c in CASES))
        return 0 if a.list else 1
    a.workdir.mkdir(parents=True, exist_ok=True)
    history = a.history or a.workdir / "history.jsonl"
    print(f"{processor()}\nSGD; medians of {a.rounds} rounds of {a.steps} steps in "
          "alternation; pipe: 2 ranks with 1 thread each, 1f1b\n")
    print("| case | what | penstock | peer | | speed-up | target |")
    print("| --- | --- | --: | --: | --- | --: | --: |")
    missed = 0
    took = set()
    for case in cases:
        for what, ours, theirs, ratio, target, good in lines(a, case):
            missed += not good
            goal = "" if target is None else f"{target:.2f}"
            print(f"| {case[0]} | {what} | {ours} | {theirs} | {case[4]} | "
                  f"{ratio:.2f} | {'' if good else 'missed: '}{goal} |",
                  flush=True)
            with open(history, "a") as f:
                f.write(json.dumps({
                    "date": datetime.datetime.now().isoformat("T", "seconds"),
                    "commit": commit(), "processor": processor(),
                    "taken": taken(a.workdir / f"{case[1]}-{case[2]}"),
                    "case": case[0], "what": what, "penstock": ours, "peer": theirs,
                    "kind": case[4], "speed_up": round(ratio, 3)}) + "\n")
        took.add(taken(a.workdir / f"{case[1]}-{case[2]}"))
    print(f"\npenstock took: {'; '.join(sorted(took))}")
    return 1 if missed and not a.short else 0


if __name__ == "__main__":
    sys.exit(main())
