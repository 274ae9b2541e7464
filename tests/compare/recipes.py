#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains three models for 200 steps with each optimizer, with products in f32
and in bf16, and compares the weights with those of a reference in PyTorch.

usage: recipes.py PENSTOCK [--full] [TEXT]

Without --full only OFTEN of the optimizers. TEXT: only cases whose name has it.

The models are a regression, a language model with a tied embedding, and a
classifier of small images. References: optimizers.py in f32, also of bf16
products; of 8-bit states AdamW whose states pass through the dynamic map after each step
(Dettmers et al. 2021), and bitsandbytes' AdamW8bit where it is installed; of
bf16 states AdamW in f32. Printed are the largest difference of a tensor, relative
to how far it moved, and the mean loss of the last 20 steps of both. Rounding to
the nearest code, or at random, and bf16 turn small differences into large ones,
so there the losses are compared; so do signs (lion) of what is nearly 0.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import groups
from optimizers import MAKERS, Both

STEPS, ROWS, LR = 200, 8, .003
try:
    from bitsandbytes.optim import AdamW8bit
except ImportError:
    AdamW8bit = None


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 48), nn.Tanh(),
                                 nn.Linear(48, 48), nn.Tanh(),
                                 nn.Linear(48, 4))

    def forward(self, x, y):
        return nn.functional.mse_loss(self.net(x), y)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(),
                                 nn.MaxPool2d(2), nn.Conv2d(12, 24, 3),
                                 nn.ReLU(), nn.Flatten(), nn.Linear(96, 5))

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y)


def regression():
    x = torch.randn(STEPS * ROWS, 16)
    return Regression(), x, torch.sin(x @ torch.randn(16, 4) / 3)


def language():
    """A chain in which three of four words follow from the one before."""
    words = torch.randint(groups.WORDS, (STEPS * ROWS, groups.LENGTH + 1))
    for k in range(1, groups.LENGTH + 1):
        known = torch.rand(len(words)) < .75
        words[known, k] = words[known, k - 1] * 5 % groups.WORDS
    return groups.Model(), words[:, :-1].contiguous(), words[:, 1:].contiguous()


def images():
    y = torch.randint(5, (STEPS * ROWS,))
    return Images(), torch.randn(5, 3, 8, 8)[y] + torch.randn(
        STEPS * ROWS, 3, 8, 8), y


def dynamic_map(signed):
    """Returns the 256 values of a state in 8 bits, as Dettmers et al. define
    them (8-bit Optimizers via Block-wise Quantization)."""
    values = [0., 1.]
    for e in range(7):
        n = 2**e * (1 if signed else 2)
        means = [10.**(e - 6) * (.1 + .9 * (j + .5) / n) for j in range(n)]
        values += means + [-x for x in means if signed]
    return torch.tensor(sorted(values))


class Blockwise:
    """AdamW with states in 8 bits, which are f32 in each step."""

    def __init__(self, params, **options):
        self.inner = torch.optim.AdamW(params, foreach=False, **options)
        self.maps = {"exp_avg": dynamic_map(True),
                     "exp_avg_sq": dynamic_map(False)}

    @torch.no_grad()
    def step(self):
        self.inner.step()
        for state in self.inner.state.values():
            for name, values in self.maps.items():
                flat = state[name].view(-1)
                for block in flat.split(256):
                    scale = block.abs().max()
                    if scale > 0:
                        between = (values[1:] + values[:-1]) / 2
                        code = torch.bucketize(block / scale, between)
                        if name == "exp_avg_sq":
                            code[(code == 0) & (block > 0)] = 1
                        block.copy_(values[code] * scale)


def theirs(params, **options):
    return AdamW8bit(params, min_8bit_size=0, weight_decay=.01, **options)


OFTEN = "adamw", "muon", "schedulefree"
# Learning rates that are not LR.
RATES = {"lion": 3e-4, "adadelta": 1., "sgd": .1, "adafactor": .01}
# name, options, reference, largest difference of weights, of losses
CASES = (
    *((name, ["--optimizer", name], name, None if name == "lion" else 2e-4,
       2e-3 if name == "lion" else 1e-4) for name in MAKERS),
    *((name + ", bf16 products", ["--optimizer", name, "--dtype", "bf16"], name,
       None, 3e-3) for name in MAKERS),
    ("bf16 states", ["--state-dtype", "bf16"], torch.optim.AdamW, None, .03),
    ("8-bit states", ["--state-dtype", "int8"], Blockwise, None, .03),
    ("8-bit, bitsandbytes", ["--state-dtype", "int8"],
     theirs if AdamW8bit else None, None, .05),
)


class Bench:
    def __init__(self, penstock, folder, make):
        self.penstock, self.folder = os.path.abspath(penstock), folder
        self.lr, self.references = LR, {}
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.model, self.x, self.y = make()
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        torch.export.save(torch.export.export(
            self.model, (self.x[:ROWS // 2], self.y[:ROWS // 2]),
            strict=False), os.path.join(folder, "model.pt2"))
        self.call("split", "model.pt2", "--stages", "1", "-o", "model.plan")
        names = ("tokens", "targets") if self.x.dtype == torch.int64 else (
            "x", "y")
        save_file(dict(zip(names, (self.x, self.y))),
                  os.path.join(folder, "data.safetensors"))

    def call(self, *words):
        return subprocess.run([self.penstock, *words], cwd=self.folder,
                              check=True, capture_output=True, text=True).stdout

    def train(self, name, *words):
        """Returns the weights, and the loss of each step."""
        self.call("run", "model.plan", "--transport", "self", "-n", "1", "-m",
                  "2", "--data", "data.safetensors", "--steps", str(STEPS),
                  "--lr", str(self.lr), "--checkpoint", name, "--quiet",
                  "--threads", "1", "--log-dir", name + ".log", "--log-every",
                  "1", *words)
        self.call("weights", name, "-o", name + ".out")
        with open(os.path.join(self.folder, name + ".log", "rank-0.log"),
                  encoding="utf-8") as log:
            losses = re.findall(r" event=step .* loss=(\S+)", log.read())
        assert len(losses) == STEPS, len(losses)
        return (load_file(os.path.join(self.folder, name + ".out")),
                [float(x) for x in losses])

    def make_muon(self):
        """Makes the optimizers of the groups that `plan` lists with muon."""
        params = dict(self.model.named_parameters(remove_duplicate=False))
        out = json.loads(self.call("plan", "model.plan", "-m", "2", "--json",
                                   "--optimizer", "muon"))
        return Both(*(MAKERS[x["optimizer"]](
            [params[k] for k in x["names"]],
            lr=LR if x["optimizer"] == "muon" else x["lr"])
            for x in out["groups"] if x["names"]))

    def reference(self, maker):
        if maker in self.references:
            return self.references[maker]
        self.model.load_state_dict(self.start)
        optimizer = self.make_muon() if maker == "muon" else MAKERS.get(
            maker, maker)(self.model.parameters(), lr=self.lr)
        losses = []
        for step in range(STEPS):
            rows = slice(step * ROWS, (step + 1) * ROWS)
            self.model.zero_grad()
            loss = self.model(self.x[rows], self.y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        own = optimizer.average() if hasattr(optimizer, "average") else {}
        self.references[maker] = {
            k: own.get(v, v).detach().clone()
            for k, v in self.model.named_parameters()}, losses
        return self.references[maker]

    def compare(self, name, words, maker):
        self.lr = RATES.get(maker, LR)
        got, lost = self.train(re.sub("[ ,]+", "-", name), *words)
        want, there = self.reference(maker)
        worst = max(float((got[k] - v).abs().max() /
                          (v - self.start[k]).abs().max())
                    for k, v in want.items())
        return worst, sum(lost[-20:]) / 20, sum(there[-20:]) / 20, lost[0]


def main():
    good = bad = 0
    texts = [x for x in sys.argv[2:] if x != "--full"]
    cases = [x for x in CASES if all(text in x[0] for text in texts) and (
        "--full" in sys.argv or x[0] in OFTEN or x[2] not in MAKERS)]
    for make in regression, language, images:
        with tempfile.TemporaryDirectory(prefix="pst-") as folder:
            bench = Bench(sys.argv[1], folder, make)
            for name, words, maker, limit, loss_limit in cases:
                if maker is None:
                    print(f"--  {make.__name__}, {name}: not installed")
                    continue
                worst, ours, want, first = bench.compare(name, words, maker)
                ok = abs(ours - want) < loss_limit * first and (
                    limit is None or worst < limit) and ours < .9 * first
                good += ok
                bad += not ok
                print(f"{'ok' if ok else 'FAILED'}  {make.__name__}, {name}: "
                      f"weights {worst:.1e}, loss {first:.4f} -> {ours:.4f}, "
                      f"reference {want:.4f}", flush=True)
    print(f"{good} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
