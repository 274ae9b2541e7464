# SPDX-License-Identifier: Apache-2.0
"""Writes resize.pt2: a sharded parameter p is an input without memory and is
gathered twice; a second parameter q is filled together with it.

Needs torch >= 2.9; rerun only to change the model.
"""
import os

import torch
import torch.distributed.fsdp._fully_shard._fsdp_collectives  # noqa: F401
from make_tiny import clean
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RESIZE = torch.ops.inductor.resize_storage_bytes_


class Sharded(nn.Module):
    def forward(self, p, q, gathered, other):
        RESIZE(p, 16)
        torch.ops.fsdp.copy_(p, gathered)
        h = p @ p.t()
        RESIZE(p, 0)
        RESIZE(p, 16)
        RESIZE(q, 16)
        torch._foreach_copy_([p, q], [gathered * 2, other])
        h = h @ p + q
        RESIZE(p, 0)
        return h


def empty():
    x = torch.zeros(2, 2)
    x.untyped_storage().resize_(0)
    return x


def main():
    import torch._inductor.fx_passes.reinplace  # noqa: F401 (its operators)
    inputs = (empty(), empty(), torch.ones(2, 2), torch.ones(2, 2))
    program = torch.export.export(Sharded(), inputs, strict=False)
    clean(program.graph_module)
    program._example_inputs = None
    torch.export.save(program, os.path.join(HERE, "resize.pt2"))


if __name__ == "__main__":
    main()
