#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single kernels beside PyTorch's, one thread each, in alternation.

    kernels.py BENCH-KERNELS [--only TEXT] [--rounds N] [--strict]

Every round runs each side for a tenth of a second; the table has the medians
of all runs, in milliseconds, and PyTorch's time over ours with the wanted
ratio. Needs a core that nobody else uses: under load the figures mean nothing.
--strict: exit code 1 if a ratio is missed.
"""
import argparse
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

SLICE = 0.1  # seconds of one side in one round


def case(name, want, nodes, make, flags="-"):
    return {"name": name, "want": want, "nodes": nodes, "make": make,
            "flags": flags}


def with_gradient(forward, *inputs):
    """Forward and backward of one function."""
    leaves = [x.requires_grad_() for x in inputs]
    g = torch.randn_like(forward(*leaves))

    def run():
        y = forward(*leaves)
        torch.autograd.grad(y, leaves, g)
    return run


# --- products ----------------------------------------------------------------

def linear(m, k, n):
    tag = f"{m}x{k}x{n}"
    x, w, b, g = f"F[{m}, {k}]", f"F[{n}, {k}]", f"F[{n}]", f"F[{m}, {n}]"
    tx, tw = torch.randn(m, k), torch.randn(n, k)
    tb, tg = torch.randn(n), torch.randn(m, n)
    return [
        case(f"linear forward {tag}", 1.0,
             [f"input %x: {x}; input %w: {w}; input %b: {b}; "
              "%r = aten.linear.default(%x, %w, %b)"],
             lambda: lambda: F.linear(tx, tw, tb)),
        case(f"linear dX {tag}", 1.0,
             [f"input %g: {g}; input %w: {w}; "
              "%r = aten.mm.default(%g, %w)"],
             lambda: lambda: tg @ tw),
        case(f"linear dW {tag}", 1.0,
             [f"input %g: F[{n}, {m}]:(1, {n}); input %x: {x}; "
              "%r = aten.mm.default(%g, %x)"],
             lambda: lambda: tg.t() @ tx),
    ]


def linear_bf16(m, k, n):
    x, w = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    return [case(f"linear bf16 {m}x{k}x{n}", 1.0,
                 [f"input %x: F[{m}, {k}]; input %w: F[{n}, {k}]; "
                  "%r = aten.linear.default(%x, %w)"],
                 lambda: lambda: F.linear(x, w), "bf16")]


# --- the rest ----------------------------------------------------------------

def attention(t, heads=12, width=64):
    shape = f"F[1, {heads}, {t}, {width}]"
    names = "input %q: {0}; input %k: {0}; input %v: {0}; ".format(shape)
    forward = (names + "%r = aten.scaled_dot_product_attention.default("
               "%q, %k, %v, None, 0.0, True)")
    backward = (f"input %g: {shape}; " + names + "%r, %s, %t = "
                "penstock.sdpa_backward.default(%g, %q, %k, %v, None, 0.0, "
                "True, None, False)")

    def make():
        return with_gradient(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v,
                                                           is_causal=True),
            *(torch.randn(1, heads, t, width) for _ in range(3)))
    return [case(f"attention forward + backward T={t}", 1.2,
                 [forward, backward], make)]


def rows(m, n):
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
              f"input %g: {x}; input %x: {x}; %r = "
              "penstock.layer_norm_backward_weight.default(%g, %x, "
              f"[{n}], 1e-05)",
              f"input %g: {x}; %r = aten.sum.dim_IntList(%g, [0])"], norm),
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


def adamw(n):
    def make():
        p = torch.nn.Parameter(torch.randn(n))
        p.grad = torch.randn(n)
        optimizer = torch.optim.AdamW([p], fused=True)
        return optimizer.step
    return [case(f"AdamW {n}", 1.5, [f"adamw {n}"], make)]


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


def lstm(t, b, h):
    def make():
        layer = torch.nn.LSTM(h, h)
        x = torch.randn(t, b, h)
        return with_gradient(lambda a: layer(a)[0], x)
    gates, state = f"F[{t}, {b}, {4 * h}]", f"F[{b}, {h}]"
    return [case(f"lstm forward + dX T={t} B={b} H={h}", 0.0, [
        f"input %x: F[{t * b}, {h}]; input %w: F[{4 * h}, {h}]; "
        f"input %b: F[{4 * h}]; %r = aten.linear.default(%x, %w, %b)",
        f"input %ux: {gates}; input %h: {state}; input %k: {state}; "
        f"input %uw: F[{4 * h}, {h}]; %r, %s, %t, %u = "
        "penstock.rnn_layer.default(%ux, %h, %k, %uw, None, None, \"lstm\", "
        "False)",
        f"input %uy: F[{t}, {b}, {h}]; input %g: F[{t}, {b}, {h}]; "
        f"input %h: {state}; input %k: {state}; input %uw: F[{4 * h}, {h}]; "
        f"input %us: F[{t}, {b}, {5 * h}]; %r, %s, %t, %u, %v = "
        "penstock.rnn_layer_backward.default(%uy, %g, None, None, %h, %k, "
        "%uw, None, %us, \"lstm\", False)",
        f"input %g: F[{t * b}, {4 * h}]; input %w: F[{4 * h}, {h}]; "
        "%r = aten.mm.default(%g, %w)"], make)]


def all_cases():
    ret = linear(512, 768, 2304) + linear(512, 768, 3072)
    ret += linear(512, 3072, 768) + linear_bf16(512, 768, 3072)
    for t in (128, 512, 1024):
        ret += attention(t)
    ret += rows(512, 768) + cross_entropy(256) + adamw(4000000)
    for ci, size, co, k, stride in (
            (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1),
            (128, 28, 128, 3, 1), (256, 56, 512, 1, 2), (256, 14, 256, 3, 1),
            (512, 7, 512, 3, 1)):
        ret += conv(4, ci, size, co, k, stride)
    return ret + batch_norm(4, 64, 56) + lstm(64, 32, 256)


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, c, runs):
        """Milliseconds of each run, of all nodes together."""
        total = [0.0] * runs
        for node in c["nodes"]:
            self.process.stdin.write(f"{runs} {c['flags']} {node}\n")
            self.process.stdin.flush()
            times = self.process.stdout.readline().split()[1:]
            if len(times) != runs:
                raise RuntimeError(f"{c['name']}: no answer to: {node}")
            total = [a + int(b) / 1e6 for a, b in zip(total, times)]
        return total


def theirs(run, runs):
    ret = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        ret.append((time.perf_counter() - start) * 1e3)
    return ret


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--strict", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours, missed = Ours(a.program), 0
    print(f"{'kernel':<52} {'ours':>9} {'PyTorch':>9} {'ratio':>6} {'want':>5}")
    for c in all_cases():
        if a.only not in c["name"]:
            continue
        run = c["make"]()
        runs = int(SLICE * 1e3 / max(theirs(run, 3))) + 2
        mine, other = [], []
        for _ in range(a.rounds):
            mine += ours.run(c, runs + 1)[1:]
            other += theirs(run, runs)
        x, y = statistics.median(mine), statistics.median(other)
        bad = y / x < c["want"]
        missed += bad
        want = f"{c['want']:.1f}" if c["want"] else ""
        print(f"{c['name']:<52} {x:9.3f} {y:9.3f} {y / x:6.2f} {want:>5}"
              f"{'  missed' if bad else ''}", flush=True)
    print(f"{missed} ratios missed")
    return 1 if a.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
