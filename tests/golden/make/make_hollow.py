#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/hollow.pt2: make_hollow.py FILE.

A model with an input that has no elements. Needs PyTorch 2.13; rerun only to
change the model.
"""
import sys

import torch
from torch import nn

from make_tiny import clean


class Hollow(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, none, y):
        h = self.fc(torch.cat([x, none], 1))
        return {"loss": nn.functional.mse_loss(h, y), "h": h}


def main():
    torch.manual_seed(1)
    program = torch.export.export(
        Hollow(), (torch.rand(4, 8), torch.rand(4, 0), torch.rand(4, 8)))
    clean(program.graph_module)
    torch.export.save(program, sys.argv[1])


main()
