# SPDX-License-Identifier: Apache-2.0
"""Defines cases of elementwise operators, norms, softmax, losses and
optimizers."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


def norms(m, n):
    x = f"F[{m}, {n}]"

    def norm():
        return with_gradient(lambda a, w, b: F.layer_norm(a, (n,), w, b),
                             torch.randn(m, n), torch.ones(n), torch.zeros(n))
    return [
        case(f"layer_norm forward + backward {m}x{n}", 1.5,
             [f"input %x: {x}; input %w: F[{n}]; input %b: F[{n}]; "
              f"%r = aten.layer_norm.default(%x, [{n}], %w, %b)",
              f"input %g: {x}; input %x: {x}; input %w: F[{n}]; %r = "
              "penstock.layer_norm_backward_input.default(%g, %x, "
              f"[{n}], %w, 1e-05)",
              f"input %g: {x}; input %x: {x}; %r, %s = "
              "penstock.layer_norm_backward_affine.default(%g, %x, "
              f"[{n}], 1e-05)"], norm),
        case(f"gelu forward + backward {m}x{4 * n}", 1.5,
             [f"input %x: F[{m}, {4 * n}]; "
              "%r = aten.gelu.default(%x, approximate=\"tanh\")",
              f"input %g: F[{m}, {4 * n}]; input %x: F[{m}, {4 * n}]; %r = "
              "aten.gelu_backward.default(%g, %x, approximate=\"tanh\")"],
             lambda: with_gradient(lambda a: F.gelu(a, approximate="tanh"),
                                   torch.randn(m, 4 * n))),
        case(f"softmax forward + backward {m}x{m}", 1.5,
             [f"input %x: F[{m}, {m}]; %r = aten._softmax.default(%x, -1, "
              "False)",
              f"input %g: F[{m}, {m}]; input %y: F[{m}, {m}]; %r = "
              "penstock.softmax_backward.default(%g, %y, -1)"],
             lambda: with_gradient(lambda a: F.softmax(a, -1),
                                   torch.randn(m, m))),
    ]


def cross_entropy(m, v=50257):
    target = torch.randint(0, v, (m,))
    ours = f"input %x: F[{m}, {v}]; input %i{v}: i64[{m}]; "
    return [case(f"cross_entropy forward + backward {m}x{v}", 1.5,
                 [ours + f"%r = aten.cross_entropy_loss.default(%x, %i{v})",
                  "input %g: F[]; " + ours +
                  f"%r = penstock.cross_entropy_backward.default(%g, %x, "
                  f"%i{v}, None, 1, -100, 0.0)"],
                 lambda: with_gradient(lambda a: F.cross_entropy(a, target),
                                       torch.randn(m, v)))]


def head(m, k, v=50257):
    """Returns the case of a linear layer with its loss, by chunks."""
    target = torch.randint(0, v, (m,))
    return [case(f"linear + cross_entropy forward + backward {m}x{k}x{v}", 1.0,
                 [f"input %g: F[]; input %x: F[{m}, {k}]; "
                  f"input %w: F[{v}, {k}]; input %i{v}: i64[{m}]; "
                  "%r, %s, %t, %u, %y = "
                  "penstock.linear_cross_entropy_backward.default(%g, None, "
                  f"%x, %w, None, %i{v}, None, 1.0, 0.0, 1, -100, 0.0, 0)"],
                 lambda: with_gradient(
                     lambda a, b: F.cross_entropy(F.linear(a, b), target),
                     torch.randn(m, k), torch.randn(v, k)))]


def adamw(n):
    def make():
        p = torch.nn.Parameter(torch.randn(n))
        p.grad = torch.randn(n)
        optimizer = torch.optim.AdamW([p], fused=True)
        return optimizer.step
    return [case(f"AdamW {n}", 1.5, [f"adamw {n}"], make)]


def fourier(lines, n):
    x = f"F[{lines}, {n}]"
    tx = torch.randn(lines, n, dtype=torch.complex64)
    return case(f"fft {lines}x{n}", 0.0,
                [f"input %x: {x}; input %y: {x}; "
                 f"%t = penstock.fft_table.default({n}); "
                 "%r, %i = penstock.fft.default(%x, %y, %t, 1, False)"],
                lambda: lambda: torch.fft.fft(tx))


def cases():
    transforms = [fourier(8, n) for n in (1000, 1009, 4096, 65536)]
    return (norms(512, 768) + cross_entropy(256) + head(1024, 256) +
            adamw(4000000) + transforms)
