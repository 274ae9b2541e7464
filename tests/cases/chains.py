#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Modules of random chains of operators, with gradients by PyTorch.

usage: chains.py OUTDIR [--count N] [--seed N]

Writes programs, tensors and cases.json in the form of ../shared/ops/cases.py,
for the program `cases`. Half are in f64, half in f32. A chain whose gradient is
not finite, or depends too much on rounding, is drawn again. Same seed and same
PyTorch, same bytes.
"""
import argparse
import json
import os
import random
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

ROWS, COLS = 4, 6
# Expressions of a value `a` of shape (R, C) that give one of the same shape;
# `b` is another such value, `w` (C, C), `v` (C,), `k` and `m` are constants.
SAME = """
torch.tanh(a)
torch.sigmoid(a) * b
torch.nn.functional.gelu(a)
torch.nn.functional.silu(a) + v
torch.nn.functional.softplus(a)
torch.nn.functional.elu(a)
torch.nn.functional.mish(a)
torch.nn.functional.leaky_relu(a, 0.1)
torch.nn.functional.hardtanh(a, -1.5, 1.5)
torch.softmax(a, 1)
torch.log_softmax(a, 0)
torch.exp(-a * a)
torch.log1p(a * a)
torch.sqrt(a * a + 1)
torch.rsqrt(a * a + 0.5)
torch.atan(a)
torch.asinh(a)
torch.erf(a)
torch.sin(a) * torch.cos(b)
torch.sinh(a * 0.3)
torch.atan2(a, b + 3)
torch.hypot(a, b)
torch.logaddexp(a, b)
torch.maximum(a, b)
torch.where(a > b, a, b * 2)
torch.where(m, a, 0.0)
a.masked_fill(m, 0.5)
torch.clamp(a, -1.0, 1.0)
torch.addcmul(a, b, v, value=0.5)
torch.addcdiv(a, b, v * v + 1)
torch.lerp(a, b, 0.3)
torch.fmod(a, 1.7)
torch.remainder(a, 1.3)
torch.nan_to_num(a)
torch.pow(torch.abs(a) + 0.1, 1.5)
torch.xlogy(a, b * b + 0.1)
torch.lgamma(a * a + 1)
torch.digamma(a * a + 1)
torch.special.log_ndtr(a)
a - a.mean(1, keepdim=True)
a / (a.std(1, keepdim=True) + 0.5)
a * torch.rsqrt(a.var(0, keepdim=True) + 0.1)
a + a.amax(1, keepdim=True)
a - torch.logsumexp(a, 1, keepdim=True)
a / (torch.linalg.vector_norm(a, dim=1, keepdim=True) + 1)
a / (a.norm(p=1, dim=0, keepdim=True) + 1)
torch.cumsum(a, 1) * 0.3
torch.cumprod(torch.tanh(a), 1)
torch.logcumsumexp(a, 0)
torch.sort(a, 1)[0]
torch.cat([torch.topk(a, 3, 1)[0], a[:, :3]], 1)
torch.cummax(a, 1)[0]
a @ w
torch.nn.functional.linear(a, w, v)
torch.einsum('ij,jk->ik', a, w)
torch.einsum('ij,ij->i', a, b)[:, None] * v
torch.addmm(a, b, w)
torch.kron(a[:2, :2], a[2:, :3])
torch.outer(a[:, 0], v)
torch.cdist(a, w)
torch.flip(a, [0, 1])
torch.roll(a, 2, 1)
torch.rot90(a, 2)
torch.tril(a) + 0.1 * a
a.t().reshape(4, 6)
a.view(2, 2, 6).transpose(0, 1).reshape(4, 6)
a.unfold(1, 2, 1).sum(2).repeat(1, 2)[:, :6]
torch.stack([a[:, :3], b[:, 3:]], 2).flatten(1)
torch.cat([a[1:], b[:1]], 0)
torch.cat(torch.split(a, 2, 1)[::-1], 1)
torch.stack(a.unbind(0)[::-1])
torch.nn.functional.pad(a[:, 1:-1], (1, 1), 'reflect')
torch.nn.functional.pad(a[:, 1:], (1, 0), 'replicate')
torch.nn.functional.pad(a[1:], (0, 0, 1, 0), value=0.3)
torch.repeat_interleave(a[:2], 2, 0)
a[k]
a.index_select(0, k)
torch.gather(a, 0, k[:, None].expand(4, 6))
torch.scatter_add(a, 0, k[:, None].expand(4, 6), b)
torch.index_add(a, 0, k, b, alpha=0.5)
torch.index_copy(a, 1, k, b[:, :4])
torch.take_along_dim(a, k[:, None], 0).expand(4, 6)
a.index_put((k,), b, accumulate=True)
torch.diag_embed(a[:, :1])[:, :, 0] + a
torch.trapezoid(a, dim=1)[:, None] + b
torch.quantile(a, 0.4, dim=1, keepdim=True) + a
torch.median(a, 1, keepdim=True)[0] * b
torch.nn.functional.layer_norm(a, (6,), v, v)
torch.nn.functional.glu(torch.cat([a, b], 1), 1)
torch.nn.functional.normalize(a, dim=1)
torch.nn.functional.one_hot(k, 6).to(a.dtype) * a
torch.diff(a, dim=1, prepend=b[:, :1])
torch.prod(a[:, :2], 1, keepdim=True) + b
a.detach() * b + a
torch.hstack([a[:, :2], b[:, 2:]])
torch.broadcast_to(a.sum(0), (4, 6)) * 0.2 + b
"""
# Statements on a copy c of `a`.
INPLACE = """
c.mul_(0.5)
c.add_(b)
c.relu_()
c[:, 1:3] += 1
c[0] = b[1]
c[:, 0].mul_(2)
c.t()[2].tanh_()
c.masked_fill_(m, 0.2)
c[k[:2]] = 0.25
c.clamp_(-1, 1)
c.view(-1)[3:9].sub_(b.reshape(-1)[:6])
"""
ENDS = """
a.sum()
a.mean()
(a * b).sum(1)
a
torch.nn.functional.mse_loss(a, b)
torch.nn.functional.cross_entropy(a, k)
torch.nn.functional.smooth_l1_loss(a, b)
"""


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def write_chain(draw):
    """Source of forward(x, y, w, v, k, m)."""
    code = ["def forward(self, x, y, w, v, k, m):", "    r = [x, y]"]
    for _ in range(draw.randint(3, 8)):
        code.append(f"    a, b = r[{draw.randint(-2, -1)}], "
                    f"r[{draw.randrange(-2, 0)}]")
        if draw.random() < 0.15:
            code += ["    c = a.clone()",
                     "    " + draw.choice(lines(INPLACE)),
                     "    r.append(c)"]
        else:
            code.append("    r.append(" + draw.choice(lines(SAME)) + ")")
    code += ["    a, b = r[-1], r[-2]", "    return " + draw.choice(lines(ENDS))]
    return "\n".join(code) + "\n"


def make_module(source):
    names = {"torch": torch}
    exec(source, names)  # pylint: disable=exec-used
    return type("Chain", (torch.nn.Module,), {"forward": names["forward"]})()


def make_inputs(gen, dtype):
    def normal(*size):
        return torch.randn(*size, generator=gen, dtype=torch.float64).to(dtype)
    return {
        "x": normal(ROWS, COLS), "y": normal(ROWS, COLS),
        "w": normal(COLS, COLS) * 0.5, "v": normal(COLS),
        "k": torch.randperm(ROWS, generator=gen),
        "m": torch.rand(ROWS, COLS, generator=gen) < 0.4,
    }


def differentiate(module, inputs, cot):
    leaves = {n: t.clone().requires_grad_(t.is_floating_point())
              for n, t in inputs.items()}
    out = module(*leaves.values())
    floats = [n for n, t in leaves.items() if t.requires_grad]
    if cot is None:
        return out.detach(), None
    grads = torch.autograd.grad(out, [leaves[n] for n in floats], cot,
                                allow_unused=True)
    return out.detach(), dict(zip(floats, grads))


def attempt(folder, name, draw):
    """One chain, or None if it is no good."""
    source = write_chain(draw)
    gen = torch.Generator().manual_seed(draw.getrandbits(40))
    dtype = torch.float64 if draw.random() < 0.5 else torch.float32
    module, inputs = make_module(source), make_inputs(gen, dtype)
    out, _ = differentiate(module, inputs, None)
    cot = torch.randn(out.shape, generator=gen, dtype=torch.float64).to(dtype)
    out, grads = differentiate(module, inputs, cot)
    found = [out] + [g for g in grads.values() if g is not None]
    if len(found) == 1 or not all(t.isfinite().all() for t in found):
        return None
    tol = 1e-9 if dtype == torch.float64 else 2e-5
    # Moved by half a unit of f32, or computed wider, it must stay the same.
    wide = {n: t.double() if t.is_floating_point() else t
            for n, t in inputs.items()}
    exact, slopes = differentiate(module, wide, cot.double())
    largest = max(float(t.abs().max()) for t in found)
    if dtype == torch.float32:
        pairs = [(out, exact)] + [(g, slopes[n]) for n, g in grads.items()
                                  if g is not None]
        worst = max(float((a.double() - b).abs().max()) for a, b in pairs)
        if worst > 0.2 * tol * largest or largest > 1e6:
            return None
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    torch.export.save(program, os.path.join(folder, name + ".pt2"))
    tensors = {"in." + n: t for n, t in inputs.items()}
    tensors.update({"out.0": out, "cot.0": cot})
    tensors.update({"grad." + n: g for n, g in grads.items() if g is not None})
    save_file({n: t.contiguous() for n, t in tensors.items()},
              os.path.join(folder, name + ".safetensors"))
    short = {torch.float64: "f64", torch.float32: "f32"}[dtype]
    return {
        "case": name, "op": name, "call": " ".join(source.split()),
        "kind": "close", "pt2": name + ".pt2",
        "safetensors": name + ".safetensors",
        "outputs": [{"dtype": short, "shape": list(out.shape)}],
        "rtol": tol, "atol": tol * largest, "grad_rtol": tol,
        "grad_atol": tol * largest, "written": [],
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    draw, cases = random.Random(args.seed), []
    while len(cases) < args.count:
        try:
            case = attempt(args.folder, f"chain.{len(cases):03}", draw)
        except (RuntimeError, IndexError):  # PyTorch refuses the combination
            case = None
        if case is not None:
            cases.append(case)
    with open(os.path.join(args.folder, "cases.json"), "w",
              encoding="utf-8") as f:
        json.dump(cases, f, indent=0)


main()
