# SPDX-License-Identifier: Apache-2.0
"""Writes shared.pt2 and shared.safetensors (PyTorch 2.13) into tests/golden.

Buffers that share memory: one that covers the others, several of which none
covers the others, two with interleaved elements, two names of one view. A
write through one name is read through the others. shared.safetensors has the
batch and PyTorch's values after two microbatches.
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        cache = torch.arange(8.0)
        self.register_buffer("whole", cache)
        self.register_buffer("front", cache[0:5])
        self.register_buffer("front_again", cache[0:5])
        self.register_buffer("odd", cache[1::2])
        rows = torch.arange(12.0)
        self.register_buffer("upper", rows[0:6].view(2, 3))
        self.register_buffer("lower", rows[3:12].view(3, 3))
        self.register_buffer("turned", rows[3:12].view(3, 3).t())
        mixed = torch.arange(6.0)
        self.register_buffer("even_columns", mixed[0::2])
        self.register_buffer("odd_columns", mixed[1::2])
        self.first = nn.Linear(3, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        x = self.first(x)
        self.front.add_(x.detach().sum())
        before = self.odd * 1
        self.odd.add_(1)
        x = torch.tanh(x) + before.sum() * 0.01 + self.front_again[1]
        self.lower[0].mul_(0.5)
        self.turned.add_(0.1)
        self.even_columns.mul_(2)
        x = x + self.upper[1] + self.odd_columns
        return ((self.last(x) + self.whole.mean()) ** 2).mean()


def main():
    torch.manual_seed(0)
    model = Shared()
    x = torch.randn(8, 3)
    program = torch.export.export(model, (x[:4],), strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, "shared.pt2"))
    tensors = {"x": x}
    losses = []
    for part in x.split(4):
        loss = model(part)
        (loss / 2).backward()
        losses.append(loss.item())
    tensors["losses"] = torch.tensor(losses)
    for name, parameter in model.named_parameters():
        tensors["grad." + name] = parameter.grad
    for name, buffer in model.named_buffers(remove_duplicate=False):
        tensors["buffer." + name] = buffer.clone()
    save_file({n: t.detach().contiguous() for n, t in tensors.items()},
              os.path.join(HERE, "shared.safetensors"))


main()
