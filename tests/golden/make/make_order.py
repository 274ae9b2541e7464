# SPDX-License-Identifier: Apache-2.0
"""Writes order*.pt2 (PyTorch 2.13) into tests/golden, for tests of which matrix
a model reads last.

order       a table without a module, three linear layers and the head
order-16    the same in bf16: the table is read through a conversion, the head
            is converted before anything else is computed, `mid` is frozen
order-more  a module for `mid` with more operators than it has
order-cut   a module for `head` without parameters
"""
import os

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, CLASSES, WORDS = 8, 5, 16


class Order(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)
        self.table = nn.Parameter(torch.randn(WORDS, WIDTH))
        self.up = nn.Linear(WIDTH, WIDTH)
        self.mid = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def inner(self, word):
        h = F.gelu(self.up(F.embedding(word, self.table)))
        h = h + F.gelu(self.mid(h))
        return h + F.gelu(self.down(h))

    def forward(self, word, label):
        return F.cross_entropy(self.head(self.inner(word)), label)


class Order16(Order):
    def forward(self, word, label):
        weight = self.head.weight.float()
        h = self.inner(word).float()
        return F.cross_entropy(F.linear(h, weight), label)


class Cut(nn.Module):
    def forward(self, x):
        return x[:, :CLASSES] * 2


def save(name, model, *inputs):
    program = torch.export.export(model, inputs, strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, f"{name}.pt2"))


torch.manual_seed(0)
rows = torch.randint(WORDS, (4,)), torch.randint(CLASSES, (4,))
save("order", Order(), *rows)
half = Order16().bfloat16()
half.mid.requires_grad_(False)
save("order-16", half, *rows)
more = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(),
                     nn.Linear(WIDTH, WIDTH), nn.GELU(),
                     nn.Linear(WIDTH, WIDTH))
save("order-more", more, torch.randn(4, WIDTH))
save("order-cut", Cut(), torch.randn(4, WIDTH))
