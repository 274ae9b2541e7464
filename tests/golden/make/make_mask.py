#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/mask.pt2: make_mask.py FILE.

A model with an input of bool for tests/lib/copies.c, which knows what it
computes: the sum over the elements of each row of x whose mask is true, times
w, is compared with y by the mean square.
"""
import sys

import torch

WIDTH = 3


class Mask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(1., WIDTH + 1))

    def forward(self, x, mask, y):
        guess = torch.where(mask, x * self.w, 0.).sum(1)
        return torch.nn.functional.mse_loss(guess, y)


def main():
    rows = torch.export.Dim("rows", min=1)
    args = (torch.ones(2, WIDTH), torch.ones(2, WIDTH, dtype=torch.bool),
            torch.ones(2))
    program = torch.export.export(
        Mask().train(), args, dynamic_shapes=({0: rows},) * 3)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
        node.meta.pop("from_node", None)
    torch.export.save(program, sys.argv[1])


main()
