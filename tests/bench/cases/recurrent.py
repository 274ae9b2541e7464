# SPDX-License-Identifier: Apache-2.0
"""Defines cases of recurrent layers: forward with all gradients, or with only
the gradient of the input."""
import torch

from .case import case, with_gradient

# The layer; its number of gates; the size of the values that it saves, as a
# multiple of the state's size.
KINDS = {"lstm": (torch.nn.LSTM, 4, 5), "gru": (torch.nn.GRU, 3, 4),
         "tanh": (torch.nn.RNN, 1, 0)}


def layer(kind, t, b, h, weights):
    module, n, saved = KINDS[kind]

    def make():
        net = module(h, h)
        run = with_gradient(lambda a, *w: net(a)[0], torch.randn(t, b, h),
                            *(net.parameters() if weights else ()))
        return run
    gates, state = f"F[{t}, {b}, {n * h}]", f"F[{b}, {h}]"
    cell = f"input %k: {state}; " if kind == "lstm" else ""
    k = "%k" if cell else "None"
    tail = f"\"{kind}\", False)"
    nodes = [
        f"input %x: F[{t * b}, {h}]; input %w: F[{n * h}, {h}]; "
        f"input %b: F[{n * h}]; %r = aten.linear.default(%x, %w, %b)",
        f"input %ux: {gates}; input %h: {state}; {cell}"
        f"input %uw: F[{n * h}, {h}]; input %b: F[{n * h}]; %r, %s, %t, %u = "
        f"penstock.rnn_layer.default(%ux, %h, {k}, %uw, %b, None, {tail}",
        f"input %uy: F[{t}, {b}, {h}]; input %g: F[{t}, {b}, {h}]; "
        f"input %h: {state}; {cell}input %uw: F[{n * h}, {h}]; "
        f"input %us: F[{t}, {b}, {saved * h}]; %r, %s, %t, %u, %v = "
        f"penstock.rnn_layer_backward.default(%uy, %g, None, None, %h, {k}, "
        f"%uw, None, %us, {tail}",
        f"input %g: F[{t * b}, {n * h}]; input %w: F[{n * h}, {h}]; "
        "%r = aten.mm.default(%g, %w)"]
    if weights:
        product = (f"input %g: F[{n * h}, {t * b}]:(1, {n * h}); "
                   f"input %x: F[{t * b}, {h}]; %r = aten.mm.default(%g, %x)")
        bias = (f"input %g: F[{t * b}, {n * h}]; "
                "%r = aten.sum.dim_IntList(%g, [0])")
        nodes += 2 * [product] + 2 * [bias]
    what = "all gradients" if weights else "dX"
    return [case(f"{kind} forward + {what} T={t} B={b} H={h}", 0.0, nodes,
                 make)]


def cases():
    ret = layer("lstm", 64, 32, 256, False)
    for kind in KINDS:
        ret += layer(kind, 64, 32, 256, True)
    return ret + layer("gru", 100, 4, 512, True)
