# SPDX-License-Identifier: Apache-2.0
"""Defines cases of matrix products."""
import torch
import torch.nn.functional as F

from .case import case


def linear(m, k, n):
    tag = f"{m}x{k}x{n}"
    x, w, b, g = f"F[{m}, {k}]", f"F[{n}, {k}]", f"F[{n}]", f"F[{m}, {n}]"
    tx, tw = torch.randn(m, k), torch.randn(n, k)
    tb, tg = torch.randn(n), torch.randn(m, n)
    return [
        case(f"linear forward {tag}", 1.0,
             [f"input %x: {x}; input %w: {w}; input %b: {b}; "
              "%r = aten.linear.default(%x, %w, %b)"],
             lambda: lambda: F.linear(tx, tw, tb)),
        case(f"linear dX {tag}", 1.0,
             [f"input %g: {g}; input %w: {w}; "
              "%r = aten.mm.default(%g, %w)"],
             lambda: lambda: tg @ tw),
        case(f"linear dW {tag}", 1.0,
             [f"input %g: F[{n}, {m}]:(1, {n}); input %x: {x}; "
              "%r = aten.mm.default(%g, %x)"],
             lambda: lambda: tg.t() @ tx),
    ]


def linear_bf16(m, k, n):
    """Returns the cases of linear() in bf16. Both sides convert the operands
    in advance."""
    tag = f"{m}x{k}x{n}"
    x, w, g = f"F[{m}, {k}]", f"F[{n}, {k}]", f"F[{m}, {n}]"
    tx, tw = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    tg = torch.randn(m, n).bfloat16()
    return [
        case(f"linear bf16 {tag}", 1.0,
             [f"input %x: {x}; input %w: {w}; "
              "%r = aten.linear.default(%x, %w)"],
             lambda: lambda: F.linear(tx, tw), "bf16"),
        case(f"linear bf16 dX {tag}", 1.0,
             [f"input %g: {g}; input %w: {w}; "
              "%r = aten.mm.default(%g, %w)"],
             lambda: lambda: tg @ tw, "bf16"),
        case(f"linear bf16 dW {tag}", 1.0,
             [f"input %g: F[{n}, {m}]:(1, {n}); input %x: {x}; "
              "%r = aten.mm.default(%g, %x)"],
             lambda: lambda: tg.t() @ tx, "bf16"),
    ]


def cases():
    ret = []
    for shape in (512, 768, 2304), (512, 768, 3072), (512, 3072, 768):
        ret += linear(*shape) + linear_bf16(*shape)
    return ret
