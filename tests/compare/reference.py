#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes PyTorch's results of training steps, and compares penstock's with
them.

    reference.py make MODEL DIR [-m 4] [--form training|core] [--steps 3]
                                [--optimizer none|sgd|adamw|...]
                                [--lr 0.01]
    reference.py check DUMP DIR
    reference.py same DUMP DUMP [--but NAME ...]

DIR gets model.pt2 (with the shape of one microbatch), data.safetensors
(microbatches along dimension 0) and the results of the steps in both
precisions, f32.safetensors and f64.safetensors, with the names of `penstock
run --dump`.

A tensor passes if its error against float64 is at most ten times PyTorch's own
error in float32, or below a floor. Errors are relative norms; for a tensor
that is zero except for rounding, the error is relative to the usual size of
its kind.
"""
import argparse
import copy
import os
import shutil
import sys
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import models  # noqa: E402
import optimizers  # noqa: E402

FLOORS = {"loss": 2e-6, "losses": 2e-6, "output": 1e-5, "grad": 5e-5,
          "param": 5e-6, "buffer": 1e-5}
TIMES_TORCH = 10


def kind(name):
    return name.split(".")[0]


def joined(parts):
    return torch.stack(parts) if parts[0].dim() == 0 else torch.cat(parts)


def pairs(t):
    """Returns complex numbers as pairs of floats, as penstock stores them."""
    return torch.view_as_real(t) if t.is_complex() else t


def converted(model, dtype):
    """Returns a copy of the model with that dtype; complex tensors get the
    corresponding complex dtype."""
    model = copy.deepcopy(model)

    def convert(t):
        return t.to(dtype.to_complex() if t.is_complex() else dtype) \
            if t.is_complex() or t.is_floating_point() else t
    return model._apply(convert)  # pylint: disable=protected-access


def train(model, batch, microbatches, optimizer, lr, steps, dtype):
    """Trains in PyTorch. Returns the tensors of a dump: those of the first
    step and the final parameters."""
    model = converted(model, dtype)
    batch = {k: v.to(dtype) if v.is_floating_point() else v
             for k, v in batch.items()}
    opt = None
    if optimizer != "none":
        opt = optimizers.make(optimizer, model.parameters(), lr)
    dump = {}
    for step in range(steps):
        losses, outputs = [], []
        model.zero_grad()
        for k in range(microbatches):
            part = {n: v.chunk(microbatches)[k] for n, v in batch.items()}
            out = [t.detach() if i else t for i, t in enumerate(
                t for t in tree_leaves(model(**part))
                if isinstance(t, torch.Tensor))]
            (out[0] / microbatches).backward()
            losses.append(out[0].detach())
            outputs.append([losses[-1], *out[1:]])
        if step == 0:
            dump["losses"] = torch.stack(losses)
            dump["loss"] = dump["losses"].mean()
            for i in range(len(outputs[0])):
                dump[f"output.{i}"] = joined([o[i] for o in outputs])
            for n, p in model.named_parameters(remove_duplicate=False):
                if p.requires_grad:
                    grad = torch.zeros_like(p) if p.grad is None else p.grad
                    dump[f"grad.{n}"] = grad
            dump = {n: t.clone() for n, t in dump.items()}
        if opt:
            opt.step()
    for n, p in model.named_parameters(remove_duplicate=False):
        dump[f"param.{n}"] = p.detach().clone()
    for n, b in model.named_buffers(remove_duplicate=False):
        dump[f"buffer.{n}"] = b.clone()
    return {n: pairs(t).contiguous() for n, t in dump.items()}


def find(name):
    """Returns (module, function that makes one microbatch) of a model by its
    name."""
    if name in models.MODELS:
        make_model, make_batch = models.MODELS[name]
        return make_model(), make_batch
    import small
    if name in small.SMALL:
        return small.SMALL[name]()
    import architectures
    import zoo
    return {**architectures.ARCHITECTURES, **zoo.ZOO}[name]()


def make(name, folder, microbatches=4, form="training", optimizer="adamw",
         lr=0.01, steps=3, exported=None):
    """Writes the files of DIR. form "both": also writes the decomposed
    program, as core.pt2. exported: a file with the program in that form, if
    one exists."""
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    model, make_batch = find(name)
    model.train()
    if exported is None:
        program = torch.export.export(copy.deepcopy(model), (), make_batch(),
                                      strict=False)
        if form == "core":
            program = program.run_decompositions()
        torch.export.save(program, f"{folder}/model.pt2")
        if form == "both":
            torch.export.save(program.run_decompositions(),
                              f"{folder}/core.pt2")
    else:
        shutil.copy(exported, f"{folder}/model.pt2")
    torch.manual_seed(1)
    parts = [make_batch() for _ in range(microbatches)]
    batch = {n: torch.cat([p[n] for p in parts]) for n in parts[0]}
    save_file(batch, f"{folder}/data.safetensors")
    for bits, dtype in ((32, torch.float32), (64, torch.float64)):
        save_file(train(model, batch, microbatches, optimizer, lr, steps,
                        dtype), f"{folder}/f{bits}.safetensors")


def names_of_one(f32):
    """Returns {name: all names of that tensor}, since a dump has a tied
    parameter under any one of its names."""
    same = {}
    for n, t in f32.items():
        if kind(n) in ("grad", "param"):
            key = kind(n), tuple(t.shape), t.numpy().tobytes()
            same.setdefault(key, []).append(n)
    return {n: names for names in same.values() for n in names}


def usual_size(tensors, which):
    flat = [t.flatten() for n, t in tensors.items()
            if kind(n) == which and t.is_floating_point()]
    return torch.cat(flat).square().mean().sqrt().item() if flat else 0.0


def check(dump_file, folder):
    """Returns (number of tensors compared, list of faults)."""
    dump = load_file(dump_file)
    f32 = load_file(f"{folder}/f32.safetensors")
    f64 = load_file(f"{folder}/f64.safetensors")
    names = names_of_one(f32)
    sizes = {k: usual_size(f64, k) for k in FLOORS}
    wrong = []
    for n, want in f64.items():
        found = [m for m in [n, *names.get(n, [])] if m in dump]
        if not found:
            wrong.append(f"{n}: missing")
            continue
        got = dump[found[0]]
        if got.shape != want.shape:
            wrong.append(f"{n}: shape {tuple(got.shape)}, "
                         f"not {tuple(want.shape)}")
        elif not want.is_floating_point():
            if not torch.equal(got.to(want.dtype), want):
                wrong.append(f"{n}: integers differ")
        else:
            scale = max(want.norm().item(),
                        1e-3 * sizes[kind(n)] * want.numel() ** 0.5, 1e-30)
            error = (got.double() - want).norm().item() / scale
            theirs = (f32[n].double() - want).norm().item() / scale
            limit = max(TIMES_TORCH * theirs, FLOORS[kind(n)])
            if not error <= limit:  # NaN is wrong too
                wrong.append(f"{n}: error {error:.2e}, PyTorch's "
                             f"{theirs:.2e}, limit {limit:.2e}")
    return len(f64), wrong


def same(a, b, but=()):
    """Returns the names of tensors whose bits differ between two dumps."""
    x, y = load_file(a), load_file(b)
    return [n for n in sorted(x.keys() | y.keys())
            if n.split(".", 1)[-1] not in but and
            (n not in x or n not in y or x[n].dtype != y[n].dtype or
             x[n].shape != y[n].shape or
             x[n].numpy().tobytes() != y[n].numpy().tobytes())]


def shared_parameters(name):
    """Returns all names of parameters that have several names."""
    torch.manual_seed(0)
    owners = {}
    model = models.MODELS[name][0]()
    for n, p in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(p), []).append(n)
    return {n for names in owners.values() if len(names) > 1 for n in names}


def main():
    top = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = top.add_subparsers(dest="command", required=True)
    p = sub.add_parser("make")
    p.add_argument("model", choices=models.MODELS)
    p.add_argument("dir")
    p.add_argument("-m", "--microbatches", type=int, default=4)
    p.add_argument("--form", choices=["training", "core"], default="training")
    p.add_argument("--optimizer", choices=["none", *optimizers.MAKERS],
                   default="adamw")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--steps", type=int, default=3)
    p = sub.add_parser("check")
    p.add_argument("dump")
    p.add_argument("dir")
    p = sub.add_parser("same")
    p.add_argument("dumps", nargs=2)
    p.add_argument("--but", nargs="*", default=[])
    a = top.parse_args()
    if a.command == "make":
        make(a.model, a.dir, a.microbatches, a.form, a.optimizer, a.lr,
             a.steps)
        return 0
    if a.command == "check":
        count, wrong = check(a.dump, a.dir)
        print(f"{count} tensors compared, {len(wrong)} differ", *wrong,
              sep="\n")
    else:
        wrong = same(*a.dumps, a.but)
        print(f"{len(wrong)} tensors differ", *wrong, sep="\n")
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
