#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Defines the models of the benchmarks.

units() of a model returns a list of modules; a pipeline may be cut between any
two of them. batch(n) returns the data of n microbatches."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm_1(x)).view(b, t, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        y = F.gelu(self.up(self.norm_2(x)), approximate="tanh")
        return x + self.down(y)


class Embedding(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.length = length
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)

    def forward(self, x):
        return self.wte(x) + self.wpe(torch.arange(self.length))


class Gpt:
    """A model of the shape of GPT-2; its head does not share the embedding's
    weight."""

    def __init__(self, samples, vocabulary, length, width, heads, layers):
        self.samples, self.vocabulary, self.length = samples, vocabulary, length
        self.width, self.heads, self.layers = width, heads, layers

    def units(self):
        head = nn.Sequential(
            nn.LayerNorm(self.width),
            nn.Linear(self.width, self.vocabulary, bias=False))
        return [Embedding(self.vocabulary, self.length, self.width),
                *(Block(self.width, self.heads) for _ in range(self.layers)),
                head]

    def batch(self, n):
        shape = n * self.samples, self.length
        return (torch.randint(self.vocabulary, shape),
                torch.randint(self.vocabulary, shape))

    @staticmethod
    def loss(y, target):
        return F.cross_entropy(y.flatten(0, 1), target.flatten())


class Mlp:
    def __init__(self, samples, width, layers):
        self.samples, self.width, self.layers = samples, width, layers

    def units(self):
        return [nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU())
                for _ in range(self.layers)]

    def batch(self, n):
        shape = n * self.samples, self.width
        return torch.randn(shape), torch.randn(shape)

    @staticmethod
    def loss(y, target):
        return F.mse_loss(y, target)


def turned(x):
    """Applies rotary position embeddings (RoPE, arXiv 2104.09864)."""
    t, d = x.shape[-2:]
    steps = torch.arange(0, d, 2) / d
    angles = torch.arange(t)[:, None] / 10000.0 ** steps
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class LlamaBlock(nn.Module):
    def __init__(self, width, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        y = self.norm_1(x)
        q, k, v = (layer(y).view(b, t, self.heads, -1).transpose(1, 2)
                   for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turned(q), turned(k), v,
                                           is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(Gpt):
    def __init__(self, samples, vocabulary, length, width, hidden, heads,
                 layers):
        super().__init__(samples, vocabulary, length, width, heads, layers)
        self.hidden = hidden

    def units(self):
        head = nn.Sequential(nn.RMSNorm(self.width),
                             nn.Linear(self.width, self.vocabulary, bias=False))
        return [nn.Embedding(self.vocabulary, self.width),
                *(LlamaBlock(self.width, self.hidden, self.heads)
                  for _ in range(self.layers)), head]


def conv(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """A bottleneck block of ResNet (arXiv 1512.03385); the 3x3 convolution has
    the stride."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.a = conv(inputs, width, 1)
        self.b = conv(width, width, 3, stride)
        self.c = conv(width, 4 * width, 1)
        self.skip = (nn.Identity() if inputs == 4 * width
                     else conv(inputs, 4 * width, 1, stride))

    def forward(self, x):
        y = F.relu(self.b(F.relu(self.a(x))))
        return F.relu(self.c(y) + self.skip(x))


class Resnet:
    def __init__(self, samples, size, depths, classes=1000):
        self.samples, self.size, self.depths = samples, size, depths
        self.classes = classes

    def units(self):
        ret = [nn.Sequential(conv(3, 64, 7, 2), nn.ReLU(),
                             nn.MaxPool2d(3, 2, 1))]
        inputs = 64
        for i, depth in enumerate(self.depths):
            for j in range(depth):
                ret.append(Bottleneck(inputs, 64 << i, 2 if i and not j else 1))
                inputs = 4 * (64 << i)
        return ret + [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                    nn.Linear(inputs, self.classes))]

    def batch(self, n):
        return (torch.randn(n * self.samples, 3, self.size, self.size),
                torch.randint(self.classes, (n * self.samples,)))

    @staticmethod
    def loss(y, target):
        return F.cross_entropy(y, target)


MODELS = {
    "gpt-25m": Gpt(2, 512, 128, 512, 8, 8),
    "gpt2-124m": Gpt(1, 50257, 128, 768, 12, 12),
    "gpt-3m": Gpt(4, 256, 64, 192, 6, 6),
    "llama-100m": Llama(1, 8192, 128, 768, 2048, 12, 12),
    "resnet50": Resnet(4, 96, (3, 4, 6, 3)),
    "mlp-tiny": Mlp(8, 64, 16),
}
