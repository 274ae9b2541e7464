#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that steps replayed as CUDA graphs have the bits of steps without
them, for models of the zoo on the emulated CUDA driver.

    graphs.py PENSTOCK WORKDIR [--full] [--seed N] [--number N] [--only TEXT]
                               [--list]

A case is a model, a cut and a schedule: four steps of AdamW on the device cuda,
with --no-graphs and without. It passes if both write the same dump (loss,
outputs, gradients, parameters and buffers), and if the log says that kernels
were replayed, none of them with --no-graphs. Without --full, N random cases
run. The driver is that of the build of PENSTOCK. The last line is `N passed,
N failed`.
"""
import argparse
import os
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from compare import Failed, call, run_cases  # noqa: E402
from sweep import MICROBATCHES, Sweep  # noqa: E402

CUTS = ["whole", "flops-2", "flops-4"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1"]
STEPS = 4  # one by one, recorded, replayed twice
NUMBER = 8


class Graphs(Sweep):
    def dump(self, case, *words):
        """Returns the dump, and the number of kernels that were replayed."""
        model, cut, schedule = case
        folder, to = self.make(model), self.work / "dump.safetensors"
        log = self.work / "log" / "rank-0.log"
        to.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        call(self.penstock, "run", folder / "model.pt2", "--transport", "self",
             "--threads", 1, "--data", folder / "data.safetensors", "-m",
             MICROBATCHES, "--schedule", schedule, "--optimizer", "adamw",
             "--lr", "0.01", "--steps", STEPS, "--dump", to, "--quiet",
             "--device", "cuda", "--log-dir", log.parent,
             *self.options(model, cut), *words)
        lines = [line for line in log.read_text().splitlines()
                 if " event=graphs " in line]
        if not lines or any(" why=" in line for line in lines):
            raise Failed(f"the log says: {lines}")
        return to.read_bytes(), sum(
            int(re.search(r" kernels=(\d+)", line)[1]) for line in lines)

    def run(self, *case):
        off, none = self.dump(case, "--no-graphs")
        on, kernels = self.dump(case)
        if none != 0 or kernels == 0:
            raise Failed(f"{kernels} kernels were replayed, and with "
                         f"--no-graphs {none}")
        if on != off:
            raise Failed("the dumps differ")
        print(f"        {kernels} kernels of a step were replayed")


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--full", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--number", type=int, default=NUMBER, help="of cases")
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    sweep = Graphs(a.penstock.resolve(), a.workdir.resolve())
    driver = sweep.penstock.parents[1] / "tests" / "cuda" / "libcuda-test.so"
    os.environ.update(PENSTOCK_LIBCUDA=str(driver), PENSTOCK_TEST_CUDA_OPEN="1")
    cases = [(m, c, s) for m in sweep.zoo for c in CUTS for s in SCHEDULES
             if a.only in f"{m} {c} {s}"]
    if not a.full:
        random.Random(a.seed).shuffle(cases)
        cases = cases[:a.number]
    return run_cases(cases, sweep.run, a.list, Failed)


if __name__ == "__main__":
    sys.exit(main())
