# SPDX-License-Identifier: Apache-2.0
"""Defines small language models whose head has so many classes that its logits
are computed by chunks (stages/passes/heads.h), in the forms that models have.

Entries of HEADS are functions that return (module, function that makes one
microbatch), like those of handwritten.HANDWRITTEN.
"""
import torch
from torch import nn
from torch.nn import functional as F

HEADS = {}
CLASSES = 1024
ROWS = (4, 75)  # two chunks


def head(function):
    HEADS[function.__name__] = function
    return function


class Body(nn.Module):
    """Embeds tokens and mixes each with the ones before it."""

    def __init__(self, tied, bias):
        super().__init__()
        self.table = nn.Embedding(CLASSES, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES, bias=bias)
        if tied:
            self.head.weight = self.table.weight

    def logits(self, x):
        h = self.table(x)
        return self.head(torch.tanh(self.mix(h.cumsum(1) / 10)))


def tokens(**names):
    """Returns a function that makes a microbatch; an input with the value True
    has ignored targets."""
    def make():
        ret = {}
        for name, ignores in names.items():
            ret[name] = torch.randint(0, CLASSES, ROWS)
            if ignores:
                ret[name][:, ::5] = -100
        return ret
    return make


@head
def head_tied():
    """Returns the usual form: a tied weight, logits among the outputs."""

    class Tied(Body):
        def forward(self, x, y):
            logits = self.logits(x)
            return F.cross_entropy(logits.view(-1, CLASSES), y.view(-1)), logits

    return Tied(True, False), tokens(x=False, y=True)


@head
def head_shifted():
    """Returns the form of transformers: the model shifts its targets; a bias,
    a soft cap, smoothing."""

    class Shifted(Body):
        def forward(self, x):
            logits = self.logits(x).float()
            logits = torch.tanh(logits / 30.0) * 30.0
            logits = logits[..., :-1, :].contiguous()
            y = x[..., 1:].contiguous()
            return F.cross_entropy(logits.view(-1, CLASSES), y.view(-1),
                                   label_smoothing=0.1)

    return Shifted(False, True), tokens(x=False)


@head
def head_summed():
    """Returns two heads of one body, whose losses are sums over targets and
    divided by a number; a temperature; log_softmax and nll_loss."""

    class Summed(Body):
        def __init__(self):
            super().__init__(True, False)
            self.other = nn.Linear(6, CLASSES)

        def forward(self, x, y, z):
            h = torch.tanh(self.mix(self.table(x)))
            one = F.cross_entropy(self.head(h).flatten(0, 1) / 2,
                                  y.flatten(), reduction="sum")
            two = F.nll_loss(F.log_softmax(self.other(h).flatten(0, 1), -1),
                             z.flatten(), ignore_index=7)
            return one / 300 + 0.3 * two

    return Summed(), tokens(x=False, y=True, z=False)


@head
def head_product():
    """Returns a head that is a product with the transposed table."""

    class Product(Body):
        def forward(self, x, y):
            h = torch.tanh(self.mix(self.table(x)))
            logits = h @ self.table.weight.T
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    return Product(True, False), tokens(x=False, y=True)


@head
def head_penalised():
    """Returns a head whose transposed weight a penalty reads, too."""

    class Penalised(Body):
        def forward(self, x, y):
            h = torch.tanh(self.mix(self.table(x)))
            weight = self.head.weight.T
            logits = (h @ weight).flatten(0, 1)
            return F.cross_entropy(logits, y.flatten()) + \
                0.01 * (weight * weight).sum()

    return Penalised(False, False), tokens(x=False, y=True)


@head
def head_z():
    """Returns a z-loss of all rows, after the loss, and a soft cap."""

    class Z(Body):
        def forward(self, x, y):
            logits = 20 * torch.tanh(self.logits(x) / 20)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            z = torch.logsumexp(logits, -1).pow(2).mean()
            return loss + 0.01 * z, z

    return Z(True, False), tokens(x=False, y=True)


@head
def head_z_masked():
    """Returns a z-loss of the rows that count, before the loss, with
    smoothing and a bias."""

    class Masked(Body):
        def forward(self, x, y):
            logits, y = self.logits(x).flatten(0, 1), y.flatten()
            mask = (y != -100).float()
            z = logits.logsumexp(1)
            z = (z * z * mask).sum() / mask.sum()
            loss = F.cross_entropy(logits, y, label_smoothing=0.1)
            return loss + 0.01 * z

    return Masked(False, True), tokens(x=False, y=True)


@head
def head_in_parts():
    """Returns two heads, of parts of the rows, with one transposed weight."""

    class Parts(Body):
        def forward(self, x, y):
            h = torch.tanh(self.mix(self.table(x))).flatten(0, 1)
            weight = self.head.weight.T
            parts = zip(h.chunk(2), y.flatten().chunk(2))
            return sum(F.cross_entropy(h @ weight, y) for h, y in parts)

    return Parts(False, False), tokens(x=False, y=True)
