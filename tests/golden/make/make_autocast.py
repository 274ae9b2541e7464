# SPDX-License-Identifier: Apache-2.0
"""Writes autocast.pt2, autocast.json and autocast-f16.json (PyTorch 2.13) next
to this file.

The model has operators of each of autocast's lists. autocast.json has the
dtypes of its values under torch.autocast("cuda", torch.bfloat16): the program
runs node by node on tensors without data, so PyTorch's own lists decide, and
no GPU is needed. autocast-f16.json has those under torch.autocast("cpu",
torch.float16).
"""
import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(HERE, "..", "compare"))
import casting  # noqa: E402


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.groups = nn.GroupNorm(2, 8)
        self.batch = nn.BatchNorm1d(8)
        self.act = nn.PReLU()
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.full((8,), 0.5))

    def attend(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)
        weights = torch.softmax(q @ k.transpose(1, 2), -1)
        return y + torch.bmm(weights, v), weights

    def forward(self, tokens, labels):
        x = self.emb(tokens)
        y, weights = self.attend(x)
        x = x + y
        z = self.conv(x.transpose(1, 2))
        z = self.act(self.batch(self.groups(z) + z)).transpose(1, 2)
        z += y
        s, _ = self.lstm(z)
        x = torch.addcmul(x, s, self.scale) + torch.einsum("bij,bjk->bik",
                                                           weights, s)
        x = x * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1.0)
        x = torch.cat([F.gelu(y), x], -1)[..., 4:12] + self.shift
        x = x + torch.where(y > 0, y, torch.zeros_like(y)) * y.new_ones(8)
        t = F.silu(s).cumsum(1) + s.exp() + F.softplus(s) + s.float()
        t = torch.stack([t, F.layer_norm(y, (8,))]).sum(0)
        with torch.no_grad():
            level = (s.norm() + s.sum() + s.mean()).clamp(max=9.0)
        logits = self.head(x + t + 0.01 * level)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss = loss + F.mse_loss(y, s) + F.smooth_l1_loss(s, z)
        return loss, logits


def main():
    torch.manual_seed(0)
    model = Lists().train()
    args = (torch.arange(10).view(2, 5) % 11, torch.arange(10).view(2, 5) % 7)
    program = torch.export.export(model, args, strict=False)
    for node in program.graph.nodes:  # removes machine paths
        node.meta["stack_trace"] = None
        node.meta.pop("from_node", None)
    torch.export.save(program, os.path.join(HERE, "autocast.pt2"))
    for name, device, low in (("autocast.json", "cuda", torch.bfloat16),
                              ("autocast-f16.json", "cpu", torch.float16)):
        dtypes = casting.dtypes(program, args, device, low)
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
            json.dump(dtypes, f, indent=0)
            f.write("\n")


main()
