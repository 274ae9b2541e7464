#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real models in PyTorch and in penstock and compares every tensor.

    compare.py PENSTOCK WORKDIR [--full] [--seed N] [--only TEXT] [--list]

Eight groups of cases: `step` (every number of three steps against PyTorch in
float64), `bits` (dumps of different cuts, schedules, transports and runs are
equal bit for bit), `arch` (a step of many architectures with operators of
their own, in one and in three stages), `rows` (models with a free batch
dimension, at other sizes than they were exported with), `along` (samples along
dimensions other than 0), `narrow` (bf16), `small` (a microbatch of each tiny
model of small.py, in both forms of an export) and `resume` (a run that resumes
from a checkpoint equals one that was not interrupted). Without --full a random
sample of the cases runs. The last line is `N passed, N failed`.
"""
import argparse
import copy
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import architectures
import optimizers
import reference
import small

sys.path.append(str(Path(__file__).resolve().parents[1] / "daemon"))
from patience import PATIENCE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["mlp", "skips", "statistics", "transformer", "gpt2"]
STAGES = [1, 2, 3, 4]
SCHEDULES = ["gpipe", "1f1b"]
MICROBATCHES = [1, 4, 5]
OPTIMIZERS = ["sgd", "adamw"]
STEPS = 3
LR = 0.01

# Models whose export has lost a custom backward are run and compared, too.
os.environ.setdefault("PENSTOCK_ACCEPT_LOST_BACKWARD", "1")


class Failed(Exception):
    pass


def run_cases(cases, run, only_list, faults):
    """Runs each case, a tuple of words, or only lists them. A case that raises
    one of the exceptions `faults` has failed. Prints the counts; returns the
    exit code."""
    passed = failed = 0
    for case in cases:
        name = " ".join(case)
        if only_list:
            print(name)
            continue
        try:
            run(*case)
            passed += 1
            print(f"ok      {name}", flush=True)
        except faults as e:
            failed += 1
            print(f"FAILED  {name}\n{e}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def call(*words):
    """Runs a command. Returns its standard output, or raises Failed with its
    error messages."""
    words = [str(w) for w in words]
    try:
        done = subprocess.run(words, capture_output=True, text=True,
                              timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"still running after {PATIENCE:.0f} s: {' '.join(words)}")
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()[-8:]
        raise Failed("\n".join([f"exit code {done.returncode}: "
                                f"{' '.join(words)}", *said]))
    return done.stdout


class Bench:
    """Makes references, plans and dumps, and keeps them for further cases."""

    def __init__(self, penstock, work):
        self.penstock = penstock
        self.work = work
        self.no_core = set()
        self.exported = {}  # (model, form): file

    def reference(self, model, form, m, optimizer):
        folder = self.work / f"{model}-{form}-{m}-{optimizer}"
        if not (folder / "f64.safetensors").exists():
            try:
                reference.make(model, str(folder), m, form, optimizer, LR,
                               STEPS, self.exported.get((model, form)))
                self.exported[model, form] = folder / "model.pt2"
            except ValueError:
                if form != "core":
                    raise
                self.no_core.add(model)
                raise
        return folder

    def plan(self, model, form, stages):
        folder = self.work / f"{model}-{form}-{stages}.plan"
        if not folder.exists():
            call(self.penstock, "split", self.pt2(model, form), "-o", folder,
                 "--stages", stages)
        return folder

    def pt2(self, model, form):
        return next(self.work.glob(f"{model}-{form}-*/model.pt2"))

    def run(self, plan, ranks, data, *more, transport="mpi"):
        out = call(self.penstock, "run", plan, "-n", ranks, "--transport",
                   transport, "--data", data, "--threads", 1, "--json", *more)
        return json.loads(out.strip().splitlines()[-1])

    def dump(self, name, plan, ranks, ref, m, optimizer, schedule,
             steps=STEPS, transport="mpi"):
        path = self.work / f"{name.replace(' ', '-')}.safetensors"
        self.run(plan, ranks, ref / "data.safetensors", "-m", m, "--schedule",
                 schedule, "--steps", steps, "--optimizer", optimizer, "--dump",
                 path, *(["--lr", LR] if optimizer != "none" else []),
                 transport=transport)
        return path


def step_case(bench, name, model, form, stages, schedule, m, optimizer):
    ref = bench.reference(model, form, m, optimizer)
    plan = bench.plan(model, form, stages)
    dump = bench.dump(name, plan, stages, ref, m, optimizer, schedule)
    count, wrong = reference.check(dump, ref)
    dump.unlink()
    if wrong:
        raise Failed("\n".join([f"{len(wrong)} of {count} tensors differ",
                                *wrong[:8]]))


def relative_error(x, y):
    return ((x.double() - y).norm() / y.norm().clamp_min(1e-30)).item()


def narrow_case(bench, name, model, way):
    """Checks that the error of bf16 gradients against f64 is at most twice
    PyTorch's. Way `exported`: the model is in bf16; `products`: it is in f32
    with matmuls in bf16 (PyTorch: autocast)."""
    torch.manual_seed(0)
    net, make_batch = reference.find(model)
    exported = way == "exported"
    dtype = torch.bfloat16 if exported else torch.float32
    net = net.to(dtype).train()
    parts = [make_batch() for _ in range(3)]
    folder = bench.work / name.replace(" ", "-")
    folder.mkdir()
    torch.export.save(torch.export.export(net, (), parts[0], strict=False),
                      folder / "model.pt2")
    save_file({n: torch.cat([p[n] for p in parts]) for n in parts[0]},
              folder / "data.safetensors")
    wide = copy.deepcopy(net).double()
    for p in parts:
        wide(**p)[0].div(len(parts)).backward()
        with torch.autocast("cpu", torch.bfloat16, enabled=not exported):
            loss = net(**p)[0]
        loss.div(len(parts)).backward()
    first = None
    for n in (1, 2):
        call(bench.penstock, "split", folder / "model.pt2", "-o",
             folder / f"{n}.plan", "--stages", n)
        bench.run(folder / f"{n}.plan", n, folder / "data.safetensors", "-m",
                  len(parts), "--steps", 1, "--dump", folder / "dump", "--dtype",
                  "f32" if exported else "bf16")
        dump = load_file(folder / "dump")
        theirs = {n: p.grad for n, p in net.named_parameters()}
        wrong = [f"{n}: off by "
                 f"{relative_error(dump[f'grad.{n}'], p.grad):.2g}, PyTorch "
                 f"by {relative_error(theirs[n], p.grad):.2g}"
                 for n, p in wide.named_parameters()
                 if f"grad.{n}" in dump and
                 relative_error(dump[f"grad.{n}"], p.grad) >
                 2 * relative_error(theirs[n], p.grad) + 1e-3]
        if wrong:
            raise Failed("\n".join(wrong[:8]))
        data = (folder / "dump").read_bytes()
        if first is not None and data != first:
            raise Failed("two stages have other bits than one")
        first = data


def rows_case(bench, name, model, stages, m, rows):
    """Runs one step of `rows` rows in m microbatches, as even as possible,
    against PyTorch with a single batch: the loss is the mean over all rows."""
    torch.manual_seed(0)
    net, make_batch = reference.find(model)
    net.train()
    part = make_batch()
    folder = bench.work / name.replace(" ", "-")
    folder.mkdir()
    if (model, "rows") not in bench.exported:
        free = torch.export.Dim("batch", min=1, max=4096)
        torch.export.save(
            torch.export.export(net, (), part, strict=False, dynamic_shapes={
                n: {0: free} for n in part}), folder / "model.pt2")
        bench.exported[model, "rows"] = folder / "model.pt2"
    have, parts = 0, []
    while have < rows:
        parts.append(make_batch())
        have += len(next(iter(parts[-1].values())))
    data = {n: torch.cat([p[n] for p in parts])[:rows].clone() for n in part}
    save_file(data, folder / "data.safetensors")
    wide = copy.deepcopy(net).double()
    net(**data)[0].backward()
    wide(**{n: x.double() if x.is_floating_point() else x
            for n, x in data.items()})[0].backward()
    call(bench.penstock, "split", bench.exported[model, "rows"], "-o",
         folder / "plan", "--stages", stages)
    bench.run(folder / "plan", stages, folder / "data.safetensors", "-m", m,
              "--batch", rows, "--steps", 1, "--dump", folder / "dump",
              "--data-at", "first" if m % 2 else "all")
    dump = load_file(folder / "dump")
    theirs = {n: p.grad for n, p in net.named_parameters()}
    wrong = [f"{n}: off by {relative_error(dump[f'grad.{n}'], p.grad):.2g}, "
             f"PyTorch by {relative_error(theirs[n], p.grad):.2g}"
             for n, p in wide.named_parameters() if f"grad.{n}" in dump and
             relative_error(dump[f"grad.{n}"], p.grad) >
             max(reference.TIMES_TORCH * relative_error(theirs[n], p.grad),
                 reference.FLOORS["grad"])]
    if wrong:
        raise Failed("\n".join(wrong[:8]))
    if len(dump["output.1"]) != rows:
        raise Failed(f"{len(dump['output.1'])} rows came back, not {rows}")
    call(bench.penstock, "infer", folder / "plan", "-m", m, "--batch", rows,
         "--data", folder / "data.safetensors", "-o", folder / "infer")
    got = load_file(folder / "infer").get("1")
    if got is not None and not torch.allclose(
            got, net.eval()(**data)[1], rtol=1e-4, atol=1e-5):
        raise Failed("infer has other outputs")


def along_case(bench, name, model, sizes, stages, m):
    """Runs two steps with samples along --chunk dimensions. Compares a dump of
    the first step and the outputs of `infer` with PyTorch, for each
    microbatch. The file has one sample fewer than two steps need, so the last
    sample is the first one again."""
    torch.manual_seed(0)
    net, make_batch = reference.find(model)
    net.train()
    ins, outs = net.along
    parts = [make_batch() for _ in range(2 * m)]
    free = torch.export.Dim("batch", min=1, max=4096)
    folder = bench.work / name.replace(" ", "-")
    folder.mkdir()
    torch.export.save(
        torch.export.export(net, (), parts[0], strict=False, dynamic_shapes={
            n: {d: free} for n, d in ins.items()} if sizes == "free" else None),
        folder / "model.pt2")
    # The last sample repeats the first one.
    whole = {n: torch.cat([p[n] for p in parts], d) for n, d in ins.items()}
    places = whole["x"].shape[ins["x"]]
    at = torch.arange(places) % (places - 1)
    whole = {n: x.index_select(ins[n], at) for n, x in whole.items()}
    data = folder / "data.safetensors"
    save_file({n: x.narrow(ins[n], 0, places - 1).contiguous()
               for n, x in whole.items()}, data)
    given = []
    for k in range(2 * m):
        given.append(net(**{n: x.chunk(2 * m, ins[n])[k]
                            for n, x in whole.items()}))
        if k < m:
            given[k][0].div(m).backward()
    def joined(ys, d):
        if d is None:
            return torch.stack(ys) if ys[0].dim() == 0 else torch.cat(ys)
        return torch.cat(ys, d).narrow(
            d, 0, min(len(ys) * places // 2 // m, places - 1))

    want = [[joined([y[i] for y in given[:n]], d) for i, d in enumerate(outs)]
            for n in (m, 2 * m)]
    call(bench.penstock, "split", folder / "model.pt2", "-o", folder / "plan",
         "--stages", stages)
    along = "--chunk", ",".join(f"{n}={d}" for n, d in ins.items())
    bench.run(folder / "plan", stages, data, "-m", m, "--steps", 1, "--dump",
              folder / "dump", *along)
    call(bench.penstock, "infer", folder / "plan", "-m", m, "--data", data,
         "-o", folder / "infer", *along)
    dump, inferred = load_file(folder / "dump"), load_file(folder / "infer")
    pairs = {f"grad.{n}": (dump[f"grad.{n}"], p.grad)
             for n, p in net.named_parameters()}
    for i in range(len(outs)):
        pairs[f"output.{i}"] = dump[f"output.{i}"], want[0][i]
        pairs[f"{i} of infer"] = inferred[str(i)], want[1][i]
    wrong = [n for n, (x, y) in pairs.items() if x.shape != y.shape or
             not torch.allclose(x, y, rtol=1e-4, atol=1e-5)]
    if wrong:
        raise Failed(f"differ: {', '.join(wrong[:8])}")


def small_case(bench, name, model):
    """Runs one microbatch of a tiny model in one process: the training form of
    its export in one stage, the decomposed form in two."""
    ref = bench.work / f"{model}-small"
    reference.make(model, str(ref), 1, "both", "none", steps=1)
    for file, stages in (("model", 1), ("core", 2)):
        if file == "core" and model in small.TRAINING_ONLY:
            continue
        plan = ref / f"{file}.plan"
        call(bench.penstock, "split", ref / f"{file}.pt2", "-o", plan,
             "--stages", stages)
        dump = bench.dump(f"{name} {file}", plan, stages, ref, 1, "none",
                          "1f1b", steps=1, transport="self")
        count, wrong = reference.check(dump, ref)
        if wrong:
            raise Failed("\n".join([f"{file}.pt2: {len(wrong)} of {count} "
                                    "tensors differ", *wrong[:8]]))


def arch_case(bench, name, model, stages, form="training"):
    step_case(bench, name, model, form, stages, "1f1b", 2, "sgd")


# (ranks, stages, schedule, transport): all must have the results of the first.
CUTS = [(1, 1, "gpipe", "self"), (2, 2, "1f1b", "mpi"),
        (4, 4, "gpipe", "mpi"), (4, 4, "1f1b", "self"),
        (1, 1, "1f1b", "mpi"), (2, 4, "1f1b", "mpi"), (2, 2, "1f1b", "mpi")]


def bits_case(bench, name, model, m):
    """Checks that all CUTS have equal dumps. Gradients of a parameter that
    several stages use are summed in another order: such parameters are not
    compared, and only the first step is."""
    but = reference.shared_parameters(model)
    ref = bench.reference(model, "training", m, "adamw")
    first = None
    for i, (ranks, stages, schedule, transport) in enumerate(CUTS):
        dump = bench.dump(f"{name} {i}", bench.plan(model, "training", stages),
                          ranks, ref, m, "adamw", schedule,
                          steps=1 if but else STEPS, transport=transport)
        if first is None:
            first = dump
            continue
        wrong = reference.same(first, dump, but)
        if wrong:
            raise Failed(f"{ranks} ranks, {stages} stages, {schedule}, "
                         f"{transport}: differs from one stage in "
                         f"{', '.join(wrong[:8])}")


def resume_case(bench, name, steps, ranks):
    """Compares a run of half of the steps on two ranks, resumed on `ranks`
    ranks, with an uninterrupted run."""
    pt2 = ROOT / "examples/bytegpt/bytegpt.pt2"
    text = bench.work / "text"
    folder = bench.work / name.replace(" ", "-")
    plans = {}
    if not text.exists():
        licenses = sorted(Path("/usr/share/common-licenses").iterdir())
        text.write_bytes(b"".join(p.read_bytes() for p in licenses))
    for n in {2, ranks}:
        plans[n] = bench.work / f"bytegpt-{n}.plan"
        if not plans[n].exists():
            call(bench.penstock, "split", pt2, "-o", plans[n], "--stages", n)
    shutil.rmtree(folder, ignore_errors=True)

    def run(n, upto, where, *more):
        return bench.run(plans[n], n, text, "-m", 4, "--optimizer", "adamw",
                         "--lr", 2e-3, "--shuffle", "--steps", upto, "--dump",
                         folder / f"{where}.safetensors", "--checkpoint",
                         folder / where, *more)

    folder.mkdir()
    whole = run(2, steps, "whole")["losses"]
    parts = run(2, steps // 2, "parts")["losses"]
    parts += run(ranks, steps, "parts", "--resume")["losses"]
    if len(whole) != steps or len(parts) != steps:
        raise Failed(f"{len(whole)} and {len(parts)} losses, not {steps}")
    if ranks != 2:
        worst = max(abs(a - b) for a, b in zip(whole, parts))
        if worst > 1e-5:
            raise Failed(f"losses differ by {worst:.1e}")
        return
    wrong = [n for n in reference.same(folder / "whole.safetensors",
                                       folder / "parts.safetensors")
             if n.startswith(("param.", "buffer."))]
    if wrong or whole != parts:
        raise Failed(f"not the same bits: losses {whole == parts}, "
                     f"tensors {', '.join(wrong[:8])}")


def step_names(full, seed):
    core = ["mlp", "statistics", "gpt2"]
    grid = [("step", *c) for c in itertools.product(
        MODELS, ["training", "core"], STAGES, SCHEDULES, MICROBATCHES,
        OPTIMIZERS) if c[1] == "training" or c[0] in core]
    if full:
        return grid
    # Covers each model and form with each number of stages; draws the other
    # properties of a case.
    rng = random.Random(seed)
    groups = {}
    for c in grid:
        groups.setdefault(c[1:4], []).append(c)
    return [rng.choice(g) for g in groups.values()]


def all_cases(full, seed):
    cases = step_names(full, seed)
    cases += [("step", "mlp", "training", 2, "1f1b", 4, name)
              for name in optimizers.MAKERS if name not in OPTIMIZERS]
    cases += [("bits", model, m) for model in MODELS
              for m in (MICROBATCHES if full else [5])]
    cases += [("rows", model, n, m, rows)
              for model in ("mlp", "skips", "transformer", "gpt2", "denoiser")
              for n, m, rows in ((1, 1, 7), (2, 4, 10), (3, 3, 5))]
    cases += [("along", "sequences", "fixed", 1, 3),
              ("along", "sequences", "free", 2, 2),
              ("along", "columns", "free", 2, 2)]
    cases += [("narrow", model, way) for model in ("gpt2", "transformer")
              for way in ("exported", "products")]
    cases += [("narrow", "gemma2", "exported")]
    names = list(architectures.ARCHITECTURES)
    for name in ("sequences", "columns", "places"):
        names.remove(name)  # other lines have these models
    if not full:
        names = random.Random(seed).sample(names, 6)
    cases += [("arch", model, n) for model in names for n in (1, 3)]
    # The export of this model has assertions with effects.
    cases += [("arch", "factors", 2, "core")]
    # The dump must have each name of a shared buffer.
    cases += [("arch", "shared_buffers", 1)]
    cases += [("arch", "fno", 3), ("arch", "fno", 2, "core")]  # complex
    cases += [("arch", "denoiser", 2), ("arch", "autocast", 1)]
    cases += [("arch", "branches", 2), ("arch", "branches", 1, "core")]
    cases += [("arch", "loops", 2), ("arch", "places", 2)]
    cases += [("small", name) for name in small.SMALL]
    if full:
        cases += [("resume", 300, n) for n in (2, 1, 3, 4)]
    else:
        cases += [("resume", 10, n) for n in (2, 3)]
    return cases


RUN = {"step": step_case, "bits": bits_case, "arch": arch_case,
       "small": small_case,
       "rows": rows_case, "along": along_case, "narrow": narrow_case,
       "resume": resume_case}


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--full", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    shutil.rmtree(a.workdir, ignore_errors=True)
    a.workdir.mkdir(parents=True)
    bench = Bench(a.penstock, a.workdir)
    passed = failed = 0
    for case in all_cases(a.full, a.seed):
        name = " ".join(str(word) for word in case)
        if a.only not in name:
            continue
        if a.list:
            print(name)
            continue
        if case[0] == "step" and case[2] == "core" and \
                case[1] in bench.no_core:
            continue
        try:
            RUN[case[0]](bench, name, *case[1:])
            passed += 1
            print(f"ok      {name}", flush=True)
        except Failed as e:
            failed += 1
            print(f"FAILED  {name}\n{e}", flush=True)
        except Exception:  # PyTorch raised it: the other cases run on
            if case[1] in bench.no_core:
                print(f"left out {name}: PyTorch cannot write this form",
                      flush=True)
                continue
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
