# SPDX-License-Identifier: Apache-2.0
"""Writes loops.pt2, with a scan, a counting loop and a region of vmap, and
models that are refused: masked.pt2 indexes by a mask, endless.pt2 has a loop
that ends depending on data, left.pt2 reads a tensor that was written through a
detached name, tangent.pt2 uses the derivative of jvp.

Needs torch 2.13; rerun only to change the models.
"""
import os

import torch
from make_tiny import clean
from torch import nn
from torch._higher_order_ops import scan, while_loop

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Loops(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        h, ys = scan(lambda h, z: (h * z, h + z * self.scale),
                     torch.ones(2), x)
        _, h = while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z.sin()),
                          (torch.tensor(1), h))
        mask = torch.vmap(lambda i: i > 0)(torch.arange(3))
        return torch.where(mask[:, None], ys, h)


class Masked(nn.Module):
    def forward(self, x):
        return x[x > 0].sin().sum()


class Endless(nn.Module):
    def forward(self, x):
        return while_loop(lambda z: z.sum() < 9, lambda z: (z + 1,), (x,))[0]


class Left(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        y = x * 2
        z = y.detach()
        z += self.scale
        return z + y


class Tangent(nn.Module):
    def forward(self, x):
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]


def main():
    for name, model in (("loops", Loops()), ("masked", Masked()),
                        ("endless", Endless()), ("left", Left()),
                        ("tangent", Tangent())):
        program = torch.export.export(model, (torch.ones(3, 2),),
                                      strict=False)
        clean(program.graph_module)
        program._example_inputs = None
        torch.export.save(program, os.path.join(HERE, name + ".pt2"))


if __name__ == "__main__":
    main()
