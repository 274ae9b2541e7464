#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `penstock infer` on models exported in training mode with
model.eval() in PyTorch: operators that depend on the mode or on random numbers.

    modes.py PENSTOCK WORKDIR [--only TEXT] [--seed N] [--list]

Each case is exported in training mode, both as torch.export writes it and
decomposed ("core"). Cases that must be refused are also exported in eval mode.
The last line is `N passed, N failed`.
"""
import argparse
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[2] / "daemon"))
from patience import PATIENCE  # noqa: E402

RTOL, ATOL = 1.3e-6, 1e-5
OFF, RANDOM = {}, {}
ROWS = 4


class Net(nn.Module):
    """A model of a layer, the tested module and another layer."""

    def __init__(self, tried, *shape):
        super().__init__()
        self.up, self.tried = nn.Linear(6, 6), tried
        self.shape = shape

    def forward(self, x):
        h = self.tried(self.up(x).reshape(x.shape[0], *self.shape))
        return h[0] if isinstance(h, tuple) else h


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, self)


def off(name, *shape):
    """Adds a case whose module does nothing in eval mode."""
    def add(make):
        OFF[name] = (make, shape)
        return make
    return add


def set_random_stats(module):
    """Sets running statistics to random values, which differ from initial
    ones."""
    for n, b in module.named_buffers():
        if b.is_floating_point():
            b.copy_(torch.rand_like(b) + 0.5)
    return module


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x)


class Asks(nn.Module):
    """A module that reads self.training, as handwritten code does."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, 0.5, self.training)


for case, make, *shape in (
        ("dropout", lambda: nn.Dropout(0.5), 6),
        ("dropout in place", lambda: nn.Sequential(
            nn.Linear(6, 6), nn.Dropout(0.5, inplace=True)), 6),
        ("dropout of everything", lambda: nn.Dropout(1.0), 6),
        ("dropout of nothing", lambda: nn.Dropout(0.0), 6),
        ("dropout1d", lambda: nn.Dropout1d(0.5), 3, 2),
        ("dropout2d", lambda: nn.Dropout2d(0.5), 3, 2, 1),
        ("dropout2d in place", lambda: nn.Sequential(
            nn.Conv2d(3, 3, 1), nn.Dropout2d(0.5, inplace=True)), 3, 2, 1),
        ("dropout2d of everything", lambda: nn.Dropout2d(1.0), 3, 2, 1),
        ("dropout3d", lambda: nn.Dropout3d(0.5), 3, 2, 1, 1),
        ("alpha dropout", lambda: nn.AlphaDropout(0.5), 6),
        ("alpha dropout in place", lambda: nn.Sequential(
            nn.Linear(6, 6), nn.AlphaDropout(0.3, inplace=True)), 6),
        ("alpha dropout of everything", lambda: nn.AlphaDropout(1.0), 6),
        ("feature alpha dropout", lambda: nn.FeatureAlphaDropout(0.5), 3, 2),
        ("dropout as a function", lambda: Asks(F.dropout), 6),
        ("dropout2d as a function", lambda: Asks(F.dropout2d), 3, 2, 1),
        ("alpha dropout as a function", lambda: Asks(F.alpha_dropout), 6),
        ("feature alpha dropout as a function",
         lambda: Asks(F.feature_alpha_dropout), 3, 2),
        ("native dropout", lambda: Asks(
            lambda x, p, t: torch.native_dropout(x, p, t)[0] if t else x), 6),
        ("native dropout without a mode", lambda: Asks(
            lambda x, p, t: torch.native_dropout(x, p, None)[0] if t else x),
         6),
        ("attention", lambda: Asks(
            lambda x, p, t: F.scaled_dot_product_attention(
                x, x, x, dropout_p=p if t else 0.0)), 3, 2),
        ("multihead attention", Attend, 1, 6),
        ("encoder layer", lambda: nn.TransformerEncoderLayer(
            6, 2, 8, 0.5, batch_first=True), 1, 6),
        ("lstm", lambda: nn.LSTM(3, 4, 2, dropout=0.5), 2, 3),
        ("gru", lambda: nn.GRU(3, 4, 2, dropout=0.5), 2, 3),
        ("rnn", lambda: nn.RNN(3, 4, 2, dropout=0.5), 2, 3),
        ("rrelu", nn.RReLU, 6),
        ("rrelu as a function", lambda: Asks(
            lambda x, p, t: F.rrelu(x, 0.1, p, t)), 6),
        ("batch norm", lambda: set_random_stats(nn.BatchNorm1d(6)), 6),
        ("batch norm of images",
         lambda: set_random_stats(nn.BatchNorm2d(3)), 3, 2, 1),
        ("batch norm without statistics", lambda: nn.BatchNorm1d(
            6, track_running_stats=False), 6),
        ("instance norm", lambda: set_random_stats(nn.InstanceNorm1d(
            3, track_running_stats=True)), 3, 2),
        ("instance norm without statistics",
         lambda: nn.InstanceNorm1d(3), 3, 2),
        ("group norm", lambda: nn.GroupNorm(1, 6), 6),
        ("norm and dropout", lambda: nn.Sequential(
            set_random_stats(nn.BatchNorm2d(3)), nn.Dropout2d(0.5), nn.ReLU(),
            nn.AlphaDropout(0.2)), 3, 2, 1)):
    OFF[case] = (make, tuple(shape))


def path_bernoulli(x, module):
    if not module.training:
        return x
    return x * x.new_empty((x.shape[0], 1, 1)).bernoulli_(0.5).div_(0.5)


def path_rand(x, module):
    if not module.training:
        return x
    return x.div(0.5) * (0.5 + torch.rand((x.shape[0], 1, 1))).floor_()


# Name of the case; function; the operator that the message names (a second
# one: in the core form).
for case, function, *names in (
        ("drop path", path_bernoulli, "aten.bernoulli"),
        ("drop path of rand", path_rand, "aten.rand.default"),
        ("rand_like", lambda x, m: x + torch.rand_like(x), "aten.rand_like"),
        ("randn", lambda x, m: x + torch.randn(3, 2), "aten.randn.default"),
        ("randn_like", lambda x, m: x + torch.randn_like(x),
         "aten.randn_like"),
        ("bernoulli", lambda x, m: x + torch.bernoulli(x.sigmoid()),
         "aten.bernoulli.default", "aten.rand.default"),
        ("bernoulli_", lambda x, m: x + x.new_empty(x.shape).bernoulli_(0.4),
         "aten.bernoulli"),
        ("normal_", lambda x, m: x + x.new_empty(2).normal_(1.0, 2.0),
         "aten.normal"),
        ("normal", lambda x, m: torch.normal(x, 0.5), "aten.normal"),
        ("uniform_", lambda x, m: x + x.new_empty(2).uniform_(), "aten.unif"),
        ("exponential_", lambda x, m: x + x.new_empty(2).exponential_(),
         "aten.exponential"),
        ("cauchy_", lambda x, m: x + x.new_empty(2).cauchy_(), "aten.cauchy"),
        ("geometric_", lambda x, m: x + x.new_empty(2).geometric_(0.3),
         "aten.geometric"),
        ("log_normal_", lambda x, m: x + x.new_empty(2).log_normal_(),
         "aten.log_normal"),
        ("random_", lambda x, m: x + x.new_empty(2).random_(9),
         "aten.random"),
        ("randint", lambda x, m: x + torch.randint(9, (2,)), "aten.randint"),
        ("randint_like", lambda x, m: x + torch.randint_like(x, 9),
         "aten.randint_like"),
        ("randperm", lambda x, m: x + torch.randperm(6).view(3, 2), "aten.randperm"),
        ("poisson", lambda x, m: torch.poisson(x.abs()), "aten.poisson"),
        ("multinomial", lambda x, m: x + torch.multinomial(
            x[0].flatten().abs() + 0.1, 6).view(3, 2), "aten.multinomial"),
        ("gumbel", lambda x, m: F.gumbel_softmax(x), "aten.exponential")):
    RANDOM[case] = (lambda function=function: Call(function), (3, 2), names)


class Failed(Exception):
    pass


def export(net, x, form, path):
    program = torch.export.export(net, (x,), strict=False)
    if form == "core":
        program = program.run_decompositions()
    torch.export.save(program, path)


class Bench:
    def __init__(self, penstock, work, seed):
        self.penstock, self.work, self.seed = penstock, work, seed

    def infer(self, model, *options):
        """Runs `infer`. Returns its exit code, its output and its messages."""
        out = self.work / "out.safetensors"
        out.unlink(missing_ok=True)
        done = subprocess.run(
            [self.penstock, "infer", model, "--data",
             self.work / "data.safetensors", "--output", out, *options],
            capture_output=True, text=True, timeout=PATIENCE)
        got = load_file(out)["0"] if out.exists() else None
        return done.returncode, got, done.stderr

    def make(self, name, make, shape, mode, form):
        torch.manual_seed(self.seed)
        net = Net(make(), *shape)
        x = torch.randn(ROWS, 6)
        if make is Attend or name == "encoder layer":
            # Runs the model in eval mode once before the export: otherwise the
            # export may contain a fast path that PyTorch takes in eval mode.
            net.eval()(x)
        path = self.work / "model.pt2"
        export(net.train(mode == "training"), x, form, path)
        save_file({"x": x}, self.work / "data.safetensors")
        with torch.no_grad():
            return path, net.eval()(x)


def same(got, want):
    return got is not None and torch.allclose(got, want, RTOL, ATOL)


def off_case(bench, name, form):
    make, shape = OFF[name]
    path, want = bench.make(name, make, shape, "training", form)
    code, got, said = bench.infer(path)
    if code != 0:
        raise Failed(f"exit code {code}: {said}")
    if not same(got, want):
        raise Failed(f"off by {(got - want).abs().max():.2g}: {said}")
    # In these cases penstock cannot know whether the function has read
    # self.training.
    called = "function" in name or name in (
        "native dropout", "native dropout without a mode", "attention")
    noted = "called as a function" in said and " in tried at modes.py:" in said
    if called != noted:
        raise Failed(f"the note is {'missing' if called else 'wrong'}: {said}")
    if "dropout" in name and "nothing" not in name and "every" not in name:
        code, got, said = bench.infer(path, "--keep-random", "tri*")
        if code != 0 or same(got, want):
            raise Failed(f"it is not kept: exit code {code}, {said}")


def random_case(bench, name, form):
    make, shape, names = RANDOM[name]
    path, want = bench.make(name, make, shape, "training", form)
    code, got, said = bench.infer(path)
    operator = names[-1] if form == "core" else names[0]
    if code != 65 or f"{operator}" not in said or \
            " in tried at modes.py:" not in said:
        raise Failed(f"it is not refused by name: exit code {code}, {said}")
    code, got, said = bench.infer(path, "--keep-random", "tried")
    if code != 0 or got.isnan().any():
        raise Failed(f"it is not kept: exit code {code}, {said}")
    # Two seeds may give the same few rows by chance, but not ten seeds.
    others = [bench.infer(path, "--keep-random", "*", "--seed", str(seed))[1]
              for seed in range(bench.seed + 5, bench.seed + 15)]
    if all(torch.equal(got, other) for other in others):
        raise Failed("another seed gives the same")
    code, _, said = bench.infer(path, "--keep-random", "tried.no")
    if code != 64:
        raise Failed(f"a pattern without a match: exit code {code}, {said}")


def eval_case(bench, name, form):
    """Checks exports in eval mode: drop path gives PyTorch's result; for other
    operators a message reports the mode."""
    make, shape, names = RANDOM[name]
    path, want = bench.make(name, lambda: nn.Sequential(
        set_random_stats(nn.BatchNorm1d(3)), make()), shape, "eval", form)
    code, got, said = bench.infer(path)
    if code != 0:
        raise Failed(f"exit code {code}: {said}")
    if name.startswith("drop path"):
        if not same(got, want):
            raise Failed(f"off by {(got - want).abs().max():.2g}")
    elif "exported in eval mode" not in said:
        raise Failed(f"nothing is said of what is random: {said}")


RUN = {"off": off_case, "random": random_case, "eval": eval_case}


def all_cases():
    return [(kind, name, form)
            for kind, names in (("off", OFF), ("random", RANDOM),
                                ("eval", RANDOM))
            for name in names for form in ("training", "core")]


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--seed", type=int, default=0, help="of weights and data")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    shutil.rmtree(a.workdir, ignore_errors=True)
    a.workdir.mkdir(parents=True)
    bench = Bench(a.penstock, a.workdir, a.seed)
    passed = failed = 0
    for case in all_cases():
        name = " ".join(case)
        if a.only not in name:
            continue
        if a.list:
            print(name)
            continue
        try:
            RUN[case[0]](bench, *case[1:])
            passed += 1
            print(f"ok      {name}", flush=True)
        except Failed as e:
            failed += 1
            print(f"FAILED  {name}\n{e}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
