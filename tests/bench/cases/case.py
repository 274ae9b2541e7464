# SPDX-License-Identifier: Apache-2.0
"""One line of the table: what both sides run."""
import torch


def case(name, want, nodes, make, flags="-"):
    """name: of the line; want: least ratio of PyTorch's time to ours, 0 for
    none; nodes: graphs for bench-kernels, whose last nodes are timed and
    added up; make: returns the function that PyTorch is timed with."""
    return {"name": name, "want": want, "nodes": nodes, "make": make,
            "flags": flags}


def with_gradient(forward, *inputs):
    """Forward and backward of one function."""
    leaves = [x.requires_grad_() for x in inputs]
    g = torch.randn_like(forward(*leaves))

    def run():
        y = forward(*leaves)
        torch.autograd.grad(y, leaves, g)
    return run
