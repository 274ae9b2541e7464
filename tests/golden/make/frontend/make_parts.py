#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes parts.pt2, a model with free rows and a free length, exported with 4
rows of length 6. Its operators decompose into others and compute numbers from
these sizes; each line of forward is a family. parts.safetensors has B.T/NAME
for B rows of length T: x, the results and the gradients of PyTorch. For some
sizes a linear function a*s + b that fits the exported sizes is wrong: squares
of rows, quotients rounded up. Run again only if PyTorch's format changes.
"""


import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
NAMES = ["split", "grid", "interleave", "shuffle", "edges", "pad",
         "diagonal", "below", "einsum", "tensordot", "unit", "rfft", "ifft",
         "resize", "unpool", "pool", "prelu", "similar",
         "attention", "batch", "instance", "group", "same", "interpolated",
         "trapezoid", "quantile", "scattered", "moments"]


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.each = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)

    def forward(self, x):
        rows, length = x.shape[:2]
        h = self.fc(x)  # (B, T, 4)
        c = h.transpose(1, 2)  # (B, 4, T)
        v = h.mean((1, 2))  # (B)
        line = h.mean((0, 2))  # (T)
        table = h.mean(2)  # (B, T)
        out = {}
        first, second, third = torch.tensor_split(c, 3, 2)
        out["split"] = torch.cat([third, first * 2, second], 2)
        a, b = torch.meshgrid(v, line, indexing="xy")
        out["grid"] = a * b
        out["interleave"] = table.repeat_interleave(3, 1)
        out["shuffle"] = F.pixel_shuffle(h.unsqueeze(-1), 1)
        out["edges"] = F.pad(c, (2, 1), mode="circular")
        out["pad"] = F.pad(c, (1, 2), mode="replicate")
        out["diagonal"] = torch.diag_embed(table, 1)
        out["below"] = torch.diag_embed(v, -2)
        out["einsum"] = torch.einsum("btc,usc->btus", h, h).mean((2, 3))
        out["tensordot"] = torch.tensordot(h, h, ([0, 2], [0, 2]))
        out["unit"] = torch.linalg.matrix_power(table.t() @ table, 0) * v[0]
        bins = torch.fft.rfft(table, dim=1, norm="ortho")
        out["rfft"] = torch.view_as_real(bins)
        out["ifft"] = torch.fft.irfft(bins, n=length, dim=1)
        out["resize"] = F.interpolate(c, scale_factor=1.5, mode="nearest")
        pooled, places = F.max_pool1d(c, 2, stride=1, return_indices=True)
        out["unpool"] = pooled + places
        out["pool"] = F.adaptive_avg_pool1d(c, 2)
        out["prelu"] = F.prelu(c, h[0, 0])
        out["similar"] = F.cosine_similarity(h, h[:1], dim=2)
        out["attention"] = torch.ops.aten._scaled_dot_product_attention_math(
            h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1), None, 0.0, True)[0]
        out["batch"] = self.norm(c)
        out["instance"] = self.each(c)
        out["group"] = F.group_norm(c, 2)
        out["same"] = F.conv1d(c, self.fc.weight.reshape(4, 4, 1)[:, :, :1]
                               .expand(4, 4, 3), padding="same")
        out["interpolated"] = F.interpolate(
            c, size=2 * length - 1, mode="linear", align_corners=True)
        out["trapezoid"] = torch.trapezoid(table, dim=0)
        out["quantile"] = torch.quantile(table, 0.3, dim=1, keepdim=True)
        out["scattered"] = h.sum_to_size(1, length, 1)
        out["moments"] = torch.std(table) * length + v.nanmean()
        loss = sum(((p + 1) ** 2).mean() for p in out.values())
        return (loss, *(out[name] for name in NAMES))


def main():
    torch.manual_seed(11)
    net = Parts().train()
    auto = torch.export.Dim.AUTO
    x = torch.randn(13, 12, 4)
    state = {k: v.clone() for k, v in net.state_dict().items()}
    program = torch.export.export(net, (x[:4, :6].clone(),), strict=False,
                                  dynamic_shapes=({0: auto, 1: auto},))
    assert len(program.range_constraints) >= 2
    torch.export.save(program, os.path.join(HERE, "parts.pt2"))
    data = {}
    for rows, length in (4, 6), (7, 6), (4, 9), (9, 12):
        net.load_state_dict(state)
        net.zero_grad()
        part = x[:rows, :length].contiguous()
        out = net(part)
        out[0].backward()
        at = f"{rows}.{length}"
        data[f"{at}/x"] = part.clone()
        for i, value in enumerate(out):
            data[f"{at}/output.{i}"] = value.detach().clone().contiguous()
        for key, p in net.named_parameters():
            data[f"{at}/grad.{key}"] = p.grad.clone()
        for key, b in net.named_buffers():
            data[f"{at}/buffer.{key}"] = b.clone()
    save_file(data, os.path.join(HERE, "parts.safetensors"))


if __name__ == "__main__":
    main()
