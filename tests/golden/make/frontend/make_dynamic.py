#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dynamic.pt2, a model with a free batch dimension that was exported
with 4 rows. dynamic.safetensors has N/NAME for N of 2, 3, 5, 10 rows: the
inputs, outputs and gradients of PyTorch with this number of rows. Every N
takes the first rows of one batch.

rows.pt2 has the same free dimension and treats all rows alike, so that
microbatches of any sizes make up the whole batch. full/NAME has its 10 rows
and the gradients of their mean loss, ignored/NAME the same with targets that
the loss ignores.

odd.pt2 writes through views whose strides and offsets depend on the rows, and
has an operator that penstock decomposes. odd3/NAME and odd7/NAME are its
results for 3 and 7 rows. In cube.pt2 offsets grow with the square of the rows.
norm.pt2 has batch norms, whose running statistics depend on the number of
rows; norm.safetensors has a step of 3 and one of 7 rows.

sizes.pt2 leaves rows and length free (Dim.AUTO); rows times length must be
even. sizes.safetensors has B.T/NAME, the results for B rows of length T. Run
again only if PyTorch's format changes.
"""

import copy
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.up = nn.Linear(6, 12)
        self.down = nn.Linear(12, 6)
        self.head = nn.Linear(6, 11)

    def forward(self, tokens, scale, target):
        rows, length = tokens.shape
        x = self.emb(tokens)
        x = x + torch.arange(rows * length).reshape(rows, length, 1) / 100
        h = F.gelu(self.up(x)).view(rows * length, 12)
        torch.ops.pippy._pipe_split()
        mask = x.new_zeros(rows, length, 6)
        mask[:, 0] = 1.0
        mask[:, 1, 2:4] += 0.5
        x = x + self.down(h).view(rows, length, 6) * (1 + mask)
        x = x * scale / rows**0.5
        torch.ops.pippy._pipe_split()
        logits = self.head(x)
        loss = F.cross_entropy(logits.reshape(rows * length, -1),
                               target.reshape(rows * length))
        return loss, logits, logits.sum(), 2 * rows - 1


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(7, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x, target):
        h = self.norm(torch.tanh(self.up(x)))
        torch.ops.pippy._pipe_split()
        logits = self.head(h)
        return F.cross_entropy(logits, target), logits


def write_rows(data):
    net = Rows().train()
    x = torch.randn(10, 7)
    target = torch.randint(5, (10,))
    program = torch.export.export(
        net, (x[:4].clone(), target[:4].clone()), strict=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},) * 2)
    torch.export.save(program, os.path.join(HERE, "rows.pt2"))
    for name in "full", "ignored":
        if name == "ignored":
            target = target.clone()
            target[1] = target[4] = target[5] = target[9] = -100
        net.zero_grad()
        loss, logits = net(x, target)
        loss.backward()
        data[f"{name}/x"] = x.clone()
        data[f"{name}/target"] = target.clone()
        data[f"{name}/output.0"] = loss.detach().clone()
        data[f"{name}/output.1"] = logits.detach().clone()
        for key, p in net.named_parameters():
            data[f"{name}/grad.{key}"] = p.grad.clone()


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 16)

    def forward(self, x):
        rows = x.shape[0]
        h = F.pixel_shuffle(self.fc(x).view(rows, 4, 2, 2), 2)
        z = x.new_zeros(rows, rows, 4)
        z[:, 0] = h[:, 0, 0]
        z[1] += h[:, 0, 1]
        w = z.permute(1, 0, 2)[:, 1:]
        w += 1
        return (z * z).mean(), z


class Cube(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        rows = x.shape[0]
        z = x.new_zeros(rows, rows, rows, 4)
        z[1] += self.fc(x)
        return (z * z).mean(), z


def write_odd(data):
    x = torch.randn(7, 4)
    for name, model in ("odd", Odd()), ("cube", Cube()):
        model.train()
        program = torch.export.export(
            model, (x[:4].clone(),), strict=False,
            dynamic_shapes=({0: torch.export.Dim("batch", min=3, max=64)},))
        torch.export.save(program, os.path.join(HERE, f"{name}.pt2"))
        for rows in (3, 7) if name == "odd" else ():
            model.zero_grad()
            loss, z = model(x[:rows])
            loss.backward()
            data[f"odd{rows}/x"] = x[:rows].clone()
            data[f"odd{rows}/output.0"] = loss.detach().clone()
            data[f"odd{rows}/output.1"] = z.detach().clone()
            for key, p in model.named_parameters():
                data[f"odd{rows}/grad.{key}"] = p.grad.clone()


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.conv = nn.Conv1d(1, 3, 3)
        self.wide = nn.BatchNorm1d(3)

    def forward(self, x):
        h = self.wide(self.conv(self.norm(self.fc(x))[:, None]))
        return (h.sigmoid() * x[:, :1, None]).square().mean(), h


def write_norm():
    """Writes norm.pt2 and its running statistics after 3 and 7 rows."""
    torch.manual_seed(4)
    x = torch.randn(7, 4)
    start = Norm().train()
    program = torch.export.export(
        copy.deepcopy(start), (x[:4].clone(),), strict=False,
        dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    torch.export.save(program, os.path.join(HERE, "norm.pt2"))
    data = {}
    for rows in (3, 7):
        net = copy.deepcopy(start)
        loss, h = net(x[:rows])
        data[f"norm{rows}/x"] = x[:rows].clone()
        data[f"norm{rows}/output.0"] = loss.detach().clone()
        data[f"norm{rows}/output.1"] = h.detach().clone()
        for key, b in net.named_buffers():
            data[f"norm{rows}/buffer.{key}"] = b.clone()
    save_file(data, os.path.join(HERE, "norm.safetensors"))


class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        place = torch.arange(x.shape[1])[:, None] / 10
        h = torch.tanh(self.fc(x) + place)
        y = torch.softmax(h @ h.transpose(1, 2), -1) @ h
        pairs = y.reshape(-1, 8)
        return (pairs[:, :4] * pairs[:, 4:]).mean() * x.shape[1], y


def write_sizes():
    torch.manual_seed(5)
    net = Sizes().train()
    auto = torch.export.Dim.AUTO
    program = torch.export.export(net, (torch.randn(4, 6, 3),), strict=False,
                                  dynamic_shapes=({0: auto, 1: auto},))
    torch.export.save(program, os.path.join(HERE, "sizes.pt2"))
    data = {}
    for rows, length in (4, 6), (4, 3), (2, 9), (3, 2):
        x = torch.randn(rows, length, 3)
        net.zero_grad()
        loss, y = net(x)
        loss.backward()
        at = f"{rows}.{length}"
        data[f"{at}/x"] = x
        data[f"{at}/output.0"] = loss.detach()
        data[f"{at}/output.1"] = y.detach()
        for key, p in net.named_parameters():
            data[f"{at}/grad.{key}"] = p.grad.clone()
    save_file(data, os.path.join(HERE, "sizes.safetensors"))


def main():
    import torch.distributed.pipelining  # noqa: F401: registers _pipe_split

    torch.manual_seed(3)
    net = Net().train()
    tokens = torch.randint(11, (10, 5))
    scale = torch.rand(10, 1, 1) + 0.5
    target = torch.randint(11, (10, 5))
    target[1, 2:] = target[4, :4] = target[9, 0] = -100
    batch = torch.export.Dim("batch", min=2, max=64)
    rows = {0: batch}
    program = torch.export.export(
        net, (tokens[:4].clone(), scale[:4].clone(), target[:4].clone()),
        dynamic_shapes=(rows, rows, rows), strict=False)
    torch.export.save(program, os.path.join(HERE, "dynamic.pt2"))
    data = {}
    for n in (2, 3, 5, 10):
        net.zero_grad()
        out = net(tokens[:n], scale[:n], target[:n])
        out[0].backward()
        data[f"{n}/tokens"] = tokens[:n].clone()
        data[f"{n}/scale"] = scale[:n].clone()
        data[f"{n}/target"] = target[:n].clone()
        for i in range(3):
            data[f"{n}/output.{i}"] = out[i].detach().clone()
        for name, p in net.named_parameters():
            data[f"{n}/grad.{name}"] = p.grad.clone()
    write_rows(data)
    write_odd(data)
    save_file(data, os.path.join(HERE, "dynamic.safetensors"))
    write_norm()
    write_sizes()


if __name__ == "__main__":
    main()
