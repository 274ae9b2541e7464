#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares reading and writing of weights with PyTorch and transformers.

    weights.py PENSTOCK WORKDIR [--seed N] [--only TEXT] [--large]

A model is exported with other weights or without any (on the meta device, with
fake tensors). `split --weights` reads the weights that `save_pretrained` or
`save_file` wrote of another instance. After 50 steps, `penstock weights` writes
the trained weights: `load_state_dict(strict=True)` and `from_pretrained` must
accept them, and PyTorch's loss must be that of `penstock eval` to 1e-5.
--large splits a model of 10^9 parameters into four stages and prints the memory
that this took. The last line is `N passed, N failed`.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file, save_model  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "..", "daemon"))
from patience import PATIENCE  # noqa: E402

STEPS = 50
ROWS, LENGTH, VOCABULARY = 4, 16, 96
CASES = {}


def case(function):
    CASES[function.__name__.replace("_", " ")] = function
    return function


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (words, done.stderr[-2000:])
    return done.stdout


def refused(text, *words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 65 and text in done.stderr, (words, done)


class Norms(nn.Module):
    """A model with running statistics, complex numbers, a non-persistent
    buffer, and a buffer and a parameter that nothing reads."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 12, 3, padding=1)
        self.norm = nn.BatchNorm1d(12)
        self.head = nn.Linear(12, 5)
        self.register_buffer("scale", torch.full((12,), 0.5),
                             persistent=False)
        self.register_buffer("unread", torch.arange(7))
        self.register_buffer("turns", torch.polar(torch.ones(12),
                                                  torch.arange(12.0)))
        self.spare = nn.Parameter(torch.randn(3))

    def forward(self, x, target):
        y = torch.tanh(self.norm(self.conv(x))).mean(2) * self.scale
        y = y + (y * self.turns).imag
        return F.cross_entropy(self.head(y), target)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        n_layer=3, n_head=2, n_embd=32, n_positions=64, use_cache=False,
        vocab_size=VOCABULARY, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=1, eos_token_id=2))


def gpt2_batch(rows):
    ids = torch.randint(3, VOCABULARY, (rows, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


def norms_batch(rows):
    return {"x": torch.randn(rows, 6, 10),
            "target": torch.randint(0, 5, (rows,))}


def export(model, batch, path):
    torch.export.save(
        torch.export.export(model, (), batch, strict=False), path)


def loss_of(model, batch):
    model.eval()
    with torch.no_grad():
        out = model(**batch)
    return (out.loss if hasattr(out, "loss") else out).item()


def near(a, b):
    assert abs(a - b) <= 1e-5 * abs(b), (a, b)


def train(bench, plan, data):
    """Runs fifty steps; returns the file that `weights` writes, and the
    loss."""
    folder, out = bench.new("ck"), bench.new("out") / "model.safetensors"
    out.parent.mkdir()
    call(bench.penstock, "run", plan, "--transport", "self", "--data", data,
         "--steps", STEPS, "--lr", 0.003, "--checkpoint", folder, "--quiet")
    call(bench.penstock, "weights", folder, "-o", out)
    loss = json.loads(call(bench.penstock, "eval", plan, "--checkpoint",
                           folder, "--data", data, "--json"))["loss"]
    return out, loss


# A child process starts with the peak memory of its parent, so a small process
# starts the command that is measured.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def resident(*words):
    """Runs a command; returns its peak resident size in MiB."""
    return int(call(sys.executable, "-S", "-c", MEASURE, *words)) / 1024


class Bench:
    def __init__(self, penstock, work):
        self.penstock, self.work, self.n = penstock, work, 0
        work.mkdir()

    def new(self, name):
        self.n += 1
        return self.work / f"{self.n}-{name}"


def start(bench, make, make_batch):
    """Returns a model to export, a model with the weights to give, a batch,
    and the file of the batch."""
    other, wanted = make(), make()
    batch = make_batch(ROWS)
    data = bench.new("data.safetensors")
    save_file(batch, data)
    return other, wanted, batch, data


def trained_gpt2(bench, pt2, given, batch, data, before):
    """Trains with weights from a folder and checks that transformers can load
    the result."""
    plan = bench.new("plan")
    call(bench.penstock, "split", pt2, "-o", plan, "--stages", 3, "--weights",
         given)
    near(json.loads(call(bench.penstock, "eval", plan, "--data", data,
                         "--json"))["loss"], before)
    out, loss = train(bench, plan, data)
    assert loss < before - 0.5, (before, loss)
    model = gpt2()
    tensors = load_file(out)
    assert list(sorted(tensors)) == sorted(model.state_dict())
    model.load_state_dict(tensors, strict=True)
    near(loss, loss_of(model, batch))
    model.config.save_pretrained(out.parent)
    model, info = GPT2LMHeadModel.from_pretrained(out.parent,
                                                  output_loading_info=True)
    assert not any(info.values()), info
    near(loss, loss_of(model, batch))
    again = bench.new("again")
    call(bench.penstock, "split", pt2, "-o", again, "--weights", out)
    assert loss == json.loads(call(bench.penstock, "eval", again, "--data",
                                   data, "--json"))["loss"]


@case
def tied_gpt2(bench):
    other, wanted, batch, data = start(bench, gpt2, gpt2_batch)
    pt2 = bench.new("gpt2.pt2")
    export(other, batch, pt2)
    for size in ("1GB", "40KB"):
        folder = bench.new("pretrained")
        wanted.save_pretrained(folder, max_shard_size=size)
        assert (folder / "model.safetensors.index.json").exists() == (
            size == "40KB")
        trained_gpt2(bench, pt2, folder, batch, data, loss_of(wanted, batch))


@case
def tied_names(bench):
    """Checks that a tied tensor may be given under any of its names, or under
    both if the values are equal."""
    other, wanted, batch, data = start(bench, gpt2, gpt2_batch)
    pt2 = bench.new("gpt2.pt2")
    export(other, batch, pt2)
    state = {n: t.clone() for n, t in wanted.state_dict().items()}
    one, two = "lm_head.weight", "transformer.wte.weight"
    for left in ({one}, {two}, set()):
        path = bench.new("state.safetensors")
        save_file({n: t for n, t in state.items() if n not in left}, path)
        plan = bench.new("plan")
        call(bench.penstock, "split", pt2, "-o", plan, "--weights", path)
        near(json.loads(call(bench.penstock, "eval", plan, "--data", data,
                             "--json"))["loss"], loss_of(wanted, batch))
    kept = bench.new("model.safetensors")
    # safetensors stores a tied tensor once, with a reference to its other
    # name.
    save_model(wanted, kept)
    call(bench.penstock, "split", pt2, "-o", bench.new("plan"), "--weights",
         kept)
    state[one] = state[one] + 1
    save_file(state, path)
    refused("different values", bench.penstock, "split", pt2, "-o",
            bench.new("none"), "--weights", path)
    half = bench.new("half.safetensors")
    save_file({n: t.bfloat16() for n, t in wanted.state_dict().items()
               if n != one}, half)
    said = call(bench.penstock, "split", pt2, "-o", bench.new("plan"),
                "--weights", half)
    assert "narrower dtype" in said, said


@case
def running_statistics(bench):
    other, wanted, batch, data = start(bench, Norms, norms_batch)
    with torch.no_grad():
        wanted.norm.running_mean.normal_()
        wanted.norm.running_var.uniform_(0.5, 2)
        wanted.norm.num_batches_tracked.fill_(7)
        wanted.unread.mul_(3)
        wanted.turns.mul_(2)
    pt2, path = bench.new("norms.pt2"), bench.new("state.safetensors")
    export(other, batch, pt2)
    save_file(wanted.state_dict(), path)
    plan = bench.new("plan")
    call(bench.penstock, "split", pt2, "-o", plan, "--stages", 2, "--weights",
         path)
    start_out = bench.new("start.safetensors")
    call(bench.penstock, "weights", plan, "-o", start_out)
    got = load_file(start_out)
    assert set(got) == set(wanted.state_dict())
    for name, value in wanted.state_dict().items():
        assert got[name].dtype == value.dtype and got[name].equal(value), name
    out, loss = train(bench, plan, data)
    model = Norms()
    model.load_state_dict(load_file(out), strict=True)
    near(loss, loss_of(model, batch))
    assert model.norm.num_batches_tracked == 7 + STEPS
    assert model.unread.equal(wanted.unread)
    assert model.turns.equal(wanted.turns)
    assert model.spare.equal(wanted.spare)
    assert not model.norm.running_mean.equal(wanted.norm.running_mean)


def without_weights(bench, pt2, name):
    _, wanted, batch, data = start(bench, gpt2, gpt2_batch)
    folder = bench.new("pretrained")
    wanted.save_pretrained(folder, max_shard_size="40KB")
    refused("give them with --weights", bench.penstock, "split", pt2, "-o",
            bench.new("none"))
    trained_gpt2(bench, pt2, folder, batch, data, loss_of(wanted, batch))


@case
def exported_on_meta(bench):
    pt2 = bench.new("meta.pt2")
    with torch.device("meta"):
        model = gpt2()
    export(model, {k: v.to("meta") for k, v in gpt2_batch(ROWS).items()}, pt2)
    assert pt2.stat().st_size < 1 << 20
    without_weights(bench, pt2, "meta")


@case
def exported_with_fake_tensors(bench):
    pt2 = bench.new("fake.pt2")
    with FakeTensorMode(allow_non_fake_inputs=True):
        export(gpt2(), gpt2_batch(ROWS), pt2)
    assert pt2.stat().st_size < 1 << 20
    without_weights(bench, pt2, "fake")


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(x)))


class Large(nn.Module):
    """A model of 1.0e9 parameters, of which one tensor has 131e6."""

    def __init__(self, width=2048, layers=18, words=64000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def large(bench):
    with torch.device("meta"):
        model = Large()
        batch = {"x": torch.zeros(1, 8, dtype=torch.int64)}
    pt2, folder = bench.new("large.pt2"), bench.new("shards")
    export(model, batch, pt2)
    n = sum(p.numel() for p in model.parameters())
    folder.mkdir()
    where, part = {}, 0
    for names in (list(model.state_dict())[k::8] for k in range(8)):
        part += 1
        file = f"model-{part:05}-of-00008.safetensors"
        save_file({name: torch.rand(model.get_parameter(name).shape)
                   for name in names}, folder / file)
        where.update({name: file for name in names})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": where}))
    plan = bench.new("plan")
    split = resident(bench.penstock, "split", pt2, "-o", plan, "--stages", 4,
                     "--weights", folder)
    shutil.rmtree(folder)
    out = bench.new("out.safetensors")
    weights = resident(bench.penstock, "weights", plan, "-o", out)
    print(f"{n / 1e6:.0f} million parameters: split --weights {split:.1f} MiB "
          f"resident, weights {weights:.1f} MiB")
    assert n >= 1e9 and max(split, weights) < 300, (n, split, weights)
    assert out.stat().st_size > 4 * n


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", default="")
    p.add_argument("--large", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(a.workdir, ignore_errors=True)
    a.workdir.mkdir(parents=True)
    chosen = {n: f for n, f in CASES.items() if a.only in n}
    if a.large:
        chosen = {"large": large}
    passed = failed = 0
    for name, function in chosen.items():
        torch.manual_seed(a.seed)
        try:
            function(Bench(a.penstock, a.workdir / name.replace(" ", "-")))
            passed += 1
            print("ok", name, flush=True)
        except Exception:
            failed += 1
            print("FAILED", name, flush=True)
            traceback.print_exc(file=sys.stdout)
    shutil.rmtree(a.workdir, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
