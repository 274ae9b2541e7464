# SPDX-License-Identifier: Apache-2.0
"""Defines cases of scaled dot product attention, forward and backward."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


def attention(name, want, batch, heads, t, width, keys=None, mask="None",
              causal=False):
    """Returns the cases of forward and backward. keys: number of heads of keys
    and values, if there are fewer than query heads. mask: "bool[...]", or
    "F[...]", which gets a gradient."""
    keys = keys or heads
    gqa = keys != heads
    q = f"F[{batch}, {heads}, {t}, {width}]"
    k = f"F[{batch}, {keys}, {t}, {width}]"
    names = f"input %q: {q}; input %k: {k}; input %v: {k}; "
    if mask != "None":
        names += f"input %m: {mask}; "
    with_mask = mask.startswith("F")
    m = "None" if mask == "None" else "%m"
    rest = f"%q, %k, %v, {m}, 0.0, {causal}, "
    backward = "%r, %s, %t = penstock.sdpa_backward"
    if with_mask:
        backward = "%r, %s, %t, %u = penstock.sdpa_backward_mask"
    sums = f"input %p: f32[{batch}, {heads}, {t}, 2]; "
    nodes = [names + "%r, %s = penstock.sdpa_with_sums.default(" + rest +
             f"scale=None, enable_gqa={gqa})",
             f"input %g: {q}; {sums}{names}{backward}.default(%g, None, %p, "
             f"{rest}None, {gqa})"]

    def make():
        inputs = [torch.randn(batch, n, t, width) for n in (heads, keys, keys)]
        m = None
        if mask != "None":
            shape = [int(n) for n in mask[mask.index("[") + 1:-1].split(",")]
            m = torch.rand(shape) < 0.9
        if with_mask:
            inputs.append(torch.randn(shape))
        return with_gradient(
            lambda q, k, v, *own: F.scaled_dot_product_attention(
                q, k, v, own[0] if own else m, is_causal=causal,
                enable_gqa=gqa), *inputs)
    return case(f"attention forward + backward {name}", want, nodes, make)


def cases():
    return [attention(f"T={t}", 1.2, 1, 12, t, 64, causal=True)
            for t in (128, 512, 1024)] + [
        attention("8 x T=197, all keys", 1.0, 8, 12, 197, 64),
        attention("4 x T=256, 2 of 8 heads", 1.0, 4, 8, 256, 64, 2,
                  causal=True),
        attention("4 x T=128, mask of rows", 1.0, 4, 12, 128, 64,
                  mask="bool[4, 1, 1, 128]"),
        attention("128 windows of 49, bias", 1.0, 128, 3, 49, 32,
                  mask="F[1, 3, 49, 49]"),
    ]
