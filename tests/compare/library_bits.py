#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library with the command, bit by bit, on the models of zoo.py.

    library_bits.py PENSTOCK WORKDIR [--full] [--seed N] [--only TEXT] [--list]

A case is a model, a cut, a schedule and a number of ranks: two steps of AdamW
on four microbatches by `penstock run --dump` and by penstock.py on the same
arrays, and `penstock infer` and a pass of the library on the parameters of the
file. Losses, outputs, gradients, parameters and buffers are the same bytes.
--full runs all cases, otherwise each model has one, drawn by the seed. Files
of a model that sweep.py has left in WORKDIR are used. The last line is `N
passed, N failed`.
"""
import argparse
import itertools
import json
import random
import shutil
import struct
import sys
from pathlib import Path

from compare import Failed, call, run_cases
from sweep import MICROBATCHES, ROOT, Sweep, blocks

# The one file that the build makes of lib/python/.
sys.path += [str(Path(sys.argv[1]).resolve().parents[1] / "lib" / "python"),
             str(ROOT / "tests" / "daemon")]
sys.dont_write_bytecode = True
import penstock  # noqa: E402
import tensor_file  # noqa: E402

CUTS = ["whole", "flops-2", "flops-3", "flops-4", "blocks"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1"]
RANKS = ["one rank", "all ranks"]
STEPS = 2
FORMATS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "U8": "B",
           "BOOL": "?"}


def same(what, got, wanted):
    if bytes(got) != bytes(wanted):
        raise Failed(f"{what} differs")


class Bits(Sweep):
    def make(self, model):
        folder = self.work / model
        if model not in self.blocks and (folder / "model.pt2").exists() and \
                (folder / "data.safetensors").exists():
            self.blocks[model] = blocks(self.zoo[model]()[0])
        return super().make(model)

    def command(self, folder, plan, schedule, ranks):
        """Returns the dump of the command, and the outputs of infer."""
        data, dump = folder / "data.safetensors", folder / "dump.safetensors"
        out = folder / "infer.safetensors"
        common = ["--threads", 1, "-m", MICROBATCHES, "--data", data]
        call(self.penstock, "run", plan, *common, "--transport", "self", "-n",
             ranks, "--schedule", schedule, "--optimizer", "adamw", "--lr",
             "0.01", "--steps", STEPS, "--dump", dump, "--quiet")
        call(self.penstock, "infer", plan, *common, "-o", out)
        return tensor_file.load(dump)[0], tensor_file.load(out)[0]

    def library(self, folder, plan, schedule, ranks, dump, outputs):
        data, _ = tensor_file.load(folder / "data.safetensors")
        arrays = {name: memoryview(body).cast(FORMATS[dtype], shape)
                  for name, (dtype, shape, body) in data.items()}
        with penstock.Model(plan) as model:
            session = model.session(microbatches=MICROBATCHES, threads=1,
                                    ranks=ranks, schedule=schedule,
                                    optimizer="adamw", lr="0.01")
            inputs = [arrays[i.name] for i in model.inputs]
            check_outputs(session, inputs, outputs)
            for k in range(STEPS):
                step = session.train_step(*inputs)
                if k == 0:
                    same("the loss", struct.pack("<f", step.loss),
                         dump["loss"][2])
                    check_all(dump, "grad.", [p.name for p in model.parameters
                                              if p.trained], session.gradient)
            check_all(dump, "param.", [p.name for p in model.parameters],
                      session.get)
            check_all(dump, "buffer.", [b.name for b in model.buffers],
                      session.get)

    def compare(self, model, cut, schedule, ranks):
        folder = self.make(model)
        plan = folder / "library.plan"
        shutil.rmtree(plan, ignore_errors=True)
        about = json.loads(call(self.penstock, "split", folder / "model.pt2",
                                "-o", plan, "--json",
                                *self.options(model, cut)))
        n = 1 if ranks == "one rank" else about["stage_count"]
        dump, outputs = self.command(folder, plan, schedule, n)
        self.library(folder, plan, schedule, n, dump, outputs)


def check_outputs(session, inputs, outputs):
    session.forward(*inputs)
    for i, info in enumerate(session.outputs):
        same(f"output {info.name}", session.output(i).view,
             outputs[info.name][2])
    if not outputs:
        raise Failed("infer has no outputs")


def check_all(dump, kind, names, call_library):
    wanted = {name[len(kind):]: body for name, (_, _, body) in dump.items()
              if name.startswith(kind)}
    if set(wanted) - set(names):
        raise Failed(f"{kind}: the command alone has "
                     f"{sorted(set(wanted) - set(names))}")
    if kind == "param." and not wanted:
        raise Failed("the dump has no parameters")
    for name, body in wanted.items():
        same(kind + name, call_library(name).view, body)


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--full", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    path = a.penstock.resolve()
    penstock.load(str(path.parents[1] / "lib" / "libpenstock.so.0"))
    bits = Bits(path, a.workdir.resolve())
    rng, cases = random.Random(a.seed), []
    for model in bits.zoo:
        of_model = [c for c in itertools.product([model], CUTS, SCHEDULES,
                                                 RANKS) if a.only in " ".join(c)]
        cases += of_model if a.full or not of_model else [rng.choice(of_model)]
    return run_cases(cases, bits.compare, a.list, (Failed, penstock.Error))


if __name__ == "__main__":
    sys.exit(main())
