# SPDX-License-Identifier: Apache-2.0
"""Defines a case (one line of the table) for each reduction, scan, loss and
random number operator."""
import torch
import torch.nn.functional as F

from .elementwise import line

INPUTS = {
    "t": ("F[512, 1]", lambda: torch.randn(512, 1)),
    "z": ("F[256, 1000]", lambda: torch.randn(256, 1000)),
    "i1000": ("i64[256]", lambda: torch.randint(0, 1000, (256,))),
    "u": ("F[256, 768]", lambda: torch.rand(256, 768) * .98 + .01),
    "ut": ("F[256, 768]", lambda: torch.rand(256, 768)),
    "s": ("F[]", lambda: torch.ones(())),
}

# Pairs of a node and PyTorch's equivalent, as in elementwise.py.
LINES = [
    ("sum.default(%x)", lambda x: x.sum()),
    ("sum.dim_IntList(%x, [1])", lambda x: x.sum(1)),
    ("sum.dim_IntList(%x, [0])", lambda x: x.sum(0)),
    ("sum.dim_IntList(%image, [2, 3])", lambda image: image.sum((2, 3))),
    ("sum.dim_IntList(%image, [0, 2, 3])",
     lambda image: image.sum((0, 2, 3))),
    ("sum.dim_IntList(%image, [1])", lambda image: image.sum(1)),
    ("sum.dim_IntList(%image, [0, 2])", lambda image: image.sum((0, 2))),
    ("sum.dim_IntList(%tr, [1])", lambda tr: tr.sum(1)),
    ("mean.dim(%x, [1])", lambda x: x.mean(1)),
    ("mean.dim(%image, [2, 3])", lambda image: image.mean((2, 3))),
    ("var.correction(%x, [1])", lambda x: x.var(1)),
    ("var.correction(%x, [0])", lambda x: x.var(0)),
    ("var.correction(%image, [0, 2, 3])", lambda image: image.var((0, 2, 3))),
    ("amax.default(%x, [1])", lambda x: x.amax(1)),
    ("amax.default(%x, [0])", lambda x: x.amax(0)),
    ("amin.default(%image, [1])", lambda image: image.amin(1)),
    ("max.default(%x)", lambda x: x.max()),
    ("argmax.default(%x, 1)", lambda x: x.argmax(1)),
    ("argmax.default(%x, 0)", lambda x: x.argmax(0)),
    ("prod.dim_int(%p, 1)", lambda p: p.prod(1)),
    ("any.dim(%m, 1)", lambda m: m.any(1)),
    ("all.default(%m)", lambda m: m.all()),
    ("sum.dim_IntList(%m, [1])", lambda m: m.sum(1)),
    ("sum.dim_IntList(%i, [1])", lambda i: i.sum(1)),
    ("logsumexp.default(%x, [1])", lambda x: x.logsumexp(1)),
    ("linalg_vector_norm.default(%x, 2.0, [1])",
     lambda x: torch.linalg.vector_norm(x, 2, 1)),
    ("linalg_vector_norm.default(%x, 1.0, [0])",
     lambda x: torch.linalg.vector_norm(x, 1, 0)),
    ("cumsum.default(%x, 1)", lambda x: x.cumsum(1)),
    ("cumsum.default(%x, 0)", lambda x: x.cumsum(0)),
    ("cumsum.default(%i, 1)", lambda i: i.cumsum(1)),
    ("_softmax.default(%x, 0, False)", lambda x: x.softmax(0)),
    ("_log_softmax.default(%x, 1, False)", lambda x: x.log_softmax(1)),
    ("mse_loss.default(%x, %y)", F.mse_loss),
    ("smooth_l1_loss.default(%x, %y)", F.smooth_l1_loss),
    ("huber_loss.default(%x, %y)", F.huber_loss),
    ("binary_cross_entropy.default(%u, %ut)", F.binary_cross_entropy),
    ("binary_cross_entropy_with_logits.default(%x, %ut)",
     F.binary_cross_entropy_with_logits),
    ("nll_loss_nd.default(%z, %i1000)", F.nll_loss),
    ("cross_entropy_loss.default(%z, %i1000)", F.cross_entropy),
    ("dropout.default(%x, 0.1, True)", lambda x: F.dropout(x, 0.1, True)),
    ("bernoulli.p(%x, 0.5)", lambda x: torch.bernoulli(x, 0.5)),
    ("rand_like.default(%x)", torch.rand_like),
    ("randn_like.default(%x)", torch.randn_like),
]


def cases():
    return [line(text, run, INPUTS) for text, run in LINES]
