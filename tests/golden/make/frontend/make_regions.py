#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes regions.pt2 and empty.pt2 for tests/frontend/calls.py (PyTorch 2.13).

regions: decomposition gives operators of a no_grad region the outermost stack,
though the region is inside a module's call; a constant has two names. empty:
two equal calls, in each of which a module with a preserved signature returns
its argument.
"""
import os

import torch
from torch import nn

from make_tiny import clean

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Const(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = torch.tensor([0.5, 1.0])

    def forward(self, x):
        return x + self.k


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = Const()
        self.same = nn.Identity()

    def forward(self, x):
        x = torch.sin(self.c(x))
        with torch.no_grad():
            y = torch.tanh(x)
        return self.same(x) + y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.more = Part(), Part()
        self.parts = nn.ModuleList([self.part, Part()])
        self.parts[1].c = self.part.c

    def forward(self, x):
        return self.parts[1](self.part(self.part(x)))


def main():
    x = torch.ones(3, 2)
    program = torch.export.export(Model(), (x,), strict=True)
    program = program.run_decompositions()
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "regions.pt2"))
    program = torch.export.export(
        Model(), (x,), preserve_module_call_signature=("part.same",))
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "empty.pt2"))


if __name__ == "__main__":
    main()
