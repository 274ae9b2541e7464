#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that two builds of penstock compute the same bits.

    bits.py OLD NEW WORKDIR [--only TEXT] [--sample N] [--seed N] [--list]
                            [--shadow]

OLD and NEW are two programs `penstock`, each with its own `penstockd` beside
it. A case is a model of the zoo (or examples/bytegpt), a cut, a schedule and a
transport: two steps of AdamW on four microbatches. It passes if both builds
write dumps that are equal byte for byte: loss, outputs, gradients, parameters
and buffers. --sample N runs N cases, chosen by the seed. The last line is `N
passed, N failed`.

--shadow runs NEW on the device "shadow" (stages/ops/cpu/shadow.h), whose
memory the host cannot access: a case passes only if, in addition, each of its
processes finished on that device.

A change that is meant to keep all bits is compared with the commit before it.
For any other change, the script lists the cases that differ.
"""
import argparse
import os
import random
import sys
import time
from pathlib import Path

from compare import Failed, call, run_cases
from sweep import MICROBATCHES, ROOT, Sweep

CUTS = ["whole", "flops-2", "flops-4"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "interleaved-1f1b"]
TRANSPORTS = ["self", "mpi"]
BYTEGPT = "bytegpt"


class Bits(Sweep):
    def make(self, model):
        return ROOT / "examples" / BYTEGPT if model == BYTEGPT else \
            super().make(model)

    def model_and_data(self, model):
        folder = self.make(model)
        if model != BYTEGPT:
            return folder / "model.pt2", folder / "data.safetensors"
        text = self.work / "text"
        text.write_bytes((ROOT / "LICENSE").read_bytes())
        return folder / "bytegpt.pt2", text

    def dump(self, penstock, case):
        model, cut, schedule, transport = case
        file, data = self.model_and_data(model)
        stages = 1 if cut == "whole" else int(cut.split("-")[1])
        ranks = min(stages, 2)
        words = ["--transport", transport, "-n", ranks, "--stages", stages]
        to = self.work / "dump.safetensors"
        to.unlink(missing_ok=True)
        call(penstock, "run", file, "--policy", "flops", "--threads", 1,
             "--data", data, "-m", MICROBATCHES, "--schedule", schedule,
             "--optimizer", "adamw", "--lr", "0.01", "--steps", 2, "--dump",
             to, "--quiet", *words)
        return to.read_bytes()

    def dump_on_shadow(self, penstock, case):
        said = self.work / "shadow.txt"
        said.unlink(missing_ok=True)
        os.environ.update(PENSTOCK_DEVICE="shadow", PENSTOCK_SHADOW=str(said))
        try:
            dump = self.dump(penstock, case)
        finally:
            del os.environ["PENSTOCK_DEVICE"], os.environ["PENSTOCK_SHADOW"]
        ranks = 1 if case[1] == "whole" else 2
        lines = said.read_text().splitlines() if said.exists() else []
        if len(lines) < ranks or not all(
                x.endswith(" 0 touches by the host") for x in lines):
            raise Failed(f"{ranks} ranks, but the device says: {lines}")
        return dump

    def compare(self, old, new, case, shadow):
        run = self.dump_on_shadow if shadow else self.dump
        if self.dump(old, case) != run(new, case):
            raise Failed("the dumps differ")


def cases_of(sweep):
    for model in [*sweep.zoo, BYTEGPT]:
        for cut in CUTS:
            for schedule in SCHEDULES:
                # Looped schedules need two stages per rank, which flops-2 does
                # not give.
                if schedule == "interleaved-1f1b" and cut == "flops-2":
                    continue
                for transport in TRANSPORTS:
                    yield model, cut, schedule, transport


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", type=Path)
    p.add_argument("new", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--sample", type=int, default=0, metavar="N")
    p.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    p.add_argument("--list", action="store_true")
    p.add_argument("--shadow", action="store_true")
    a = p.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    sweep = Bits(a.new.resolve(), a.workdir.resolve())
    cases = [c for c in cases_of(sweep) if a.only in " ".join(c)]
    if a.sample:
        print(f"seed {a.seed}")
        random.Random(a.seed).shuffle(cases)
        cases = cases[:a.sample]

    def run(*case):
        sweep.compare(a.old.resolve(), a.new.resolve(), case, a.shadow)

    return run_cases(cases, run, a.list, Failed)


if __name__ == "__main__":
    sys.exit(main())
