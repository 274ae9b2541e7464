#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every model of zoo.py with every cut, against PyTorch.

    sweep.py PENSTOCK WORKDIR [--full] [--seed N] [--only TEXT] [--list]
                              [--number N]

A case is a model, a cut and a schedule. Cuts: uncut; 2, 3 and 4 stages of
equal cost (`--policy flops`); before two modules; before each block (`--at`).
Schedules: gpipe and 1f1b, with --full also zb-h1. Each case is one step
without optimizer and passes if `reference.py check` finds loss, outputs and
gradients equal. Without --full, N random cases run, with every model at least
once. The last line is `N passed, N failed`.
"""
import argparse
import json
import random
import shutil
import sys
from pathlib import Path

import reference
from compare import Failed, call, run_cases
from zoo import ZOO

ROOT = Path(__file__).resolve().parents[2]
CUTS = ["whole", "flops-2", "flops-3", "flops-4", "two-names", "blocks"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1"]
MICROBATCHES = 4
NUMBER = 100


def blocks(model):
    """Returns the names of the items of the outermost lists of modules, in
    order; of the model's children if it has no list."""
    import torch.nn as nn
    found = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f + ".") or name == f for f in found)
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and not inside:
            found += [f"{name}.{k}" for k in range(len(module))]
    return found or [n for n, _ in model.named_children()]


class Sweep:
    def __init__(self, penstock, work):
        self.zoo = ZOO
        self.penstock = penstock
        self.work = work
        self.blocks = {}

    def make(self, model):
        folder = self.work / model
        if model in self.blocks:
            return folder
        reference.make(model, folder, MICROBATCHES, optimizer="none", steps=1)
        self.blocks[model] = blocks(self.zoo[model]()[0])
        return folder

    def names(self, model, cut):
        """Returns the modules of a cut that the graph uses, since --at refuses
        others."""
        out = call(self.penstock, "show", self.work / model / "model.pt2",
                   "--modules", "--json")
        have = {m["module"].split("@")[0] for m in json.loads(out)["modules"]}
        names = [b for b in self.blocks[model]
                 if any(h == b or h.startswith(b + ".") for h in have)]
        if cut == "two-names":
            rng = random.Random(model)
            names = sorted(rng.sample(names, min(2, len(names))))
        return names

    def options(self, model, cut):
        if cut == "whole":
            return ["--stages", 1]
        if cut.startswith("flops"):
            return ["--policy", "flops", "--stages", cut.split("-")[1]]
        return [w for n in self.names(model, cut) for w in ("--at", n)]

    def run(self, model, cut, schedule):
        folder = self.make(model)
        dump = folder / f"{cut}-{schedule}.safetensors"
        call(self.penstock, "run", folder / "model.pt2", "--transport", "self",
             "--threads", 1, "--data", folder / "data.safetensors", "-m",
             MICROBATCHES, "--schedule", schedule, "--optimizer", "none",
             "--dump", dump, "--quiet", *self.options(model, cut))
        _, wrong = reference.check(dump, folder)
        dump.unlink()
        if wrong:
            raise Failed("\n".join(wrong[:6]))


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--full", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--number", type=int, default=NUMBER, help="of cases")
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    shutil.rmtree(a.workdir, ignore_errors=True)
    sweep = Sweep(a.penstock, a.workdir)
    schedules = SCHEDULES if a.full else SCHEDULES[:2]
    cases = [(m, c, s) for m in sweep.zoo for c in CUTS for s in schedules
             if a.only in f"{m} {c} {s}"]
    rng = random.Random(a.seed)
    if not a.full:
        # The sample has one case of each model first.
        first = [rng.choice([c for c in cases if c[0] == m])
                 for m in sweep.zoo if any(c[0] == m for c in cases)]
        rest = [c for c in cases if c not in first]
        rng.shuffle(rest)
        cases = first + rest[:max(a.number - len(first), 0)]
    return run_cases(cases, sweep.run, a.list, Failed)


if __name__ == "__main__":
    sys.exit(main())
