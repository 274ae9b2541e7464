# SPDX-License-Identifier: Apache-2.0
"""Writes chain.pt2, five linear layers with a loss, and chain-wide.pt2, a module
with the input and output of one of them that takes far more time (PyTorch
2.13), into tests/golden. tests/daemon/changes/stage_ranks.py swaps it in."""
import os

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.head = nn.Linear(8, 3)

    def forward(self, x, label):
        for layer in self.l:
            x = F.gelu(layer(x))
        return F.cross_entropy(self.head(x), label)


torch.manual_seed(0)
x = torch.randn(4, 8)
for name, module, inputs in (
        ("chain", Chain(), (x, torch.randint(3, (4,)))),
        ("chain-wide", nn.Sequential(nn.Linear(8, 200), nn.ReLU(),
                                     nn.Linear(200, 8)), (x,))):
    torch.export.save(torch.export.export(module.train(), inputs, strict=False),
                      os.path.join(HERE, f"{name}.pt2"))
