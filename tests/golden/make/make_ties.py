#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ties.pt2, a model of four stages with two parameters that several
stages use, and ties.safetensors: PyTorch 2.13's numbers in STEPS steps whose
gradients the caller changes before they are clipped and applied.

token, target   inputs of all steps
set.K, add.K    what takes the place of norm.weight's gradient in step K, and
                what is added to that of table.weight, which stages 0 and 3 use
loss, norm      of each step; the norm is that of the changed gradients
param.NAME      after the last step
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from make_tiny import clean

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, WORDS, ROWS, MICROBATCHES, STEPS = 6, 9, 4, 2, 3


class Ties(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.randn(WORDS))
        self.idle = nn.Parameter(torch.randn(WIDTH))

    def forward(self, token, target):
        h = torch.tanh(self.up(self.table(token)))
        torch.ops.pippy._pipe_split()
        h = self.norm(h) + self.idle.detach()
        torch.ops.pippy._pipe_split()
        h = torch.tanh(h @ self.up.weight)
        torch.ops.pippy._pipe_split()
        return F.cross_entropy(F.linear(h, self.table.weight, self.bias),
                               target)


def main():
    torch.manual_seed(0)
    model = Ties().train()
    token, target = torch.randint(WORDS, (2, STEPS, MICROBATCHES, ROWS))
    program = torch.export.export(model, (token[0, 0], target[0, 0]),
                                  strict=False)
    clean(program.graph_module)
    torch.export.save(program, os.path.join(HERE, "ties.pt2"))
    data = {"token": token.flatten(), "target": target.flatten()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses, norms = [], []
    for k in range(STEPS):
        optimizer.zero_grad()
        total = 0
        for m in range(MICROBATCHES):
            loss = model(token[k, m], target[k, m]) / MICROBATCHES
            loss.backward()
            total += loss.item()
        data[f"set.{k}"] = torch.randn(WIDTH)
        data[f"add.{k}"] = torch.randn(WORDS, WIDTH)
        model.norm.weight.grad = data[f"set.{k}"].clone()
        model.table.weight.grad += data[f"add.{k}"]
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        losses.append(total)
    data["loss"], data["norm"] = torch.tensor(losses), torch.tensor(norms)
    for name, p in model.named_parameters():
        data[f"param.{name}"] = p.detach()
    save_file(data, os.path.join(HERE, "ties.safetensors"))


if __name__ == "__main__":
    import torch.distributed.pipelining  # noqa: F401: registers _pipe_split

    main()
