#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes square.pt2: free sizes that are equal by chance in the exported
example.

A batch of 4 rows of 4 numbers is written through a transposed view; only in
this example both have the same shape. Group norm with one channel per group
has several values per group if there is more than one row, which the file does
not say. Run again only if PyTorch's format changes."""

import os

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
