# SPDX-License-Identifier: Apache-2.0
"""A byte-level GPT that takes packed documents: positions, the mask of
attention and targets are inputs, so that the trainer decides what a document
is."""
import os

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH = 256, 128
if os.environ.get("SIZE") == "10m":
    WIDTH, HEADS, BLOCKS, LR = 384, 6, 6, 1e-3
else:
    WIDTH, HEADS, BLOCKS, LR = 96, 4, 3, 3e-3
MICROBATCH = 8  # rows


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.ln_1(x)).view(
            *x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(
                2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for name, layer in self.named_modules():
            if isinstance(layer, (nn.Linear, nn.Embedding)):
                # Layers that add to the residual stream start smaller.
                adds = name.endswith(("proj", "down"))
                nn.init.normal_(layer.weight,
                                std=.02 / (2 * BLOCKS) ** .5 if adds else .02)
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, tokens, position_ids, attention_mask, targets):
        """tokens, position_ids, targets: int64 (B, T); attention_mask: bool
        (B, 1, T, T). Returns the mean loss of targets that are not -100, and
        the logits (B, T, V)."""
        x = self.wte(tokens) + self.wpe(position_ids)
        for block in self.h:
            x = block(x, attention_mask)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


def make_model():
    torch.manual_seed(0)
    return GPT()
