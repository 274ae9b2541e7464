#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Modules of random chains of operators, with gradients by PyTorch.

usage: chains.py OUTDIR [--count N] [--seed N]

Writes programs, tensors and cases.json in the form of README.md,
for the program `cases`. Half are in f64, half in f32; a quarter is in the
decomposed form. A chain whose gradient is not finite, or depends too much on
rounding, is drawn again. Same seed and same PyTorch, same bytes.

Each result has a limit of its own (limits.py).
"""
import argparse
import json
import os
import random
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from limits import differentiate, limits_of  # noqa: E402

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
torch.nn.functional.conv1d(a[None], w[:4, :4, None], v[:4])[0]
torch.nn.functional.conv1d(a[None], w[:4, :3].reshape(4, 1, 3), padding=1, groups=4)[0]
torch.nn.functional.conv2d(a[None, None], w[None, None, :3, :3], padding=1)[0, 0]
torch.nn.functional.conv_transpose1d(a[None, :, :3], w[:4, :4, None].expand(4, 4, 2), stride=2)[0]
torch.nn.functional.conv2d(a[None, None], w[None, None, :3, :3], padding=2, dilation=2)[0, 0]
torch.nn.functional.avg_pool1d(a[None], 3, 1, 1)[0]
torch.nn.functional.max_pool1d(a[None], 3, 1, 1)[0]
torch.nn.functional.avg_pool2d(a[None, None], 3, 1, 1, count_include_pad=False)[0, 0]
torch.nn.functional.adaptive_avg_pool1d(a[None], 4)[0].repeat(1, 2)[:, :6]
torch.nn.functional.adaptive_max_pool1d(a[None], 3)[0].repeat(1, 2)
torch.nn.functional.lp_pool1d(torch.abs(a)[None] + 0.1, 2, 2)[0].repeat(1, 2)
torch.nn.functional.interpolate(a[None, :, ::2], 6, mode='linear')[0]
torch.nn.functional.interpolate(a[None, None, :2, :3], (4, 6), mode='bilinear', align_corners=True)[0, 0]
torch.nn.functional.interpolate(a[None, None], scale_factor=2, mode='nearest')[0, 0, ::2, ::2] + b
torch.nn.functional.group_norm(a[None], 2)[0]
torch.nn.functional.instance_norm(a[None])[0]
torch.nn.functional.batch_norm(a, None, None, v, v, True)
torch.nn.functional.rms_norm(a, (6,), v)
torch.nn.functional.local_response_norm(a[None], 3)[0]
torch.nn.functional.scaled_dot_product_attention(a[None, None], b[None, None], a[None, None])[0, 0]
torch.nn.functional.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None], is_causal=True)[0, 0]
torch.nn.functional.scaled_dot_product_attention(a.view(1, 2, 4, 3), b.view(1, 2, 4, 3), a.view(1, 2, 4, 3), attn_mask=m[:, :4] | torch.eye(4, dtype=torch.bool)).reshape(4, 6)
torch.nn.functional.bilinear(a, b, w.expand(6, 6, 6), v)
torch.nn.functional.embedding(k, w)[:, :6] * a
torch.nn.functional.pixel_shuffle(a.view(1, 4, 2, 3), 2).reshape(4, 6)
torch.nn.functional.fold(torch.nn.functional.unfold(a[None, None], 2), (4, 6), 2)[0, 0] * 0.3
torch.nn.functional.grid_sample(a[None, None], torch.tanh(b[:, :2]).reshape(1, 2, 2, 2), align_corners=False)[0, 0].repeat(2, 3)
torch.nn.functional.prelu(a, v[:1])
torch.nn.functional.cosine_similarity(a, b, 1)[:, None] + a
torch.nn.functional.pairwise_distance(a, b, keepdim=True) * v
torch.nn.functional.hardswish(a) + torch.nn.functional.hardshrink(b)
torch.nn.functional.celu(a, 0.5) * torch.nn.functional.selu(b)
torch.nn.functional.threshold(a, 0.1, -0.2)
torch.linalg.cross(a.view(4, 2, 3), b.view(4, 2, 3)).reshape(4, 6)
torch.linalg.vecdot(a, b)[:, None] * a
torch.linalg.multi_dot([a, w, w])
torch.linalg.matrix_power(w * 0.5, 3)[:4] + a
torch.tensordot(a, w, 1)
torch.baddbmm(a[None], b[None], w[None])[0]
torch.bmm(a[None].expand(2, 4, 6), w[None].expand(2, 6, 6)).sum(0)
torch.addr(a, a[:, 0], v)
torch.matmul(a, v)[:, None] + b
torch.inner(a, w)
torch.std_mean(a, 1, keepdim=True)[0] * b
torch.var_mean(a, 0, correction=0)[1] + a
torch.aminmax(a, dim=1, keepdim=True)[1] - b
torch.nanmean(torch.where(m, a, b), 1, keepdim=True) * v
torch.nansum(a, 0) * 0.1 + b
torch.renorm(a, 2, 0, 1.5)
torch.scatter(a, 1, k[:, None] + 1, b[:, 1:2])
torch.scatter_reduce(a, 1, k[:, None].expand(4, 3), b[:, :3], 'amax')
torch.scatter_reduce(a, 0, k[:, None].expand(4, 6), b, 'mean', include_self=False)
torch.index_reduce(a, 0, k, b, 'prod') * 0.5
torch.index_fill(a, 1, k[:2], 0.7)
torch.masked_scatter(a, m, b)
torch.select_scatter(a, b[:, 1], 1, 2)
torch.slice_scatter(a, b[:, ::2], 1, 0, 6, 2)
torch.diagonal_scatter(a, b[:, 0])
torch.as_strided(a, (4, 3), (1, 5), 2).repeat(1, 2)
torch.tile(a[:2, :2], (2, 3))
torch.meshgrid(a[:, 0], v, indexing='ij')[0] + torch.meshgrid(b[:, 0], v, indexing='ij')[1]
torch.cartesian_prod(a[:2, 0], v)[:, :1].reshape(2, 6).repeat(2, 1) * a
torch.block_diag(a[:2, :3], b[2:, 3:])
torch.cumulative_trapezoid(a, dim=1).repeat(1, 2)[:, :6]
torch.nn.functional.softmin(a, 0)
torch.frac(a) + torch.trunc(b).detach()
torch.copysign(a, b)
torch.float_power(torch.abs(a) + 0.5, 0.3).to(a.dtype)
torch.special.entr(torch.abs(a) + 0.1)
torch.special.i0(a) * 0.2
torch.sinc(a)
torch.logit(torch.sigmoid(a) * 0.9 + 0.05)
torch.polygamma(1, a * a + 1)
torch.clamp(a, min=b - 1)
torch.minimum(a.unsqueeze(0), torch.stack([b, a * 0.5])).mean(0)
torch.lstm_cell(a, (b[:, :2], b[:, 2:4]), [w[:, :6].repeat(2, 1)[:8], w.repeat(2, 1)[:8, :2]][0], w.repeat(2, 1)[:8, :2])[0].repeat(1, 3)
torch.gru_cell(a, b[:, :2], w, w[:, :2]).repeat(1, 3)
torch.rnn_tanh_cell(a, b, w, w)
torch.triu(a, 1) - torch.diag(v)[:4]
torch.dist(a, b) * 0.1 + a
torch.swapaxes(a.view(2, 2, 6), 0, 1).flatten(0, 1)
torch.moveaxis(a.view(2, 2, 2, 3), 3, 0).reshape(4, 6)
torch.nn.functional.channel_shuffle(a[None, :, :, None], 2)[0, :, :, 0]
torch.nn.functional.dropout(a, 0.5, False)
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
c[1:].add_(c[:-1].clone())
c[:, ::2].mul_(b[:, 1::2])
c.t()[1:3].copy_(b.t()[2:4])
c.view(2, 2, 6)[1, :, 2:].sub_(b.view(2, 2, 6)[0, :, :4])
c[1:3][:, 1:4][0].mul_(3)
c.view(-1)[::3].add_(0.5)
c.diagonal().mul_(b.diagonal())
c.unfold(1, 2, 2)[:, 1].add_(1)
c.transpose(0, 1)[::2].zero_()
c.select(1, 3).fill_(0.3)
c.index_put_((k,), b, accumulate=True)
c.index_add_(0, k, b, alpha=0.5)
c.index_copy_(1, k, b[:, :4])
c.index_fill_(0, k[:2], 0.4)
c.scatter_(1, k[:, None], 0.6)
c.scatter_add_(0, k[:, None].expand(4, 6), b)
c.masked_fill_(m.flip(0), -0.1)
c.masked_scatter_(m, b)
c[m] = 0.9
c[k[:2], 1] = b[0, :2]
c.addcmul_(b, b, value=0.2)
c.lerp_(b, 0.25)
c.squeeze_().unsqueeze_(0).squeeze_(0)
c.t_().add_(b.t()).t_()
c.expand(1, 4, 6)[0].div_(2)
d = c[:, 1:5]; e = d[1:]; e.mul_(2); d.add_(e.sum()); c[0].copy_(e[0, 0].expand(6))
d = c.view(-1); c[0].mul_(2); d[3:9].add_(d[9:15].clone())
d = c.reshape(6, 4); d.mul_(0.5); c[1] = d[0, 0]
d = c.t().contiguous(); d.zero_(); c.add_(d[0, 0])
d = c.detach(); d = d.clone().mul_(2); c.add_(d)
torch.as_strided(c, (3, 4), (6, 1), 1).mul_(2)
torch.as_strided(c, (2, 2), (7, 1), 3).add_(b[:2, :2])
c.clamp_min_(-0.5).clamp_max_(b.abs() + 1)
c.copy_(b.to(torch.float64))
c.fill_diagonal_(0.2)
c.cumsum_(1).mul_(0.3)
c.swapaxes_(0, 1).mul_(2).swapaxes_(0, 1)
torch.nn.functional.leaky_relu_(c, 0.2)
torch.nn.functional.hardtanh_(c[:, 1:], -0.7, 0.7)
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
        if draw.random() < 0.3:
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


def attempt(folder, name, draw):
    """Makes one chain; None if it is unusable."""
    source = write_chain(draw)
    gen = torch.Generator().manual_seed(draw.getrandbits(40))
    # PyTorch's trigamma is wrong in the tenth digit, also in f64.
    coarse = "gamma" in source
    dtype = (torch.float64 if draw.random() < 0.5 and not coarse
             else torch.float32)
    module, inputs = make_module(source), make_inputs(gen, dtype)
    out, _ = differentiate(module, inputs, None)
    cot = torch.randn(out.shape, generator=gen, dtype=torch.float64).to(dtype)
    out, grads = differentiate(module, inputs, cot)
    found = [out] + [g for g in grads.values() if g is not None]
    if len(found) == 1 or not all(t.isfinite().all() for t in found):
        return None
    limits, exact = limits_of(module, inputs, cot, dtype, gen)
    if limits is None:
        return None
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    # detach loses the gradient
    if draw.random() < 0.25 and "detach" not in source:
        program = program.run_decompositions()
        # std() becomes sqrt(var()), which has no gradient at 0: the file has
        # another meaning than the module.
        _, again = differentiate(program.module(), inputs, cot)
        if not all(g.isfinite().all() for g in again.values()
                   if g is not None):
            return None
    torch.export.save(program, os.path.join(folder, name + ".pt2"))
    tensors = {"in." + n: t for n, t in inputs.items()}
    tensors.update({"out.0": out, "cot.0": cot})
    tensors.update({"grad." + n: g for n, g in grads.items() if g is not None})
    tensors.update({"exact." + n: t for n, t in exact.items()})
    save_file({n: t.contiguous().clone() for n, t in tensors.items()},
              os.path.join(folder, name + ".safetensors"))
    short = {torch.float64: "f64", torch.float32: "f32"}[dtype]
    return {
        "case": name, "op": name, "call": " ".join(source.split()),
        "kind": "close", "pt2": name + ".pt2",
        "safetensors": name + ".safetensors",
        "outputs": [{"dtype": short, "shape": list(out.shape)}],
        "rtol": 0.0, "atol": 0.0, "grad_rtol": 0.0, "grad_atol": 0.0,
        "limits": limits, "written": [],
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
