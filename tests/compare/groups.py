#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with groups of parameters, and compares the weights with those of
torch.optim with the same groups.

usage: groups.py PENSTOCK

A language model with a tied embedding, LayerNorm and biases is trained for
STEPS steps. Each row of CASES has penstock's options and a function that makes
the optimizer in PyTorch. The largest relative difference of a tensor is printed;
it must be below LIMIT, which is about twice the largest one measured. Each
training is repeated on two ranks with another schedule: the bits must be equal.
Clipping is that of torch.nn.utils. With --ema the averages are compared, with those of torch.optim.swa_utils.
"""
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from optimizers import MAKERS

STEPS, ROWS, LENGTH, WORDS, WIDTH = 40, 4, 6, 17, 8
LIMIT = 2e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(),
                                 nn.Linear(2 * WIDTH, WIDTH))
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, tokens, targets):
        x = self.emb(tokens)
        x = x + self.mlp(self.norm(x))
        scores = self.head(self.last(x))
        return nn.functional.cross_entropy(scores.flatten(0, 1),
                                           targets.flatten())


def split(model, first):
    """Returns the parameters for which first(name) is true, and the others."""
    named = list(model.named_parameters())
    return ([p for name, p in named if first(name)],
            [p for name, p in named if not first(name)])


def no_decay(model):
    bare, other = split(model, lambda name: "norm" in name or "last" in name or
                        "bias" in name)
    return [torch.optim.AdamW([{"params": bare, "weight_decay": 0},
                               {"params": other}], lr=.01, weight_decay=.3)]


def rates(model):
    table, other = split(model, lambda name: name == "emb.weight")
    return [torch.optim.AdamW(
        [{"params": table, "lr": .03, "betas": (.8, .95)},
         {"params": other}], lr=.01, weight_decay=.1)]


def two(model):
    """Matrices of the MLP by SGD with momentum, everything else by AdamW."""
    mlp, other = split(model, lambda name: "mlp" in name and "weight" in name)
    return [torch.optim.SGD(mlp, lr=.05, momentum=.9, weight_decay=.01),
            torch.optim.AdamW(other, lr=.01, weight_decay=.1)]


def muon(model):
    """Matrices of the MLP by Muon, everything else by AdamW."""
    mlp, other = split(model, lambda name: "mlp" in name and "weight" in name)
    return [MAKERS["muon"](mlp, lr=.02, momentum=.9),
            torch.optim.AdamW(other, lr=.003)]


def adafactor(model):
    bare, other = split(model, lambda name: "bias" in name)
    return [torch.optim.Adafactor([{"params": bare, "weight_decay": 0},
                                   {"params": other}], lr=.05,
                                  weight_decay=.1)]


def schedulefree(model):
    bare, other = split(model, lambda name: "norm" in name or "last" in name or
                        "bias" in name)
    return [MAKERS["schedulefree"]([{"params": bare, "weight_decay": 0},
                                    {"params": other}], lr=.01,
                                   weight_decay=.1)]


def sgd(model):
    return [torch.optim.SGD(model.parameters(), lr=.2, momentum=.9)]


def one(model):
    return [torch.optim.AdamW(model.parameters(), lr=.01, weight_decay=.1)]


def clip_norm(model):
    nn.utils.clip_grad_norm_(model.parameters(), .3)


def clip_value(model):
    nn.utils.clip_grad_value_(model.parameters(), .004)


def clip_both(model):
    clip_norm(model)
    clip_value(model)


def clip_groups(model):
    """The table has a norm of its own, biases are not limited, and of the other
    parameters the norm is that of them alone."""
    table, _ = split(model, lambda name: name == "emb.weight")
    other = [p for name, p in model.named_parameters()
             if name != "emb.weight" and "bias" not in name]
    nn.utils.clip_grad_norm_(table, .1)
    nn.utils.clip_grad_norm_(other, .2)


def clip_some(model):
    """Matrices of the MLP have a limit of their own."""
    mlp, other = split(model, lambda name: "mlp" in name and "weight" in name)
    nn.utils.clip_grad_value_(mlp, .001)
    nn.utils.clip_grad_value_(other, .01)


CASES = (
    ("--no-decay", no_decay,
     ["--lr", ".01", "--weight-decay", ".3", "--no-decay", "norms,biases"]),
    ("rules, the later wins", no_decay,
     ["--lr", ".01", "--weight-decay", ".3", "--group",
      "ndim<2:weight-decay=5", "--group", "*.bias|type=LayerNorm:"
      "weight-decay=0"]),
    ("rates by group", rates,
     ["--lr", ".01", "--weight-decay", ".1", "--group",
      "embeddings:lr=.03,beta1=.8,beta2=.95"]),
    ("a name of the tied table", rates,
     ["--lr", ".01", "--weight-decay", ".1", "--group",
      "head.weight:lr=.03,beta1=.8,beta2=.95"]),
    ("two optimizers", two,
     ["--lr", ".01", "--weight-decay", ".1", "--group",
      "mlp,ndim=2:optimizer=sgd,lr=.05,momentum=.9,weight-decay=.01"]),
    ("muon", muon,
     ["--optimizer", "muon", "--lr", ".02", "--momentum", ".9", "--group",
      "others:lr=.003"]),
    ("adafactor", adafactor,
     ["--optimizer", "adafactor", "--lr", ".05", "--weight-decay", ".1",
      "--no-decay", "biases"]),
    ("schedulefree", schedulefree,
     ["--optimizer", "schedulefree", "--lr", ".01", "--weight-decay", ".1",
      "--no-decay", "norms,biases"]),
    ("averages", no_decay,
     ["--lr", ".01", "--weight-decay", ".3", "--no-decay", "norms,biases",
      "--ema", ".9"]),
    ("fast averages", two,
     ["--lr", ".01", "--weight-decay", ".1", "--group",
      "mlp,ndim=2:optimizer=sgd,lr=.05,momentum=.9,weight-decay=.01",
      "--ema", ".25"]),
    ("--clip-norm", sgd,
     ["--optimizer", "sgd", "--lr", ".2", "--momentum", ".9", "--clip-norm",
      ".3"], clip_norm),
    ("--clip-value", sgd,
     ["--optimizer", "sgd", "--lr", ".2", "--momentum", ".9", "--clip-value",
      ".004"], clip_value),
    ("both", sgd,
     ["--optimizer", "sgd", "--lr", ".2", "--momentum", ".9", "--clip-value",
      ".004", "--clip-norm", ".3"], clip_both),
    ("norms by group", sgd,
     ["--optimizer", "sgd", "--lr", ".2", "--momentum", ".9", "--clip-norm",
      ".2", "--group", "embeddings:clip-norm=.1", "--group",
      "biases:clip-norm=0"], clip_groups),
    ("values by group", one,
     ["--lr", ".01", "--weight-decay", ".1", "--clip-value", ".01", "--group",
      "mlp,ndim=2:clip-value=.001"], clip_some),
)


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder = os.path.abspath(penstock), folder
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.model = Model()
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.data = torch.randint(WORDS, (2, STEPS * ROWS, LENGTH))
        example = self.data[:, :ROWS // 2]
        torch.export.save(torch.export.export(
            self.model, (example[0], example[1]), strict=False),
            os.path.join(folder, "model.pt2"))
        subprocess.run([self.penstock, "split", "model.pt2", "--stages", "2",
                        "-o", "model.plan"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        save_file({"tokens": self.data[0], "targets": self.data[1]},
                  os.path.join(folder, "data.safetensors"))

    def train(self, name, *words):
        run = [self.penstock, "run", "model.plan", "--transport", "self", "-m",
               "2", "--data", "data.safetensors", "--steps", str(STEPS),
               "--checkpoint", name, "--quiet", "--threads", "1", *words]
        weights = [self.penstock, "weights", name, "-o", name + ".out",
                   *(["--use-ema"] if "--ema" in words else [])]
        for command in run, weights:
            subprocess.run(command, cwd=self.folder, check=True,
                           stdout=subprocess.DEVNULL)
        return load_file(os.path.join(self.folder, name + ".out"))

    def reference(self, optimizers, words=(), clip=None):
        self.model.load_state_dict(self.start)
        trained = self.model
        if "--ema" in words:
            decay = float(words[words.index("--ema") + 1])
            trained = AveragedModel(self.model,
                                    multi_avg_fn=get_ema_multi_avg_fn(decay))
        optimizers = optimizers(self.model)
        for step in range(STEPS):
            rows = self.data[:, step * ROWS:(step + 1) * ROWS]
            self.model.zero_grad()
            self.model(rows[0], rows[1]).backward()
            if clip is not None:
                clip(self.model)
            for optimizer in optimizers:
                optimizer.step()
            if trained is not self.model:
                trained.update_parameters(self.model)
        ret = {k.removeprefix("module."): v.detach().clone()
               for k, v in trained.named_parameters()}
        for optimizer in optimizers:
            if hasattr(optimizer, "average"): # `weights` writes it
                own = optimizer.average()
                ret.update((k, own[v]) for k, v in
                           self.model.named_parameters() if v in own)
        return ret

    def differences(self, got, want):
        for name, tensor in want.items():
            moved = (tensor - self.start[name]).abs().max()
            yield float((got[name] - tensor).abs().max() / moved), name


def main():
    penstock = sys.argv[1]
    good = bad = 0
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        bench = Bench(penstock, folder)
        plain = bench.reference(lambda model: [torch.optim.AdamW(
            model.parameters(), lr=.01, weight_decay=.1)])
        for k, (title, optimizers, words, *clip) in enumerate(CASES):
            want = bench.reference(optimizers, words, *clip)
            got = bench.train(f"one-{k}", "-n", "1", *words)
            worst, name = max(bench.differences(got, want))
            other, _ = max(bench.differences(
                bench.reference(optimizers) if clip else plain, want))
            cut = bench.train(f"two-{k}", "-n", "2", "--schedule", "gpipe",
                              *words)
            same = all(torch.equal(got[x], cut[x]) for x in got)
            ok = worst < LIMIT and same and other > 100 * LIMIT
            good, bad = good + ok, bad + (not ok)
            print(f"{'ok' if ok else 'FAILED'}  {title}: {worst:.1e} in {name},"
                  f" without it {other:.1e}; two ranks "
                  f"{'the same bits' if same else 'OTHER BITS'}")
    print(f"{good} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
