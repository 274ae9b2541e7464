#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes inputs.pt2, a model whose inputs are read in many ways, cut into four
stages by markers, and inputs.safetensors: even/NAME and odd/NAME have the
inputs of a step of 16 rows (four microbatches of 4) and of 14 rows (4, 4, 3 and
3), "loss", the mean over the microbatches weighted by their rows, and
"grad.NAME", the gradients of the floating-point inputs in PyTorch 2.13.

x       read by all stages: by matmuls, twice by one operator, by views
y       added, so that its gradient is that of a sum
z       read, but the loss does not depend on it
bias    the same for all microbatches, added to a parameter of its shape
half    bf16, read by two stages
double  f64
side    its rows are dimension 1
token   integers
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from make_tiny import clean

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, WORDS = 6, 9
FLOATS = ["x", "y", "z", "bias", "half", "double", "side", "target"]


class Inputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.randn(WIDTH))
        self.up = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x, y, z, bias, half, double, side, token, target):
        h = torch.tanh(self.up(x)) + (bias + self.p)
        h = h + half.float() * z.detach()
        torch.ops.pippy._pipe_split()
        h = self.norm(h + x * x + self.table(token)) * bias
        h = h + double.sin().float()
        torch.ops.pippy._pipe_split()
        h = h + y + (side * side).sum(0).unsqueeze(1)
        h = h @ (x.t() @ h) / x.shape[0] + half.float()
        torch.ops.pippy._pipe_split()
        loss = F.mse_loss(self.head(h), target)
        return loss + (x[:, 1:3] * y[:, :2]).mean() + (z > 0).float().mean()


def step(model, rows, microbatches, data):
    """Adds inputs, loss and gradients of a step of `rows` rows to data."""
    torch.manual_seed(rows)
    inputs = {"x": torch.randn(rows, WIDTH), "y": torch.randn(rows, WIDTH),
              "z": torch.randn(rows, WIDTH), "bias": torch.randn(WIDTH),
              "half": torch.randn(rows, WIDTH).bfloat16(),
              "double": torch.randn(rows, WIDTH, dtype=torch.float64),
              "side": torch.randn(3, rows),
              "token": torch.randint(WORDS, (rows,)),
              "target": torch.randn(rows, 2)}
    for name in FLOATS:
        inputs[name].requires_grad_()
    larger, total = -(-rows // microbatches), 0
    sizes = [larger] * (microbatches - (larger * microbatches - rows))
    sizes += [larger - 1] * (microbatches - len(sizes))
    parts = {name: [t] * microbatches if name == "bias" else
             t.split(sizes, int(name == "side")) for name, t in inputs.items()}
    for k, size in enumerate(sizes):
        total = total + model(*(parts[name][k] for name in inputs)
                              ) * (size / rows)
    total.backward()
    name = "even" if rows % microbatches == 0 else "odd"
    data[f"{name}/loss"] = total.detach()
    for key, t in inputs.items():
        data[f"{name}/{key}"] = t.detach()
    for key in FLOATS:
        grad = inputs[key].grad
        data[f"{name}/grad.{key}"] = (torch.zeros_like(inputs[key])
                                      if grad is None else grad)


def main():
    torch.manual_seed(0)
    model = Inputs().train()
    rows = torch.export.Dim("rows", min=2, max=64)
    example = (*(torch.randn(4, WIDTH) for _ in range(3)), torch.randn(WIDTH),
               torch.randn(4, WIDTH).bfloat16(),
               torch.randn(4, WIDTH, dtype=torch.float64),
               torch.randn(3, 4), torch.randint(WORDS, (4,)), torch.randn(4, 2))
    shapes = tuple(None if i == 3 else {int(i == 6): rows}
                   for i in range(len(example)))
    program = torch.export.export(model, example, dynamic_shapes=shapes,
                                  strict=False)
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "inputs.pt2"))
    data = {}
    step(model, 16, 4, data)
    step(model, 14, 4, data)
    save_file(data, os.path.join(HERE, "inputs.safetensors"))


if __name__ == "__main__":
    import torch.distributed.pipelining  # noqa: F401: registers _pipe_split

    main()
