#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes asserts.pt2, a decomposed model with every kind of assertion on data
that the exporter writes: those in one_hot and inverse (the second with an
effect token), one of a tensor, and those of a number that is read from data.
Two split markers put the assertions into three stages. Run again only if
PyTorch's format changes.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(5, 4)
        self.down = nn.Linear(4, 2)

    def forward(self, x, i, a):
        torch._assert_async((x > -5).all(), "x must be above -5")
        h = self.up(F.one_hot(i, 5) + x)
        torch.ops.pippy._pipe_split()
        count = i.sum().item()
        torch._check(count - 1 < 12)
        h = torch.tanh(h) @ torch.linalg.inv(a)
        torch.ops.pippy._pipe_split()
        torch._assert_async((i != 3).any(), "not all may be 3")
        return self.down(h).square().mean()


def main():
    import torch.distributed.pipelining  # noqa: F401: registers _pipe_split

    torch.manual_seed(0)
    args = (torch.randn(4, 5), torch.tensor([0, 1, 2, 3]),
            torch.eye(4) + 0.1 * torch.randn(4, 4))
    program = torch.export.export(Net().train(), args, strict=False)
    torch.export.save(program.run_decompositions(),
                      os.path.join(HERE, "asserts.pt2"))


if __name__ == "__main__":
    main()
