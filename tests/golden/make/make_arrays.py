#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arrays.pt2: make_arrays.py FILE [--losses].

The model's inputs have four dtypes and ranks 1 to 4. Its outputs are the loss
and each input plus a number of its own for every element, which shows how the
elements were addressed. --losses prints those of four steps of SGD, with
two parameters after each, on the inputs of tests/lib/fortran.f90 and
tests/lib/python.py, which have these numbers.
"""
import sys

import torch

ROWS, SIZES = 2, {"a": (3, 4, 5), "b": (3, 4), "c": (3,), "d": ()}
DTYPES = {"a": torch.float32, "b": torch.float64, "c": torch.int32,
          "d": torch.int64}


def places(name):
    """1 for each step of the last index, 10 for one of the index before ..."""
    at = torch.zeros(SIZES[name], dtype=torch.float64)
    for d, size in enumerate(SIZES[name]):
        shape = [1] * len(SIZES[name])
        shape[d] = size
        at = at + torch.arange(size).reshape(shape) * \
            10.0 ** (len(SIZES[name]) - 1 - d)
    return at.to(DTYPES[name])


class Arrays(torch.nn.Module):
    def __init__(self):
        super().__init__()
        weight = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5) / 60
        self.weight = torch.nn.Parameter(weight)
        self.scale = torch.nn.Parameter(torch.tensor(.5))
        for name in SIZES:
            self.register_buffer(f"at_{name}", places(name))

    def forward(self, a, b, c, d):
        guess = self.scale * (a * self.weight).sum(3) + c.float()[:, :, None]
        wanted = b.float() + d.float()[:, None, None]
        return (torch.nn.functional.mse_loss(guess, wanted), a + self.at_a,
                b + self.at_b, c + self.at_c, d + self.at_d)


def inputs(rows):
    """(i + 2j + 3k + 4l) / 16 with indices from 1; integers without / 16."""
    found = []
    for name, sizes in SIZES.items():
        shape = (rows, *sizes)
        n = torch.zeros(shape, dtype=torch.int64)
        for d, size in enumerate(shape):
            ones = [1] * len(shape)
            ones[d] = size
            n += (torch.arange(size).reshape(ones) + 1) * (d + 1)
        found.append(n.to(DTYPES[name]) / 16 if DTYPES[name].is_floating_point
                     else n.to(DTYPES[name]))
    return tuple(found)


def main():
    program = torch.export.export(Arrays().train(), inputs(ROWS), strict=False)
    torch.export.save(program, sys.argv[1])
    if "--losses" in sys.argv:
        model = Arrays().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(*inputs(2 * ROWS))[0]
            loss.backward()
            optimizer.step()
            print(loss.item(), model.scale.item(),
                  model.weight[2, 0, 1].item())


main()
