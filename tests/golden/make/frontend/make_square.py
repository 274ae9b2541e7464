#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes square.pt2, a model with a free size that equals another size by
chance in the exported example.

The example has 4 rows of 4 numbers. The batch is written through a transposed
view; only with 4 rows do both have the same shape. PyTorch accepts group norm
with one channel per group only for more than one row, which the file does not
say. Run again only if PyTorch's format changes."""

import os

import torch

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Square(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 4)

    def forward(self, x):
        t = x.clone()
        v = t.flatten().view(4, x.shape[0])
        v.add_(torch.arange(4.0)[:, None])
        return (t * 2).sum(1), self.norm(t).mean()


def main():
    torch.manual_seed(6)
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    program = torch.export.export(Square(), (torch.randn(4, 4),), strict=False,
                                  dynamic_shapes=(rows,))
    torch.export.save(program, os.path.join(HERE, "square.pt2"))


if __name__ == "__main__":
    main()
