#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares --autocast bf16 or f16 with torch.autocast.

    autocast.py PENSTOCK DIR [--models gpt2,llama,...] [--curves gpt2,...]
                [--dtype bf16|f16]

Dtypes: the exported program runs node by node on tensors without data of the
device "cuda" under torch.autocast("cuda"), so PyTorch's own lists decide; each
value of the split model must have the dtype of the node of that name. A value
that a region of the file casts is left out. With f16 they run on the CPU, and
training has a loss scale of 1024. Left out by default: transformer and t5, where
an element near the kink of a ReLU decides the error (of 8 runs with four seeds
ours were far off in 4, PyTorch's in 3), and lstm, which PyTorch cannot run in
f16 on every CPU.
Numbers: loss and gradients of one step against float64. The median over
tensors of the relative error must be at most 1.5 times that of
torch.autocast("cpu"). Bits are the same for all cuts.
Curves: 50 losses are as near to PyTorch's as two of its runs to each other.
"""
import argparse
import copy
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import casting
import reference
import torch
from safetensors.torch import load_file, save_file

MODELS = ["gpt2", "llama", "transformer", "vit", "resnet", "lstm",
          "convnet", "bert", "t5"]
F16_MODELS = ["gpt2", "llama", "vit", "resnet", "bert"]
TIMES = 1.5
LOW = {"bf16": torch.bfloat16, "f16": torch.float16}
SCALE = {"bf16": 1, "f16": 1024}
NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16",
         "f64": "float64", "i64": "int64", "i32": "int32", "bool": "bool",
         "u8": "uint8", "i8": "int8", "i16": "int16"}


def our_dtypes(penstock, plan, stages):
    """Returns the dtypes of the values of a plan, by name."""
    found = {}
    for stage in range(stages):
        text = subprocess.run(
            [penstock, "show", plan, "--stage", str(stage)], check=True,
            capture_output=True, text=True).stdout
        for line in text.splitlines():
            for name, dtype in re.findall(r"%([\w.]+): (\w+)\[",
                                          line.split(" = ")[0]):
                found.setdefault(name, NAMES[dtype])
    return found


def call(*args):
    return subprocess.run([str(a) for a in args], check=True,
                          capture_output=True, text=True).stdout


def loss_of(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


def error(x, y):
    return ((x.double() - y).norm() / y.norm().clamp_min(1e-30)).item()


def check_dtypes(penstock, program, batch, folder, low):
    device = "cuda" if low == torch.bfloat16 else "cpu"
    theirs = casting.dtypes(program, batch.values(), device, low)
    ours = our_dtypes(penstock, folder / "1.plan", 1)
    wrong = [f"{n}: {ours[n]}, PyTorch {d}" for n, d in theirs.items()
             if n in ours and ours[n] != d]
    both = [n for n in theirs if n in ours]
    low = sum(theirs[n] == str(low).split(".")[1] for n in both)
    return len(theirs), len(both), low, wrong


def run_case(penstock, name, folder, dtype):
    low, scale = LOW[dtype], SCALE[dtype]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    net, make_batch = reference.find(name)
    net.train()
    parts = [make_batch() for _ in range(4)]
    program = torch.export.export(copy.deepcopy(net), (), parts[0],
                                  strict=False)
    torch.export.save(program, folder / "model.pt2")
    save_file({n: torch.cat([p[n] for p in parts]) for n in parts[0]},
              folder / "data.safetensors")
    for n in (1, 2, 3):
        call(penstock, "split", folder / "model.pt2", "-o",
             folder / f"{n}.plan", "--stages", n, "--autocast", dtype)
    total, both, n_low, wrong = check_dtypes(penstock, program, parts[0],
                                             folder, low)
    wide = copy.deepcopy(net).double()
    exact = {}
    for p in parts:
        loss = loss_of(wide(**{n: t.double() if t.is_floating_point() else t
                               for n, t in p.items()}))
        loss.div(len(parts)).backward()
        exact["loss"] = exact.get("loss", 0) + loss.detach() / len(parts)
        with torch.autocast("cpu", low):
            cast = loss_of(net(**p))
        cast.div(len(parts)).mul(scale).backward()
        exact["cast"] = exact.get("cast", 0) + cast.detach() / len(parts)
    first = None
    for n, ranks in ((1, 1), (2, 2), (3, 2)):
        dump = folder / "dump"
        call(penstock, "run", folder / f"{n}.plan", "-n", ranks, "--data",
             folder / "data.safetensors", "-m", len(parts), "--steps", 1,
             "--transport", "self", "--optimizer", "none", "--dump", dump,
             "--loss-scale", scale if scale > 1 else "none")
        data = dump.read_bytes()
        if first is not None and data != first:
            wrong.append(f"{n} stages: other bits than one")
        first = data
    dump = load_file(folder / "dump")
    theirs = {n: p.grad / scale if p.grad is not None else None
              for n, p in net.named_parameters()}
    pairs = [(error(dump[f"grad.{n}"], p.grad), error(theirs[n], p.grad))
             for n, p in wide.named_parameters()
             if f"grad.{n}" in dump and p.grad is not None and
             p.grad.norm() > 1e-12]
    ours, torchs = (statistics.median(x) for x in zip(*pairs))
    loss = error(dump["loss"], exact["loss"])
    their_loss = error(exact["cast"], exact["loss"])
    if ours > TIMES * torchs:
        wrong.append(f"gradients off by {ours:.2g}, PyTorch's by {torchs:.2g}")
    print(f"{name:12} {total:5} {both:5} {n_low:5} {ours:9.2e} {torchs:9.2e} "
          f"{loss:9.2e} {their_loss:9.2e}  "
          f"{'; '.join(wrong[:6]) if wrong else 'ok'}", flush=True)
    return not wrong


def torch_losses(net, data, steps, parts, nudge):
    """Trains in PyTorch under autocast. nudge: relative change of parameters,
    far below what bf16 resolves, so that other numbers are rounded."""
    net = copy.deepcopy(net)
    torch.manual_seed(nudge)
    for p in net.parameters():
        p.data.mul_(1 + 2e-4 * nudge * torch.randn_like(p))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(steps):
        opt.zero_grad()
        total = 0.0
        for part in data[step * parts:(step + 1) * parts]:
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(**part)[0]
            loss.div(parts).backward()
            total += loss.item() / parts
        opt.step()
        losses.append(total)
    return losses


def curve_case(penstock, name, folder, steps=50, parts=4):
    """Compares the losses of `steps` steps with PyTorch's, and with the
    distance of two runs of PyTorch whose parameters differ by less than bf16
    resolves."""
    torch.manual_seed(0)
    net, make_batch = reference.find(name)
    net.train()
    data = [make_batch() for _ in range(steps * parts)]
    torch.export.save(torch.export.export(copy.deepcopy(net), (), data[0],
                                          strict=False),
                      folder / "curve.pt2")
    save_file({n: torch.cat([p[n] for p in data]) for n in data[0]},
              folder / "curve.safetensors")
    out = call(penstock, "run", folder / "curve.pt2", "--autocast", "bf16",
               "--stages", 2, "-n", 2, "--data", folder / "curve.safetensors",
               "-m", parts, "--steps", steps, "--transport", "self",
               "--optimizer", "adamw", "--lr", 1e-3, "--weight-decay", 0.01,
               "--json")
    ours = json.loads(out)["losses"]
    runs = [torch_losses(net, data, steps, parts, k) for k in range(3)]
    noise = max(abs(a - b) for k in (1, 2) for a, b in zip(runs[0], runs[k]))
    off = max(abs(a - b) for a, b in zip(runs[0], ours))
    print(f"{name:12} {steps} steps: loss {ours[0]:.4f} to {ours[-1]:.4f}, at "
          f"most {off:.1e} from PyTorch's, which are {noise:.1e} apart",
          flush=True)
    return off <= noise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--models")
    parser.add_argument("--curves", default="gpt2,vit",
                        help="with bf16; of f16 see scaling.py")
    parser.add_argument("--dtype", choices=LOW, default="bf16")
    args = parser.parse_args()
    models = args.models.split(",") if args.models is not None else \
        MODELS if args.dtype == "bf16" else F16_MODELS
    torch.set_num_threads(1)
    print(f"{'model':12} nodes  both   low gradients   PyTorch      loss   "
          "PyTorch")
    good = [run_case(args.penstock, name, args.dir / name, args.dtype)
            for name in models if name]
    good += [curve_case(args.penstock, name, args.dir / name)
             for name in args.curves.split(",")
             if name and args.dtype == "bf16"]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
