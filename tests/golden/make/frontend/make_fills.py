# SPDX-License-Identifier: Apache-2.0
"""Writes fills.pt2 (PyTorch 2.13) into tests/golden: a model that writes a
number where a mask is true, into the result of a linear layer."""
import os

import torch
from torch import nn

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Fills(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6)

    def forward(self, x, wanted):
        y = self.up(x)
        y[wanted > 0] = 0.5
        return (y - wanted).square().mean(), y


def main():
    torch.manual_seed(0)
    program = torch.export.export(Fills().train(), (torch.randn(2, 4),
                                                    torch.randn(2, 6)),
                                  strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(GOLDEN, "fills.pt2"))


main()
