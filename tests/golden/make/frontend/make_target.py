#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes target.pt2: an output whose shape the export ties to the loss target.

mse_loss broadcasts both of its tensors, and the export then returns the result
of broadcast_tensors as the output. Run again only if PyTorch's format
changes.
"""

import os

import torch

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Target(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(3, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x, target):
        y = self.head(torch.tanh(self.up(x)))
        return torch.nn.functional.mse_loss(y, target), y


def main():
    torch.manual_seed(7)
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    program = torch.export.export(
        Target(), (torch.randn(4, 3), torch.randn(4, 2)), strict=False,
        dynamic_shapes=(rows, rows))
    torch.export.save(program, os.path.join(HERE, "target.pt2"))


if __name__ == "__main__":
    main()
