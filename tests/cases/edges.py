#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators at the ends of what numbers can be, with gradients by PyTorch.

usage: edges.py OUTDIR [--only TEXT]    only lines that contain TEXT

Writes programs, tensors and cases.json in the form of README.md,
for the program `cases`: integers beyond 2^53, which no double holds; dtypes
that are asked for, and when they are; complex
numbers whose squares overflow; variances of too few numbers; einsum with
letters that stand twice; factors of matrices; Fourier transforms of all
lengths; choices among equal elements. Lines with large tensors are left out:
large.py writes them.
"""
import argparse
import json
import os
import re
import warnings
import zlib

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import dtypes  # noqa: E402

# Lines with `a`, `b` (2, 3) and `z` () around 2^60, `k` and `m` as in
# dtypes.py.
WHOLE = """
torch.searchsorted(a.flatten().sort()[0], b)
torch.searchsorted(a.flatten().sort()[0], a - 1, right=True)
torch.searchsorted(a.flatten().sort()[0], 1152921504606846981)
torch.bucketize(b, a.flatten().sort()[0])
torch.arange(9007199254740993, 9007199254740999)
torch.arange(9007199254740993, 9007199254740999, 4)
torch.arange(9007199254740999, 9007199254740993, -2)
torch.linspace(0, 9007199254740996, 4, dtype=torch.int64)
torch.full((2,), 9007199254740993)
torch.add(a, b, alpha=9007199254740993)
torch.sub(a, b, alpha=9007199254740993)
torch.rsub(a, b, alpha=9007199254740993)
torch.addcmul(a, b, b, value=9007199254740993)
torch.addmm(a[:, :2], a, a.t(), beta=9007199254740995, alpha=9007199254740993)
torch.baddbmm(a[None, :, :2], a[None], a.t()[None], alpha=9007199254740993)
torch.addmv(a[:, 0], a, a[0], alpha=9007199254740993)
torch.addr(a, a[:, 0], a[0], alpha=9007199254740993)
torch.nn.functional.threshold(a, 9007199254740993, 9007199254740995)
torch.nn.functional.hardtanh(a, -9007199254740993, 9007199254740993)
torch.nn.functional.embedding(k, a)
torch.nn.functional.pad(a, (1, 1), value=9007199254740993)
torch.clamp(a, min=1152921504606846981, max=1152921504606846999)
torch.clamp(a, a - 1, b)
torch.where(m, a, 9007199254740993)
torch.masked_fill(a, m, 9007199254740993)
torch.isin(a, b)
torch.eq(a, 1152921504606846981)
torch.gt(a, z)
torch.floor_divide(a, 9007199254740993)
torch.remainder(a, 9007199254740993)
torch.pow(a, 3)
a.sum(1)
a.prod()
torch.cumsum(a, 1)
torch.sort(a, 1)[0]
torch.topk(a, 2, 1)[0]
torch.argmax(a, 1)
torch.scatter_add(a, 0, k[:, None].expand(2, 3), b)
torch.scatter_reduce(a, 0, k[:, None].expand(2, 3), a, 'amin')
a @ b.t()
a.view(torch.int32)
"""
# Lines with small numbers in all dtypes: what is converted, and when.
MIXED = """
h.sum(1, dtype=torch.int32)
h.sum(dtype=torch.int64)
(h * 1e5).sum(1, dtype=torch.float16)
(h.double() + 1e8).sub(h.double()[0]).sum(1, dtype=torch.float32)
(h.double() * 1e8).cumsum(1, dtype=torch.float32)
h.mean(1, dtype=torch.float16)
h.prod(1, dtype=torch.int64)
h.cumsum(1, dtype=torch.int16)
h.cumprod(1, dtype=torch.int32)
h.nansum(0, dtype=torch.int32)
h.sum(1, dtype=torch.bool)
h.prod(1, dtype=torch.bool)
(i - 1).sum(1, dtype=torch.bool)
(i << 61).sum(1, dtype=torch.float64)
(i << 61).sum(dtype=torch.float32)
(i << 61).sum(1)
i.sum(1, dtype=torch.uint8)
torch.ldexp(h.double(), h.half())
torch.ldexp(h.double(), h.bfloat16())
torch.ldexp(h.double(), h)
torch.ldexp(h.double(), i)
torch.ldexp(h * 2.0 ** -100, i * 30)
torch.ldexp(h.double() * 2.0 ** -1000, i * 300)
torch.ldexp(h.half(), h.half())
torch.ldexp(h.half() * 0.001, i * 4)
torch.ldexp(i, h.half())
torch.ldexp(h.bfloat16(), h[0, 0].half())
torch.ldexp(h, h[0, 0].bfloat16())
torch.ldexp(h, h[0, 0].half())
torch.nn.functional.avg_pool1d(i[:, None], 2)
torch.nn.functional.avg_pool1d(i - 3, 3, 2, 1)
torch.nn.functional.avg_pool1d(i - 3, 3, 2, 1, True, False)
torch.nn.functional.avg_pool2d((i - 3).view(1, 2, 3, 2), 2, 1)
torch.nn.functional.avg_pool2d((i - 3).view(2, 3, 2), (3, 2), 2, 1, True)
torch.nn.functional.avg_pool2d((i - 3).view(2, 3, 2), (3, 2), 2, 1, True, False, 4)
torch.nn.functional.avg_pool2d((i - 3).view(2, 3, 2), 2, 1, 0, False, True, -1)
torch.nn.functional.avg_pool3d((i - 3).view(1, 3, 2, 2), (2, 1, 2), 1, (1, 0, 1))
torch.nn.functional.avg_pool1d((i << 60) + 1, 2)
torch.nn.functional.lp_pool1d(i, 2, 2)
torch.div(torch.arange(1, 61)[:, None].bfloat16(), (torch.arange(1, 41) * 0.1).bfloat16(), rounding_mode='trunc').int()
torch.div(torch.arange(1, 61)[:, None].bfloat16(), (torch.arange(1, 41) * 0.1).bfloat16(), rounding_mode='floor').int()
torch.div(torch.arange(1, 61)[:, None].half(), (torch.arange(1, 41) * 0.1).half(), rounding_mode='trunc').int()
torch.div(torch.arange(1, 61)[:, None].half(), (torch.arange(1, 41) * 0.1).half(), rounding_mode='floor').int()
torch.div(torch.arange(1, 61)[:, None].bfloat16(), 0.3, rounding_mode='trunc').int()
torch.div(torch.arange(1, 61)[:, None].bfloat16(), h[0, 0], rounding_mode='trunc').int()
torch.div(torch.arange(1, 61)[:, None].bfloat16(), torch.full((1,), 0.3).bfloat16(), rounding_mode='trunc').int()
torch.div(torch.arange(1, 61)[:, None].bfloat16(), torch.full((), 0.7).bfloat16(), rounding_mode='trunc').int()
torch.fmod(h.bfloat16() * 9, 0.7)
torch.fmod(h.half() * 999, h[0, 0])
torch.remainder(h.bfloat16() * 9, 0.7)
torch.remainder(h.half() * 999, h[0, 0])
((torch.arange(61).bfloat16() + 0.7) * 256).int()
((0.7 - torch.arange(61).bfloat16()) * 256).int()
((torch.arange(61).half() + torch.full((), 0.7)) * 4096).int()
(torch.full((61,), 0.7).half() == 0.7).int()
(torch.full((61,), 0.7).bfloat16() >= torch.full((), 0.7)).int()
torch.where(torch.arange(61) > 9, torch.arange(61).half() * 0.1, 0.7)
(torch.arange(-61, 61) * 1100.0).half() * 1.0
(torch.arange(-61, 61) * 2.0 ** -26).half().float() * 2.0 ** 26
torch.nn.functional.layer_norm(torch.arange(61).half() * 100, (61,))
torch.softmax(torch.arange(61).half() * 1000, 0)
torch.nn.functional.gelu(torch.arange(-30, 31).half() * 2000)
torch.div(torch.arange(1, 61)[:, None].bfloat16(), torch.full((), 0.7).double(), rounding_mode='trunc').int()
torch.div(torch.arange(257, 457), torch.full((), 0.7).bfloat16(), rounding_mode='trunc').int()
torch.div(torch.arange(257, 457), torch.full((), 0.7).bfloat16(), rounding_mode='floor').int()
torch.div(torch.arange(1, 61)[:, None] * 1e6, torch.arange(1, 41) * 0.1, rounding_mode='floor').long()
torch.div(torch.arange(1, 61)[:, None] * 1e6, torch.arange(1, 41) * 0.1, rounding_mode='trunc').long()
torch.floor_divide((torch.arange(1, 61) * 1e6)[:, None], torch.arange(-20, 20) * 0.3 + 0.05).long()
(torch.arange(1, 41) * 0.1).bfloat16().clone().div_(h[0, 0] + torch.arange(5, 45).bfloat16() * 0.01, rounding_mode='trunc').int()
"""
# Lines with `x`, `y` (3, 3, 2) with gradients, in f32 and f64. `big` is 1e20
# or 1e200. (Detached where PyTorch's own gradients overflow.)
FLOATS = """
x.var(1, correction=9)
x.var((0, 1), correction=9)
x.var((0, 1), correction=20, keepdim=True)
torch.var(x, correction=18.5)
torch.var(x, correction=18)
torch.nan_to_num((x / (x > 0)).detach(), float("nan"), 2.5)
torch.nan_to_num((x / (x > 0)).detach(), 0.5, float("nan"), float("nan"))
x[0, 0, 0].var(correction=0)
x.std(1, correction=5)
x.std(correction=19)
torch.var_mean(x, 2, correction=3)[0]
torch.einsum('iij', x)
torch.einsum('ii', x[0, :, :1] * x[0, :, 1])
torch.einsum('ii', x[:, 0] @ y[:, 1].t())
torch.einsum('ii->', x[:, 0] @ y[:, 1].t())
torch.einsum('ii->i', x[:, 0] @ y[:, 1].t())
torch.einsum('iij,jk->ik', x, y[0, :2])
torch.einsum('iij,iij', x, y)
torch.einsum('iij,jk', x, y[0, :2])
torch.einsum('...ii', x @ y.transpose(1, 2))
torch.einsum('...ii->...i', x @ y.transpose(1, 2))
torch.einsum('ii...', x)
torch.einsum('iii', x[:, :, :1].expand(3, 3, 3) * y[:, :, 1:])
torch.einsum('ij,ji', x[0], y[0].t())
torch.view_as_real(torch.view_as_complex(x * big) / torch.view_as_complex(y * big))
torch.view_as_real(torch.view_as_complex(x.detach()) / torch.view_as_complex(y / big).detach())
torch.view_as_real(torch.view_as_complex(x.detach() * big).reciprocal()) * big
torch.view_as_real(torch.view_as_complex(x.detach() / big).reciprocal()) / big
torch.view_as_real(torch.view_as_complex(x.detach()) / torch.view_as_complex(y.detach() * (y.detach()[..., :1] > 0)))
torch.view_as_complex(x * big).abs() / big
torch.view_as_complex(x / big).abs() * big
torch.histogram(x[0, 0, 0].detach(), 4)[1]
torch.histogram(x[0, 0, :1].detach(), 2, density=True)[0]
torch.histogram(x[:0].detach(), 4)[1]
torch.histogram(x.detach(), 4, range=(0.5, 0.5))[0]
torch.histogram(x.detach(), 4, range=(0.5, 0.5))[1]
torch.nn.functional.cross_entropy(x[0], y[0].softmax(1), x[1, 0].exp())
torch.nn.functional.cross_entropy(x, y.softmax(1), x[0, :, 0].exp(), label_smoothing=0.2)
torch.nn.functional.cross_entropy(x, y.softmax(1), y[0, :, 0].exp(), reduction='none')
torch.nn.functional.cross_entropy(x[0, 0], y[0, 0], y[0, 1].exp(), reduction='sum', label_smoothing=0.3)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), torch.arange(231).view(3, 77) * 7 % 4 - 1, ignore_index=-1)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), torch.arange(231).view(3, 77) * 7 % 4 - 1, y[0, :, 0].detach().exp(), ignore_index=-1, reduction='none')
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), torch.arange(231).view(3, 77) * 7 % 4 - 1, ignore_index=-1, reduction='sum', label_smoothing=0.1)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), torch.arange(231).view(3, 77) * 7 % 4 - 1, y[0, :, 0].detach().exp(), ignore_index=-1, label_smoothing=0.3)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), torch.arange(231).view(3, 77) * 7 % 4 - 1, ignore_index=-1, reduction='none', label_smoothing=0.1)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), (y[:, :, :1] * torch.linspace(-1, 3, 77).to(x.dtype)).softmax(1))
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), (y[:, :, :1] * torch.linspace(-1, 3, 77).to(x.dtype)).softmax(1), x[0, :, 1].exp(), label_smoothing=0.2)
torch.nn.functional.cross_entropy(x[:, :, :1] * torch.linspace(-2, 2, 77).to(x.dtype), (y[:, :, :1] * torch.linspace(-1, 3, 77).to(x.dtype)).softmax(1), y[0, :, 1].exp(), reduction='none')
torch.nn.functional.cross_entropy(x.flatten()[:, None] * torch.linspace(-3, 3, 89).to(x.dtype), (y.flatten()[:, None] * torch.arange(89).to(x.dtype) / 30).softmax(1), y.flatten().repeat(5)[:89].exp(), reduction='none', label_smoothing=0.1)
torch.nn.functional.multilabel_margin_loss(x[:, :, 0], torch.tensor([[0, 2, -1], [1, 0, 2], [-1, 0, 1]]))
torch.nn.functional.multilabel_margin_loss(x[:, :, 0], torch.tensor([[2, -1, 2], [1, -1, 0], [0, 1, -1]]), reduction='none')
torch.nn.functional.multilabel_margin_loss(x[0, 0], torch.tensor([1, -1]), reduction='sum')
torch.nn.functional.cross_entropy(x[:, :, 0], torch.tensor([2, -100, 0]), label_smoothing=0.2)
torch.nn.functional.cross_entropy(x.flatten()[:, None] * torch.linspace(-3, 3, 89).to(x.dtype), torch.arange(18) * 5, reduction='none', label_smoothing=0.1)
torch.nn.functional.cross_entropy(x.flatten()[:, None] * torch.linspace(-3, 3, 89).to(x.dtype), torch.arange(18) * 5, y.detach().flatten().repeat(5)[:89].exp(), label_smoothing=0.1)
torch.nn.functional.cross_entropy(x.flatten()[:, None] * torch.linspace(-3, 3, 89).to(x.dtype), (y.flatten()[:, None] * torch.arange(89).to(x.dtype) / 30).softmax(1), label_smoothing=0.1)
torch.nn.functional.cross_entropy(x.flatten()[:, None] * torch.linspace(-3, 3, 89).to(x.dtype), torch.nn.functional.one_hot(torch.arange(18) * 4, 89).to(x.dtype), reduction='none')
torch.view_as_real(torch.view_as_complex(x) * torch.arange(3))
torch.view_as_real(torch.arange(1, 4)[:, None] / torch.view_as_complex(x))
torch.view_as_real(torch.view_as_complex(x) - (x > 0)[:, :, 0] * torch.view_as_complex(y))
torch.view_as_real(torch.exp(torch.view_as_complex(x) * torch.tensor(2)) + torch.arange(3).int())
torch.view_as_real(torch.view_as_complex(x) * x.double().sum())
torch.view_as_real(torch.view_as_complex(x)[:, torch.tensor([2, 0])])
torch.view_as_real(torch.complex(x[:, :1], y))
torch.view_as_real(torch.polar(x, y[:, :, :1]))
torch.view_as_real(torch.polar(torch.relu(x), y))
torch.view_as_real(torch.fft.fft(torch.arange(6).view(2, 3)).to(torch.complex64)) * x[0, 0]
torch.view_as_real(torch.fft.rfft2(x > 0)) * x[0, 0]
torch.view_as_real(torch.arange(3).cfloat()) * x[0, 0]
torch.nn.functional.grid_sample(torch.arange(345).to(x.dtype).view(1, 1, 1, 345) + x[0, 0, 0], torch.stack([(torch.arange(344).to(x.dtype) * 2 + 2) / 345 - 1, torch.zeros(344).to(x.dtype)], -1).view(1, 1, 344, 2), mode='nearest', align_corners=False)
torch.nn.functional.grid_sample(torch.arange(345).to(x.dtype).view(1, 1, 1, 345) + x[0, 0, 0], torch.stack([(torch.arange(344).to(x.dtype) * 2 + 1) / 344 - 1, torch.zeros(344).to(x.dtype)], -1).view(1, 1, 344, 2), mode='nearest', align_corners=True)
torch.special.i0e(x * 20)
torch.special.i1(x * 20)
torch.special.i1e(x * 20)
torch.special.i1(x.relu())
torch.special.i1e(x.relu())
torch.special.multigammaln(x.exp() + 1, 2)
(1 + 0.1 * x).flatten().repeat(20).cumprod(0)
(1 + 0.1 * x).repeat(1, 100, 40).cumprod(1)
(x * (y > -0.8)).view(9, 2).cumprod(0)
(x * (y > -0.8)).flatten()[:17].cumprod(0)
(x * (y > 0)).repeat(3, 1, 1).cumprod(1)
(x + torch.where(y > 0.5, torch.inf, 0.0)).view(9, 2).cumprod(0)
(x * (y > -0.8) + torch.where(y > 0.5, torch.inf, 0.0)).view(9, 2).cumprod(0)
(x * (y > -0.8) + torch.where(y > 0.7, torch.nan, 0.0)).view(2, 9).cumprod(1)
(x + torch.where(y > 0.5, torch.nan, 0.0)).view(18, 1).cumprod(1)
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), pos_weight=y[:1, :, :1].exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x * 30, y.sigmoid().detach(), weight=y[:1, :, :1].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), weight=y[:1, :, :1].exp().detach(), reduction='sum')
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), pos_weight=y[0, 0].exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x * 30, y.sigmoid().detach(), weight=y[0, 0].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), weight=y[0, 0].exp().detach(), reduction='sum')
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), pos_weight=y[:, :1].exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x * 30, y.sigmoid().detach(), weight=y[:, :1].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), weight=y[:, :1].exp().detach(), reduction='sum')
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), pos_weight=y.exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x * 30, y.sigmoid().detach(), weight=y.exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), weight=y.exp().detach(), reduction='sum')
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), pos_weight=y[0, 0, 0].exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x * 30, y.sigmoid().detach(), weight=y[0, 0, 0].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), weight=y[0, 0, 0].exp().detach(), reduction='sum')
torch.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), y[0, 0].exp().detach(), pos_weight=y[:, :1].exp().detach())
torch.nn.functional.binary_cross_entropy_with_logits(x.repeat(1, 100, 40), y.sigmoid().detach().repeat(1, 100, 40), y[0, 0].repeat(40).exp().detach(), pos_weight=y[:, :1, :1].exp().detach()) / 90
torch.nn.functional.binary_cross_entropy_with_logits(x + x.sign().detach() * 100, (y > 0).to(x.dtype), pos_weight=y[0, 0].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy_with_logits(torch.where(y > 1, torch.inf, x), y.sigmoid().detach(), pos_weight=y[0, 0].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy_with_logits(torch.where(y > 1, torch.nan, x), y.sigmoid().detach(), weight=y[0, 0].exp().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy(x.clamp(0, 1), (y > 0).to(x.dtype))
torch.nn.functional.binary_cross_entropy(x.clamp(0, 1), y.sigmoid().detach(), reduction='none')
torch.nn.functional.binary_cross_entropy((x * 3).sigmoid().repeat(100, 1, 5), y.sigmoid().detach().repeat(100, 1, 5), weight=y[0].repeat(1, 5).exp().detach())
torch.nn.functional.huber_loss(x, y.detach(), reduction='none', delta=0.7)
torch.nn.functional.smooth_l1_loss(x.repeat(1, 400, 1), y.detach().repeat(1, 400, 1), reduction='none')
torch.nn.functional.soft_margin_loss(x, y.sign().detach(), reduction='none')
torch.nn.functional.pdist(x.view(9, 2), 0.0)
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()).repeat(5, 1), 0.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 0.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 0.0)
torch.nn.functional.pdist(x.view(9, 2), 1.0)
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()).repeat(5, 1), 1.0) / 90
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 1.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 1.0)
torch.nn.functional.pdist(x.view(9, 2), 2.0)
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()).repeat(5, 1), 2.0) / 90
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 2.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 2.0)
torch.nn.functional.pdist(x.view(9, 2), float("inf"))
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()), float("inf"))
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), float("inf"))
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), float("inf"))
torch.nn.functional.pdist(x.view(9, 2), 0.5)
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 0.5)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 0.5)
torch.nn.functional.pdist(x.view(9, 2), 1.5)
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()), 1.5)
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 1.5)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 1.5)
torch.nn.functional.pdist(x.view(9, 2), 3.0)
torch.nn.functional.pdist((x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin()).repeat(5, 1), 3.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.inf, x).view(9, 2), 3.0)
torch.nn.functional.pdist(torch.where(y > 1, torch.nan, x).view(6, 3), 3.0)
torch.nn.functional.pdist(x.view(9, 2).relu(), 2.0)
torch.nn.functional.pdist(x.view(9, 2).relu(), 1.0)
torch.nn.functional.pdist(x[0, :1], 2.0)
torch.cdist(x.view(9, 2), y[0], 0.0)
torch.cdist(x, y[0, :2], 0.0)
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 0.0)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), 0.0)
torch.cdist(x.view(9, 2), y[0], 1.0)
torch.cdist(x, y[0, :2], 1.0)
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 1.0)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), 1.0)
torch.cdist(x.view(9, 2), y[0], 2.0)
torch.cdist(x, y[0, :2], 2.0)
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 2.0)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), 2.0)
torch.cdist(x.view(9, 2), y[0], float("inf"))
torch.cdist(x, y[0, :2], float("inf"))
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 1.0)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), float("inf"))
torch.cdist(x.view(9, 2), y[0], 0.5)
torch.cdist(x, y[0, :2], 0.5)
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 0.5)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), 0.5)
torch.cdist(x.view(9, 2), y[0], 3.0)
torch.cdist(x, y[0, :2], 3.0)
torch.cdist(x[:, None], torch.where(y > 1, torch.nan, y), 3.0)
torch.cdist(torch.where(y > 1, torch.inf, x).view(9, 2), y[:1].expand(4, 3, 2), 3.0)
torch.cdist(x.view(18, 1) * torch.arange(1, 44).to(x.dtype).sin(), y.view(18, 1) * torch.arange(1, 44).to(x.dtype).cos())
torch.cdist(x.view(18, 1).repeat(1, 40), y.view(18, 1).repeat(1, 40), 1.0)
torch.cdist(x.view(18, 1).repeat(5, 70), y.view(18, 1).repeat(6, 70), compute_mode='donot_use_mm_for_euclid_dist') / 90
torch.cdist(x.relu(), y.relu(), 2.0)
torch.cdist(x[0].t(), y[1].t(), 2.0)
torch.cdist(x[:, :0], y, 2.0)
torch.cdist(x[:, :, :0], y[:, :, :0], 2.0)
torch.kron(x[:, :, 0], y[:, :, 0]).unfold(1, 3, 1)
torch.kron(x[:, :, 0], y[:, :, 0]).unfold(0, 3, 1)
torch.kron(x[:, :, 0], y[:, :, 0]).unfold(1, 4, 3)
torch.kron(x[:, :, 0], y[:, :, 0]).unfold(0, 4, 2).unfold(1, 3, 1)
torch.kron(x[:, :, 0], y[:, :, 0]).as_strided((4, 3, 9), (18, 9, 1))
torch.kron(x[:, :, 0], y[:, :, 0]).as_strided((5, 3, 4), (1, 0, 2), 7)
torch.kron(x[:, :, 0], y[:, :, 0]).t().unfold(1, 2, 1) * y[0, 0]
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(0, 12, 3), mode='max')
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(4) // 2 * 6, mode='max')
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2).round(), torch.arange(0, 12, 4), mode='max', padding_idx=5)
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, torch.where(x > 0.8, float('nan'), x).view(9, 2), torch.arange(0, 12, 2), mode='max')
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(4) // 2 * 6, mode='mean', padding_idx=1)
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(0, 12, 5), mode='mean')
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(0, 12, 4), mode='sum', per_sample_weights=y.flatten()[:12])
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(9, 2), torch.arange(0, 12, 5), mode='sum', per_sample_weights=y.flatten()[:12], padding_idx=6)
torch.nn.functional.embedding_bag(torch.arange(12) * 5 % 9, x.view(2, 9).t(), torch.arange(0, 12, 5), mode='mean')
torch.hypot((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), (y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype))
torch.hypot((y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype), (x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.logaddexp((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), (y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype))
torch.logaddexp((y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype), (x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.logaddexp2((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), (y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype))
torch.logaddexp2((y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype), (x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.atan2((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), (y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype))
torch.atan2((y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype), (x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.xlogy((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), (y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype))
torch.xlogy((y - y.detach()).view(18) + torch.tensor([0., 1, 0, 0, 1, -3, float("inf"), -float("inf"), float("inf"), -float("inf"), 1, float("nan"), float("nan"), 1e30, 1e30, 1e-30, 3, -0.5]).to(x.dtype), (x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.atan2(torch.tensor([0., -0.0, 0, -0.0, 1, -1]).to(x.dtype), torch.tensor([0., 0, -0.0, -0.0, -0.0, -0.0]).to(x.dtype)) + x.view(3, 6)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 0.5)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 1.5)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 2.5)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 4.0)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), -1.0)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 0.3)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), -0.5)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), -3.0)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 1.0)
torch.pow((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 0.0)
torch.sinh((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.cosh((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.atan((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.sinc((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.lgamma((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.logit((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.deg2rad((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.logit((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), 0.25, 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype), 1e-6)
torch.logit(x.repeat(1, 100, 1).sigmoid(), 0.3)
torch.logit(x.relu() * 4, 1e-6)
torch.special.entr((x - x.detach()).view(18) + torch.tensor([0., 0, 1, -1, 2, -2, float("inf"), float("inf"), -float("inf"), -float("inf"), float("nan"), 0, float("inf"), 1e30, -1e30, 1e-30, 3, 0.5]).to(x.dtype))
torch.sinh(x.repeat(1, 100, 40) * 9) / 90
torch.atan(x.repeat(1, 100, 40) * 9) / 90
torch.sinc(x.repeat(1, 100, 40) * 9) / 90
torch.lgamma(x.repeat(1, 100, 40).abs() * 9 + 0.1) / 90
torch.floor_divide(x.detach().repeat(1, 100, 40) * 9, y.detach().repeat(1, 100, 40)) + x.repeat(1, 100, 40) / 90
torch.logaddexp(x.repeat(1, 100, 40) * 9, y.repeat(1, 100, 40)) / 90
torch.hypot(x.repeat(1, 100, 40) * 1e30, y.repeat(1, 100, 40) * 1e30) / 1e32
torch.special.ndtri(x.sigmoid())
torch.special.ndtri((x.sigmoid() * 1e-30).detach())
torch.special.ndtri(1 - x.sigmoid().detach() * 1e-6)
torch.special.ndtri((x > 0).to(x.dtype) + (y > 1))
torch.special.polygamma(2, x.abs() + 0.5)
torch.igamma(y.abs().detach(), x.abs())
torch.igamma(y[0].abs().detach() * 9, x.abs() * 9)
torch.igamma(y.abs().detach() * 1e-9, x.abs())
torch.igamma(y.sign().detach() + 1, x.sign() * float("inf"))
torch.special.gammaincc(y.abs().detach(), x.abs())
torch.special.gammaincc(y[0].abs().detach() * 9, x.abs() * 9)
torch.special.gammaincc(y.abs().detach() + 30, x.abs() * 99 + 60)
torch.special.gammaincc(y.abs().detach() + 1, x.relu())
torch.special.gammaincc(y.relu().detach() / 0, x.relu())
torch.igamma(y.relu().detach() / 0, x.relu().detach() / 0)
torch.igammac(y.relu().detach(), x.relu().detach() / 0)
torch.gradient(x)[0]
torch.gradient(x)[2]
torch.gradient(x, spacing=2, dim=1)[0]
torch.gradient(x, spacing=0.5, dim=-2, edge_order=2)[0]
torch.gradient(x, spacing=0.25, dim=(0, -1))[1]
torch.gradient(x, dim=(1, 0), edge_order=2)[0]
torch.gradient(x, spacing=(0.5, 2.0, 4.0))[1]
torch.gradient(x, spacing=(3, 5), dim=(1, 0))[0]
torch.gradient(x, spacing=(torch.tensor([0.5, 1.0, 4.0]), torch.tensor([0, 1, 3])), dim=(1, 0), edge_order=2)[0]
torch.gradient(x.transpose(0, 2), spacing=(y[0, :, 0].exp().cumsum(0),), dim=1)[0]
torch.gradient(x, spacing=(y[0, :, 0].exp().cumsum(0),), dim=0, edge_order=2)[0]
torch.gradient((x * 9).long(), spacing=(torch.tensor([1, 3, 4]),), dim=0)[0].to(x.dtype)
torch.gradient((x * 9).long(), dim=1)[0].to(x.dtype)
torch.ops.aten.index_put(x.sin(), (None, y[0, :, 0] > 0), y[0, 0, 0])
torch.ops.aten.index_put(x.sin(), (None, None, y[0, 0] > -9), y[:, :, :1])
torch.ops.aten.index_put(x.sin(), (None, y[0] > 0), torch.zeros(1).to(x.dtype))
torch.ops.aten.index_put(x.sin(), (None, torch.tensor([True, False, True])), y[:, :1])
torch.ops.aten.index_put(x.sin(), (y[:, :, 0] > 0,), y[0, 0, 0])
torch.ops.aten.index_put(x.sin(), (None, y[0, :, 0] > 9), y[0, 0, 0])
torch.nn.functional.linear(x, y[0, 0])
torch.nn.functional.linear(x, y[0, 0], y[1, 0, 0])
torch.nn.functional.linear(x[0, 0], y[0, 0])
x * torch.arange(0, torch.tensor([3, 4])[0])[:, None, None]
torch.where(torch.vmap(torch.vmap(lambda i, j: (i >= j) | (j > 1), (None, 0)), (0, None))(torch.arange(3), torch.arange(3))[..., None], x, y)
torch.vmap(lambda v, w: torch.where(v > w, v * w, w - 1), (1, 0))(x, y.transpose(0, 1))
torch.vmap(lambda v, w: v * w + v.unsqueeze(0).squeeze(0), (2, -1))(x, y)
torch.vmap(lambda v: v.cos() * 2, -2)(x)
torch.vmap(lambda v: v.sum(0) * v.amax(-1).cumsum(0)[:1])(x)
torch.vmap(torch.vmap(lambda v, w: (v - w) / 2, (0, None)), (None, 1))(x, y.transpose(0, 1))
torch.vmap(lambda i: i * torch.ones(2, dtype=torch.int32))(torch.arange(3)) * x
torch.vmap(lambda i, v: torch.ops.aten.index.Tensor(v, [i]), (0, None))(torch.tensor([2, 0, 1]), x)
torch.vmap(lambda i, v: torch.ops.aten.index.Tensor(v, [i]))(torch.tensor([2, 0, 1]), x)
torch.vmap(lambda i, v: torch.ops.aten.index.Tensor(v, [None, i]))(torch.tensor([[1, 0], [0, 0], [1, 1]]), x)
torch.vmap(lambda i, v: torch.ops.aten.index.Tensor(v, [i, i]), (0, None))(torch.tensor([2, 0, 1]), x)
torch.vmap(torch.vmap(lambda i, j, v: torch.ops.aten.index.Tensor(v, [i, j]), (None, 0, None)), (0, None, 0))(torch.arange(3), torch.arange(2), x)
torch.vmap(lambda v: v.expand(2, 3, 2).clone() * v.new_ones(()))(x)
torch.vmap(lambda v: y[0] * 2, out_dims=1)(x) + x.sum()
torch._higher_order_ops.associative_scan(lambda a, b: a * b + a, x, 0, combine_mode='generic')
"""
# In f32 only, the dtype of scales: kernels for one scale compute f64 in f32.
QUANTISED = """
torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7)
torch.fake_quantize_per_tensor_affine(x * 9, 0.25, 0, 0, 255)
torch.fake_quantize_per_tensor_affine(x[0, 0, 0], 0.3, 1, -8, 7)
torch.fake_quantize_per_tensor_affine(x, torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32), -8, 7)
torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, -2], dtype=torch.int32), 1, -8, 7)
torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1, 0.7]), torch.tensor([0.5, -1.5]), 2, -4, 7)
torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -8, 7)[1]
torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x.detach(), torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), torch.tensor(0), -8, 7)[0]
torch._fake_quantize_learnable_per_tensor_affine(x, y[0, 0, :1].abs() + 0.1, y[1, 0, :1], -8, 7, 0.5)
torch._fake_quantize_learnable_per_tensor_affine(x * 3, y[0, 0, :1].abs() + 0.1, -y[1, 0, :1].abs() - 1.2, -8, 7)
torch._fake_quantize_learnable_per_channel_affine(x, y[0, :, 0].abs() + 0.1, y[1, :, 0], 0, -3, 4, 2.0)
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x, torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0]), torch.tensor([0.5]), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.25, -8, 7, 0, False, True)[0]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x, torch.tensor([1]), torch.tensor([1]), torch.tensor([torch.inf]), torch.tensor([-torch.inf]), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0, False, False)[0]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x.detach(), torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0]), torch.tensor([0.5]), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.25, 0, 15, 0, False, False)[4]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x.detach(), torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0, -1.0, 0.0]), torch.tensor([0.5, 3.0, 0.7]), torch.ones(3), torch.zeros(3, dtype=torch.int32), 0.25, -128, 127, 0, True, False)[5]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x, torch.tensor([1]), torch.tensor([0]), torch.tensor([-1.0, -1.0, 0.0]), torch.tensor([0.5, 3.0, 0.7]), torch.ones(3), torch.zeros(3, dtype=torch.int32), 0.25, -128, 127, 0, True, True)[0]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x.detach(), torch.tensor([1]), torch.tensor([1]), torch.tensor([-1.0, -1.0, 0.0]), torch.tensor([0.5, 3.0, 0.7]), torch.ones(3), torch.zeros(3, dtype=torch.int32), 0.25, -128, 127, 0, True, True)[2]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x, torch.tensor([0]), torch.tensor([1]), torch.tensor([-1.0, -1.0, 0.0]), torch.tensor([0.0, 3.0, 0.7]), torch.ones(3), torch.zeros(3, dtype=torch.int32), 0.25, 0, 15, 0, True, True)[0]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x, torch.tensor([0]), torch.tensor([1]), torch.tensor([0.0]), torch.tensor([0.0001]), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.25, 0, 15, 0, False, False)[0]
torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(x.detach(), torch.tensor([0]), torch.tensor([1]), torch.tensor([0.0]), torch.tensor([0.0]), torch.ones(1), torch.zeros(1, dtype=torch.int32), 0.25, 0, 15, 0, False, False)[4]
"""

# Results that do not depend on the signs that LAPACK chooses, and results for
# which its choices agree; `m` is symmetric and definite, `q` is neither.
FACTORS = """
torch.linalg.eigvalsh(m)
torch.linalg.eigvalsh(m, UPLO='U')
torch.linalg.eigh(m)[0]
(lambda e: e[1] @ torch.diag(torch.exp(-e[0])) @ e[1].t())(torch.linalg.eigh(m))
(lambda e: e[1].abs() * e[0])(torch.linalg.eigh(m))
torch.linalg.qr(x)[0]
torch.linalg.qr(x)[1]
(lambda f: f[0] @ f[1].sin())(torch.linalg.qr(x))
(lambda f: f[0] @ f[1] * f[1].sum())(torch.linalg.qr(x[:, :, 0]))
torch.linalg.pinv(x)
torch.linalg.pinv(x.transpose(1, 2))
torch.linalg.pinv(m)
torch.linalg.pinv(x[:, :, :1] @ y[:, :1], rtol=1e-3)
torch.pinverse(x[0])
torch.linalg.pinv(x, rtol=x[:, 0, 0].abs().detach() * 0.4)
torch.linalg.pinv(x, atol=y[:, 0, 0].abs().detach())
torch.linalg.pinv(x, atol=y[0, 0, 0].abs().detach(), rtol=x[:, 0, 0].abs().detach())
torch.linalg.pinv(x, atol=y[0, 0, 0].detach() * 0)
torch.linalg.pinv(x, torch.full((), 0.4))
torch.linalg.lu(x)[0]
torch.linalg.lu(x)[1]
torch.linalg.lu(x)[2]
torch.linalg.lu(x.mT)[0]
torch.linalg.lu(x.mT)[1]
torch.linalg.lu(x.mT)[2]
(lambda f: f[1].sin() @ f[2].cos())(torch.linalg.lu(x))
(lambda f: f[1].sin() @ f[2].cos())(torch.linalg.lu(x.mT))
torch.linalg.lu_factor(x)[0]
torch.linalg.lu_factor(x.mT)[1]
torch.lu_unpack(*torch.linalg.lu_factor(x.mT))[1].exp()
torch.lu_unpack(*torch.linalg.lu_factor(x))[2].exp()
torch.linalg.lu(q)[0]
torch.linalg.lu(q)[1]
torch.linalg.lu(q)[2]
(lambda f: f[1] @ f[2].sin())(torch.linalg.lu(torch.stack([m, q])))
torch.linalg.lu_factor(q)[0]
torch.linalg.lu_factor(torch.stack([m, q]))[1]
torch.linalg.lu_factor_ex(q * 0)[2]
torch.lu(q)[0]
torch.lu_unpack(*torch.linalg.lu_factor(q))[1].exp()
torch.linalg.lu_solve(*torch.linalg.lu_factor(q), y[0])
torch.linalg.lu_solve(*torch.linalg.lu_factor(q), y[0], adjoint=True)
torch.linalg.lu_solve(*torch.linalg.lu_factor(q), y[0].t(), left=False)
torch.linalg.lu_solve(*torch.linalg.lu_factor(q), y[0].t(), left=False, adjoint=True)
torch.linalg.lu_solve(*torch.linalg.lu_factor(q), y)
torch.linalg.lu_solve(*torch.linalg.lu_factor(torch.stack([m, q])), y[0])
torch.lu_solve(y[0], *torch.linalg.lu_factor(q))
torch.linalg.svdvals(x)
(lambda f: (f[0] * f[1].sin()[..., None, :]) @ f[2])(torch.linalg.svd(q))
(lambda f: (f[0] * f[1].sin()[..., None, :]) @ f[2])(torch.linalg.svd(x, full_matrices=False))
(lambda f: (f[0] * f[1].exp()[..., None, :]) @ f[2])(torch.linalg.svd(x.mT, full_matrices=False))
(lambda f: f[0] @ f[2])(torch.linalg.svd(q, full_matrices=False))
(lambda f: f[0].abs().cos() * f[2].abs())(torch.linalg.svd(q))
torch.linalg.svd(x)[1]
torch.linalg.svd(x.mT)[1]
(lambda f: (f[0][..., :2] * f[1].sin()[..., None, :]) @ f[2])(torch.linalg.svd(x))
(lambda f: (f[0] * f[1].sin()[..., None, :]) @ f[2][..., :2, :])(torch.linalg.svd(x.mT))
(lambda f: f[0].abs().cos() * f[2].abs().sum())(torch.linalg.svd(x))
(lambda f: f[0].detach() @ f[0].detach().mT)(torch.linalg.svd(x))
(lambda f: f[0].detach()[..., 2:] @ f[0].detach()[..., 2:].mT)(torch.linalg.svd(x))
(lambda f: f[2].detach()[..., 2:, :].mT @ f[2].detach()[..., 2:, :])(torch.linalg.svd(x.mT))
torch.linalg.svdvals(q @ torch.linalg.inv(q))
torch.linalg.eigvalsh(q @ torch.linalg.inv(q))
torch.linalg.cond(q)
torch.linalg.cond(x, -2)
torch.linalg.matrix_rank(x)
torch.linalg.matrix_rank(x[:, :, :1] @ y[:, :1])
torch.linalg.matrix_rank(x[:, :, :1] @ y[:, :, :1].mT + x @ y.mT * 1e-3, rtol=1e-2)
torch.linalg.matrix_rank(x @ y.mT, atol=0.7)
torch.linalg.matrix_rank(x @ y.mT, atol=0.1, rtol=0.4)
torch.linalg.matrix_rank(x @ y.mT, atol=x[:, 0, 0].abs().detach())
torch.linalg.matrix_rank(x @ y.mT, tol=0.5)
torch.linalg.matrix_rank(x @ x.mT, hermitian=True)
torch.linalg.matrix_rank(m, hermitian=True)
torch.linalg.solve_triangular(q.tril(), y[0], upper=False)
torch.linalg.solve_triangular(q.triu(), y, upper=True)
torch.linalg.solve_triangular(q, y[0], upper=True, unitriangular=True)
torch.linalg.solve_triangular(q, y[0].t(), upper=False, left=False)
torch.linalg.solve_triangular(torch.stack([m, q]), y[0].t(), upper=True, left=False)
torch.linalg.solve_triangular(torch.stack([m, q])[:, None], y, upper=False, unitriangular=True)
torch.cholesky_solve(y[0], torch.linalg.cholesky(m))
torch.cholesky_solve(y[0], torch.linalg.cholesky(m).t(), upper=True)
torch.cholesky_solve(y, q + 4 * torch.eye(3).to(x.dtype))
torch.cholesky_solve(y[0], torch.stack([m, q]), upper=True)
torch.cholesky_inverse(q)
torch.cholesky_inverse(m, upper=True)
torch.linalg.cholesky(m, upper=True)
torch.linalg.solve(q, y[0])
torch.linalg.solve(q, y[0].t(), left=False)
(lambda e: e[1].abs() * e[0])(torch.linalg.eigh(q))
(lambda e: e[1].abs() * e[0])(torch.linalg.eigh(q, UPLO='U'))
torch.linalg.eigvalsh(q, UPLO='U')
torch.linalg.tensorinv(torch.kron(q, m[:2, :2]).view(2, 3, 3, 2))
torch.linalg.tensorinv(q, ind=1)
torch.linalg.tensorsolve(torch.kron(q, m[:2, :2]).view(2, 3, 3, 2), y[:2, :, 0])
torch.linalg.tensorsolve(torch.kron(q, m[:2, :2]).view(2, 3, 3, 2).movedim(2, 0), y[:2, :, 0], dims=(0,))
torch.linalg.matrix_power(m, -1)
torch.linalg.matrix_power(torch.stack([m, q]), -5)
torch.matrix_power(q, -4) @ y[0]
torch.linalg.householder_product(x, y[:, 0, :2])
torch.linalg.householder_product(x, y[:, 0, :1])
torch.linalg.householder_product(q, y[0, 0, :2].sin())
torch.linalg.householder_product(x.mT[..., :2, :].mT, y[:, 0, :2] * 0)
torch.linalg.householder_product(x[0], 2 / (1 + x[0].tril(-1).square().sum(-2)))
torch.orgqr(m, y[0, :, 0])
"""
# Transforms of lengths with small factors, of primes and of one number. `s` is
# (18, 89): multiples of x.
FOURIER = """
torch.view_as_real(torch.fft.fft(torch.complex(s, s.flip(1)), norm='ortho'))
torch.view_as_real(torch.fft.fft(torch.complex(s, s.flip(1)), n=64, norm='forward'))
torch.view_as_real(torch.fft.fft(torch.complex(s, s.flip(1)), dim=0, norm='forward'))
torch.view_as_real(torch.fft.fft(s, n=1009))
torch.view_as_real(torch.fft.fft(s, n=1))
torch.view_as_real(torch.fft.ifft(torch.complex(s, s.flip(1)), n=143))
torch.view_as_real(torch.fft.ifft(torch.complex(s, s.flip(1)), dim=0, norm='ortho'))
torch.view_as_real(torch.fft.rfft(s))
torch.view_as_real(torch.fft.rfft(s, n=100, norm='ortho'))
torch.view_as_real(torch.fft.rfft(s, n=1000, dim=0))
torch.fft.irfft(torch.complex(s, s.flip(1)))
torch.fft.irfft(torch.complex(s, s.flip(1)), n=97, norm='ortho')
torch.fft.irfft(torch.complex(s, s.flip(1)), n=34, dim=0, norm='forward')
torch.view_as_real(torch.fft.fft2(torch.complex(s, s.flip(1)))) / 89
torch.view_as_real(torch.fft.ifft2(torch.complex(s, s.flip(1)), s=(17, 30), norm='forward'))
torch.view_as_real(torch.fft.rfft2(s.view(2, 9, 89), dim=(1, 0)))
torch.fft.irfft2(torch.complex(s, s.flip(1)), s=(12, 23))
torch.view_as_real(torch.fft.rfftn(s.view(2, 9, 89), norm='ortho'))
torch.fft.irfftn(torch.complex(s, s.flip(1)).view(2, 9, 89))
torch.fft.irfft(torch.fft.rfft(s) * torch.fft.rfft(s.flip(0)), n=89)
torch.fft.fft(s).real
torch.fft.fft(torch.complex(s, s * 2)).imag
torch.fft.fftshift(s)
torch.fft.ifftshift(s, dim=1)
torch.fft.fftshift(s.view(2, 9, 89), dim=(0, -1))
torch.view_as_real(torch.fft.fftshift(torch.complex(s, s.flip(1)), dim=-1))
torch.view_as_real(torch.fft.ifftshift(torch.complex(s, s.flip(1))))
torch.view_as_real(torch.complex(s, s.flip(1)).view(2, 9, 89).sum(dim=()))
torch.fft.hfft(torch.complex(s, s.flip(1)))
torch.fft.hfft(s, n=30, dim=0, norm='ortho')
torch.fft.hfft2(torch.complex(s, s.flip(1)), norm='forward')
torch.fft.hfftn(torch.complex(s, s.flip(1)).view(2, 9, 89), s=(9, 51), dim=(1, 2))
torch.fft.hfftn(s.view(2, 9, 89))
torch.view_as_real(torch.fft.ihfft(s).resolve_conj())
torch.view_as_real(torch.fft.ihfft2(s, norm='forward').resolve_conj())
torch.view_as_real(torch.fft.ihfftn(s.view(2, 9, 89), norm='ortho').resolve_conj())
torch.fft.irfft(s, n=97)
torch.fft.irfft2(s, norm='ortho')
torch.fft.irfftn(s.view(2, 9, 89))
torch.view_as_real(torch.stft(s, 16, 4, window=torch.hann_window(16, dtype=x.dtype), return_complex=True))
torch.view_as_real(torch.stft(s[0], 32, win_length=20, center=False, normalized=True, return_complex=True))
torch.view_as_real(torch.stft(s, 16, 5, 11, torch.hann_window(11, dtype=x.dtype), onesided=False, pad_mode='constant', return_complex=True))
torch.istft(torch.stft(s, 16, 4, return_complex=True), 16, 4)
torch.istft(torch.stft(s, 16, 4, window=torch.hann_window(16, dtype=x.dtype), return_complex=True), 16, 4, window=torch.hann_window(16, dtype=x.dtype), length=80)
torch.istft(torch.stft(s, 16, 4, window=torch.hann_window(16, dtype=x.dtype), return_complex=True), 16, 4, window=torch.hann_window(16, dtype=x.dtype), length=97)
torch.istft(torch.stft(s[0], 32, 5, win_length=20, normalized=True, return_complex=True), 32, 5, 20, normalized=True)
torch.istft(torch.stft(s, 16, 3, 11, 2 + s[0, :11], onesided=False, return_complex=True), 16, 3, 11, 2 + s[0, :11], onesided=False)
torch.istft(torch.stft(s, 16, center=False, return_complex=True), 16, center=False)
torch.istft(torch.complex(s, s.flip(1)).view(2, 9, 89), 16, 7)
"""

# Lines with `t`, 54 numbers that are 0 or 1, and the gradients of x and y:
# PyTorch's algorithms decide which of equal elements is chosen.
TIES = """
t.sort()[0]
t.sort(descending=True)[0]
torch.sort(t, stable=True)[0]
torch.sort(t.view(27, 2), dim=0)[0]
torch.where(t > 0, t, float("nan")).nan_to_num(2).sort()[0]
t.take(t.argsort())
t[torch.argsort(t, stable=True, descending=True)]
torch.msort(t.view(27, 2))
torch.sort(t.repeat(700).long())[1].to(t.dtype)
torch.sort(t.repeat(2).long())[1].to(t.dtype)
torch.topk(t, 20)[0]
torch.kthvalue(t, 9)[0]
torch.kthvalue(t.view(3, 18), 16, 1)[0]
torch.kthvalue(t.view(18, 3), 11, 0, True)[0]
torch.kthvalue(t.where(t > 0, float("nan")), 40)[1].to(t.dtype)
torch.median(t, 0)[0]
torch.mode(t)[0]
torch.mode(t.view(27, 2), 0)[0]
torch.quantile(t, 0.35)
torch.quantile(t.view(27, 2), torch.tensor([0.2, 0.9], dtype=t.dtype), 0)
torch.nanquantile(t.where(t > 0, float("nan")), 0.4)
torch.nanquantile(t, 0.7, interpolation='midpoint')
torch.cdist(t.view(9, 6), t.view(9, 6)[2:], float("inf"))
torch.pdist(t.view(9, 6), float("inf"))
torch.scatter_reduce(t.view(3, 18), 1, t.view(3, 18).long(), t.view(3, 18) * 1, 'amin', include_self=False)
torch.scatter_reduce(t.view(3, 18), 1, t.view(3, 18).long() + 4, 1 - t.view(3, 18), 'amax', include_self=False)
torch.scatter_reduce(t.view(3, 18), 1, t.view(3, 18).long() + 4, 1 - t.view(3, 18), 'amax')
torch.index_reduce(t.view(3, 18), 1, t[:18].long(), t.flip(0).view(3, 18), 'amin', include_self=False)
torch.cummax(t, 0)[0]
torch.aminmax(t)[1]
torch.linalg.vector_norm(t, float("inf"))
"""


def whole_inputs(gen):
    def large(size):
        odd = torch.randint(0, 1 << 20, size, generator=gen) * 2 + 1
        sign = torch.randint(0, 2, size, generator=gen) * 2 - 1
        return (odd + (1 << 60)) * sign
    ret = dtypes.make_inputs(gen, torch.int64, torch.int64)
    a = large((2, 3))
    a[:, 1] = a[:, 0] + 1
    ret.update(a=a, b=a + torch.randint(-1, 2, (2, 3), generator=gen),
               z=a[0, 0] + 1)
    return ret


# Lines whose tensors have thousands of elements.
LARGE = re.compile(r"repeat\(1, 100, 40\)|n=100[09]\b|repeat\(700\)")


def asked(lines, wanted):
    return [(i, line) for i, line in enumerate(lines) if wanted(line)]


def generator(line):
    """The random numbers of a line do not depend on its position."""
    return torch.Generator().manual_seed(zlib.crc32(line.encode()))


def whole_cases(folder, wanted):
    for i, line in asked(dtypes.lines(WHOLE), wanted):
        gen = generator(line)
        inputs = whole_inputs(gen)
        out = eval(line, dict(inputs, torch=torch))
        program = dtypes.export([line], inputs, torch.int64)
        yield write(folder, f"whole.{i:03}", line, program, inputs, out, {},
                    0.0)


def mixed_cases(folder, wanted):
    for k, line in asked(dtypes.lines(MIXED), wanted):
        gen = generator(line)
        inputs = {
            "h": torch.randint(-7, 8, (3, 4), generator=gen) * 0.5,
            "i": torch.randint(0, 8, (3, 4), generator=gen),
        }
        out = eval(line, dict(inputs, torch=torch))
        program = dtypes.export([line], inputs, torch.float32)
        tol = dtypes.TOLERANCE.get(dtypes.SHORT[out.dtype], 0.0)
        yield write(folder, f"mixed.{k:03}", line, program, inputs, out, {},
                    tol)


def module_of(line, big):
    source = f"def forward(self, x, y):\n    return {line}\n"
    names = {"torch": torch, "big": big}
    exec(source, names)  # pylint: disable=exec-used
    return type("Edge", (torch.nn.Module,), {"forward": names["forward"]})()


def factor_lines():
    square = "(x[:, :, 0] @ x[:, :, 0].t() + torch.eye(3).to(x.dtype))"
    skew = "(x[:, :, 0] + y[1] @ y[2].t())"
    return [re.sub(r"\bq\b", skew, re.sub(r"\bm\b", square, line))
            for line in dtypes.lines(FACTORS)]


def fourier_lines():
    wave = "(x.flatten()[:, None] * torch.cos(torch.arange(89).to(x.dtype)))"
    return [re.sub(r"\bs\b(?!=)", wave, line)
            for line in dtypes.lines(FOURIER)]


def tied_lines():
    two = ("torch.cat([torch.where(v > 0.3, v / v.detach(), v - v.detach()) "
           "for v in (x.flatten(), y.flatten(), (x * y).flatten())])")
    return [re.sub(r"\bt\b", two, line) for line in dtypes.lines(TIES)]


def float_cases(folder, kind, lines, tols, wanted):
    for i, line in asked(lines, wanted):
        for dtype, big, tol in ((torch.float32, 1e20, tols[0]),
                                (torch.float64, 1e200, tols[1])):
            if tol is None:
                continue
            gen = generator(line)
            inputs = {n: torch.randn(3, 3, 2, generator=gen,
                                     dtype=torch.float64).to(dtype)
                      for n in ("x", "y")}
            module = module_of(line, big)
            short = dtypes.SHORT[dtype]
            yield float_case(folder, f"{kind}.{i:03}.{short}", line, module,
                             inputs, gen, tol)


def float_case(folder, name, line, module, inputs, gen, tol):
    """Computes the gradient of each input for a random cotangent."""
    leaves = {n: t.clone().requires_grad_() for n, t in inputs.items()}
    out = module(**leaves)
    cot = torch.randn(out.shape, generator=gen,
                      dtype=torch.float64).to(out.dtype)
    grads = torch.autograd.grad(
        out, leaves.values(), cot,
        allow_unused=True) if out.requires_grad else ()
    more = {"cot.0": cot} if out.requires_grad else {}
    more.update({f"grad.{n}": g for n, g in zip(leaves, grads)
                 if g is not None})
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    return write(folder, name, line, program, inputs, out.detach(), more, tol)


def write(folder, name, line, program, inputs, out, more, tol):
    """Writes the files of one case; returns its entry in cases.json."""
    torch.export.save(program, os.path.join(folder, name + ".pt2"))
    tensors = {"in." + n: t for n, t in inputs.items()}
    tensors.update({"out.0": out}, **more)
    save_file({n: t.contiguous().clone() for n, t in tensors.items()},
              os.path.join(folder, name + ".safetensors"))
    return {
        "case": name, "op": name.split(".")[0], "call": line,
        "kind": "close", "pt2": name + ".pt2",
        "safetensors": name + ".safetensors",
        "outputs": [{"dtype": dtypes.SHORT[out.dtype],
                     "shape": list(out.shape)}],
        "rtol": tol, "atol": tol, "grad_rtol": tol, "grad_atol": tol,
        "written": [],
    }


def main(large=False):
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--only", default="")
    args = p.parse_args()

    def wanted(line):
        return args.only in line and bool(LARGE.search(line)) == large

    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    cases = list(whole_cases(args.folder, wanted))
    cases += mixed_cases(args.folder, wanted)
    for kind, lines, tols in (
            ("floats", dtypes.lines(FLOATS), (5e-6, 1e-13)),
            ("quantised", dtypes.lines(QUANTISED), (5e-6, None)),
            ("factors", factor_lines(), (2e-4, 1e-11)),
            ("fourier", fourier_lines(), (3e-5, 1e-12)),
            ("ties", tied_lines(), (5e-6, 1e-13))):
        cases += float_cases(args.folder, kind, lines, tols, wanted)
    with open(os.path.join(args.folder, "cases.json"), "w",
              encoding="utf-8") as f:
        json.dump(cases, f, indent=0)


if __name__ == "__main__":
    main()
