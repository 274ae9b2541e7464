#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators on complex numbers, with gradients by PyTorch.

usage: pairs.py OUTDIR

Writes programs, tensors and cases.json in the form of README.md, for the
program `cases`. What is complex is made of real inputs and given back as pairs.
"""
import argparse
import json
import os
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

import dtypes  # noqa: E402
from edges import float_case  # noqa: E402

# Lines with x, y (3, 3, 2), z and w, which are x and y as complex numbers (3,
# 3), and u, the real part of w; `big` is 1e20 or 1e200, `ct` the dtype of z.
# The result follows the last semicolon.
CREATE = """
v = torch.zeros(2, 3, dtype=ct); v[:, 1] = z[:2, 0]; v
v = torch.zeros(2, 3, dtype=ct); v[:, :2] = u[:2, :2]; v * w[:2]
v = z.new_zeros(3, 3); v[1:] = z[:2]; v
v = u.new_zeros(3, dtype=ct); v.add_(z[0]); v
v = torch.zeros_like(z); v.copy_(w); v
v = torch.zeros_like(u, dtype=ct); v.copy_(u); v
v = torch.zeros_like(z.t()); v[0] = z[1]; v
v = torch.empty(3, 3, dtype=ct); v.copy_(z); v
v = torch.empty_like(z); v.fill_(2); v + z
v = torch.empty_permuted((3, 3), (1, 0), dtype=ct); v.copy_(z); v * w
v = z.new_empty(2); v.zero_(); v + z[:, :2]
torch.ones(3, dtype=ct) * z
torch.ones_like(z) - z
torch.ones_like(u, dtype=ct) - z
torch.ones_like(z, dtype=u.dtype) * z
torch.zeros_like(z, dtype=u.dtype) + u
z.new_ones(3, 1) + z
z.new_ones(3, dtype=u.dtype) + u
z.new_zeros(3, dtype=u.dtype) + u
u.new_ones(3, dtype=ct) * z
torch.full((3,), 0.1, dtype=ct) * z
torch.full((3, 1), 1 - 2j, dtype=ct) * z
torch.full_like(z, 0.3) * z
torch.full_like(z, 2 + 1j) * z
z.new_full((3,), -0.7) + z
v = z.new_full((2, 3), 3 + 0.1j); v[0] = z[1]; v
v = torch.full((3, 3), 0.25j, dtype=ct); v[1].mul_(z[1]); v
torch.tensor(1 + 2j, dtype=torch.complex128) * z
torch.tensor(2.5, dtype=torch.float64) * z
z + torch.ones((), dtype=torch.complex128)
torch.eye(3, dtype=u.dtype).to(ct) @ z
z.to(u.dtype)
z.real.to(ct)
torch.arange(3).to(ct) * z
torch.zeros(0, 3, dtype=ct) + z[0]
"""
INPLACE = """
v = z.clone(); v.copy_(w); v
v = z.clone(); v.copy_(w[0]); v
v = z.clone(); v.copy_(u); v
v = z.clone(); v.copy_(w[0, 0]); v
v = z.clone(); v.add_(w); v
v = z.clone(); v.add_(w, alpha=0.5); v
v = z.clone(); v.add_(u); v
v = z.clone(); v.add_(2); v
t = u.clone(); t.mul_(2); v = z.clone(); v.add_(t); v
v = z.clone(); v.sub_(w[1]); v
v = z.clone(); v.sub_(0.5); v
v = z.clone(); v.mul_(w); v
v = z.clone(); v.mul_(u[0]); v
v = z.clone(); v.mul_(1j); v
v = z.clone(); v *= 3; v
v = z.clone(); v.div_(w); v
v = z.clone(); v.div_(2); v
v = z.clone(); v /= 1 + 1j; v
v = z.clone(); v.neg_(); v
v = z.clone(); v.zero_(); v * z
v = z.clone(); v[0].fill_(0.5); v
v = z.clone(); v.fill_(1 + 1j); v * z
v = z.clone(); v[:, 1].fill_(w[0, 0]); v
v = z.clone(); v.exp_(); v
v = z.clone(); v.sqrt_(); v
v = z.clone(); v.pow_(2); v
v = z.clone(); v.reciprocal_(); v
v = z.clone(); v.conj_physical_(); v
v = z.clone(); v.tanh_(); v
v = z.clone(); v.addcmul_(z, w); v
v = z.clone(); v.lerp_(w, 0.3); v
v = z.clone(); v.masked_fill_(u > 0, 0.0); v
v = z.clone(); v.masked_fill_(u > 0, 2j); v
v = z.clone(); v[u > 0] = 1.5; v
v = z.clone(); v[u > 0] = w[0, 0]; v
v = z.clone(); v[torch.tensor([2, 0])] = w[:2]; v
v = z.clone(); v[:, torch.tensor([2, 0])] += w[:, :2]; v
v = z.clone(); v.index_put_((torch.tensor([1, 1]),), w[:2], accumulate=True); v
v = z.clone(); v.index_add_(1, torch.tensor([2, 2]), w[:, :2]); v
v = z.clone(); v.index_copy_(-1, torch.tensor([2, 0]), w[:, :2]); v
v = z.clone(); v.scatter_(1, torch.tensor([[2], [0], [1]]), w[:, :1]); v
v = z.clone(); v.scatter_add_(0, torch.tensor([[2, 2, 2]]), w[:1]); v
v = z.clone(); v[0] = z[1]; v[1] *= w[0]; v.t()[2] = 0; v
v = z.clone(); a = v[1]; b = v[:, 1]; a.mul_(w[0]); b.add_(w[1]); v + a
v = z.clone(); a = v.real; a.mul_(u); v
v = z.clone(); a = v.imag; v.mul_(w); v * a
v = z.clone(); torch.view_as_real(v)[0].mul_(2.0); v * v
v = z.clone(); v.t_(); v.mul_(w); v
v = z.clone(); v.unsqueeze_(-1); v
v = x.clone(); torch.view_as_complex(v).mul_(w); v
v = u.clone(); v[0] = z[1].real; v * z
v = u.clone(); v.copy_(z); v
v = z.detach().clone(); torch.mul(z.detach(), w.detach(), out=v); v * z
torch.select_scatter(z.detach(), w[0].detach(), 1, 2)
torch.slice_scatter(z.detach(), w[:, :2].detach(), -1, 1, 3)
v = torch.zeros(2, 3, 3, dtype=ct); v[:, :2, :2] = torch.einsum('ij,bjk->bik', z[:2], torch.stack([w, z])[:, :, :2]); v
"""
CONJUGATES = """
v = z.clone(); c = v.conj(); v.mul_(2j); c
v = z.clone(); c = v.conj(); c.mul_(w); v
v = z.clone(); c = v.conj()[0]; v[0] = w[1]; c * v[1]
v = z.clone(); c = v.conj(); v.t()[0] = w[1]; c.imag
v = z.clone(); c = v.t().conj(); c[0] = w[1]; v
v = z.clone(); c = v.conj().resolve_conj(); v.mul_(2); c
v = z.clone(); c = v.conj().resolve_conj(); c.mul_(2); v
v = z.clone(); c = v.mH; v.add_(w); c @ z
v = z.clone(); c = v.conj().conj(); c.add_(1); v
v = z.clone(); c = v.conj_physical(); v.add_(1); c
v = z.clone(); c = v.resolve_conj(); c.add_(1); v
v = z.clone(); c = v.conj(); torch.view_as_real(v).mul_(2); c
v = z.clone(); c = v.conj(); c += 1j; v.sub_(w); c
"""
FUNCTIONS = """
torch.square(z)
torch.sqrt(z)
torch.sqrt(z * big) / big ** 0.5
torch.sqrt(z / big) * big ** 0.5
torch.sqrt(u.to(ct))
torch.sqrt(torch.complex(-u.abs(), -u * 0))
torch.sqrt(torch.zeros(2, dtype=ct)) + z[0, 0]
torch.rsqrt(z)
torch.log(z)
torch.log(z * big)
torch.log(z / big)
torch.log(torch.complex(-u.abs(), u.detach() * 0))
torch.log2(z)
torch.log10(z)
torch.log(z.detach() * 0).real
z ** 0
z ** 1
z ** 2
z ** 3
z ** 4
z ** 5
z ** -1
z ** -2
z ** -3
z ** 0.5
z ** -0.5
z ** 2.5
(z * (u > 0)) ** 3
(z * (u > 0)) ** 5
(z.detach() * (u > 0)) ** 2.5
z ** (1 + 1j)
z ** w
z ** u
u.abs() ** w
2 ** z
(1 + 1j) ** z
0.5 ** w
z.pow(w[0])
z.detach().mul(u > 0) ** (1 + 1j)
z.sin()
z.cos()
z.tan()
z.sinh()
z.cosh()
z.tanh()
(z.detach() * 30).tanh()
(z * 3).tanh()
(z.detach() * 30).tan()
(z * 3).tan()
(z * 8).sinh()
(z * 8).cosh()
(z * 8).sin()
(z * 8).cos()
torch.complex(u.detach() * 0 + 90.5, u.detach() * 0 + 1.5).cosh().real / 1e30
torch.complex(u.detach() * 0 - 90.5, u.detach() * 0 + 1.5).sinh().real / 1e30
torch.complex(u.detach() * 0 + 1.5, u.detach() * 0 + 90.5).cos().real / 1e30
torch.complex(u.detach() * 0 + 1.5, u.detach() * 0 - 90.5).sin().imag / 1e30
torch.sigmoid(z)
torch.sigmoid(z * 40)
torch.nn.functional.silu(z.detach())
torch.sgn(z)
torch.sgn(z * (u > 0))
torch.sgn(z - z.detach())
torch.sgn(torch.where(u > 0, z, z - z.detach()))
z == torch.cat([z[:2], w[:1]])
z == z.real
z == z[0, 0]
z != torch.cat([z[:2], w[:1]])
z.real.to(ct) == 1
z * 0 == 0
(z * 0 + 1j) == 1j
(z * 0 + 1j) != 1j
torch.isnan(z / (u > 0))
torch.isnan(torch.complex(u, u / (u * 0)))
torch.isinf(torch.complex(u, u / (u * 0)))
torch.isfinite(torch.complex(u, u / (u > 0)))
torch.nan_to_num(torch.complex(u.detach(), u.detach() / (u > 0)), 0.5, 2.0, -2.0)
torch.linalg.vector_norm(z)
torch.linalg.vector_norm(z, 1, dim=1)
torch.linalg.vector_norm(z, float('inf'), dim=-1, keepdim=True)
torch.linalg.norm(z)
torch.linalg.norm(z, dim=1)
torch.linalg.norm(z[0], 3)
z.norm()
z.norm(p=1, dim=0)
z.abs().square().sum(-1)
(z * (u > 0)).abs()
z.absolute()
z.negative() + z.multiply(w) - z.subtract(w).divide(2)
1 - z
2j - z
torch.rsub(z, w, alpha=2)
1 / z
1j / z
u * 2j
u + 1j
torch.arange(3) * 1j + z
z * 1j + (0.5 - 2j)
z - 1j * z
z / (2 - 1j)
+z
"""
PRODUCTS = """
torch.mv(z, w[0])
torch.dot(z[0], w[1])
torch.vdot(z[0], w[1])
torch.inner(z, w)
torch.outer(z[0], w[1])
torch.linalg.vecdot(z, w)
torch.linalg.vecdot(z, w, dim=0)
torch.tensordot(z, w, 1)
torch.tensordot(z, w, ([0, 1], [1, 0]))
torch.nn.functional.linear(z, w)
torch.nn.functional.linear(z, w, z[0])
torch.addmm(z, z, w)
torch.addmm(z[0], z, w, beta=0.5, alpha=-2)
torch.addmm(z.detach() / (z.detach() * 0), z, w, beta=0)
torch.addmv(z[0], z, w[1], alpha=3)
torch.addr(z, z[0], w[1], beta=2)
torch.baddbmm(z[None], torch.stack([z, w]), torch.stack([w, z]), alpha=0.5)
torch.addbmm(z, torch.stack([z, w]), torch.stack([w, z]))
torch.addcmul(z, z, w[0])
torch.addcmul(z, z, w, value=-0.5)
torch.addcdiv(z, z, w, value=2)
torch.lerp(z, w, 0.7)
torch.lerp(z, w, z)
z @ w.mH
z.mT @ w
z.H @ w
z.T @ w
z.adjoint() @ w
z.t() @ w.conj()
torch.stack([z, w]).mH
torch.einsum('ij,kj->ik', z, w.conj())
torch.einsum('ij,jk,kl->il', z, w, z)
torch.einsum('ij->ji', z)
torch.einsum('i,j,ij,k->ik', z[0], z[1], w, w[1])
torch.bmm(torch.stack([z, w]), torch.stack([u, u]).to(ct))
z.prod()
z.prod(0)
z.prod(-1, keepdim=True)
torch.cat([z, w, z], 1).prod(1)
torch.cat([z, w, z], 1)[:, :7].prod(1)
z[0, 0].prod()
"""
SHAPES = """
torch.where(u > 0, z, w)
torch.where(u[0] > 0, z, w[:, :1])
torch.where(u > 0, z, u.detach())
torch.where(u > 0, z, 0.0)
torch.where(u > 0, 1, z)
torch.where(u > 0, z, 2j)
torch.where(u[:, 0] > 0, z[0, 0], w)
torch.masked_fill(z, u > 0, 0)
torch.masked_fill(z, u[0] > 0, 1 + 2j)
torch.masked_fill(z, u > 0, w[0, 0])
torch.nn.functional.pad(z, (1, 2))
torch.nn.functional.pad(z, (1, -1, 0, 1), value=0.5)
z.tril()
z.triu(1)
z.tril(-1).triu(-2)
z.trace()
z.diagonal()
z.diagonal(1)
torch.stack([z, w]).diagonal(-1, -1, -2)
torch.stack([z, w]).diagonal(0, 0, -1)
v = z.clone(); v.diagonal().mul_(w[0]); v
torch.diag_embed(z)
torch.diag_embed(z, 1, 0, -1)
torch.diag(z[0])
torch.diag(z)
z.gather(1, torch.tensor([[2, 0], [1, 1], [0, 2]]))
z.gather(-2, torch.tensor([[2, 0, 1]]))
torch.scatter(z, 1, torch.tensor([[2], [0], [1]]), w[:, :1])
torch.scatter(z, 1, torch.tensor([[2], [0], [1]]), 0.5)
torch.scatter(z, 0, torch.tensor([[2], [0], [1]]), 0.5j)
torch.diagonal_scatter(z.detach(), w[0].detach())
torch.diagonal_scatter(z.detach(), w[0, :2].detach(), -1, -1, -2)
torch.scatter_add(z, -1, torch.tensor([[2, 2], [0, 0], [1, 1]]), w[:, 1:])
torch.index_put(z, (torch.tensor([0, 2]), torch.tensor([1, 1])), w[0, :2])
torch.index_add(z, -1, torch.tensor([2, 2]), w[:, :2], alpha=2)
torch.index_copy(z, 0, torch.tensor([2]), w[:1])
z[torch.tensor([0, 2]), torch.tensor([1, 1])]
z[:, None, torch.tensor([[0, 2], [1, 1]])]
torch.cumsum(z, 1)
torch.cumsum(z, -2)
z.sum()
z.sum(0)
z.sum(-1, keepdim=True)
z.mean()
z.mean((0, 1))
z.sum(dtype=torch.complex128)
z[0, 0].sum() + z[0, 1].mean()
z[0, 0].sum(0) + z[0, 1].mean(-1) * z[1, 1].sum(())
torch.dstack([z, w])
torch.dstack([z[0], w[0]])
torch.hstack([z, w])
torch.hstack([z[0], w[0], z[0, :1]])
torch.hstack([z[0, 0], w[0, 0]])
torch.vstack([z, w[:1]])
torch.vstack([z[0], w[0]])
torch.column_stack([z, w])
torch.column_stack([z[0], w[0]])
torch.stack([z, u.to(ct)], -1)
torch.cat([z, u], -1)
torch.tile(z, (2,))
torch.tile(z, (2, 1, 2))
z.repeat(2, 1)
z[0].expand_as(w) * w
z.flatten().view_as(w) * w
z.t().reshape_as(w) * w
z[0].broadcast_to(2, 3)
torch.swapaxes(z, 0, -1) * w
torch.moveaxis(torch.stack([z, w]), 0, -1)
torch.movedim(torch.stack([z, w]), (0, 1), (-1, 0))
torch.swapdims(torch.stack([z, w]), 0, 2)
z[None].squeeze(0) * w
z[:, :1].squeeze(-1)
z[:1, :1].squeeze()
z[None, :, None].squeeze((0, 2))
torch.ravel(z)
torch.ravel(z[0, 0])
torch.atleast_1d(z[0, 0])
torch.atleast_2d(z[0])
torch.atleast_2d(z[0, 0])
z.unfold(0, 2, 1)
z.unfold(-1, 2, 1) * w[:, :2, None]
torch.roll(z, 1)
torch.roll(z, (1, -1), (0, -1))
torch.flip(z, (-1,))
torch.fft.fftshift(z)
torch.tensor_split(z, 2, -1)[0]
torch.broadcast_tensors(z[:1], w)[0] * w
z.flatten().unflatten(-1, (3, 3))
z.t()[1:, ::2] * w[:2, :2]
"""
SETS = {"create": CREATE, "inplace": INPLACE, "conjugates": CONJUGATES,
        "functions": FUNCTIONS, "products": PRODUCTS, "shapes": SHAPES}


def module_of(line, big, ct):
    """A module of one line; `*statements, result` at semicolons."""
    *before, result = line.split("; ")
    source = "\n    ".join([
        "def forward(self, x, y):",
        "z = torch.view_as_complex(x)",
        "w = torch.view_as_complex(y)",
        "u = y[..., 0]", *before, f"r = {result}",
        "return torch.view_as_real(r.resolve_conj().resolve_neg()) "
        "if r.is_complex() else r.resolve_neg()"])
    names = {"torch": torch, "big": big, "ct": ct}
    exec(source, names)  # pylint: disable=exec-used
    return type("Pairs", (torch.nn.Module,), {"forward": names["forward"]})()


def cases_of(folder, kind, i, line):
    for dtype, ct, big, tol in (
            (torch.float32, torch.complex64, 1e20, 5e-6),
            (torch.float64, torch.complex128, 1e200, 1e-13)):
        gen = torch.Generator().manual_seed(i)
        inputs = {n: torch.randn(3, 3, 2, generator=gen,
                                 dtype=torch.float64).to(dtype)
                  for n in ("x", "y")}
        module = module_of(line, big, ct)
        name = f"{kind}.{i:03}.{dtypes.SHORT[dtype]}"
        yield float_case(folder, name, line, module, inputs, gen, tol)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    args = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    cases = [case for kind, text in SETS.items()
             for i, line in enumerate(dtypes.lines(text))
             for case in cases_of(args.folder, kind, i, line)]
    with open(os.path.join(args.folder, "cases.json"), "w",
              encoding="utf-8") as f:
        json.dump(cases, f, indent=0)


if __name__ == "__main__":
    main()
