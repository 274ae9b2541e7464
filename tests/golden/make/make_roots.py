# SPDX-License-Identifier: Apache-2.0
"""Writes roots.pt2 into tests/golden: two stages; for a row of zeros the loss is
finite but the gradient is not, since sqrt() has no gradient at 0.

Needs torch >= 2.9; rerun only to change the model.
"""
import os

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split

from make_tiny import clean

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Roots(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4, bias=False)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        x = torch.sqrt(x * x)
        pipe_split()
        return (self.last(x) - 1).square().mean()


def main():
    torch.manual_seed(0)
    program = torch.export.export(Roots(), (torch.rand(2, 3),))
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "roots.pt2"))


if __name__ == "__main__":
    main()
