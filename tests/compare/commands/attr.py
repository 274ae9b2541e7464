#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares jobs whose tensors are set or cast while they run with PyTorch.

    attr.py PENSTOCK WORKDIR [--seed N]

The commands are those of `penstock attr`. PyTorch starts from the values that
`attr get` wrote just before the change; the losses of the next steps must
agree. Where dtypes meet, PyTorch promotes by its own rules. Operators that
refuse mixed dtypes in PyTorch (matmuls, convolutions, norms) are computed in
f32 with the rounded values. A trained parameter that was cast is stored in f32
and rounded when it is read, as in a model that was exported in bf16. The seed
draws weights and data. Ends with "N passed, N failed".
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.overrides import TorchFunctionMode

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", *names) for names in (
    [], ["..", "daemon"])]
import bench  # noqa: E402
from patience import PATIENCE  # noqa: E402

ROWS = 4  # rows per microbatch; a step has two microbatches
LR = 0.01
STEPS = 1000000  # more than any job runs: all jobs are stopped


class Net(nn.Module):
    """A model with matmuls, norms, operators that join operands, a tied tensor
    and a shared tensor."""
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.pos = nn.Parameter(torch.randn(5, 8))
        self.norm = nn.LayerNorm(8)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(8))
        self.shift = nn.Parameter(torch.randn(8))
        self.register_buffer("mask", torch.rand(5, 1) + .5)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        x = x + torch.tanh(self.a(self.norm(x))) * self.mask
        x = self.b(x) * self.scale + self.shift
        q = x * self.scale
        x = x + F.scaled_dot_product_attention(q, x, torch.sigmoid(x))
        x = torch.relu(self.conv(x.transpose(1, 2)).transpose(1, 2) + x)
        y = self.head(x)
        return F.cross_entropy(y.transpose(1, 2), ids)


class Counts(nn.Module):
    """A model whose steps write buffers."""
    def __init__(self):
        super().__init__()
        self.lin, self.bn = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("ids", torch.arange(8))
        self.parts = nn.Module()
        self.parts.register_buffer("turn", torch.randn(
            8, dtype=torch.complex64))
        self.parts.register_buffer("which", torch.ones(8, dtype=torch.bool))

    def forward(self, ids):
        x = F.one_hot(ids.clamp(max=7), 8).float().mean(1)
        self.seen += x.detach().sum(0)
        x = self.bn(self.lin(x)) + self.seen * self.ids
        z = torch.view_as_complex(torch.stack([x, x], -1)) * self.parts.turn
        x = torch.where(self.parts.which, x, 0)
        return x.pow(2).mean() + torch.view_as_real(z).pow(2).mean()


class Mixed(TorchFunctionMode):
    """Converts operands to f32 for functions that refuse mixed dtypes in
    PyTorch."""
    SAME = {F.linear, F.layer_norm, F.conv1d, torch.conv1d,
            F.scaled_dot_product_attention, torch.nn.functional.batch_norm}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.SAME:
            parts = [a for a in (*args, *kwargs.values())
                     if isinstance(a, torch.Tensor) and a.is_floating_point()]
            if len({a.dtype for a in parts}) > 1:
                args = [self.wide(a) for a in args]
                kwargs = {k: self.wide(v) for k, v in kwargs.items()}
        return func(*args, **kwargs)

    @staticmethod
    def wide(a):
        real = isinstance(a, torch.Tensor) and a.is_floating_point()
        return a.float() if real else a


# --- a paused job
# -------------------------------------------------------------

class Job:
    def __init__(self, penstock, folder, model):
        self.penstock, self.folder = penstock, folder
        self.job = f"attr-{os.getpid()}"
        self.model = model
        torch.export.save(torch.export.export(model, (self.rows()[0],)),
                          folder / "model.pt2")
        self.call("split", "model.pt2", "-o", "plan", "--stages", "2",
                  "--policy", "flops")

    def call(self, *args, code=0):
        done = subprocess.run([self.penstock, *args], cwd=self.folder,
                              text=True, capture_output=True, check=False)
        assert done.returncode == code, (args, done.returncode, done.stderr)
        return done.stdout + done.stderr

    def ask(self, *args, code=0):
        return self.call(*args, "--job", self.job, code=code)

    def rows(self):
        return load_file(self.folder / "ids.safetensors")["ids"].split(ROWS)

    def begin(self):
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        for _ in range(10):
            self.run = subprocess.Popen(
                [self.penstock, "run", "plan", "--transport", "self",
                 "--ranks", "2", "-m", "2", "--steps", str(STEPS), "--lr",
                 str(LR), "--optimizer", "sgd", "--data", "ids.safetensors",
                 "--job", self.job, "--quiet", "--log-every", "1",
                 "--log-dir", "log"], cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while self.run.poll() is None:
                subprocess.run([self.penstock, "pause", "--job", self.job],
                               cwd=self.folder, capture_output=True,
                               check=False)
                said = subprocess.run(
                    [self.penstock, "status", "--json", "--job", self.job],
                    cwd=self.folder, capture_output=True, text=True,
                    check=False)
                if said.returncode == 0 and json.loads(said.stdout)["paused"]:
                    return
                time.sleep(.01)
            self.run.communicate()
        raise AssertionError("no run stood still")

    def end(self):
        self.ask("stop", "--now")
        self.run.communicate(timeout=PATIENCE)

    def state(self):
        self.ask("attr", "get", "", "-o", "state.safetensors")
        return load_file(self.folder / "state.safetensors")

    def set_random(self):
        """Sets all tensors to new random values; returns these in the format
        of `attr get`."""
        own = self.model.state_dict()
        new = {n: torch.randn(t.shape).to(t.dtype)
               if t.is_floating_point() else t.clone()
               for n, t in own.items()}
        new["head.weight"] = new["emb.weight"]
        save_file({n: t.clone() for n, t in new.items()},
                  self.folder / "new.safetensors")
        self.ask("attr", "set", "", "new.safetensors")
        state = self.state()
        assert state.keys() == new.keys(), state.keys() ^ new.keys()
        # Trained parameters are kept in f32.
        assert all(torch.equal(t.float(), state[n].float())
                   for n, t in new.items())
        return state

    def losses(self, begin, n):
        """Returns the losses of the n steps after step `begin`."""
        until = time.monotonic() + PATIENCE
        self.ask("resume")
        while time.monotonic() < until:
            text = (self.folder / "log/rank-0.log").read_text("utf-8")
            logged = {int(m[1]): float(m[2]) for m in re.finditer(
                r"event=step .*?\bstep=(\d+) .*?\bloss=(\S+)", text)}
            if begin + n in logged:
                return [logged[begin + 1 + i] for i in range(n)]
            time.sleep(.02)
        raise AssertionError(("no such steps", begin, max(logged)))


def follow(model, state, rows, n, casts=None):
    """Returns PyTorch's losses of n steps. casts: names of tensors ->
    dtypes."""
    model.load_state_dict(state)
    names = {n: p for n, p in model.named_parameters(remove_duplicate=False)}
    names |= dict(model.named_buffers())
    kept = {id(t): t.detach().clone().requires_grad_(t.requires_grad)
            for t in names.values()}
    how = {id(names[n]): d for n, d in (casts or {}).items()}
    ret = []
    with torch.no_grad():
        for i, d in how.items():
            kept[i].copy_(kept[i].to(d))
    for _ in range(n):
        loss = 0
        for part in rows:
            given = {n: kept[id(t)].to(how.get(id(t), t.dtype))
                     for n, t in names.items()}
            with Mixed():
                one = torch.func.functional_call(
                    model, given, (part,), tie_weights=False).float()
            (one / len(rows)).backward()
            loss += one.item() / len(rows)
        ret.append(loss)
        with torch.no_grad():
            for t in kept.values():
                if t.grad is not None:
                    t -= LR * t.grad
                    t.grad = None
    return ret


class Bench(bench.Bench):
    def __init__(self, penstock, folder):
        super().__init__(penstock, folder)
        save_file({"ids": torch.randint(0, 11, (2 * ROWS, 5))},
                  folder / "ids.safetensors")

    def near(self, have, want, error):
        worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(have, want))
        assert worst <= error, (worst, have, want)


def sets(b, job):
    net = job.model
    for name, value in (("scale", None), ("mask", None), ("head.weight", .25),
                        ("norm", None), ("a.bias", -1.5), ("conv", .1)):
        job.begin()
        with b.case(f"set {name}"):
            state = job.set_random()
            given = {n: torch.randn_like(t) for n, t in state.items()
                     if n == name or n.startswith(name + ".")}
            if value is not None:
                given = {n: torch.full_like(t, value)
                         for n, t in given.items()}
            save_file(given, b.folder / "given.safetensors")
            what = "given.safetensors" if value is None else str(value)
            step = json.loads(job.ask("attr", "set", name, what,
                                      "--json"))["step"]
            if name == "head.weight":
                given["emb.weight"] = given[name]
            have = job.losses(step, 3)
            b.near(have, follow(net, state | given, job.rows(), 3), 1e-5)
        job.end()


def casts(b, job):
    net = job.model
    known = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    known.append("mask")
    for names, dtype in ((["scale"], "bf16"), (["shift", "scale"], "bf16"),
                         (["pos"], "f16"), (["mask"], "bf16"),
                         (["emb.weight"], "bf16"), (["head"], "f16"),
                         (["pos", "emb"], "bf16"), (["norm.weight"], "bf16"),
                         (["a"], "bf16"), (["b.bias"], "f16"),
                         (["conv"], "bf16"), (["mask"], "f64"),
                         ([""], "bf16")):
        torch_dtype = {"bf16": torch.bfloat16, "f16": torch.float16,
                       "f64": torch.float64}[dtype]
        job.begin()
        with b.case(f"cast {names} {dtype}"):
            state = job.set_random()
            for name in names:
                step = json.loads(job.ask("attr", "cast", name, dtype,
                                          "--json"))["step"]
            how = {n: torch_dtype for n in known for name in names
                   if name in ("", n) or n.startswith(name + ".")}
            if "emb.weight" in how or "head.weight" in how:
                how["emb.weight"] = how["head.weight"] = torch_dtype
            have = job.losses(step, 3)
            want = follow(net, state, job.rows(), 3, how)
            # Gradients are rounded at other operators than in PyTorch, by up
            # to 2^-8. If all tensors have 16 bits, so has the loss.
            whole = names == [""]
            b.near(have[:1], want[:1], 1e-2 if whole else 1e-5)
            b.near(have, want, 4e-2 if whole else 1e-2)
        job.end()


def back(b):
    """Checks that a model that was exported in bf16 can be cast to f32."""
    job = Job(b.penstock, b.folder, Net().bfloat16())
    job.begin()
    with b.case("cast back"):
        state = job.set_random()
        assert "bf16[8], kept as f32" in job.ask("attr", "get", "scale")
        step = json.loads(job.ask("attr", "cast", "", "f32",
                                  "--json"))["step"]
        said = job.ask("attr", "get", "")
        assert "bf16" not in said, said
        wide = {n: t.float() for n, t in state.items()}
        have = job.losses(step, 3)
        b.near(have, follow(Net(), wide, job.rows(), 3), 1e-5)
    job.end()


def thawed(b):
    """Checks that parameters of a 16-bit model that --unfreeze makes trained
    train like parameters that were exported as trained."""
    net = Net().bfloat16()
    part = load_file(b.folder / "ids.safetensors")["ids"][:ROWS]
    dumps = []
    for name, grad, options in (("own", True, []),
                                ("thawed", False, ["--unfreeze", "*"])):
        net.requires_grad_(grad)
        torch.export.save(torch.export.export(net, (part,)),
                          b.folder / f"{name}.pt2")
        done = subprocess.run(
            [b.penstock, "run", f"{name}.pt2", "--stages", "2", "--policy",
             "flops", *options, "--transport", "self", "--ranks", "2", "-m",
             "2", "--steps", "4", "--lr", str(LR), "--optimizer", "adamw",
             "--data", "ids.safetensors", "--dump", name, "--quiet"],
            cwd=b.folder, text=True, capture_output=True, check=False)
        with b.case(f"16 bits, {name}"):
            assert done.returncode == 0, done.stderr
            dumps.append(load_file(b.folder / name))
    with b.case("thawed like trained"):
        assert dumps[0].keys() == dumps[1].keys()
        assert all(torch.equal(t, dumps[1][n]) for n, t in dumps[0].items())
    net.requires_grad_(False)
    net.shift.requires_grad_(True)
    job = Job(b.penstock, b.folder, net)
    job.begin()
    with b.case("thawed while it trains"):
        assert "bf16[8, 8], stages" in job.ask("attr", "get", "a.weight")
        before = job.state()
        job.ask("unfreeze", "a")
        said = job.ask("attr", "get", "a.weight")
        assert "bf16[8, 8], kept as f32" in said and ", trained" in said, said
        after = job.state()
        assert torch.equal(before["a.weight"].float(), after["a.weight"])
        step = json.loads(job.ask("status", "--json"))["step"]
        job.losses(step, 3)
    job.end()


class Stop(nn.Module):
    def forward(self, x):
        return x.detach() * 2


def cut_off(b):
    """Checks that a new module that passes no gradient leaves only the
    parameters after it trained."""
    net = Net()
    torch.export.save(torch.export.export(Stop(), (torch.randn(ROWS, 5, 8),)),
                      b.folder / "stop.pt2")
    job = Job(b.penstock, b.folder, net)
    job.begin()
    with b.case("a module without a gradient"):
        before = job.state()
        said = job.ask("swap", "a", "stop.pt2", code=65)
        assert ('so that 2 parameters in front of it would be trained no more '
                '("norm.weight", "norm.bias")') in said, said
        after = job.state()
        assert all(torch.equal(t, after[n]) for n, t in before.items())
        job.ask("freeze", "norm")
        job.ask("swap", "a", "stop.pt2")
    job.end()


def refused(b):
    job = Job(b.penstock, b.folder, Counts())
    job.begin()
    for words, name, dtype in (
            (r"seen.* written in place by aten.add.* \(attr.py:\d+\)", "seen",
             "bf16"),
            (r"bn.running_mean.* written in place by .*in bn",
             "bn.running_mean", "bf16"),
            ("none of these tensors", "parts", "bf16"),
            ("its numbers are complex", "parts.turn", "bf16"),
            ("only floating tensors are cast", "ids", "bf16"),
            ("not floating", "lin", "i64"), ("not a dtype", "lin", "int4"),
            ("only f32 is trained", "lin.bias", "f64"),
            ('nearest name is "lin.bias"', "lin.bais", "bf16")):
        with b.case(f"refused: cast {name} {dtype}"):
            before = job.state()
            said = job.ask("attr", "cast", name, dtype, code=65)
            assert re.search(words, said), said
            after = job.state()
            assert all(torch.equal(t, after[n]) and t.dtype == after[n].dtype
                       for n, t in before.items())
    with b.case("refused: a module that is not called"):
        said = job.ask("swap", "parts", "stop.pt2", code=65)
        assert 'module "parts" is in no call' in said, said
    with b.case("of a module what cannot be cast is skipped"):
        said = job.ask("attr", "cast", "bn", "bf16")
        assert "2 tensors cast" in said and ", 3 skipped" in said, said
        said = job.ask("attr", "cast", "", "bf16")
        assert "4 tensors cast" in said and ", 7 skipped" in said, said
        assert "bf16[8, 8]" in job.ask("attr", "get", "lin.weight")
        assert "f32[8]" in job.ask("attr", "get", "bn.running_var")
    with b.case("what is written can be set"):
        job.ask("attr", "set", "seen", "2")
        job.ask("attr", "set", "bn.running_var", "3")
        job.ask("attr", "set", "ids", "-4")
        job.ask("attr", "set", "ids", "1.5", code=65)
        state = job.state()
        assert (state["seen"] == 2).all() and (state["ids"] == -4).all()
    job.end()


def running(b):
    job = Job(b.penstock, b.folder, Net())
    sets(b, job)
    casts(b, job)


if __name__ == "__main__":
    sys.exit(bench.main(Bench, (running, back, thawed, cut_off, refused)))
