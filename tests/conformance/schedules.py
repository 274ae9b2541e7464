# SPDX-License-Identifier: Apache-2.0
"""Compares steps under every schedule with PyTorch, uncut: cases 45 to 62.

The catalogue sums over microbatches; penstock computes their mean. So the loss
and the gradients are divided by the number of microbatches before they are
compared. Cases 48, 49 and 58 to 62 are in tests/run (hand-written schedules,
outputs, forward only). Cases 53 and 56 need hand-written stages and weight
gradients, which penstock does not support.
"""
import copy
import importlib
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from safetensors.torch import load_file

from conformance import Failed, case, close, compare, is_near_exact, \
    torch_step

COMPARE = Path(__file__).resolve().parents[1] / "compare"
WIDTH, ROWS = 512, 64
ATOL = 1e-5  # absolute tolerance of many_steps
# (ranks, stages per rank) for each schedule.
GRID = [(p, v) for p in (1, 2, 4) for v in (1, 2)]
ANY = ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1")
PAIRS = ("zb-v", "dualpipe-v")  # two stages per rank, in V shape


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def make_layers(layers=8):
    """Returns weights that pass gradients to the first layer undiminished."""
    model = Layers(layers)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.a.weight, nonlinearity="relu")
        nn.init.xavier_normal_(layer.b.weight)
    return model


class Layers(nn.Module):
    """A model of equal layers with a sum-MSE loss; by default as many layers
    as stages."""

    def __init__(self, layers=8, width=WIDTH):
        super().__init__()
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))

    def forward(self, x, target):
        y = self.layers(x)
        return F.mse_loss(y, target, reduction="sum"), y


def case_of(t, m, layers=8, rows=ROWS, make=Layers):
    model = make(layers)
    batch = {n: torch.randn(rows, WIDTH) for n in ("x", "target")}
    pt2 = t.export(model, {n: v[:rows // m] for n, v in batch.items()})
    return model, batch, pt2


def cuts(n):
    """Returns options that cut 8 layers into n equal stages."""
    return [w for k in range(1, n) for w in ("--at", f"layers.{8 * k // n}")]


def equal(first, dump, what):
    for n in first:
        if not torch.equal(first[n], dump[n]):
            raise Failed(f"{n} depends on the schedule: {what}")


def every(t, pt2, batch, want, m, schedules=ANY + PAIRS, grid=GRID):
    """Checks that all schedules agree with PyTorch, and with each other bit by
    bit."""
    first, plans = None, {}
    for ranks, v in grid:
        n = ranks * v
        if n not in plans:
            plans[n] = t.folder / f"plan-{n}"
            t.call(t.penstock, "split", pt2, "-o", plans[n], *cuts(n))
        for schedule in schedules:
            if schedule in PAIRS and (v != 2 or
                                      (schedule == PAIRS[1] and m < n)):
                continue
            what = f"{schedule}, {ranks} ranks of {v}"
            dump = t.run(plans[n], batch, m, schedule=schedule, ranks=ranks)
            try:
                compare(dump, want)
            except Failed as e:
                raise Failed(f"{what}: {e}")
            first = first or dump
            equal(first, dump, what)


@case("45 one rank, one stage, probabilities as targets")
def one_stage(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer(WIDTH)

        def forward(self, x, target):
            y = self.layer(x)
            return F.cross_entropy(y, target), y

    model = Net()
    batch = {"x": torch.randn(256, WIDTH),
             "target": torch.randn(256, WIDTH).softmax(1)}
    pt2 = t.export(model, {n: v[:128] for n, v in batch.items()})
    want = torch_step(model, batch, 2)
    first = None
    for schedule in ANY:
        dump = t.run(pt2, batch, 2, schedule=schedule)
        compare(dump, want)
        first = first or dump
        equal(first, dump, schedule)


@case("46 evaluated twice, trained twice")
def eval_then_train(t):
    model, batch, pt2 = case_of(t, 8)
    plan = t.folder / "plan"
    t.call(t.penstock, "split", pt2, "-o", plan, *cuts(4))
    losses = [t.call(t.penstock, "eval", plan, "--data", t.data(batch), "-m",
                     8, "--json").stdout for _ in range(2)]
    if losses[0] != losses[1]:
        raise Failed(f"{losses[0]} and then {losses[1]}")
    want = torch_step(model, batch, 8)
    dumps = [t.run(plan, batch, 8, schedule="zb-h1", ranks=4)
             for _ in range(2)]
    compare(dumps[0], want)
    equal(dumps[0], dumps[1], "second run")


@case("47 outputs fed back 20 times, forward only")
def fed_back(t):
    model, _, _ = case_of(t, 8)

    class Forward(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model.layers

        def forward(self, x):
            return self.layers(x)

    net = Forward()
    x = torch.randn(ROWS, WIDTH)
    pt2 = t.export(net, {"x": x[:8]}, "forward")
    plan, out = t.folder / "plan", t.folder / "out.safetensors"
    t.call(t.penstock, "split", pt2, "-o", plan, *cuts(4))
    want = got = x
    for _ in range(20):
        t.call(t.penstock, "infer", plan, "--data", t.data({"x": got}), "-m", 8,
               "-o", out)
        with torch.no_grad():
            want = net(want)
        got = load_file(out)["0"]
        close("output", got, want, 1.3e-6, 1e-5)


def torch_sgd(model, batch, m, steps, lr, dtype=torch.float32):
    """Returns PyTorch's parameters after this number of steps on the same
    batch."""
    model = copy.deepcopy(model).to(dtype)
    batch = {n: t.to(dtype) for n, t in batch.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        for k in range(m):
            part = {n: v.chunk(m)[k] for n, v in batch.items()}
            (model(**part)[0] / m).backward()
        optimizer.step()
    return {f"param.{n}": p.detach() for n, p in model.named_parameters()}


@case("50 20 steps, GPipe and 1F1B; 61 four steps, I and W apart")
def many_steps(t):
    model, batch, pt2 = case_of(t, 8, make=make_layers)
    start = {f"param.{n}": p.detach() for n, p in model.named_parameters()}
    by_torch = {}
    for schedule, steps in (("gpipe", 20), ("1f1b", 20), ("zb-h1", 4),
                            ("zb-v", 4)):
        lr = 2e-5 / steps  # larger rates amplify rounding errors
        if steps not in by_torch:
            by_torch[steps] = [torch_sgd(model, batch, 8, steps, lr, dtype)
                               for dtype in (torch.float32, torch.float64)]
        want, exact = by_torch[steps]
        dump = t.run(pt2, batch, 8, *cuts(4), "--lr", lr, steps=steps,
                     optimizer="sgd", schedule=schedule,
                     ranks=2 if schedule == "zb-v" else 4)
        for n, p in want.items():
            moved = (p - start[n]).abs().max().item()
            # The test must fail if parameters are not updated.
            if moved < 20 * ATOL:
                raise Failed(f"{schedule}: {n} moves by {moved:.1e} only")
            try:
                close(f"{schedule}: {n}", dump[n], p, 0, ATOL)
            except Failed:
                if not is_near_exact(f"{schedule}: {n}", dump[n], p, exact[n]):
                    raise


@case("51 keyword arguments; 57 under zero bubble and interleaved")
def keywords(t):
    class Net(nn.Module):
        def __init__(self, layers=8):
            super().__init__()
            self.layers = nn.ModuleList(Layer(WIDTH) for _ in range(layers))

        def forward(self, x, target, *, y, scale=None):
            for layer in self.layers:
                x = layer(x) + y
                if scale is not None:
                    x = x * scale
            return F.mse_loss(x, target), x

    model = Net()
    batch = {n: torch.randn(ROWS, WIDTH) for n in ("x", "target", "y")}
    batch["scale"] = torch.rand(ROWS, 1)
    pt2 = t.export(model, {n: v[:8] for n, v in batch.items()})
    want = torch_step(model, batch, 8)
    every(t, pt2, batch, want, 8, ("1f1b", "interleaved-1f1b", "zb-h1"),
          [(1, 2), (2, 2), (4, 1)])


@case("52 traced stages, 54 interleaved, 55 there and back: V 1 and 2")
def all_schedules(t):
    model, batch, pt2 = case_of(t, 8)
    every(t, pt2, batch, torch_step(model, batch, 8), 8)


@case("54b as many microbatches as nobody else takes: 7, with 8 stages")
def odd(t):
    rows = 56
    model, batch, pt2 = case_of(t, 7, rows=rows)
    every(t, pt2, batch, torch_step(model, batch, 7), 7,
          ("interleaved-1f1b", "looped-bfs", "zb-h1", "zb-v"),
          [(2, 2), (4, 2)])


@case("69b replicas of a pipeline have the gradients of the whole batch")
def replicas(t):
    model, batch, pt2 = case_of(t, 8)
    want = torch_step(model, batch, 8)
    plan = t.folder / "plan"
    t.call(t.penstock, "split", pt2, "-o", plan, *cuts(4))
    first = {}
    for grid, schedule in (("2x2", "zb-v"), ("2x4", "1f1b"), ("4x1", "gpipe"),
                           ("4x2", "looped-bfs")):
        dump = t.run(plan, batch, 8, schedule=schedule, ranks=grid)
        compare(dump, want)
        equal(first.setdefault(grid[0], dump), dump, f"-n {grid}")


class Moving(nn.Module):
    """A model with two buffers that microbatches change: one is only counted
    up, the other is read."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x, target):
        y = self.b(torch.relu(self.norm(self.a(x))))
        with torch.no_grad():
            self.centre.mul_(0.8).add_(y.mean(0), alpha=0.2)
        return F.mse_loss(y - self.centre, target), y


@case("69c replicas with buffers that change do what DDP does")
def replicas_with_buffers(t):
    m, steps, rows = 6, 3, 4
    model = Moving()
    batch = {"x": torch.randn(m * steps * rows, 8),
             "target": torch.randn(m * steps * rows, 4)}
    pt2 = t.export(model, {n: v[:rows] for n, v in batch.items()})
    pickled, out = t.folder / "model.pt", t.folder / "ddp.safetensors"
    torch.save(model, pickled)
    t.call(sys.executable, Path(__file__).with_name("ddp.py"), pickled,
           t.data(batch), m, steps, out)
    want = load_file(out)
    for grid, cut in (("2x1", []), ("2x2", ["--at", "norm"])):
        saved = t.folder / f"ckpt-{grid}"
        t.run(pt2, batch, m, *cut, "--lr", 0.1, "--checkpoint", saved,
              schedule="1f1b", ranks=grid, steps=steps, optimizer="sgd")
        state = {}
        for shard in sorted(saved.glob("**/*.safetensors")):
            state.update(load_file(shard))
        for name, value in want.items():
            kind = ("buffer" if name in dict(model.named_buffers())
                    else "param")
            close(name, state[f"{kind}.{name}"], value, 1e-5, 1e-6)


def zoo_runs(seed, models, count):
    """Runs a random sample of schedules, microbatches and ranks for models of
    the zoo; each schedule and each model at least once."""
    rng = random.Random(seed)
    fits = [(s, p, v) for s in ANY + PAIRS for p, v in GRID
            if s in ANY or v == 2]
    rng.shuffle(fits)
    for k in range(count):
        s, p, v = fits[k % len(fits)]
        least = p * v if s == PAIRS[1] else 1
        if least <= 9:
            yield models[k % len(models)], s, p, p * v, rng.randint(least, 9)


@case("54c models of the zoo have the bits of their uncut form")
def zoo(t):
    sys.path.insert(0, str(COMPARE))
    models, made = ("gpt2", "skips", "t5"), {}
    for name, schedule, ranks, n, m in zoo_runs(7, models, 30):
        if name not in made:
            model, data = importlib.import_module("zoo").ZOO[name]()
            torch.manual_seed(1)
            parts = [data() for _ in range(9)]
            made[name] = (t.export(model.train(), parts[0], name), parts, {})
        pt2, parts, plans = made[name]
        batch = {k: torch.cat([p[k] for p in parts[:m]]) for k in parts[0]}
        if n not in plans:
            plans[n] = t.folder / f"{name}-{n}"
            t.call(t.penstock, "split", pt2, "-o", plans[n], "--policy",
                   "flops", "--stages", n)
        if -m not in plans:
            plans[-m] = t.run(pt2, batch, m, "--reference", steps=2,
                              optimizer="adamw")
        dump = t.run(plans[n], batch, m, schedule=schedule, ranks=ranks,
                     steps=2, optimizer="adamw")
        equal(plans[-m], dump, f"{name}, {schedule}, {ranks} ranks, {n} "
              f"stages, {m} microbatches")
