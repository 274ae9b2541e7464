#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes broad.pt2, a model with answers of 128 KiB a row that take hardly any
time to compute, for tests of large answers. Run again only if PyTorch's format
changes."""

import os

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Broad(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.second(self.first(x).relu())
        answer = (y[:, :, None] + torch.arange(4096.0)).flatten(1)
        return y.square().mean(), answer


def main():
    torch.manual_seed(7)
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    program = torch.export.export(Broad(), (torch.randn(4, 8),), strict=False,
                                  dynamic_shapes=(rows,))
    torch.export.save(program, os.path.join(HERE, "broad.pt2"))


if __name__ == "__main__":
    main()
