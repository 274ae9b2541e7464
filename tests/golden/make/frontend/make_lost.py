# SPDX-License-Identifier: Apache-2.0
"""Writes lost.pt2 and halves.pt2 (PyTorch 2.13) into tests/golden: a buffer
and a non-persistent view of it, for which torch.export.save writes a copy of
the storage; in halves.pt2 two views together cover the copy.
"""
import os

import torch

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Lost(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.arange(8.0))
        self.register_buffer("window", self.cache[2:6], persistent=False)

    def forward(self, x):
        self.window.add_(x)
        return self.cache * 1


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.arange(8.0))
        self.register_buffer("front", self.cache[:4], persistent=False)
        self.register_buffer("back", self.cache[4:], persistent=False)

    def forward(self, x):
        self.front.add_(x)
        self.back.mul_(x)
        return self.cache * 1


for name, model in ("lost", Lost()), ("halves", Halves()):
    program = torch.export.export(model, (torch.ones(4),), strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, f"{name}.pt2"))
