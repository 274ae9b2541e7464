# SPDX-License-Identifier: Apache-2.0
"""Defines the models whose steps scripts/gpu.sh measures, in full and tiny
size: their export, their data, and the same steps in PyTorch."""
import collections
import math
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

import safetensors.torch

# make: function that returns the module; vocab: number of tokens; rows,
# length: of a microbatch; m: number of microbatches of a step.
Net = collections.namedtuple("Net", "make vocab rows length m")
LR = 1e-4


def gelu(x):
    return F.gelu(x, approximate="tanh")


def gelu_new(x):
    """The same function in eight operators, as Hugging Face's GPT-2 has it."""
    return 0.5 * x * (1.0 + torch.tanh(
        math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self, width, heads, act):
        super().__init__()
        self.heads, self.act = heads, act
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(
            rows, length, 3, self.heads, width // self.heads).permute(
                2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(self.act(self.up(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, vocab, length, width, heads, layers, tied=False,
                 act=gelu):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, act)
                               for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            nn.init.normal_(self.wte.weight, std=0.02)
            self.head.weight = self.wte.weight
        self.register_buffer("places", torch.arange(length))

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(self.places)
        for block in self.h:
            h = block(h)
        return F.cross_entropy(self.head(self.ln_f(h)).flatten(0, 1),
                               y.flatten())


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, width = x.shape
        n = self.norm_1(x)
        q, k, v = (layer(n).view(rows, length, self.heads, -1).transpose(1, 2)
                   for layer in (self.q, self.k, self.v))

        def turned(z):
            half = z.shape[-1] // 2
            return z * cos + torch.cat((-z[..., half:], z[..., :half]),
                                       -1) * sin
        y = F.scaled_dot_product_attention(turned(q), turned(k), v,
                                           is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(rows, length, width))
        n = self.norm_2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, vocab, length, width, heads, hidden, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.h = nn.ModuleList(LlamaBlock(width, heads, hidden)
                               for _ in range(layers))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        size = width // heads
        rate = 1e4 ** (-torch.arange(0, size, 2).float() / size)
        angle = torch.outer(torch.arange(length).float(), rate)
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, y):
        h = self.embed(x)
        for block in self.h:
            h = block(h, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1),
                               y.flatten())


FULL = {
    "gpt-25m": Net(lambda: Gpt(512, 128, 512, 8, 8), 512, 2, 128, 8),
    "gpt2-124m": Net(lambda: Gpt(50304, 1024, 768, 12, 12), 50304, 4, 1024, 8),
    "llama-374m": Net(lambda: Llama(32000, 1024, 1024, 16, 2816, 24), 32000, 4,
                      1024, 8),
    "gpt2-tied": Net(lambda: Gpt(50304, 1024, 768, 12, 12, tied=True), 50304,
                     64, 1024, 1),
    "gelu-new": Net(lambda: Gpt(512, 1024, 768, 12, 4, act=gelu_new), 512, 4,
                    1024, 4),
}
TINY = {
    "gpt-25m": Net(lambda: Gpt(32, 8, 16, 2, 2), 32, 2, 8, 2),
    "gpt2-124m": Net(lambda: Gpt(48, 8, 16, 2, 4), 48, 2, 8, 2),
    "llama-374m": Net(lambda: Llama(32, 8, 16, 2, 24, 2), 32, 2, 8, 2),
    "gpt2-tied": Net(lambda: Gpt(32, 8, 16, 2, 2, tied=True), 32, 4, 8, 1),
    "gelu-new": Net(lambda: Gpt(32, 8, 16, 2, 2, act=gelu_new), 32, 2, 8, 2),
}


def find(job, name):
    return (TINY if job.tiny else FULL)[name]


def built(net):
    """Returns the module with the same initial values each time."""
    torch.manual_seed(0)
    return net.make().train()


def batch(net, m=None):
    """Returns the input of a step, or only of its first m microbatches."""
    size = (net.m * net.rows, net.length)
    rng = torch.Generator().manual_seed(1)
    x = torch.randint(0, net.vocab, size, generator=rng)
    y = torch.randint(0, net.vocab, size, generator=rng)
    n = (m or net.m) * net.rows
    return {"x": x[:n].contiguous(), "y": y[:n].contiguous()}


def prepare(job, name, stages=()):
    """Writes NAME.pt2, NAME.safetensors and, for each number K in stages, the
    plan NAME-K of K stages to the work folder."""
    net = find(job, name)
    path = os.path.join(job.work, name)
    if not os.path.exists(f"{path}.pt2"):
        data = batch(net)
        part = (data["x"][:net.rows], data["y"][:net.rows])
        torch.export.save(torch.export.export(built(net), part),
                          f"{path}.new.pt2")
        safetensors.torch.save_file(data, f"{path}.safetensors")
        os.rename(f"{path}.new.pt2", f"{path}.pt2")
    for n in stages:
        if not os.path.exists(f"{path}-{n}"):
            job.penstock("split", f"{path}.pt2", "-o", f"{path}-{n}",
                         "--policy", "flops", "--stages", n)


class Trainer:
    """Makes steps in PyTorch with AdamW, on the GPU if there is one."""

    def __init__(self, job, name, dtype="f32", compiled=False):
        self.net, self.device = find(job, name), job.torch_device()
        self.bf16 = dtype == "bf16"
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        self.module = built(self.net).to(self.device)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=LR,
                                           fused=True)
        data = {k: v.to(self.device).chunk(self.net.m)
                for k, v in batch(self.net).items()}
        self.data = list(zip(data["x"], data["y"]))
        self.run = self.module if not compiled else torch.compile(
            self.module, backend="eager" if job.tiny else "inductor")
        self.losses = [self.step()]
        self.first_s = time.perf_counter() - begin
        self.losses += [self.step(), self.step()]

    def step(self):
        """Makes a step; returns the loss."""
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for x, y in self.data:
            with torch.autocast(self.device, dtype=torch.bfloat16,
                                enabled=self.bf16):
                loss = self.run(x, y) / self.net.m
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return float(total)  # float() waits for the GPU

    def times(self, n):
        """Returns the seconds of each of n steps."""
        ret = []
        for _ in range(n):
            begin = time.perf_counter()
            self.step()
            ret.append(time.perf_counter() - begin)
        return ret

    def memory_mib(self):
        if self.device == "cpu":
            return 0.0
        return torch.cuda.max_memory_allocated() / 2**20
