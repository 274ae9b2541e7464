# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


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
    x, w = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    return [case(f"linear bf16 {m}x{k}x{n}", 1.0,
                 [f"input %x: F[{m}, {k}]; input %w: F[{n}, {k}]; "
                  "%r = aten.linear.default(%x, %w)"],
                 lambda: lambda: F.linear(x, w), "bf16")]


def cases():
    ret = linear(512, 768, 2304) + linear(512, 768, 3072)
    return ret + linear(512, 3072, 768) + linear_bf16(512, 768, 3072)
