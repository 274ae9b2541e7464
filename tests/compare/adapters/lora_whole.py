#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains adapters with dropout beside a module that is trained whole, and
compares with adapters written by hand in PyTorch.

usage: lora_whole.py PENSTOCK

whole    30 steps of AdamW: weights of the adapters and of the head, and the
         adapter's file: it has the head by the names that peft's
         modules_to_save has, and gives the same loss again
dropout  one step of a layer whose adapter is the identity, so that its output
         shows the mask; with that mask PyTorch's loss and gradients are ours.
         The mask keeps 1 - p of the elements, differs between steps, and is the
         same on two ranks; evaluations have none

The largest relative difference is printed; it must be below LIMIT.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, WIDTH, CLASSES, RANK, ALPHA = 30, 8, 12, 5, 3, 6.
LIMIT = 2e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, label):
        return F.cross_entropy(self.head(self.down(torch.tanh(self.up(x)))),
                               label)


class Adapted(nn.Module):
    """A linear layer with an adapter, as peft has it."""
    def __init__(self, base, a, b):
        super().__init__()
        self.base, self.a, self.b = base, nn.Parameter(a), nn.Parameter(b)

    def forward(self, x):
        return self.base(x) + ALPHA / RANK * ((x @ self.a.T) @ self.b.T)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, target):
        y = self.fc(x)
        return F.mse_loss(y, target), y


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder = os.path.abspath(penstock), folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *words):
        done = subprocess.run([self.penstock, *map(str, words)],
                              cwd=self.folder, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def load(self, name):
        return load_file(self.path(name))


def relative_error(got, want):
    return float((got - want).abs().max() / want.abs().max())


def compare_run(b):
    torch.manual_seed(2)
    model = Model()
    x = torch.randn(STEPS * ROWS, WIDTH)
    label = torch.randint(CLASSES, (STEPS * ROWS,))
    save_file({"x": x, "label": label}, b.path("data.safetensors"))
    torch.export.save(torch.export.export(
        model, (x[:ROWS // 2].clone(), label[:ROWS // 2].clone()),
        strict=False), b.path("model.pt2"))
    lora = ["--lora", f"up:rank={RANK},alpha={ALPHA:g}", "--lora",
            f"down:rank={RANK},alpha={ALPHA:g}", "--unfreeze", "head"]
    b.call("split", "model.pt2", "-o", "start.plan", *lora)
    b.call("weights", "start.plan", "-o", "start.safetensors")
    start = b.load("start.safetensors")
    run = ["-m", 2, "--steps", STEPS, "--lr", ".01", "--weight-decay", ".1",
           "--data", "data.safetensors", "--transport", "self", "--threads", 1,
           "--quiet"]
    results = []
    for name, cut in ("one", ["--stages", 1]), ("two", ["--stages", 2]):
        b.call("run", "model.pt2", *lora, *cut, "--checkpoint", name, *run)
        b.call("weights", name, "-o", name + ".safetensors")
        results.append(b.load(name + ".safetensors"))
    assert all(torch.equal(results[0][k], results[1][k]) for k in results[0])
    for layer in "up", "down":
        base = getattr(model, layer).requires_grad_(False)
        setattr(model, layer, Adapted(
            base, start[f"{layer}.lora_A.default.weight"].clone(),
            start[f"{layer}.lora_B.default.weight"].clone()))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=.01, weight_decay=.1)
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        optimizer.zero_grad()
        model(x[rows], label[rows]).backward()
        optimizer.step()
    want = {"head.weight": model.head.weight, "head.bias": model.head.bias}
    for layer in "up", "down":
        want[f"{layer}.lora_A.default.weight"] = getattr(model, layer).a
        want[f"{layer}.lora_B.default.weight"] = getattr(model, layer).b
    got = results[0]
    worst = max(relative_error(got[k], v.detach()) for k, v in want.items())
    assert not torch.equal(got["head.weight"], start["head.weight"])
    assert torch.equal(got["up.weight"], start["up.weight"])

    b.call("weights", "one", "--adapter", "-o", "adapter")
    saved = b.load("adapter/adapter_model.safetensors")
    prefix = "base_model.model."
    assert sorted(saved) == sorted(
        [f"{prefix}{layer}.lora_{k}.weight" for layer in ("up", "down")
         for k in "AB"] + [prefix + "head.weight", prefix + "head.bias"]), saved
    for name in "weight", "bias":
        assert torch.equal(saved[f"{prefix}head.{name}"], got[f"head.{name}"])
    with open(b.path("adapter/adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    assert config["modules_to_save"] == ["head"], config
    assert sorted(config["target_modules"]) == ["down", "up"], config
    b.call("split", "model.pt2", "-o", "again.plan", *lora[:4], "--weights",
           "adapter/adapter_model.safetensors")
    b.call("weights", "again.plan", "-o", "again.safetensors")
    again = b.load("again.safetensors")
    assert all(torch.equal(again[k], got[k]) for k in got)
    return worst


def dropout(b, p=.3):
    torch.manual_seed(3)
    layer = Layer()
    nn.init.zeros_(layer.fc.weight)
    rows = 64
    x, target = torch.rand(2, 2 * rows, WIDTH) + .5
    save_file({"x": x, "target": target}, b.path("layer.safetensors"))
    torch.export.save(torch.export.export(
        layer, (x[:rows // 2].clone(), target[:rows // 2].clone()),
        strict=False), b.path("layer.pt2"))
    lora = ["--lora", f"fc:rank={WIDTH},alpha={WIDTH},dropout={p}"]
    one = torch.eye(WIDTH)
    save_file({"fc.weight": torch.zeros(WIDTH, WIDTH),
               "fc.lora_A.default.weight": one.clone(),
               "fc.lora_B.default.weight": one.clone()},
              b.path("identity.safetensors"))
    b.call("split", "layer.pt2", "-o", "layer.plan", *lora, "--weights",
           "identity.safetensors")

    def step(name, *words):
        b.call("run", "layer.plan", "-m", 2, "--data", "layer.safetensors",
               "--transport", "self", "--threads", 1, "--optimizer", "sgd",
               "--lr", 0, "--quiet", "--dump", name, *words)
        return b.load(name)

    got = step("first", "--steps", 1)
    y = got["output.1"]
    mask = (y != 0).float() / (1 - p)
    share = float((y == 0).float().mean())
    assert abs(share - p) < .05, share
    a, c = (nn.Parameter(one.clone()) for _ in range(2))
    want = ((x[:rows] * mask) @ a.T) @ c.T
    loss = F.mse_loss(want, target[:rows])
    loss.backward()
    worst = max(relative_error(y, want.detach()),
                relative_error(got["loss"], loss.detach()),
                relative_error(got["grad.fc.lora_A.default.weight"], a.grad),
                relative_error(got["grad.fc.lora_B.default.weight"], c.grad))
    other = step("other", "--steps", 1, "--seed", 1)
    assert not torch.equal(other["output.1"] == 0, y == 0)
    again = step("again", "--steps", 1, "-m", 2, "-n", "1")
    assert torch.equal(again["output.1"], y)
    full = step("full", "--steps", 1, "--recompute", "full")
    assert all(torch.equal(full[k], v) for k, v in got.items())
    plain = json.loads(b.call("eval", "layer.plan", "-m", 2, "--data",
                              "layer.safetensors", "--json"))["loss"]
    assert abs(plain - float(F.mse_loss(x, target))) < 1e-6, plain
    return worst


def main():
    bad, tests = 0, (compare_run, dropout)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(sys.argv[1], folder)
        for test in tests:
            worst = test(b)
            bad += worst > LIMIT
            print(f"{'FAILED' if worst > LIMIT else 'ok'}  {test.__name__}: "
                  f"{worst:.1e}")
    print(f"{len(tests) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
