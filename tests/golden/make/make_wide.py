#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes wide.pt2 for tests/daemon/host/memory_limit.py (PyTorch 2.13).

Few parameters, but the backward of a microbatch reads about 160 MiB.
"""
import os

import torch
from torch import nn

from make_tiny import clean

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1024))

    def forward(self, y):
        return y + torch.tanh(torch.sin(y * self.scale))


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.rand(1024))
        self.layers = nn.ModuleList(Layer() for _ in range(10))

    def forward(self, x):
        y = x * self.first
        for layer in self.layers:
            y = layer(y)
        return y.square().mean()


def main():
    torch.manual_seed(0)
    program = torch.export.export(Wide(), (torch.rand(1024, 1),))
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "wide.pt2"))


if __name__ == "__main__":
    main()
