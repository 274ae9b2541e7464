# SPDX-License-Identifier: Apache-2.0
"""Writes late.pt2, whose input `wanted` is declared first and used last, and
late-fc.pt2, its module `fc`. Both inputs have one shape, so that nothing else
would notice if they were exchanged.

Run again only if PyTorch's format changes.
"""
import os

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Late(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, wanted, x):
        return (self.fc(x).tanh() - wanted).square().mean()


def main():
    torch.manual_seed(8)
    model = Late()
    x = torch.randn(2, 4)
    torch.export.save(torch.export.export(model, (x, x.clone())),
                      os.path.join(HERE, "late.pt2"))
    torch.export.save(torch.export.export(model.fc, (x,)),
                      os.path.join(HERE, "late-fc.pt2"))


if __name__ == "__main__":
    main()
