# SPDX-License-Identifier: Apache-2.0
"""Defines cases of pooling, resizing, sampling and rearranging of images."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


def both(name, shape, forward, node, out, backward, want=0.0):
    """Returns two cases: forward alone, and forward with its gradient. node:
    the forward node, which reads %x. backward: the nodes of the gradient,
    which read %g."""
    x, g = f"F{list(shape)}", f"F{list(out)}"
    tx = torch.randn(*shape)
    tag = f"{name} {'x'.join(map(str, shape))}"
    one = f"input %x: {x}; {node}"
    return [
        case(tag, want, [one], lambda: lambda: forward(tx)),
        case(f"{tag} + gradient", want,
             [one] + [f"input %g: {g}; input %x: {x}; {b}" for b in backward],
             lambda: with_gradient(forward, torch.randn(*shape)))]


def max_pool(n, c, size, k, stride, pad):
    o = (size + 2 * pad - k) // stride + 1
    return both(
        f"max_pool2d {k} / {stride}", (n, c, size, size),
        lambda x: F.max_pool2d(x, k, stride, pad),
        f"%r, %i = penstock.max_pool.default(%x, [{k}, {k}], "
        f"[{stride}, {stride}], [{pad}, {pad}], [1, 1], False)",
        (n, c, o, o),
        [f"input %i{size * size}: i64[{n}, {c}, {o * o}]; "
         f"%h = aten.view.default(%g, [{n}, {c}, {o * o}]); "
         f"%z = aten.zeros.default([{n}, {c}, {size * size}]); "
         f"%r = aten.scatter_add.default(%z, 2, %i{size * size}, %h)"])


def avg_pool(n, c, size, k, stride):
    o = (size - k) // stride + 1
    rest = f"[{k}, {k}], [{stride}, {stride}], [0, 0], False, True, None)"
    return both(f"avg_pool2d {k} / {stride}", (n, c, size, size),
                lambda x: F.avg_pool2d(x, k, stride),
                f"%r = penstock.avg_pool.default(%x, {rest}", (n, c, o, o),
                [f"%r = penstock.avg_pool_backward.default(%g, "
                 f"[{size}, {size}], {rest}"])


def adaptive(n, c, size, o):
    if o == 1:
        node = "%r = aten.mean.dim(%x, [-1, -2], True)"
        back = (f"%e = aten.expand.default(%g, [{n}, {c}, {size}, {size}]); "
                f"%r = aten.div.Scalar(%e, {size * size})")
    else:
        node = f"%r = penstock.adaptive_avg_pool.default(%x, [{o}, {o}])"
        back = ("%r = penstock.adaptive_avg_pool_backward.default(%g, "
                f"[{size}, {size}], [{o}, {o}])")
    return both(f"adaptive_avg_pool2d {o}", (n, c, size, size),
                lambda x: F.adaptive_avg_pool2d(x, o), node, (n, c, o, o),
                [back])


def resize(mode, n, c, size, o):
    ours = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
    rest = f"[{o}, {o}], \"{ours[mode]}\", False, [0.0, 0.0])"
    return both(f"interpolate {mode} to {o}", (n, c, size, size),
                lambda x: F.interpolate(x, (o, o), mode=mode),
                f"%r = penstock.resize.default(%x, {rest}", (n, c, o, o),
                ["%r = penstock.resize_backward.default(%g, "
                 f"[{size}, {size}], {rest}"])


def grid(n, c, size, o):
    g = f"input %ug: F[{n}, {o}, {o}, 2]; "
    tg = torch.rand(n, o, o, 2) * 1.8 - 0.9
    x, y = f"F[{n}, {c}, {size}, {size}]", f"F[{n}, {c}, {o}, {o}]"
    return [
        case(f"grid_sampler {n}x{c}x{size}x{size} to {o}", 0.0,
             [f"input %x: {x}; {g}"
              "%r = aten.grid_sampler_2d.default(%x, %ug, 0, 0, False)"],
             lambda: lambda t=torch.randn(n, c, size, size):
             F.grid_sample(t, tg, align_corners=False)),
        case(f"grid_sampler {n}x{c}x{size}x{size} to {o} + gradient", 0.0,
             [f"input %x: {x}; {g}"
              "%r = aten.grid_sampler_2d.default(%x, %ug, 0, 0, False)"] +
             [f"input %g: {y}; input %x: {x}; {g}%r = "
              f"penstock.grid_sampler_{of}.default(%g, %x, %ug, 0, 0, False)"
              for of in ("input", "grid")],
             lambda: with_gradient(
                 lambda a, b: F.grid_sample(a, b, align_corners=False),
                 torch.randn(n, c, size, size), tg.clone()))]


def unfold(n, c, size, k, stride, pad):
    o = (size + 2 * pad - k) // stride + 1
    rest = f"[{k}, {k}], [1, 1], [{pad}, {pad}], [{stride}, {stride}])"
    return both(f"unfold {k} / {stride}", (n, c, size, size),
                lambda x: F.unfold(x, k, 1, pad, stride),
                f"%r = aten.im2col.default(%x, {rest}",
                (n, c * k * k, o * o),
                [f"%r = aten.col2im.default(%g, [{size}, {size}], {rest}"])


def pixel_shuffle(n, c, size, r):
    shape = f"F[{n}, {c}, {r}, {r}, {size}, {size}]"
    return [case(
        f"pixel_shuffle {r} {n}x{c * r * r}x{size}x{size}", 0.0,
        [f"input %x: {shape}; "
         "%p = aten.permute.default(%x, [0, 1, 4, 2, 5, 3]); "
         f"%r = aten.reshape.default(%p, [{n}, {c}, {size * r}, {size * r}])"],
        lambda: lambda t=torch.randn(n, c * r * r, size, size):
        F.pixel_shuffle(t, r))]


def cases():
    ret = max_pool(4, 64, 112, 3, 2, 1) + max_pool(4, 64, 56, 2, 2, 0)
    ret += max_pool(4, 192, 28, 3, 1, 1)
    ret += avg_pool(4, 64, 56, 2, 2) + avg_pool(4, 128, 28, 3, 1)
    ret += adaptive(4, 512, 7, 1) + adaptive(4, 64, 56, 7)
    for mode in ("nearest", "bilinear", "bicubic"):
        ret += resize(mode, 2, 64, 32, 64)
    ret += resize("bilinear", 2, 3, 480, 224)
    ret += grid(2, 64, 32, 48) + unfold(2, 64, 56, 3, 1, 1)
    ret += unfold(2, 3, 224, 16, 16, 0)
    return ret + pixel_shuffle(2, 32, 48, 2)
