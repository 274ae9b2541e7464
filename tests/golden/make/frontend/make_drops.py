# SPDX-License-Identifier: Apache-2.0
"""Writes drops.pt2 and drops.safetensors (the input and the result of eval()).

All kinds of dropout that Core ATen has no operator for, exported in training
mode and decomposed. Needs torch >= 2.9 and safetensors; rerun only to change
the model."""
import os

import torch
import torch.nn.functional as F
from make_tiny import clean
from safetensors.torch import save_file
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.planes = nn.Dropout2d(0.5)
        self.place = nn.Dropout(0.25, inplace=True)
        self.mean = nn.AlphaDropout(0.3)
        self.feature = nn.FeatureAlphaDropout(0.5)
        self.all = nn.Dropout2d(1.0)

    def forward(self, x):
        h = self.planes(self.conv(x))
        h = self.mean(self.place(h + 1))
        h = self.feature(h) + self.all(x).sum()
        return F.dropout2d(h, 0.5, self.training)


def main():
    torch.manual_seed(1)
    net, x = Drops(), torch.randn(2, 3, 2, 2)
    program = torch.export.export(net.train(), (x,), strict=False)
    program = program.run_decompositions()
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "drops.pt2"))
    with torch.no_grad():
        save_file({"x": x, "y": net.eval()(x)},
                  os.path.join(HERE, "drops.safetensors"))


if __name__ == "__main__":
    main()
