#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/complex.pt2: make_complex.py FILE, and complex128.pt2:
make_complex.py FILE complex128.

A model of complex numbers for tests/lib/complexes.c and complexes.f90, which
know what it computes: the loss is the mean of |z w - t|^2 / 2, the outputs are z w, its
conjugate and a view of t; z and t are inputs, w is a parameter.
"""
import sys

import torch


class Complex(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1 + 2j, -3j, 0.5 - 1j],
                                                 dtype=dtype))

    def forward(self, z, t):
        found = z * self.w
        far = torch.view_as_real(found - t)
        return ((far * far).mean(), found, found.conj().resolve_conj(),
                t.unsqueeze(1))


def main():
    torch.manual_seed(1)
    dtype = getattr(torch, (sys.argv[2:] or ["complex64"])[0])
    z, t = (torch.randn(2, 3, dtype=dtype) for _ in range(2))
    model = Complex(dtype)
    program = torch.export.export(model, (z, t))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
        node.meta.pop("from_node", None)
    torch.export.save(program, sys.argv[1])
    z.requires_grad_()
    loss, *_ = model(z, t)
    loss.backward()
    print(loss.item(), z.grad, model.w.grad)


main()
