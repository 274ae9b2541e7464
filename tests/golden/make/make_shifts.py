#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes shifts.pt2: a language model that shifts its labels itself.

Run again only if PyTorch's format changes.
"""

import os

import torch
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Shifts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(256, 4)
        self.head = torch.nn.Linear(4, 256, bias=False)

    def forward(self, tokens, labels):
        y = self.head(torch.tanh(self.table(tokens)))
        return F.cross_entropy(y[:, :-1].reshape(-1, 256),
                               labels[:, 1:].reshape(-1))


def main():
    torch.manual_seed(7)
    tokens = torch.randint(256, (2, 8))
    program = torch.export.export(
        Shifts(), (tokens, tokens), strict=False)
    torch.export.save(program, os.path.join(HERE, "shifts.pt2"))


if __name__ == "__main__":
    main()
