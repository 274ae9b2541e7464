# SPDX-License-Identifier: Apache-2.0
"""Defines small models with features that are difficult for pipelines.

Each entry of MODELS returns (module, function that makes one microbatch as
keyword arguments). The first output is the loss.
"""
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 96
LENGTH = 16


class Mlp(nn.Module):
    """A model of many equal layers, which can be cut anywhere."""

    def __init__(self):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(24, 24), nn.ReLU())
                  for _ in range(8)]
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(24, 5)

    def forward(self, x, target):
        y = self.out(self.layers(x))
        return F.cross_entropy(y, target), y


class Skips(nn.Module):
    """A model with values that several later stages use, an input that only
    the last layer uses, one weight in the first and the last layer, and three
    outputs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.third = nn.Linear(16, 16)
        self.last = nn.Linear(16, 16)
        self.last.weight = self.first.weight

    def forward(self, x, wanted):
        u = torch.tanh(self.first(x))
        v = F.gelu(self.second(u))
        w = self.third(u + v) * torch.sigmoid(u)
        y = self.last(w - v) + x
        return ((y - wanted) ** 2).mean(), y, v


class Transformer(nn.Module):
    """PyTorch's own encoder layers with a causal mask that the model itself
    makes."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0,
                                           batch_first=True)
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.encoder = nn.TransformerEncoder(layer, 2,
                                             enable_nested_tensor=False)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        z = self.head(self.encoder(self.embed(x), mask=mask, is_causal=True))
        return F.cross_entropy(z.flatten(0, 1), y.flatten()), z


class Statistics(nn.Module):
    """A model with convolution, running statistics, pooling, a bidirectional
    recurrent layer, and a buffer whose value during the forward pass of a
    microbatch is needed for the gradients of that microbatch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 12, 3, padding="same", groups=2)
        self.norm = nn.BatchNorm1d(12)
        self.pool = nn.MaxPool1d(3, 2, 1)
        self.gru = nn.GRU(12, 8, 2, batch_first=True, bidirectional=True)
        self.group = nn.GroupNorm(4, 16)
        self.head = nn.Linear(16, 5)
        self.register_buffer("seen", torch.ones(5))

    def forward(self, x, target):
        y = self.pool(F.relu(self.norm(self.conv(x))))
        y = self.gru(y.transpose(1, 2))[0].transpose(1, 2)
        y = self.head(F.adaptive_avg_pool1d(self.group(y), 1).flatten(1))
        y = y * self.seen
        self.seen = self.seen + 0.5
        return F.cross_entropy(y, target), y


class Gpt2(nn.Module):
    """GPT-2 of transformers, called with labels; its head shares the
    embedding's weight."""

    def __init__(self):
        from transformers import GPT2Config, GPT2LMHeadModel
        super().__init__()
        config = GPT2Config(n_layer=4, n_head=2, n_embd=32, n_positions=64,
                            vocab_size=VOCABULARY, resid_pdrop=0.0,
                            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
                            eos_token_id=2)
        self.gpt = GPT2LMHeadModel(config)

    def forward(self, input_ids, labels):
        out = self.gpt(input_ids=input_ids, labels=labels, use_cache=False)
        return out.loss, out.logits


def tokens():
    return torch.randint(3, VOCABULARY, (2, LENGTH))


def gpt2_batch():
    ids = tokens()
    return {"input_ids": ids, "labels": ids.clone()}


# Small models by name; architectures.py has more.
MODELS = {
    "mlp": (Mlp, lambda: {"x": torch.randn(4, 24),
                          "target": torch.randint(0, 5, (4,))}),
    "skips": (Skips, lambda: {"x": torch.randn(4, 16),
                              "wanted": torch.randn(4, 16)}),
    "statistics": (Statistics,
                   lambda: {"x": torch.randn(4, 6, 20),
                            "target": torch.randint(0, 5, (4,))}),
    "transformer": (Transformer, lambda: {"x": tokens(), "y": tokens()}),
    "gpt2": (Gpt2, gpt2_batch),
}
