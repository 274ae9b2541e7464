#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes closure.pt2, the model that advection.f90 trains.

    export.py                         writes closure.pt2 beside this file
    export.py --train PREFIX STEPS    trains it in PyTorch on the samples that
                                      advection.f90 wrote, and prints losses

The model takes stencils of 5 coarse cells (32, 5) and the corrections that a
fine grid gives (32, 1), and returns its loss first.
"""
import os
import sys

import torch
from torch import nn

ROWS, STENCIL = 32, 5
MICROBATCHES = 2  # as in advection.f90


class Closure(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(STENCIL, 16), nn.Tanh(),
                                   nn.Linear(16, 16), nn.Tanh())
        self.last = nn.Linear(16, 1)

    def forward(self, stencil, correction):
        guess = self.last(self.inner(stencil))
        return nn.functional.mse_loss(guess, correction), guess


def make():
    torch.manual_seed(0)
    return Closure().train()


def train(prefix, steps):
    """Microbatch by microbatch, as the pipeline does."""
    def read(name, width):
        with open(f"{prefix}.{name}", "rb") as file:
            data = torch.frombuffer(bytearray(file.read()),
                                    dtype=torch.float32)
        return data.reshape(steps, MICROBATCHES, ROWS, width)

    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for stencils, corrections in zip(read("stencil", STENCIL),
                                     read("correction", 1)):
        optimizer.zero_grad()
        losses = []
        for stencil, correction in zip(stencils, corrections):
            loss = model(stencil, correction)[0]
            (loss / MICROBATCHES).backward()
            losses.append(loss.item())
        optimizer.step()
        print(sum(losses) / MICROBATCHES)


def main():
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], int(sys.argv[3]))
        return
    program = torch.export.export(
        make(), (torch.zeros(ROWS, STENCIL), torch.zeros(ROWS, 1)),
        strict=False)
    torch.export.save(program, os.path.join(os.path.dirname(
        os.path.abspath(__file__)), "closure.pt2"))


main()
