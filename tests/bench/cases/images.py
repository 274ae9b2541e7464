# SPDX-License-Identifier: Apache-2.0
"""Defines cases of convolutions, pooling and norms of channels."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


NAMES = {torch.float32: "F", torch.float64: "f64", torch.bfloat16: "bf16",
         torch.float16: "f16"}


def conv(n, ci, size, co, k, stride=1, pad=None, dil=1, groups=1,
         transposed=False, dtype=torch.float32, want=0.8, label=""):
    """Returns the cases of forward and of both gradients. size, k: lists with
    an entry per dimension."""
    dims, name = len(size), NAMES[dtype]
    pad = [(e - 1) // 2 * dil for e in k] if pad is None else [pad] * dims
    args = ([stride] * dims, pad, [dil] * dims, transposed, [0] * dims, groups)
    tx = torch.randn(n, ci, *size).to(dtype)
    tw = torch.randn(*((ci, co // groups) if transposed else
                       (co, ci // groups)), *k).to(dtype)
    tg = torch.convolution(tx, tw, None, *args)
    tg = torch.randn(tg.shape).to(dtype)
    x, w, g = (f"{name}{list(t.shape)}" for t in (tx, tw, tg))
    rest = (f"[{stride}], {pad}, [{dil}], {transposed}, [0], {groups})")
    by = "x".join(map(str, size))
    tag = (f"{n}x{ci}x{by} -> {co}, {'x'.join(map(str, k))} / {stride}"
           + (f" {label}" if label else ""))
    kind = f"conv{dims}d"

    def back(*mask):
        return lambda: lambda: torch.ops.aten.convolution_backward(
            tg, tx, tw, None, *args, mask)
    return [
        case(f"{kind} {tag}", want,
             [f"input %x: {x}; input %w: {w}; "
              f"%r = aten.convolution.default(%x, %w, None, {rest}"],
             lambda: lambda: torch.convolution(tx, tw, None, *args)),
        case(f"{kind} dX {tag}", want,
             [f"input %g: {g}; input %w: {w}; %r = "
              "penstock.convolution_backward_input.default(%g, %w, "
              f"{list(tx.shape)}, {rest}"],
             back(True, False, False)),
        case(f"{kind} dW {tag}", want,
             [f"input %g: {g}; input %x: {x}; %r = "
              "penstock.convolution_backward_weight.default(%g, %x, "
              f"{list(tw.shape)}, {rest}"],
             back(False, True, False)),
    ]


def convolutions():
    ret = []
    for ci, size, co, k, stride in (
            (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1),
            (128, 28, 128, 3, 1), (256, 56, 512, 1, 2), (256, 14, 256, 3, 1),
            (512, 7, 512, 3, 1)):
        ret += conv(4, ci, [size] * 2, co, [k] * 2, stride)
    ret += conv(4, 144, [56, 56], 144, [3, 3], groups=144, label="depthwise")
    ret += conv(4, 144, [56, 56], 144, [3, 3], 2, groups=144, label="depthwise")
    ret += conv(4, 96, [56, 56], 96, [7, 7], groups=96, label="depthwise")
    ret += conv(4, 128, [56, 56], 128, [3, 3], groups=32, label="32 groups")
    ret += conv(4, 64, [56, 56], 64, [3, 3], dil=2, label="dilated")
    ret += conv(1, 80, [3000], 384, [3], label="whisper")
    ret += conv(1, 384, [3000], 384, [3], 2, label="whisper")
    ret += conv(1, 1, [16000], 512, [10], 5, 0, label="wav2vec2")
    ret += conv(1, 512, [3199], 512, [3], 2, 0, label="wav2vec2")
    ret += conv(1, 768, [49], 768, [128], 1, 64, groups=16,
                label="positions of wav2vec2")
    ret += conv(2, 1536, [512], 1536, [4], 1, 3, groups=1536, label="mamba")
    ret += conv(2, 3, [16, 64, 64], 32, [3, 3, 3], label="video")
    ret += conv(2, 32, [8, 28, 28], 64, [3, 3, 3], label="video")
    ret += conv(2, 128, [28, 28], 64, [2, 2], 2, 0, transposed=True,
                label="transposed")
    ret += conv(2, 128, [28, 28], 64, [4, 4], 2, 1, transposed=True,
                label="transposed")
    ret += conv(4, 3, [224, 224], 768, [16, 16], 16, 0, label="patches")
    ret += conv(4, 1, [28, 28], 32, [3, 3], label="digits")
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        ret += conv(2, 64, [28, 28], 64, [3, 3], dtype=dtype,
                    label=NAMES[dtype])
    return ret


def batch_norm(n, c, *space):
    sizes = [n, c, *space]
    x, s = f"F[{', '.join(map(str, sizes))}]", f"F[1, {c}]"
    stats = f"input %cm: {s}; input %cr: {s}; "

    def make():
        mean, var = torch.zeros(c), torch.ones(c)
        return with_gradient(
            lambda a, w, b: F.batch_norm(a, mean, var, w, b, True),
            torch.randn(sizes), torch.ones(c), torch.zeros(c))
    name = "x".join(map(str, sizes))
    return [case(f"batch_norm forward + backward {name}", 0.0, [
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
    return (convolutions() + batch_norm(4, 64, 56, 56) +
            batch_norm(2000, 256))
