#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints.pt2 for
tests/daemon/training/activation_checkpoints.py (PyTorch 2.13).

Layers under torch.utils.checkpoint; a part of the second one is nested in
another checkpoint. torch.export keeps these regions only if the model is
traced strictly, with a context_fn."""
import os

import torch
from torch import nn
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                    create_selective_checkpoint_contexts)

from make_tiny import clean

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH = 16


def contexts():
    return create_selective_checkpoint_contexts(
        lambda *args, **options: CheckpointPolicy.PREFER_RECOMPUTE)


def call_checkpointed(module, x):
    return checkpoint(module, x, use_reentrant=False, context_fn=contexts)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Layer(nn.Module):
    def __init__(self, nested):
        super().__init__()
        self.norm, self.inner = nn.BatchNorm1d(WIDTH), Inner()
        self.drop, self.nested = nn.Dropout(.25), nested

    def forward(self, x):
        y = self.norm(x)
        y = call_checkpointed(self.inner, y) if self.nested else self.inner(y)
        return x + self.drop(torch.sin(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 8)
        self.parts = nn.ModuleList([Layer(False), Layer(True), Layer(False)])

    def forward(self, x):
        y = call_checkpointed(self.parts[0], self.first(x))
        y = call_checkpointed(self.parts[1], y)
        return self.last(self.parts[2](y))


def main():
    torch.manual_seed(0)
    program = torch.export.export(Model(), (torch.randn(8, 8),), strict=True)
    for graph in (m for m in program.graph_module.modules()
                  if isinstance(m, torch.fx.GraphModule)):
        clean(graph)
    torch.export.save(program, os.path.join(HERE, "checkpoints.pt2"))


if __name__ == "__main__":
    main()
