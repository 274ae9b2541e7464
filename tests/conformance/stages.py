# SPDX-License-Identifier: Apache-2.0
"""Tests cases 63 to 72: running stages, their memory, and refusals. Case 69,
replicas of the pipeline, is in tests/run."""
import json

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split
from torch.nn import functional as F

from conformance import Failed, case, close, compare, torch_step

WIDTH, ROWS, CHUNKS = 512, 256, 8


def scaled(*shape):
    return nn.Parameter(torch.randn(*shape) / shape[-1] ** 0.5)


class ExampleCode(nn.Module):
    """A model with a skip connection from stage 0 to 2, and a parameter that
    stages 0 and 1 use."""

    def __init__(self):
        super().__init__()
        self.mm_param0 = scaled(WIDTH, WIDTH)
        self.mm_param1 = scaled(WIDTH, WIDTH)
        self.lin0 = nn.Linear(WIDTH, WIDTH)
        self.lin1 = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, target):
        x = x @ self.mm_param0
        skip = x
        x = torch.relu(x @ self.mm_param1)
        pipe_split()
        x = x @ self.mm_param1
        x = self.lin0(x)
        pipe_split()
        x = self.lin1(torch.relu(x) + skip)
        pipe_split()
        return F.mse_loss(x + torch.relu(x), target), x


class MultiMLP(nn.Module):
    """A model whose last stage reads the first input."""

    def __init__(self):
        super().__init__()
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                          nn.Linear(WIDTH, WIDTH)) for _ in range(4))

    def forward(self, x, y, target):
        h = self.mlps[0](x)
        for mlp in list(self.mlps)[1:]:
            pipe_split()
            h = mlp(h)
        return F.mse_loss(h - y, target), h


class Kwargs(nn.Module):
    """A model with an argument with a default, which every stage reads."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x, target, *, z):
        x = self.a(x) * z
        pipe_split()
        x = torch.relu(self.b(x)) + z
        pipe_split()
        x = self.c(x) * z
        return F.mse_loss(x, target), x


@case("63 stages of 256 x 512 in 8 microbatches")
def stages(t):
    rows = ROWS // CHUNKS
    for make, names, n in ((ExampleCode, ["x"], 4), (MultiMLP, ["x", "y"], 4),
                           (Kwargs, ["x", "z"], 3)):
        model = make()
        batch = {n: torch.randn(ROWS, WIDTH) for n in [*names, "target"]}
        pt2 = t.export(model, {k: v[:rows] for k, v in batch.items()},
                       make.__name__)
        want = torch_step(model, batch, CHUNKS)
        plan, report = t.split(pt2)
        if len(report["stages"]) != n:
            raise Failed(f"{make.__name__}: {len(report['stages'])} stages")
        known = dict(model.named_parameters())
        read = {p for stage in report["stages"] for p in stage["reads"]}
        if read != known.keys():
            raise Failed(f"{make.__name__}: names {read ^ known.keys()}")
        for schedule in ("gpipe", "1f1b", "zb-h1", "looped-bfs"):
            try:
                compare(t.run(plan, batch, CHUNKS, schedule=schedule), want)
            except Failed as e:
                raise Failed(f"{make.__name__}, {schedule}: {e}")


class Chain(nn.Module):
    def __init__(self, layers=4, width=64):
        super().__init__()
        self.layers = nn.Sequential(*(
            nn.Sequential(nn.Linear(width, width), nn.Tanh())
            for _ in range(layers)))

    def forward(self, x, target):
        y = self.layers(x)
        return F.mse_loss(y, target), y


def chain(t, m, rows=4, layers=4, width=64):
    model = Chain(layers, width)
    batch = {n: torch.randn(m * rows, width) for n in ("x", "target")}
    pt2 = t.export(model, {n: v[:rows] for n, v in batch.items()})
    return model, batch, pt2


@case("64 weight gradients once for each microbatch, whatever the actions")
def once(t):
    model, batch, pt2 = chain(t, 4)
    want = torch_step(model, batch, 4)
    actions = t.folder / "mixed.csv"
    # Rank 0 runs only B. Rank 1 separates I and W; W comes late and out of
    # order.
    actions.write_text("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
                       "1F0,1I0,1F1,1I1,1W1,1F2,1B2,1F3,1I3,1W0,1W3\n")
    first = None
    for schedule in ("gpipe", "zb-h1", f"csv:{actions}"):
        dump = t.run(pt2, batch, 4, "--stages", 2, schedule=schedule)
        compare(dump, want)
        first = first or dump
        for n in want:
            if not torch.equal(first[n], dump[n]):
                raise Failed(f"{n} depends on the schedule {schedule}")


@case("65 nothing is kept behind a step, outputs where they are made")
def nothing_kept(t):
    model, batch, pt2 = chain(t, 8)
    plan, _ = t.split(pt2, "--stages", 4)
    # 1f1b: microbatches in flight on a rank = 1 + number of later stages.
    report = json.loads(t.call(t.penstock, "plan", plan, "-m", 8, "--schedule",
                             "1f1b", "--json").stdout)
    if [r["in_flight"] for r in report["ranks"]] != [4, 3, 2, 1]:
        raise Failed(f"in flight: {[r['in_flight'] for r in report['ranks']]}")
    # The second step must not depend on the first one's gradients, as in
    # PyTorch.
    model = model.double()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        for k in range(8):
            (model(**{n: v.chunk(8)[k].double()
                      for n, v in batch.items()})[0] / 8).backward()
        opt.step()
    dump = t.run(plan, batch, 8, "--lr", 0.1, optimizer="sgd", steps=2)
    for n, p in model.named_parameters():
        close(n, dump[f"param.{n}"], p.detach().float(), 1e-6, 1e-6)


@case("66 data of a wrong shape or dtype")
def wrong_data(t):
    _, batch, pt2 = chain(t, 2)
    plan, _ = t.split(pt2, "--stages", 2)
    x = batch["x"]
    for wrong, text in (
            (x[:, :63], "f32[8, 63], but a microbatch is "
             "f32[4, 64]"),
            (x.int(), "i32[8, 64], but a microbatch is f32[4, 64]"),
            (x.flatten(), "f32[512], but a microbatch is "
             "f32[4, 64]"),
            (x.bfloat16(), "bf16[8, 64], but a microbatch is "
             "f32[4, 64]")):
        said = t.run(plan, {**batch, "x": wrong}, 2, code=65)
        if f"tensor 'x' is {text}" not in said:
            raise Failed(said)
    said = t.run(plan, {"x": x}, 2, code=65)
    if "no tensor for the model's input 'target'" not in said:
        raise Failed(said)


@case("67 W without I, W before I")
def w_without_i(t):
    _, batch, pt2 = chain(t, 2)
    plan, _ = t.split(pt2, "--stages", 2)
    actions = t.folder / "actions.csv"
    for rank in ("0F0,0F1,0B0,0W1", "0F0,0F1,0B0,0W1,0I1"):
        actions.write_text(f"{rank}\n1F0,1B0,1F1,1B1\n")
        said = t.run(plan, batch, 2, schedule=f"csv:{actions}", code=65)
        if "line 1 (rank 0), action 3 (0W1): W before I" not in said:
            raise Failed(said)


class Normed(nn.Module):
    """A model with running statistics, which each microbatch updates once."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, bias=False)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 36, 12)
        self.bn1 = nn.BatchNorm1d(12)
        self.out = nn.Linear(12, 4)

    def forward(self, x, target):
        h = torch.relu(self.bn(self.conv(x))).flatten(1)
        pipe_split()
        return F.cross_entropy(self.out(self.bn1(self.fc(h))), target)


@case("68 planning leaves buffers untouched")
def buffers(t):
    model = Normed()
    batch = {"x": torch.randn(24, 3, 8, 8), "target": torch.randint(4, (24,))}
    pt2 = t.export(model, {n: v[:6] for n, v in batch.items()})
    dump = t.run(pt2, batch, 4)
    for k in range(4):
        model(**{n: v.chunk(4)[k] for n, v in batch.items()})
    for n, b in model.named_buffers():
        close(n, dump[f"buffer.{n}"], b, 1e-5, 1e-6)


class Skip(nn.Module):
    """A model whose stage 3 uses a value of stage 0, and an argument."""

    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3, self.l4 = (
            nn.Linear(50, 50) for _ in range(4))

    def forward(self, x, target, *, y):
        x = self.l1(x)
        skip = x
        for layer in (self.l2, self.l3):
            pipe_split()
            x = torch.relu(layer(x))
        pipe_split()
        x = self.l4(x + skip + y)
        return F.mse_loss(x, target), x


@case("70 a skip from stage 0 to stage 3 beside a keyword argument")
def far_skip(t):
    model = Skip()
    batch = {n: torch.randn(20, 50) for n in ("x", "target", "y")}
    pt2 = t.export(model, {n: v[:5] for n, v in batch.items()})
    want = torch_step(model, batch, 4)
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        compare(t.run(pt2, batch, 4, schedule=schedule), want)


class Sliced(nn.Module):
    """A model that reads a part of a buffer (positions) in each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(1, 100, 32))
        self.embed = nn.Linear(32, 32)
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(7))

    def forward(self, x, target):
        h = self.embed(x) + self.table[:, :x.shape[1]]
        for block in self.blocks:
            h = torch.tanh(block(h)) + self.table[:, 3:3 + x.shape[1]]
        return F.mse_loss(h, target), h


@case("71 four stages of equal size, a buffer of which slices are read")
def equal_sizes(t):
    model = Sliced()
    batch = {n: torch.randn(8, 10, 32) for n in ("x", "target")}
    pt2 = t.export(model, {n: v[:2] for n, v in batch.items()})
    want = torch_step(model, batch, 4)
    # --policy flops: the default, measured times, would cut small layers where
    # sending is cheap. Only the numbers matter here.
    plan, _ = t.split(pt2, "--stages", 4, "--policy", "flops")
    compare(t.run(plan, batch, 4), want)
    plan, report = t.split(pt2, "--stages", 4, "--policy", "memory")
    sizes = [sum(n.endswith("weight") for n in s["reads"])
             for s in report["stages"]]
    if sizes != [2, 2, 2, 2]:
        raise Failed(f"layers of the stages: {sizes}")
    compare(t.run(plan, batch, 4), want)


@case("72 SGD with momentum 0.9, two steps")
def momentum(t):
    model, batch, pt2 = chain(t, 4)
    model = model.double()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        opt.zero_grad()
        for k in range(4):
            (model(**{n: v.chunk(4)[k].double()
                      for n, v in batch.items()})[0] / 4).backward()
        opt.step()
    for stages in (1, 4):
        dump = t.run(pt2, batch, 4, "--stages", stages, "--lr", 0.1,
                     "--momentum", 0.9, optimizer="sgd", steps=2)
        for n, p in model.named_parameters():
            close(n, dump[f"param.{n}"], p.detach().float(), 1e-6, 1e-6)
