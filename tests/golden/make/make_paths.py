# SPDX-License-Identifier: Apache-2.0
"""Writes paths.pt2 and paths-eval.pt2 (PyTorch 2.13) into tests/golden: blocks
with stochastic depth, exported in training mode, where it draws random
numbers, and after model.eval(), where it does nothing.
"""
import os

import torch
from torch import nn

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        if self.training:
            y = y / .8 * torch.empty(y.shape[0], 1).bernoulli_(.8)
        return x + y


class Paths(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Paths()
rows = torch.export.Dim("rows", min=2, max=64)
for name, train in ("paths", True), ("paths-eval", False):
    program = torch.export.export(model.train(train), (torch.randn(4, 8),),
                                  dynamic_shapes=({0: rows},), strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, name + ".pt2"))
