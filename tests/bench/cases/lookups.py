# SPDX-License-Identifier: Apache-2.0
"""Embedding, gather, scatter, order, copies."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient


def embedding(m, v, n):
    indices = torch.randint(0, v, (m,))
    return [case(f"embedding forward + backward {m} of {v}x{n}", 0.0,
                 [f"input %w: F[{v}, {n}]; input %i{v}: i64[{m}]; "
                  f"%r = aten.embedding.default(%w, %i{v})",
                  f"input %g: F[{m}, {n}]; input %i{v}: i64[{m}]; "
                  f"%r = aten.embedding_dense_backward.default(%g, %i{v}, "
                  f"{v}, -1, False)"],
                 lambda: with_gradient(lambda w: F.embedding(indices, w),
                                       torch.randn(v, n)))]


def cases():
    return embedding(512, 50257, 768)
