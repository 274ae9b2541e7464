#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes constants.pt2, a model with a free batch size whose sizes are read
from a tensor that is written as a literal: the exporter leaves a symbol where
the number would be, alone (arange) and together with the free size (view).
Run again only if PyTorch's format changes.
"""

import os

import torch
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.row = nn.Linear(1, 4)
        self.column = nn.Linear(1, 4)

    def forward(self, x):
        shape = torch.tensor([[2, 3]])
        high, wide = shape[0, 0], shape[0, 1]
        down = torch.arange(0, high, dtype=torch.float32) / high
        right = torch.arange(0, wide, dtype=torch.float32) / wide
        places = (self.row(down[:, None])[:, None] +
                  self.column(right[:, None])[None])
        batch = x.size(0)
        y = x[:, None, None] * places[None]
        y = y.view(batch * high.item() * wide.item(), 4)
        return torch.tanh(y).square().mean()


def main():
    torch.manual_seed(0)
    model, x = Net().train(), torch.linspace(-1, 1, 20).view(5, 4)
    program = torch.export.export(
        model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},),
        strict=False)
    for node in program.graph.nodes:
        node.meta["stack_trace"] = None
    torch.export.save(program, os.path.join(HERE, "constants.pt2"))


if __name__ == "__main__":
    main()
