#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares gradients of inputs through the library with PyTorch's autograd.

    input_grads.py PENSTOCK

Models with convolutions, attention, a head of a language model on an input,
batch norms, a recurrence in f64, gathers and bf16 are exported here, and trained on one to
three stages with two microbatches: gradients are PyTorch's, and have the same
bits for every cut.
"""
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
# The one file that the build makes of lib/python/.
sys.path.insert(0, str(Path(sys.argv[1]).resolve().parents[1] / "lib" /
                       "python"))
sys.dont_write_bytecode = True
import penstock  # noqa: E402

ROWS, MICROBATCHES = 4, 2


class Images(nn.Module):
    """Convolutions beside a path that skips them, and batch norms."""
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.two = nn.Conv2d(8, 3, 3, padding=1)
        self.last = nn.Conv2d(6, 2, 3)

    def forward(self, x, target):
        h = F.max_pool2d(F.gelu(self.norm(self.one(x))), 2)
        h = F.interpolate(self.two(h), scale_factor=2.)
        return F.mse_loss(self.last(torch.cat([h + x, x * x], 1)), target)

    @staticmethod
    def inputs(n):
        return torch.randn(n, 3, 8, 8), torch.randn(n, 2, 6, 6)


class Attention(nn.Module):
    """A causal block on embeddings that the caller makes."""
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x, scale):
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in
                   self.qkv(self.norm(x)).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).flatten(2)) * scale
        return (x.softmax(-1) * x).square().sum(-1).mean()

    @staticmethod
    def inputs(n):
        return torch.randn(n, 5, 16), torch.rand(n, 1, 16)


class Head(nn.Module):
    """The head of a language model reads an input."""
    most = 2  # stages: no cut divides it

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 40, bias=False)

    def forward(self, x, token):
        return F.cross_entropy(self.head(x).flatten(0, 1), token.flatten())

    @staticmethod
    def inputs(n):
        return torch.randn(n, 6, 12), torch.randint(40, (n, 6))


class Deep(Head):
    """The same after layers that read the input, too."""
    most = 4

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))

    def forward(self, x, token):
        h = x
        for layer in self.layers:
            h = h + torch.tanh(layer(h)) * x
        return super().forward(h + x, token)


class Series(nn.Module):
    """A recurrence in f64."""
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, batch_first=True)
        self.head = nn.Linear(7, 5)
        self.double()

    def forward(self, x, mask):
        guess = self.head(self.lstm(x)[0])
        return ((guess[:, :-1] - x[:, 1:]) ** 2 * mask[:, 1:]).mean()

    @staticmethod
    def inputs(n):
        return (torch.randn(n, 6, 5, dtype=torch.float64),
                torch.rand(n, 6, 1, dtype=torch.float64))


class Gathers(nn.Module):
    """Indices, sorting, writes in place, and rows that nothing reads."""
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, index, y):
        h = self.fc(x[:, 1:].gather(1, index))
        h = h.sort(1).values * y.unsqueeze(1)
        z = y.clone()
        z[:, 2:4] = h[:, 0, 2:4]
        z[:, 0].mul_(3)
        return F.smooth_l1_loss(z, x.amax(1)) + y.abs().logsumexp(1).mean()

    @staticmethod
    def inputs(n):
        return (torch.randn(n, 5, 6), torch.randint(4, (n, 3, 6)),
                torch.randn(n, 6))


class Halves(nn.Module):
    """A bf16 input that several layers read."""
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.bfloat16()

    def forward(self, x, target):
        h = F.silu(self.one(x)) + x
        h = self.two(h) * x
        return F.mse_loss(h.float(), target)

    @staticmethod
    def inputs(n):
        return torch.randn(n, 8).bfloat16(), torch.randn(n, 8)


MODELS = Images, Attention, Head, Deep, Series, Gathers, Halves


def by_pytorch(model, inputs):
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    total = 0
    for k in range(MICROBATCHES):
        total = total + model(*(t.chunk(MICROBATCHES)[k] for t in given)
                              ) / MICROBATCHES
    total.backward()
    return total.item(), [torch.zeros_like(t) if t.grad is None else t.grad
                          for t in given]


def by_penstock(path, stages, inputs, **options):
    with penstock.Model(path, policy="flops", stages=stages) as m:
        session = m.session(microbatches=MICROBATCHES, optimizer="none",
                            threads=1, input_gradients="*", **options)
        loss = session.train_step(*inputs).loss
        return loss, [session.input_gradient(i, out=torch.empty_like(t))
                      if t.is_floating_point() else torch.zeros_like(t)
                      for i, t in enumerate(inputs)]


def compare(make, path):
    torch.manual_seed(0)
    model = make().train()
    penstock.export(model, make.inputs(ROWS), path)
    inputs = make.inputs(ROWS * MICROBATCHES)
    loss, wanted = by_pytorch(model, inputs)
    first = None
    for stages, options in ((1, {}), (2, {}), (3, {"ranks": 1}),
                            (2, {"schedule": "zb-h1", "recompute": "full"})):
        if stages > getattr(make, "most", 4):
            continue
        got, grads = by_penstock(path, stages, inputs, **options)
        if first is None:
            first = grads
            assert abs(got - loss) < 2e-3 * abs(loss), (got, loss)
            for a, b in zip(grads, wanted):
                near = 3e-2 if b.dtype == torch.bfloat16 else 1e-4
                torch.testing.assert_close(a, b, rtol=near,
                                           atol=near * b.abs().max().item())
                assert not b.is_floating_point() or b.abs().max() > 0
        assert all(torch.equal(a, b) for a, b in zip(grads, first)), \
            (stages, options)


def main():
    library = Path(sys.argv[1]).resolve().parents[1] / "lib"
    penstock.load(str(library / "libpenstock.so.0"))
    torch.set_num_threads(1)
    failed = 0
    for make in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                compare(make, os.path.join(folder, "model.pt2"))
            except Exception as e:  # pylint: disable=broad-except
                print(f"{make.__name__}: {type(e).__name__}: {e}",
                      file=sys.stderr)
                failed += 1
    print(f"{len(MODELS) - failed} passed, {failed} failed")


main()
