# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pooling, norms of channels."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


def conv(n, ci, size, co, k, stride):
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1
    x, w = f"F[{n}, {ci}, {size}, {size}]", f"F[{co}, {ci}, {k}, {k}]"
    g = f"F[{n}, {co}, {out}, {out}]"
    rest = f"[{stride}], [{pad}], [1], False, [0], 1)"
    tag = f"{n}x{ci}x{size}x{size} -> {co}, {k}x{k} / {stride}"
    args = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
    tx, tw = torch.randn(n, ci, size, size), torch.randn(co, ci, k, k)
    tg = torch.randn(n, co, out, out)

    def back(*mask):
        return lambda: lambda: torch.ops.aten.convolution_backward(
            tg, tx, tw, None, *args, mask)
    return [
        case(f"conv2d {tag}", 0.8,
             [f"input %x: {x}; input %w: {w}; "
              f"%r = aten.convolution.default(%x, %w, None, {rest}"],
             lambda: lambda: F.conv2d(tx, tw, None, stride, pad)),
        case(f"conv2d dX {tag}", 0.8,
             [f"input %g: {g}; input %w: {w}; %r = "
              "penstock.convolution_backward_input.default(%g, %w, "
              f"[{n}, {ci}, {size}, {size}], {rest}"],
             back(True, False, False)),
        case(f"conv2d dW {tag}", 0.8,
             [f"input %g: {g}; input %x: {x}; %r = "
              "penstock.convolution_backward_weight.default(%g, %x, "
              f"[{co}, {ci}, {k}, {k}], {rest}"],
             back(False, True, False)),
    ]


def batch_norm(n, c, size):
    x, s = f"F[{n}, {c}, {size}, {size}]", f"F[1, {c}]"
    stats = f"input %cm: {s}; input %cr: {s}; "

    def make():
        mean, var = torch.zeros(c), torch.ones(c)
        return with_gradient(
            lambda a, w, b: F.batch_norm(a, mean, var, w, b, True),
            torch.randn(n, c, size, size), torch.ones(c), torch.zeros(c))
    return [case(f"batch_norm forward + backward {n}x{c}x{size}x{size}", 0.0, [
        f"input %x: {x}; %r, %s, %t = penstock.norm_stats.default(%x, {c}, "
        "True, 1e-05)",
        f"input %x: {x}; input %w: F[{c}]; input %b: F[{c}]; {stats}"
        "%r = penstock.norm_apply.default(%x, %w, %b, %cm, %cr, True)",
        f"input %g: {x}; input %x: {x}; {stats}"
        "%r, %s = penstock.norm_sums.default(%g, %x, %cm, %cr)",
        f"input %g: {x}; input %x: {x}; input %w: F[{c}]; {stats}"
        f"input %a: {s}; input %b: {s}; %r = penstock.norm_input.default("
        "%g, %x, %w, %cm, %cr, %a, %b)"], make)]


def cases():
    ret = []
    for ci, size, co, k, stride in (
            (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1),
            (128, 28, 128, 3, 1), (256, 56, 512, 1, 2), (256, 14, 256, 3, 1),
            (512, 7, 512, 3, 1)):
        ret += conv(4, ci, size, co, k, stride)
    return ret + batch_norm(4, 64, 56)
