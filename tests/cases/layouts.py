#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Modules whose numbers depend on where PyTorch's results lie in memory.

usage: layouts.py OUTDIR [--count N] [--seed N]

Writes programs, tensors and cases.json in the form of README.md,
for the program `cases`: inputs in any order of dimensions, operators that keep
or change it, then as_strided, and writes through what is a view or a copy.
Half in f64, half in f32. Same seed and same PyTorch, same bytes. Each result
has a limit of its own (limits.py).
"""
import argparse
import json
import os
import random
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

import edges  # noqa: E402
from limits import limits_of  # noqa: E402

# Lines with `a` and `b` of four dimensions; P is a random permutation, CL is
# channels_last. `like` fits operands of other sizes.
KEEP = """
torch.relu(a)
a.exp()
a * 2
a.clone()
a.sigmoid().neg()
torch.where(a > 0, a, 0.5)
a + like(b, a)
like(b, a) * a
torch.maximum(a, like(b, a).contiguous())
torch.where(a > 0.1, a, like(b, a))
a.add(a.mean(1, keepdim=True))
a * a.new_ones(a.size(3))
a.clone(memory_format=CL)
a.clone(memory_format=torch.contiguous_format)
a.contiguous(memory_format=CL)
a.contiguous()
a.to(memory_format=CL)
a.permute(P)
a.transpose(1, 3)
a.permute(P).contiguous()
a.permute(P).clone()
a.permute(P).relu()
a.flip(1)
torch.zeros_like(a) + a
torch.zeros_like(a).copy_(a)
torch.empty_like(a, memory_format=CL).copy_(a)
torch.cat([a, a], 1)[:, 1:]
a[:, :, 1:]
a.softmax(2)
a.cumsum(1)
torch.nn.functional.conv2d(a, a.new_full((2, a.size(1), 1, 1), 0.3))
torch.nn.functional.max_pool2d(a, 2, 1)
torch.nn.functional.avg_pool2d(a, 2, 1)
torch.nn.functional.pad(a, (1, 0))
a.sum(2, keepdim=True).expand_as(a).clone()
a.mean((2, 3), keepdim=True) + a
a.unsqueeze(0).transpose(0, 2).squeeze(2)
torch.stack([a[0], a[-1]])
torch.nn.functional.layer_norm(a, a.shape[3:])
torch.nn.functional.group_norm(a, 1)
"""
# Statements about `c`, a value that may be written; `out` takes results.
# (Detached: PyTorch's gradient of as_strided_scatter takes the gradient's
# storage for one of its own.)
PROBE = """
out.append(torch.as_strided(c, (SIZE,), (1,), 0))
out.append(torch.as_strided(c, (2, 3), (3, 1), 1) * 2)
out.append(torch.as_strided(c, (2, 2, 2), (1, 2, 4)))
out.append(torch.as_strided(c[1:], (2, 2), (1, 2), 0))
out.append(torch.as_strided(c.select(1, 0), (4,), (1,)))
torch.as_strided(c, (2, 3), (1, 2), 1).mul_(3)
torch.as_strided(c, (4,), (2,), 0).copy_(like(b, a).reshape(-1)[:4])
out.append(torch.as_strided_scatter(c.detach(), like(b, a).reshape(-1)[:4].detach(), (4,), (2,), 1))
out.append(torch.as_strided_copy(c, (5,), (2,), 0))
d = c.reshape(-1); d.mul_(2); out.append(d)
d = c.contiguous(); d.mul_(2); out.append(d)
d = c.contiguous(memory_format=CL); d.add_(1); out.append(d)
d = c.to(memory_format=CL); d.mul_(0.5); out.append(d)
d = c.flatten(1); d.sub_(1); out.append(d)
d = c.transpose(0, 1).reshape(-1); d[1:3].mul_(2); out.append(d)
d = c.reshape(c.size(0), -1); c.mul_(2); out.append(d)
c[:, 0].mul_(2); d = c.flatten(); d.add_(0.5); out.append(d)
d = c.view(c.shape); d.add_(1); out.append(torch.as_strided(d, (3,), (2,), 1))
d = c.ravel(); d.tanh_(); out.append(d)
d = c.permute(P).reshape(-1); d.mul_(3); e = c.flatten(2); out.append(e * 2)
c.permute(P).relu_(); out.append(c.reshape(-1).mul_(2))
"""


def like(b, a):
    """Returns b's numbers in a's sizes, in an order of its own."""
    at = torch.arange(a.numel()) * 7 % b.numel()
    return b.reshape(-1)[at].view(a.permute(3, 1, 0, 2).shape).permute(
        2, 1, 3, 0)


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def permutation(draw):
    order = list(range(4))
    draw.shuffle(order)
    return str(tuple(order))


def write_module(draw):
    """Source of forward(self, x, y)."""
    code = ["def forward(self, x, y):", "    a, b, out = x, y, []"]
    for _ in range(draw.randint(1, 4)):
        code.append("    b, a = a, " + draw.choice(lines(KEEP)))
    code.append("    c = " + draw.choice(
        ["a.relu()", "a * 1.5", "a.exp()", "a.clone()", "a + like(b, a)",
         "a.neg().permute(P)", "a.permute(P).clone()"]))
    for _ in range(draw.randint(1, 3)):
        code.append("    " + draw.choice(lines(PROBE)))
    code.append("    return torch.cat([t.reshape(-1) for t in [c, *out]])")
    source = "\n".join(code) + "\n"
    while "P)" in source or "P " in source:
        source = source.replace("(P)", permutation(draw), 1)
    source = source.replace("CL", "torch.channels_last")
    return source.replace("SIZE", str(draw.randint(3, 12)))


def make_module(source):
    names = {"torch": torch, "like": like}
    exec(source, names)  # pylint: disable=exec-used
    return type("Layout", (torch.nn.Module,), {"forward": names["forward"]})()


def make_input(draw, gen, dtype):
    """In any order of dimensions, or channels_last."""
    size = [draw.randint(1, 4) if draw.random() < 0.15 else k
            for k in (2, 3, 4, 3)]
    order = list(range(4))
    if draw.random() < 0.5:
        draw.shuffle(order)
    t = torch.randn([size[k] for k in order], generator=gen,
                    dtype=torch.float64).to(dtype)
    return t.permute([order.index(k) for k in range(4)])


def attempt(folder, name, draw):
    """Makes one module; None if it is unusable."""
    source = write_module(draw)
    gen = torch.Generator().manual_seed(draw.getrandbits(40))
    dtype = torch.float64 if draw.random() < 0.5 else torch.float32
    module = make_module(source)
    inputs = {n: make_input(draw, gen, dtype) for n in ("x", "y")}
    leaves = {n: t.detach().clone().requires_grad_()
              for n, t in inputs.items()}
    if any(leaves[n].stride() != t.stride() for n, t in inputs.items()):
        return None
    out = module(**leaves)
    cot = torch.randn(out.shape, generator=gen,
                      dtype=torch.float64).to(dtype)
    grads = torch.autograd.grad(out, leaves.values(), cot, allow_unused=True)
    found = [out] + [g for g in grads if g is not None]
    if len(found) == 1 or not all(t.isfinite().all() for t in found):
        return None
    if max(float(t.abs().max()) for t in found) > 1e4:
        return None
    limits, exact = limits_of(module, inputs, cot, dtype, gen)
    if limits is None:
        return None
    program = torch.export.export(module, tuple(inputs.values()),
                                  strict=False)
    # Tracing may take a copy for the tensor itself, by strides that eager mode
    # does not have. Then the file has another meaning than the module.
    traced = program.module()(*(t.clone() for t in inputs.values()))
    if not torch.allclose(traced, out.detach(), rtol=1e-4, atol=1e-4):
        return None
    more = {"cot.0": cot}
    more.update({f"grad.{n}": g for n, g in zip(leaves, grads)
                 if g is not None})
    more.update({"exact." + n: t for n, t in exact.items()})
    ret = edges.write(folder, name, " ".join(source.split()), program, inputs,
                      out.detach(), more, 0.0)
    return {**ret, "limits": limits}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--count", type=int, default=150)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    draw, cases = random.Random(args.seed), []
    while len(cases) < args.count:
        try:
            case = attempt(args.folder, f"layout.{len(cases):03}", draw)
        except (RuntimeError, IndexError):  # PyTorch refuses the combination
            case = None
        if case is not None:
            cases.append(case)
    with open(os.path.join(args.folder, "cases.json"), "w",
              encoding="utf-8") as f:
        json.dump(cases, f, indent=0)


if __name__ == "__main__":
    main()
