#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training with --autocast f16 and --loss-scale with PyTorch's under
torch.autocast("cpu", torch.float16) with torch.amp.GradScaler.

    scaling.py PENSTOCK DIR [--models gpt2,vit] [--steps 60]

The scale begins so large that steps overflow, and grows after few steps, so
that they overflow again. Of each step the scale, whether it was left out, and
the loss are compared. Scales and steps left out must be PyTorch's. Losses must
be as near to PyTorch's as two of its runs to each other, whose parameters
differ by less than f16 resolves. Both clip gradients by their norm. The ViT is
trained by SGD, whose updates show a factor of the gradients that Adam's hide.

PyTorch rounds gradients of weights to f16, which the command does not
(docs/bf16.md), so that there it may find an overflow one scale later; such a
step is named, and the case fails.
"""
import argparse
import copy
import re
import subprocess
import sys
from pathlib import Path

import reference
import torch
from safetensors.torch import save_file

PARTS = 4
CLIP = 1.0
GROWTH = 12


def options(name):
    """Returns the optimizer, and the same for the command."""
    if name == "vit":
        return (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
                ["--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"])
    return (lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01),
            ["--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.01"])


def torch_run(net, make, data, steps, first, nudge):
    """Returns (scale, left out, loss) of each step."""
    net = copy.deepcopy(net)
    torch.manual_seed(nudge)
    for p in net.parameters():
        p.data.mul_(1 + 1e-4 * nudge * torch.randn_like(p))
    opt = make(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=first,
                                  growth_interval=GROWTH)
    seen = []
    for step in range(steps):
        opt.zero_grad()
        loss = 0.0
        for part in data[step * PARTS:(step + 1) * PARTS]:
            with torch.autocast("cpu", torch.float16):
                one = net(**part)[0] / PARTS
            scaler.scale(one).backward()
            loss += one.item()
        scale = scaler.get_scale()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        scaler.step(opt)
        scaler.update()
        seen.append((scale, scaler.get_scale() < scale, loss))
    return seen


def our_run(penstock, folder, words, steps, first):
    """Returns the same of the command; the loss of a step left out is None."""
    log = folder / "log"
    subprocess.run(
        [penstock, "run", folder / "model.pt2", "--autocast", "f16",
         "--stages", "2", "-n", "2", "--data", folder / "data.safetensors",
         "-m", str(PARTS), "--steps", str(steps), "--transport", "self",
         *words, "--clip-norm", str(CLIP), "--log-every", "1", "--log-dir", log,
         "--loss-scale", f"init={first:.0f},growth-interval={GROWTH}",
         "--quiet"], check=True)
    seen = {}
    for line in (log / "rank-0.log").read_text("utf-8").splitlines():
        event = re.search(r"event=(step|step_overflow) ", line)
        if not event:
            continue
        step = int(re.search(r" step=(\d+)", line).group(1))
        scale = float(re.search(r" loss_scale=(\S+)", line).group(1))
        if event.group(1) == "step_overflow":
            seen[step] = (2 * scale, True, None)
        else:
            loss = float(re.search(r" loss=(\S+)", line).group(1))
            seen[step] = (scale, False, loss)
    return [seen[k + 1] for k in range(steps)]


def run_case(penstock, name, folder, steps, first):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    net, make_batch = reference.find(name)
    net.train()
    data = [make_batch() for _ in range(steps * PARTS)]
    torch.export.save(torch.export.export(copy.deepcopy(net), (), data[0],
                                          strict=False),
                      folder / "model.pt2")
    save_file({n: torch.cat([p[n] for p in data]) for n in data[0]},
              folder / "data.safetensors")
    make, words = options(name)
    ours = our_run(penstock, folder, words, steps, first)
    theirs = [torch_run(net, make, data, steps, first, k) for k in range(3)]
    wrong = [f"step {k + 1}: scale {a[0]:g}{' left out' if a[1] else ''}, "
             f"PyTorch {b[0]:g}{' left out' if b[1] else ''}"
             for k, (a, b) in enumerate(zip(ours, theirs[0]))
             if a[:2] != b[:2]]
    noise = max(abs(a[2] - b[2]) for k in (1, 2)
                for a, b in zip(theirs[0], theirs[k]))
    off = max(abs(a[2] - b[2]) for a, b in zip(ours, theirs[0])
              if a[2] is not None)
    left = sum(a[1] for a in ours)
    good = not wrong and off <= noise and left > 5
    print(f"{name:12} {steps} steps, {left} left out, scale {ours[0][0]:g} to "
          f"{ours[-1][0]:g}: loss {theirs[0][0][2]:.4f} to {ours[-1][2]:.4f}, "
          f"at most {off:.1e} from PyTorch's, which are {noise:.1e} apart  "
          f"{'; '.join(wrong[:4]) if wrong else 'ok' if good else 'WRONG'}",
          flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--models", default="gpt2,vit")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--first", type=float, default=2.0 ** 24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    good = [run_case(args.penstock, name, args.dir / name, args.steps,
                     args.first) for name in args.models.split(",")]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
