#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes entropies.pt2, a model of tokens 0 to 7 whose outputs are losses and
metrics of many kinds; it predicts x. The batch is free. Run again only if PyTorch's format
changes."""
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Entropies(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 8)
        self.table.weight.data = 5 * torch.eye(8)
        self.register_buffer("weight", torch.linspace(.1, 2, 8))

    def forward(self, x, t):
        z = self.table(x)
        counts, hits = t != -100, z.argmax(-1) == t
        z, y = z.flatten(0, 1), t.flatten()
        loss = F.cross_entropy(z, y)
        return {
            # losses
            "plain": loss,
            "smooth": F.cross_entropy(z, y, label_smoothing=.1),
            "weighted": F.cross_entropy(z, y, weight=self.weight),
            "soft": F.cross_entropy(z, .5 * F.one_hot(x.flatten(), 8) + 1 / 16),
            "folded": F.cross_entropy(z, y % 4),
            "masked": F.cross_entropy(z, torch.where(y == 0, -100, y)),
            "moved": F.cross_entropy(
                z, F.pad(t, (1, 0), value=-100)[..., :-1].reshape(-1)),
            # metrics: the first two are means over rows
            "exact": (hits | ~counts).all(-1).float().mean(),
            "share": ((hits & counts).sum(-1) / 8).mean(),
            "accuracy": (hits & counts).sum() / counts.sum(),
            "inverse": ((hits & counts) * (1 / counts.sum())).sum(),
            "bits": loss / math.log(2)}


def main():
    x, t = torch.randint(8, (4, 8)), torch.randint(8, (4, 8))
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        Entropies().train(), (x, t), strict=False,
        dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, os.path.join(HERE, "entropies.pt2"))


if __name__ == "__main__":
    main()
