# SPDX-License-Identifier: Apache-2.0
"""Writes layouts.pt2 and layouts.safetensors (PyTorch 2.13) into tests/golden.

Operators whose results have other strides in eager mode than in the file,
which has those of the tracer. A reshape of each result is written, and the
result is returned: by the strides the reshape is a view or a copy.
layouts.safetensors has the inputs and the outputs of eager PyTorch.
"""
import os
import warnings

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CL = torch.channels_last


def conv(a):
    """Returns a convolution of `a`, which has several channels and gets the
    layout that `a` seems to have."""
    return F.conv2d(a, a.new_full((2, a.size(1), 1, 1), 0.5))


# x (2, 3, 4, 3) is channels last, y (2, 1, 4, 3) is contiguous.
MAKE = {
    # One channel: strides (12, 1, 3, 1) in the file, (12, 12, 3, 1) in eager.
    "sum": lambda x, y: conv(torch.zeros_like(last(y)) + last(y)),
    "relu": lambda x, y: conv(last(y).relu()),
    "product": lambda x, y: conv(last(y) * last(y)),
    "square": lambda x, y: conv(last(y) ** 2),
    "filled": lambda x, y: conv(last(y).masked_fill(y > 0.5, 0.25)),
    "pooled": lambda x, y: F.max_pool2d(last(y).exp(), 1).expand(2, 2, 4, 3) * 1,
    "joined": lambda x, y: torch.cat([last(y) - y, last(y).abs()], 1),
    "window": lambda x, y: conv(x[:, :1].neg()[:, :, 1:]),
    # The opposite: contiguous in the file, channels last in eager mode.
    "wide": lambda x, y: conv(F.interpolate(last(y), scale_factor=2)),
    "normed": lambda x, y: conv(F.group_norm(last(y), 1)),
    # All strides differ.
    "rolled": lambda x, y: x.roll(1, 1),
    "shuffled": lambda x, y: F.channel_shuffle(x, 3),
    "power": lambda x, y: 2.0 ** x,
    "logits": lambda x, y: F.logsigmoid(x),
    "floor": lambda x, y: x.contiguous() // (x + 1),
    "batch": lambda x, y: F.batch_norm(x.permute(1, 3, 0, 2), x.new_zeros(3),
                                       x.new_ones(3)),
}


def last(a):
    return torch.empty_like(a, memory_format=CL).copy_(a)


class Layouts(torch.nn.Module):
    def forward(self, x, y):
        outs = {}
        for name, make in MAKE.items():
            made = make(x, y) * 1.5
            made.reshape(made.size(0), -1).mul_(2)
            outs[name] = made
            # The result is reshaped first and written afterwards.
            made = make(x, y).neg()
            taken = made.reshape(-1)
            made.add_(1)
            outs[name + "_taken"] = taken * 1
        # Eager mode returns the tensor itself, though the file has a copy. (In
        # the opposite case the file has one tensor, eager mode two.)
        for name, same in (("to", lambda a: a.to(memory_format=CL)),
                           ("contiguous",
                            lambda a: a.contiguous(memory_format=CL))):
            made = x.roll(1, 1)
            same(made).mul_(3)
            outs[name] = made * 1
        for name, made in (("unshuffle", F.pixel_unshuffle(y, 1)),
                           ("pad", F.pad(y, (0, 0, 0, 0), mode="reflect"))):
            made.add_(1)
            outs[name] = y + made
        return outs


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    x = torch.rand(2, 3, 4, 3).contiguous(memory_format=CL)
    y = torch.rand(2, 1, 4, 3)
    program = torch.export.export(Layouts(), (x.clone(), y.clone()),
                                  strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, "layouts.pt2"))
    tensors = {"x": x, "y": y}
    for name, out in Layouts()(x.clone(), y.clone()).items():
        tensors["out." + name] = out
    save_file({n: t.detach().contiguous().clone() for n, t in tensors.items()},
              os.path.join(HERE, "layouts.safetensors"))


main()
