#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unread.pt2, functions.pt2, functions-core.pt2 and
functions-strict.pt2 for tests/split/test_unread.c (PyTorch 2.13).

unread: the export makes constants of tensors in plain lists, and with one
example tensor for two inputs the program reads only one of them. functions:
the export keeps the forward of a torch.autograd.Function and loses its
backward."""
import os

import torch
from torch import nn

from make_tiny import clean

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Unread(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(3, 3))
        self.second = nn.Parameter(torch.randn(3, 3))
        self.bias = nn.Parameter(torch.zeros(3))
        self.ones = nn.Parameter(torch.ones(3))
        self.shift = torch.ones(3)
        self.raw = torch.randn(3, requires_grad=True)
        self.all = [self.first, self.second.t()]
        self.layers = [nn.Linear(3, 3)]
        self.aside = nn.Linear(3, 2)

    def forward(self, x, y, mask):
        for w in self.all:
            x = torch.tanh(x @ w)
        x = self.layers[0](x) * self.raw + self.bias * self.ones + self.shift
        return ((x - y) ** 2).mean(), self.aside(x)


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def rounded(x):
    return Round.apply(x)


class Hidden(nn.Module):
    def forward(self, x):
        return rounded(x)


class Open(nn.Module):
    def forward(self, x):
        return Round.apply(x)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x)


class Derived(Base):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Functions(nn.Module):
    """Applies the modules in turn; the loss is PyTorch's own."""

    def __init__(self, *parts):
        super().__init__()
        self.base = Derived()
        self.parts = nn.ModuleList(parts)

    def forward(self, x, y):
        ids = Round.apply(y)  # no gradient flows through ids
        x = self.base.forward(x)
        for part in self.parts:
            x = part(x)
        return nn.MSELoss()(x, ids)


def save(program, name):
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, name + ".pt2"))


def main():
    torch.manual_seed(1)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    save(torch.export.export(Unread(), (x, x, torch.ones(2))), "unread")
    save(torch.export.export(Functions(Open(), Hidden()), (x, y)), "functions")
    save(torch.export.export(Functions(Open()), (x, y)).run_decompositions(),
         "functions-core")
    save(torch.export.export(Functions(Open()), (x, y), strict=True),
         "functions-strict")


if __name__ == "__main__":
    main()
