#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes bytegpt.pt2: a byte-level GPT of about 0.8 million parameters.

    python3 export.py [FILE]            (needs PyTorch 2.9 or newer)

forward(x, y) -> (loss, logits): x holds bytes, y the same text shifted by one
byte, both int64 (4, 128): one microbatch. The loss is the mean cross-entropy
in nats per byte. The head is the token embedding itself, so the first and the
last stage of a pipeline share a parameter.
"""
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256
LENGTH = 128
WIDTH = 128
HEADS = 4
BLOCKS = 4
MICROBATCH = 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class ByteGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.register_buffer("positions", torch.arange(LENGTH),
                             persistent=False)
        self.start()

    def start(self):
        """Initialises the weights. wte is small because the head shares it;
        forward scales its rows up. Positions start as sinusoids, so that
        attention to neighbours is learnt in hundreds of steps."""
        nn.init.normal_(self.wte.weight, std=0.02)
        with torch.no_grad():
            place = torch.arange(LENGTH)[:, None]
            rate = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
            self.wpe.weight[:, 0::2] = 0.028 * torch.sin(place * rate)
            self.wpe.weight[:, 1::2] = 0.028 * torch.cos(place * rate)
        for name, layer in self.h.named_modules():
            if isinstance(layer, nn.Linear):
                # Layers that add to the residual stream start smaller, so that
                # its variance does not grow with the depth.
                adds = name.endswith(("proj", "down"))
                std = layer.in_features ** -0.5
                nn.init.normal_(layer.weight,
                                std=std * (2 * BLOCKS) ** -0.5 if adds else std)
                nn.init.zeros_(layer.bias)

    def forward(self, x, y):
        h = (self.wte(x) + self.wpe(self.positions)) * WIDTH ** 0.5
        for block in self.h:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte.weight)
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1))
        return loss, logits


def make_model():
    torch.manual_seed(0)
    return ByteGPT()


def without_folders(program):
    """Removes folder names from the file names that error messages print."""
    for node in program.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', trace)
    return program


def main():
    here = Path(__file__).resolve().parent
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else here / "bytegpt.pt2"
    model = make_model()
    # Two tensors: if the same one is given twice, torch.export merges x and y.
    x = torch.zeros(MICROBATCH, LENGTH, dtype=torch.int64)
    y = torch.zeros(MICROBATCH, LENGTH, dtype=torch.int64)
    program = torch.export.export(model, (x, y), strict=False)
    torch.export.save(without_folders(program), str(path))
    count = sum(p.numel() for p in model.parameters())
    print(f"{path}: {count} parameters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
