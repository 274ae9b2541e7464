#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes plugin*.pt2 and plugin.json: models with operators
that tests/plugin/ours.c brings, and what PyTorch computes with them;
plugin-page.pt2, which the program in docs/plugins.md exports.

usage: make_plugin.py FOLDER

plugin.json has for each model the rows of a step (B = 8), the loss and the
gradients of all parameters. The batch is a free size, and so are the columns
that ours::halves divides.
"""
import json
import os
import re
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from make_tiny import clean


@torch.library.custom_op("ours::gate", mutates_args=())
def gate(x: Tensor, k: float = 1.0) -> tuple[Tensor, Tensor]:
    wide = x.double()
    s = torch.sigmoid(k * wide)
    return (wide * s).to(x.dtype), s.to(x.dtype)


@gate.register_fake
def _(x, k=1.0):
    return torch.empty_like(x), torch.empty_like(x)


def gate_save(ctx, inputs, output):
    ctx.k = inputs[1]
    ctx.save_for_backward(inputs[0], output[1])


def gate_backward(ctx, grad, grad1):
    x, s = ctx.saved_tensors
    derivative = ctx.k * s * (1 - s)
    return grad * (s + x * derivative) + grad1 * derivative, None


gate.register_autograd(gate_backward, setup_context=gate_save)


@torch.library.custom_op("ours::standardize", mutates_args=())
def standardize(x: Tensor, dims: list[int], eps: float = 1e-5) -> Tensor:
    wide = x.double()
    y = wide - wide.mean(dims, keepdim=True)
    return (y * torch.rsqrt((y * y).mean(dims, keepdim=True) + eps)).to(x.dtype)


@standardize.register_fake
def _(x, dims, eps=1e-5):
    return torch.empty_like(x)


def standardize_save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.dims, ctx.eps = inputs[1], inputs[2]


def standardize_backward(ctx, grad):
    x, = ctx.saved_tensors
    with torch.enable_grad():
        leaf = x.detach().double().requires_grad_()
        y = leaf - leaf.mean(ctx.dims, keepdim=True)
        y = y * torch.rsqrt((y * y).mean(ctx.dims, keepdim=True) + ctx.eps)
    return torch.autograd.grad(y, leaf, grad.double())[0].to(x.dtype), None, None


standardize.register_autograd(standardize_backward,
                              setup_context=standardize_save)


@torch.library.custom_op("ours::halves", mutates_args=())
def halves(x: Tensor) -> Tensor:
    n = x.shape[1] // 2
    return x[:, :n] + x[:, n:]


@halves.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[1] // 2)


halves.register_autograd(lambda ctx, grad: torch.cat([grad, grad], 1))


class Block(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.k = k

    def forward(self, x):
        y, s = torch.ops.ours.gate(self.fc(x), self.k)
        y = torch.ops.ours.standardize(y, [-1])
        return x + y * s


class Model(nn.Module):
    def __init__(self, halved):
        super().__init__()
        self.fc = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(16, k) for k in (1.0, 0.5, 2.0))
        self.head = nn.Linear(8 if halved else 16, 4)
        self.halved = halved

    def guess(self, x):
        h = self.fc(x)
        for block in self.blocks:
            h = block(h)
        if self.halved:
            h = torch.ops.ours.halves(h)
        h = torch.ops.ours.standardize(h.unflatten(1, (2, -1)), [1, -1])
        return self.head(h.flatten(1)).float()

    def forward(self, x, y):
        return F.mse_loss(self.guess(x), y)


class Guess(Model):
    """Also returns a row for each row."""
    def forward(self, x, y):
        guess = self.guess(x)
        return F.mse_loss(guess, y), guess


@torch.library.custom_op("ours::mix", mutates_args=())
def mix(xs: list[Tensor], w: list[float]) -> Tensor:
    return sum(x.double() * k for x, k in zip(xs, w)).to(xs[0].dtype)


@mix.register_fake
def _(xs, w):
    return torch.empty_like(xs[0])


def keep_weights(ctx, inputs, output):
    ctx.w = inputs[1]


mix.register_autograd(lambda ctx, grad: ([grad * k for k in ctx.w], None),
                      setup_context=keep_weights)


@torch.library.custom_op("ours::spread", mutates_args=())
def spread(x: Tensor, w: list[float]) -> list[Tensor]:
    return [x * k for k in w]


@spread.register_fake
def _(x, w):
    return [torch.empty_like(x) for _ in w]


def spread_backward(ctx, grads):
    return sum(g * k for g, k in zip(grads, ctx.w) if g is not None), None


spread.register_autograd(spread_backward, setup_context=keep_weights)


class Lists(nn.Module):
    """One of three results of spread is not used, and one tensor of mix is
    there twice and another one needs no gradient."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 16)
        self.up = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x, y):
        h = torch.tanh(self.fc(x))
        a, _, c = torch.ops.ours.spread(h, [0.5, -1.5, 2.0])
        fixed = torch.cat([x, x], 1)
        h = torch.ops.ours.mix([fixed, self.up(a), torch.tanh(c), h, h],
                               [-0.25, 1.0, 0.75, 0.5, -1.25])
        return F.mse_loss(self.head(h), y)


@torch.library.custom_op("ours::drop", mutates_args=())
def drop(x: Tensor, p: float) -> Tensor:
    return F.dropout(x, p)


@drop.register_fake
def _(x, p):
    return torch.empty_like(x)


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x, y):
        h = self.fc(x)
        kept = torch.ops.ours.drop(h, 0.25)
        return F.mse_loss(self.head(kept), y), h, kept


def make(folder, name, dtype, kind=Model):
    torch.manual_seed(1)
    model = kind(*([dtype == torch.float32] if issubclass(kind, Model)
                   else [])).to(dtype)
    x, y = torch.randn(8, 8).to(dtype), torch.randn(8, 4)
    rows = torch.export.Dim("rows", min=1, max=4096)
    program = torch.export.export(
        model, (x, y), dynamic_shapes=({0: rows}, {0: rows}))
    clean(program.graph_module)
    torch.export.save(program, os.path.join(folder, name + ".pt2"))
    loss = model(x, y)
    if kind is Guess:
        return {"x": x.tolist(), "y": y.tolist(), "guess": loss[1].tolist()}
    if kind is Random: # PyTorch draws other numbers
        return {"x": x.tolist(), "y": y.tolist(),
                "parameters": {key: p.tolist()
                               for key, p in model.named_parameters()}}
    loss.backward()
    return {"x": x.float().tolist(), "y": y.tolist(), "loss": loss.item(),
            "gradients": {key: p.grad.float().tolist()
                          for key, p in model.named_parameters()}}


def page(folder):
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                        "..", "docs", "plugins.md")
    with open(docs, encoding="utf-8") as file:
        program, = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    save = torch.export.save

    def save_here(exported, _):
        clean(exported.graph_module)
        save(exported, os.path.join(folder, "plugin-page.pt2"))

    torch.export.save = save_here
    exec(compile(program, "make_plugin.py", "exec"), {"__name__": "page"})
    torch.export.save = save


def main():
    folder = sys.argv[1]
    page(folder)
    known = {name: make(folder, name, dtype) for name, dtype in
             (("plugin", torch.float32), ("plugin-bf16", torch.bfloat16))}
    known["plugin-lists"] = make(folder, "plugin-lists", torch.float32, Lists)
    known["plugin-random"] = make(folder, "plugin-random", torch.float32,
                                  Random)
    known["plugin-guess"] = make(folder, "plugin-guess", torch.float32, Guess)
    with open(os.path.join(folder, "plugin.json"), "w") as file:
        json.dump(known, file)
        file.write("\n")


if __name__ == "__main__":
    main()
