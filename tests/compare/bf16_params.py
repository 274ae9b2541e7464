#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares --params bf16 with a plain form of it in PyTorch and numpy.

    bf16_params.py PENSTOCK DIR [--models gpt2,vit,lstm] [--steps 200]
                   [--autocast bf16]

The plain form keeps each parameter in bf16, computes with it in f32, updates
an f32 copy by torch.optim's formula, and rounds that up with the probability of
the bits that are cut off, by the same numbers of Philox.

One step: elements whose updates differ in the last bits may be rounded to the
other neighbour, few may; states are compared, too. Many steps: losses are as
near to the plain form's as twice the distance of its runs, whose random numbers
differ. The same losses in f32 are beside them. Bits are the same for all cuts.
"""
import argparse
import copy
import ctypes
import ctypes.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import reference
import torch
from safetensors.torch import load_file, save_file

PARTS = 4
LR = 1e-3
# The stream of a parameter, among those that round its optimizer states.
VALUE = 0x80000000 + 9
xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011). counter: four arrays of u64."""
    c0, c1, c2, c3 = counter
    k0, k1 = (np.uint64(k) for k in key)
    low = np.uint64(0xffffffff)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low,
                          (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low)
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


def uniform(name, update, n, seed):
    """Returns the n random numbers of a parameter in an update, in [0, 1)."""
    data = name.encode()
    node = xxhash.XXH3_64bits_withSeed(data, len(data), 0) & 0xffffffff
    place = [np.array([x], np.uint64) for x in (update, 0, VALUE, node)]
    s = [int(x[0]) for x in philox(place, (seed, 0))]
    i = np.arange((n + 3) // 4, dtype=np.uint64)
    words = philox((i & np.uint64(0xffffffff), i >> np.uint64(32),
                    np.full_like(i, s[2]), np.full_like(i, s[3])), s[:2])
    words = np.stack(words, 1).reshape(-1)[:n]
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0 ** -24)


def round_up(x, u):
    """Rounds f32 to bf16 stochastically."""
    bits = x.numpy().view(np.uint32).astype(np.uint64)
    bits += (u * np.float32(65536)).astype(np.uint64).reshape(bits.shape)
    bits &= np.uint64(0xffff0000)
    return torch.from_numpy(bits.astype(np.uint32).view(np.float32))


class Plain:
    """A module whose parameters are bf16 between updates."""

    def __init__(self, net, low, seed):
        self.net = copy.deepcopy(net)
        self.low, self.seed, self.updates = low, seed, 0
        for p in self.net.parameters():
            p.data.copy_(p.data.bfloat16().float())
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=LR,
                                     weight_decay=0.01)

    def step(self, parts):
        self.opt.zero_grad()
        total = 0.0
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16,
                                enabled=self.low is not None):
                loss = self.net(**part)[0]
            loss.div(len(parts)).backward()
            total += loss.item() / len(parts)
        self.opt.step()
        for name, p in self.net.named_parameters():
            u = uniform(name, self.updates, p.numel(), self.seed)
            p.data.copy_(round_up(p.data.contiguous(), u))
        self.updates += 1
        return total


def run(penstock, folder, model, steps, low, *words):
    cast = ["--autocast", low] if low else []
    return subprocess.run(
        [penstock, "run", folder / model, *cast, "--data",
         folder / "data.safetensors", "-m", str(PARTS), "--steps", str(steps),
         "--transport", "self", "--optimizer", "adamw", "--lr", str(LR),
         "--weight-decay", "0.01", *words], check=True, capture_output=True,
        text=True).stdout


def check_step(penstock, folder, net, parts, low):
    """Compares one update, from the command's own gradients."""
    wrong, dumps = [], []
    for n, ranks, more in ((1, 1, []), (3, 2, []), (2, 2, ["--schedule",
                                                            "gpipe"])):
        dump = folder / "dump"
        run(penstock, folder, "model.pt2", 1, low, "--params", "bf16",
            "--stages", str(n), "-n", str(ranks), "--dump", dump, "--quiet",
            *more)
        dumps.append(dump.read_bytes())
    if any(d != dumps[0] for d in dumps):
        wrong.append("other bits for another cut")
    got = load_file(folder / "dump")
    all_, off = 0, 0
    for name, p in net.named_parameters():
        grad, value = got.get(f"grad.{name}"), got.get(f"param.{name}")
        if grad is None:
            continue
        if grad.dtype != torch.float32 or value.dtype != torch.bfloat16:
            wrong.append(f"{name}: {grad.dtype}, {value.dtype}")
        w = torch.nn.Parameter(p.detach().bfloat16().float())
        w.grad = grad
        torch.optim.AdamW([w], lr=LR, weight_decay=0.01).step()
        want = round_up(w.detach(), uniform(name, 0, w.numel(), 0))
        all_ += w.numel()
        off += (want != value.float()).sum().item()
    if all_ == 0 or off > all_ * 1e-3:
        wrong.append(f"{off} of {all_} elements differ")
    return all_, off, wrong


def case(penstock, name, folder, steps, low):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    net, make_batch = reference.find(name)
    net.train()
    data = [make_batch() for _ in range(steps * PARTS)]
    torch.export.save(torch.export.export(copy.deepcopy(net), (), data[0],
                                          strict=False), folder / "model.pt2")
    save_file({n: torch.cat([p[n] for p in data]) for n in data[0]},
              folder / "data.safetensors")
    all_, off, wrong = check_step(penstock, folder, net, data[:PARTS], low)
    ours, wide = (json.loads(run(
        penstock, folder, "model.pt2", steps, low, "--stages", "2", "-n", "2",
        "--json", *words))["losses"]
        for words in (["--params", "bf16"], []))
    runs = [[plain.step(data[k * PARTS:(k + 1) * PARTS])
             for k in range(steps)]
            for plain in (Plain(net, low, seed) for seed in (0, 1, 2))]
    noise = max(abs(a - b) for k in (1, 2) for a, b in zip(runs[0], runs[k]))
    apart = max(abs(a - b) for a, b in zip(runs[0], ours))
    tail = steps // 10
    ends = [sum(x[-tail:]) / tail for x in (ours, runs[0], wide)]
    if apart > 2 * noise:
        wrong.append(f"losses are {apart:.1e} apart, noise is {noise:.1e}")
    print(f"{name:8} {off} of {all_} elements differ; {steps} steps: at most "
          f"{apart:.1e} from the plain form, whose runs are {noise:.1e} apart; "
          f"last {tail}: {ends[0]:.4f}, plain {ends[1]:.4f}, f32 {ends[2]:.4f}"
          f"  {'; '.join(wrong) or 'ok'}", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--models", default="gpt2,vit,lstm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--autocast", choices=["bf16"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    good = [case(args.penstock, name, args.dir / name, args.steps,
                 args.autocast) for name in args.models.split(",")]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
