#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on packed documents, and compares the weights with those that PyTorch
gets from the same documents one by one.

usage: packing.py PENSTOCK

A language model with positions and an attention mask as inputs is trained on
two sources with weights, of which one has two files. penstock gets windows of
LENGTH tokens; PyTorch cuts each window at its ends of documents, runs each piece
alone, with causal attention and positions from 0, and leaves out the target of
each last token. The largest relative difference of a tensor is printed; it must
be below LIMIT, which is about four times the one measured. A run of another cut,
which stops and resumes, must have the same bits.
"""
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

STEPS, ROWS, LENGTH, WORDS, WIDTH, HEADS, END = 12, 4, 32, 40, 16, 2, 39
WEIGHTS = {"a": .75, "b": .25}
LIMIT = 5e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, WIDTH)
        self.pos = nn.Embedding(LENGTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def logits(self, tokens, position_ids, mask):
        x = self.emb(tokens) + self.pos(position_ids)
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS
                                   ).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.head(self.norm(x + y.transpose(1, 2).reshape(x.shape)))

    def forward(self, tokens, position_ids, attention_mask, targets):
        return F.cross_entropy(
            self.logits(tokens, position_ids, attention_mask).flatten(0, 1),
            targets.flatten())

    def pieces(self, window):
        """Returns the sum of losses of a window's documents, one by one, and
        the number of their targets. window: LENGTH + 1 tokens."""
        total, targets, begin = 0., 0, 0
        ends = [i for i in range(LENGTH) if window[i] == END] + [LENGTH - 1]
        for end in ends:
            piece, begin = slice(begin, end + 1), end + 1
            tokens = window[:LENGTH][piece]
            n = len(tokens) - int(len(tokens) > 0 and tokens[-1] == END)
            if n > 0:
                mask = torch.ones(len(tokens), len(tokens),
                                  dtype=torch.bool).tril()
                scores = self.logits(tokens[None], torch.arange(len(tokens))[
                    None], mask[None, None])
                total = total + F.cross_entropy(
                    scores[0, :n], window[1:][piece][:n], reduction="sum")
                targets += n
        return total, targets


def documents(generator, n):
    parts = []
    while sum(map(len, parts)) < n:
        length = int(generator.integers(0, LENGTH + LENGTH // 2))
        parts.append(numpy.append(generator.integers(0, END, length), END))
    return numpy.concatenate(parts)[:n]


def order(n):
    """Sources of the first n samples: the one that is furthest below its
    share."""
    used = {k: 0 for k in WEIGHTS}
    for i in range(n):
        source = max(WEIGHTS, key=lambda k: (i + 1) * WEIGHTS[k] - used[k])
        yield source, used[source]
        used[source] += 1


def reference_state(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=.5)
    samples = list(order(STEPS * ROWS))
    for step in range(STEPS):
        optimizer.zero_grad()
        for m in range(2):
            at = step * ROWS + m * ROWS // 2
            losses = []
            for source, k in samples[at:at + ROWS // 2]:
                tokens = data[source]
                k %= (len(tokens) - 1) // LENGTH
                losses.append(model.pieces(
                    tokens[k * LENGTH:(k + 1) * LENGTH + 1]))
            # the mean of two microbatches
            (sum(x for x, _ in losses) / sum(n for _, n in losses) / 2
             ).backward()
        optimizer.step()
    return dict(model.named_parameters())


def main():
    penstock = os.path.abspath(sys.argv[1])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Model()
    start = {k: v.detach().clone() for k, v in model.state_dict().items()}
    generator = numpy.random.default_rng(1)
    data = {"a": documents(generator, 40 * LENGTH),
            "b": documents(generator, 9 * LENGTH + 5)}
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        def call(*words):
            subprocess.run([penstock, *words], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL)

        def train(name, *words):
            call("run", "model.plan", "-m", "2", "--microbatch-weights",
                 "equal", "--data", "a-*.bin:3,b.bin:1", "--pack", str(END),
                 "--token-dtype", "uint16", "--optimizer", "sgd", "--lr", ".5",
                 "--checkpoint", name, "--quiet", "--threads", "1",
                 "--transport", "self", *words)

        def weights(name):
            call("weights", name, "-o", name + ".out")
            return load_file(os.path.join(folder, name + ".out"))

        ids = [torch.zeros(ROWS // 2, LENGTH, dtype=torch.int64)
               for _ in range(3)]
        mask = torch.ones(ROWS // 2, 1, LENGTH, LENGTH, dtype=torch.bool)
        torch.export.save(torch.export.export(
            model, (*ids[:2], mask, ids[2]), strict=False),
            os.path.join(folder, "model.pt2"))
        call("split", "model.pt2", "--stages", "2", "-o", "model.plan")
        for name, tokens in {"a-1": data["a"][:777], "a-2": data["a"][777:],
                             "b": data["b"]}.items():
            tokens.astype("<u2").tofile(os.path.join(folder, name + ".bin"))
        train("one", "-n", "1", "--steps", str(STEPS))
        train("two", "-n", "2", "--steps", "5")
        train("two", "-n", "2", "--steps", str(STEPS), "--resume")
        got, cut = weights("one"), weights("two")
    right = reference_state(
        model, {k: torch.from_numpy(v) for k, v in data.items()})
    worst, name = max(
        (float((got[k] - v.detach()).abs().max() /
               (v.detach() - start[k]).abs().max()), k)
        for k, v in right.items())
    same = all(torch.equal(got[k], cut[k]) for k in got)
    ok = worst < LIMIT and same
    print(f"{'ok' if ok else 'FAILED'}  packed documents of two sources: "
          f"{worst:.1e} in {name}; two ranks and a resume "
          f"{'the same bits' if same else 'OTHER BITS'}")
    print(f"{int(ok)} passed, {int(not ok)} failed")
    return int(not ok)


if __name__ == "__main__":
    sys.exit(main())
