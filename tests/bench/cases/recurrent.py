# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers."""
import torch

from .case import case, with_gradient


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


def cases():
    return lstm(64, 32, 256)
