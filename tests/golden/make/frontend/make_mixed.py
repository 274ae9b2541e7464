# SPDX-License-Identifier: Apache-2.0
"""Writes mixed.pt2 and mixed.safetensors (PyTorch 2.13) into tests/golden.

A decomposed model of two dtypes: norms in f32 of a bf16 input. The file gives
their unused statistics as bf16, but PyTorch computes them in f32.
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LayerNorm(6)
        self.batch = nn.BatchNorm1d(6)

    def forward(self, x):
        y = self.batch(self.layer(x))
        return y.float().abs().mean(), y


def main():
    torch.manual_seed(0)
    model = Mixed().train()
    x = torch.randn(8, 6).bfloat16()
    program = torch.export.export(model, (x,), strict=False)
    program = program.run_decompositions()
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, "mixed.pt2"))
    loss, y = model(x)
    loss.backward()
    tensors = {"in.x": x, "out.0": loss, "out.1": y}
    for name, parameter in model.named_parameters():
        tensors["grad." + name] = parameter.grad
    save_file({n: t.detach().contiguous() for n, t in tensors.items()},
              os.path.join(HERE, "mixed.safetensors"))


main()
