#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes metric.pt2, a classifier that returns its loss, its accuracy (both
scalars) and its logits. Run again only if PyTorch's format changes."""
import os

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x, label):
        logits = self.head(torch.tanh(self.up(x)))
        hits = (logits.argmax(1) == label).float()
        return {"loss": F.cross_entropy(logits, label),
                "accuracy": hits.mean(), "logits": logits}


def main():
    torch.manual_seed(1)
    model = Metric().train()
    x, label = torch.randn(8, 4), torch.randint(3, (8,))
    program = torch.export.export(model, (x, label), strict=False)
    torch.export.save(program, os.path.join(HERE, "metric.pt2"))


if __name__ == "__main__":
    main()
