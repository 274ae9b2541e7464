# SPDX-License-Identifier: Apache-2.0
"""Makes cases. A case is a line of the table: what penstock and PyTorch run."""
import torch


def case(name, want, nodes, make, flags="-"):
    """Returns a case. name: name of the line. want: minimum ratio of PyTorch's
    time to ours; 0: none. nodes: graphs for bench-kernels, which times the
    last node of each; their times are added up. make: returns the function
    that PyTorch runs."""
    return {"name": name, "want": want, "nodes": nodes, "make": make,
            "flags": flags}


def with_gradient(forward, *inputs):
    """Returns a function that runs forward and backward of `forward`."""
    leaves = [x.requires_grad_() for x in inputs]
    g = torch.randn_like(forward(*leaves))

    def run():
        y = forward(*leaves)
        torch.autograd.grad(y, leaves, g)
    return run
