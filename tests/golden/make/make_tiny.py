# SPDX-License-Identifier: Apache-2.0
"""Writes tiny.pt2 and tiny.safetensors (inputs, results) into tests/golden.

A small model with all features that the reader of .pt2 files must support:
tied weights, an unused parameter, a buffer that is written, a non-persistent
buffer, a lifted constant, a no_grad region, a split marker, nested and literal
inputs and outputs, in-place operators on views. Needs torch >= 2.9 and
safetensors; rerun only to change the model.
"""
import os
import re

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.distributed.pipelining import pipe_split

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(16, 8)
        self.fc = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.emb.weight
        self.spare = nn.Linear(2, 2)
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("shift", torch.full((8,), 0.25), persistent=False)

    def forward(self, tokens, extra, *, labels):
        self.steps.add_(1)
        x = self.emb(tokens) + self.shift
        with torch.no_grad():
            s = (x * x).mean()
        pipe_split()
        h = self.fc(x).relu() * extra["scale"] * 0.5 / (s + 1)
        h[:, 0].mul_(2)
        h = self.fc(h)
        logits = self.head(h) + extra["pair"][0] * extra["pair"][1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "rest": (logits, None, self.steps * 1)}


def clean(module):
    """Removes folder names of this machine from stack traces."""
    for m in module.modules():
        for n in m.graph.nodes if hasattr(m, "graph") else ():
            n.meta.pop("from_node", None)
            if n.meta.get("stack_trace"):
                t = re.sub(r'"[^"]*/site-packages/', '"', n.meta["stack_trace"])
                n.meta["stack_trace"] = re.sub(r'"[^"]*/(?=make_)', '"', t)


def main():
    torch.manual_seed(1)
    model = Tiny()
    tokens, labels = torch.randint(0, 16, (2, 2, 3))
    extra = {"scale": torch.rand(8), "pair": (torch.rand(16), 3)}
    ep = torch.export.export(model, (tokens, extra), {"labels": labels})
    clean(ep.graph_module)
    torch.export.save(ep, os.path.join(HERE, "tiny.pt2"))
    out = model(tokens, extra, labels=labels)
    out["loss"].backward()
    save_file(
        {"in.tokens": tokens, "in.labels": labels,
         "in.extra.scale": extra["scale"], "in.extra.pair.0": extra["pair"][0],
         "out.loss": out["loss"].detach(),
         "out.rest.0": out["rest"][0].detach(), "out.rest.2": out["rest"][2],
         "buffer.steps": model.steps,
         **{f"grad.{n}": p.grad for n, p in model.named_parameters()
            if p.grad is not None}},
        os.path.join(HERE, "tiny.safetensors"))


if __name__ == "__main__":
    main()
