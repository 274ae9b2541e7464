#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares low-rank adapters (`--lora`) with handwritten ones in PyTorch.

    lora.py PENSTOCK WORKDIR [--seed N]

Compares loss, gradients and trained parameters of some steps, and the files of
`weights --merge` and `--adapter`. If peft is installed, it must load these
files. The seed draws weights and data. Ends with "N passed, N failed".
"""
import copy
import json
import math
import shutil
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import bench  # noqa: E402

try:
    import peft
except ImportError:
    peft = None

ROWS = 3  # rows of a microbatch
STEPS = 4
LR = 1e-2


# --- models ------------------------------------------------------------------

class Conv1D(nn.Module):
    """A linear layer as in transformers: the weight has shape (in, out)."""
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * .3)
        self.bias = nn.Parameter(torch.randn(n_out))

    def forward(self, x):
        y = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return y.view(x.size()[:-1] + (self.bias.numel(),))


class Mlp(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.fc1 = nn.Linear(6, 10, bias=bias)
        self.fc2 = nn.Linear(10, 6, bias=bias)

    def forward(self, x):
        return x + self.fc2(torch.tanh(self.fc1(self.norm(x))))


class Deep(nn.Module):
    """A model of several blocks for sequences (B, T, 6) or rows (B, 6)."""
    def __init__(self, n=3, **how):
        super().__init__()
        self.h = nn.ModuleList([Mlp(**how) for _ in range(n)])
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.head(x).pow(2).mean()


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(6, 9), Conv1D(9, 6)
        self.square = Conv1D(6, 6)

    def forward(self, x):
        x = x + self.c_proj(torch.tanh(self.c_fc(x)))
        return self.square(x).pow(2).mean()


class Repeated(nn.Module):
    """A model that calls one layer three times."""
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.lin(x))
        return self.out(x).pow(2).mean()


class Aliased(nn.Module):
    """A model that has one layer under two names."""
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.mid = nn.Linear(6, 6)
        self.b = self.a

    def forward(self, x):
        return self.b(torch.tanh(self.mid(self.a(x)))).pow(2).mean()


class Tied(nn.Module):
    """A model in which two layers share one weight."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).pow(2).mean()


class Headed(nn.Module):
    """A model whose head shares the embedding's weight."""
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5, 6))
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.scale

    def forward(self, x):
        return self.head(x + self.scale[2]).pow(2).mean()


class Double(nn.Module):
    """A model with a layer of another dtype between f32 layers."""
    def __init__(self, dtype):
        super().__init__()
        self.first, self.out = nn.Linear(6, 6), nn.Linear(6, 3)
        self.lin = nn.Linear(6, 6, dtype=dtype)
        self.dtype = dtype

    def forward(self, x):
        x = self.lin(torch.tanh(self.first(x)).to(self.dtype)).float()
        return self.out(x).pow(2).mean()


# --- adapters by hand --------------------------------------------------------

class Adapter(nn.Module):
    def __init__(self, base, down, up, scale):
        super().__init__()
        self.base, self.scale = base, scale
        self.down, self.up = nn.Parameter(down), nn.Parameter(up)

    def forward(self, x):
        y = self.base(x)
        low = x.to(self.down.dtype) @ self.down.T
        return (y + low @ self.up.T * self.scale).to(y.dtype)


def adapt(model, adapters, scales):
    """Returns a copy of the model with adapters around layers, and these by
    name. adapters: FQN -> (A, B). A module with two names has one adapter."""
    model = copy.deepcopy(model)
    for p in model.parameters():
        p.requires_grad_(False)
    known, wrapped = {}, {}
    for path, module in model.named_modules(remove_duplicate=False):
        known.setdefault(id(module), []).append((path, module))
    for paths in known.values():
        mine = [(p, m) for p, m in paths if p in adapters]
        if mine:
            down, up = adapters[mine[0][0]]
            wrapped[mine[0][0]] = one = Adapter(
                mine[0][1], down.clone(), up.clone(), scales(mine[0][0]))
            for path, _ in paths:
                outer, _, name = path.rpartition(".")
                setattr(model.get_submodule(outer), name, one)
    return model, wrapped


def delta(module, down, up, scale):
    change = (up @ down).to(down.dtype) * scale
    return change.T if isinstance(module, Conv1D) else change


# --- a case ------------------------------------------------------------------

class Bench(bench.Bench):
    def export(self, model, x, form="training", **how):
        ep = torch.export.export(copy.deepcopy(model), (x,),
                                 strict=form == "strict", **how)
        if form == "core":
            ep = ep.run_decompositions()
        torch.export.save(ep, self.folder / "model.pt2")

    def tensors(self, what, *options):
        self.call("weights", what, "-o", "w.safetensors", *options)
        return load_file(self.folder / "w.safetensors")

    def split(self, loras, stages, *options):
        """Splits the model and sets B of all adapters to random values;
        returns the adapters."""
        words = [w for lora in loras for w in ("--lora", lora)]
        self.call("split", "model.pt2", "-o", "plan", *words, *options)
        start = self.tensors("plan")
        for name, tensor in start.items():
            if name.endswith("lora_B.default.weight"):
                assert not tensor.any(), name
                start[name] = torch.randn_like(tensor) * .3
        save_file(start, self.folder / "start.safetensors")
        self.call("split", "model.pt2", "-o", "plan", "--stages", stages,
                  "--weights", "start.safetensors", *words, *options)
        end = ".lora_A.default.weight"
        return {n[:-len(end)]: (start[n], start[
            n.replace("lora_A", "lora_B")]) for n in start if n.endswith(end)}

    def run(self, x, stages, *options):
        save_file({"x": x}, self.folder / "x.safetensors")
        self.call("run", "plan", "--transport", "self", "-m", 2, "--ranks",
                  stages, "--steps", STEPS, "--lr", LR, "--optimizer", "adamw",
                  "--weight-decay", "0", "--data", "x.safetensors", "--dump",
                  "dump", "--checkpoint", "saved", *options)
        return load_file(self.folder / "dump")


def near(have, want, what, tol=1e-5):
    error = (have - want).abs().max().item()
    assert error <= tol * max(1, want.abs().max().item()), (what, error)


def train(model, wrapped, x):
    """Trains in PyTorch. Returns the first loss, the first gradients and the
    last parameters, with penstock's names."""
    ret = {}
    params = [p for a in wrapped.values() for p in (a.down, a.up)]
    optimizer = torch.optim.AdamW(params, lr=LR, weight_decay=0)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = 0
        for rows in x.chunk(2):
            part = model(rows) / 2
            part.backward()
            loss += part.item()
        if step == 0:
            ret["loss"] = torch.tensor(loss)
            for path, a in wrapped.items():
                ret[f"grad.{path}.lora_A.default.weight"] = a.down.grad.clone()
                ret[f"grad.{path}.lora_B.default.weight"] = a.up.grad.clone()
        optimizer.step()
    for path, a in wrapped.items():
        ret[f"param.{path}.lora_A.default.weight"] = a.down.detach()
        ret[f"param.{path}.lora_B.default.weight"] = a.up.detach()
    return ret


def clear(folder):
    """Removes checkpoints of earlier runs from the folder."""
    for name in "saved", "half":
        shutil.rmtree(folder / name, ignore_errors=True)


def check_merged(b, model, wrapped, what):
    """Checks that the merged file has the keys of the model and the weights W
    plus the adapters."""
    merged = b.tensors(what, "--merge")
    state = model.state_dict()
    assert merged.keys() == state.keys(), merged.keys() ^ state.keys()
    changes = {}
    for path, a in wrapped.items():
        weight = model.get_submodule(path).weight
        changes[weight.data_ptr()] = delta(
            model.get_submodule(path), a.down.detach(), a.up.detach(), a.scale)
    for name, tensor in state.items():
        want = tensor
        if tensor.data_ptr() in changes:
            sum_dtype = torch.promote_types(tensor.dtype, torch.float32)
            want = (tensor.to(sum_dtype) + changes[tensor.data_ptr()].to(
                sum_dtype)).to(tensor.dtype)
            assert not torch.equal(want, tensor), name
        near(merged[name].double(), want.double(), name,
             1e-2 if tensor.dtype == torch.bfloat16 else 1e-5)
        if want is tensor:
            assert torch.equal(merged[name], tensor), name
    copy.deepcopy(model).load_state_dict(merged, strict=True)


def check_peft(b, model, wrapped, what, same):
    """Checks that peft can load the adapter. same: other layers that share the
    first one's adapter."""
    b.call("weights", what, "-o", "adapter", "--adapter")
    known = {n for n, _ in model.named_modules()}  # one name per module
    twins = {n for n, _ in model.named_modules(remove_duplicate=False)} - known
    assert ("if they are one module" in b.warned) == bool(twins), b.warned
    assert all(f'"{name}"' in b.warned for name in twins), b.warned
    tensors = load_file(b.folder / "adapter" / "adapter_model.safetensors")
    config = json.loads(
        (b.folder / "adapter" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA", config
    everything = {**wrapped, **{p: wrapped[first] for p, first in same}}
    for path, a in everything.items():
        near(tensors.pop(f"base_model.model.{path}.lora_A.weight"),
             a.down.detach(), path)
        near(tensors.pop(f"base_model.model.{path}.lora_B.weight"),
             a.up.detach(), path)
    assert not tensors, tensors.keys()
    words = [w for path, a in everything.items() for w in (
        "--lora", f"{path}:rank={len(a.down)},alpha={a.scale * len(a.down)}")]
    b.call("split", "model.pt2", "-o", "again", *words, "--weights", "adapter")
    again = b.tensors("again")
    for path, a in wrapped.items():
        near(again[f"{path}.lora_B.default.weight"], a.up.detach(), path)
    if peft is None or any(isinstance(m, Conv1D) for m in model.modules()):
        return
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(model),
                                            b.folder / "adapter")
    names = {n for n, _ in loaded.named_parameters() if "lora_" in n}
    everything = {p: a for p, a in everything.items() if p in known}
    assert len(names) == 2 * len(everything), names
    for path, a in everything.items():
        layer = loaded.base_model.model.get_submodule(path)
        assert layer.scaling["default"] == a.scale, (path, layer.scaling)
        near(layer.lora_B["default"].weight.detach(), a.up.detach(), path)


def check_memory(b, wrapped):
    """Checks that with one stage only adapters have gradients and optimizer
    states, each padded to 64 bytes."""
    said = json.loads(b.call("plan", "plan", "--json", "--optimizer", "adamw",
                             "-m", 2))
    want = sum(-(-p.numel() * p.element_size() // 64) * 64
               for a in wrapped.values() for p in (a.down, a.up))
    rank, = said["ranks"]
    assert rank["optim_bytes"] == 2 * want, (rank, want)


def compare(b, name, model, loras, x, scales=lambda path: 4.0, form="training",
            paths=None, options=(), tol=1e-5, shared=(), aliases=(), **how):
    """Compares some steps with PyTorch.

    paths: the adapters that are trained, if not all. shared: layers that share
    the weight of the first one. aliases: other names of that layer under which
    it is called."""
    b.export(model, x.chunk(2)[0], form, **how)
    for stages in 1, 2:
        with b.case(f"{name}, {form}, {stages} stages"):
            clear(b.folder)
            adapters = b.split(loras, stages)
            if paths is not None:
                assert set(adapters) == set(paths), adapters.keys()
            wanted, wrapped = adapt(model, adapters, scales)
            for path, first in shared:
                outer, _, last = path.rpartition(".")
                module = copy.copy(wrapped[first])
                module._modules = dict(module._modules)
                module.base = model.get_submodule(path)
                setattr(wanted.get_submodule(outer), last, module)
            have, want = b.run(x, stages, *options), train(wanted, wrapped, x)
            for key, tensor in want.items():
                assert key in have, (key, sorted(have))
                near(have[key].reshape(tensor.shape), tensor, key, tol)
            for key, tensor in have.items():
                if key.startswith("grad.") and key not in want:
                    raise AssertionError(f"{key}: it is frozen")
                if key.startswith("param.") and key not in want:
                    assert torch.equal(
                        tensor, model.state_dict()[key[6:]]), key
            check_merged(b, model, wrapped, "saved")
            check_peft(b, model, wrapped, "saved", (*shared, *aliases))
            if stages == 1:
                check_memory(b, wrapped)


def layers(b):
    x, rows = torch.randn(2 * ROWS, 5, 6), torch.randn(2 * ROWS, 6)
    for form in "training", "core", "strict":
        compare(b, "sequences", Deep(), ["h.*.fc?:rank=2"], x, form=form)
        compare(b, "rows", Deep(), ["h.*.fc1:rank=2", "head:rank=2"], rows,
                form=form)
        compare(b, "no bias", Deep(bias=False), ["h.1.fc*:rank=2"], x,
                form=form)
        compare(b, "Conv1D", Convolved(), ["*:rank=2"], x, form=form)
        compare(b, "repeated", Repeated(), ["lin:rank=2"], x, form=form)
        compare(b, "aliased", Aliased(), ["a:rank=2", "b:rank=2"], x,
                form=form, paths=["a"],
                aliases=[] if form == "strict" else [("b", "a")])
        compare(b, "tied", Tied(), ["?:rank=2"], x, form=form, paths=["a"],
                shared=[("b", "a")])
    compare(b, "ranks and alphas", Deep(),
            ["h.*.fc?:rank=2,alpha=5", "h.1.fc1:alpha=.5,rank=6"], x,
            lambda path: .5 / 6 if path == "h.1.fc1" else 2.5)


def dtypes(b):
    x = torch.randn(2 * ROWS, 6)
    compare(b, "f64", Double(torch.float64), ["lin:rank=2"], x)
    compare(b, "bf16", Double(torch.bfloat16), ["lin:rank=2"], x, tol=2e-2)


def sizes(b):
    """Checks that free sizes stay free: longer sequences and more rows are
    accepted."""
    model, x = Deep(), torch.randn(2 * ROWS, 5, 6)
    free = ({0: torch.export.Dim("b"), 1: torch.export.Dim("t")},)
    long = torch.randn(2 * (ROWS + 2), 9, 6)
    for form in "training", "core":
        b.export(model, x.chunk(2)[0], form, dynamic_shapes=free)
        with b.case(f"free sizes, {form}"):
            clear(b.folder)
            wanted, wrapped = adapt(model, b.split(["h.*.fc?:rank=2"], 2),
                                    lambda path: 4.0)
            have = b.run(long, 2, "--microbatch-size", ROWS + 2, "--size",
                         "x.1=9")
            for key, tensor in train(wanted, wrapped, long).items():
                near(have[key].reshape(tensor.shape), tensor, key)


def starts(b):
    """Checks that A is uniform in +-1/sqrt(in), drawn from the seed, and that
    B is zero, so that the output is unchanged."""
    model, x = Deep(), torch.randn(2 * ROWS, 5, 6)
    b.export(model, x)
    save_file({"x": x}, b.folder / "x.safetensors")
    seen = []
    for seed in [], ["--seed", "7"], ["--seed", "7"]:
        b.call("split", "model.pt2", "-o", "plan", "--lora", "*.fc2:rank=6",
               *seed)
        seen.append(b.tensors("plan"))
    with b.case("A"):
        name = "h.0.fc2.lora_A.default.weight"
        assert torch.equal(seen[1][name], seen[2][name])
        assert not torch.equal(seen[0][name], seen[1][name])
        assert not torch.equal(seen[0][name],
                               seen[0][name.replace("h.0", "h.1")])
        for tensors in seen:
            for key, a in tensors.items():
                if "lora_A" in key:
                    bound = 1 / math.sqrt(a.shape[1])
                    assert a.abs().max() <= bound, key
                    assert a.abs().max() > .9 * bound, key
                    assert abs(a.mean()) < .25 * bound, key
    with b.case("nothing changes at first"):
        b.call("run", "plan", "--transport", "self", "--steps", 1, "--data",
               "x.safetensors", "--dump", "dump")
        near(load_file(b.folder / "dump")["loss"], model(x).detach(), "loss")
    with b.case("an unfrozen head"):
        b.call("split", "model.pt2", "-o", "plan", "--lora", "*.fc2:rank=6",
               "--unfreeze", "head")
        b.call("run", "plan", "--transport", "self", "--steps", 1, "--data",
               "x.safetensors", "--dump", "dump")
        names = {n for n in load_file(b.folder / "dump")
                 if n.startswith("grad.")}
        assert len(names) == 2 * 3 + 2 and "grad.head.bias" in names, names


def resumed(b):
    """Checks that a run that resumes from a checkpoint on another number of
    ranks has the same result."""
    model, x = Deep(), torch.randn(2 * ROWS, 5, 6)
    b.export(model, x.chunk(2)[0])
    save_file({"x": x}, b.folder / "x.safetensors")
    dumps = []
    with b.case("resumed"):
        b.call("split", "model.pt2", "-o", "plan", "--stages", 3, "--lora",
               "*.fc?:rank=2")
        for steps, *options in (
                (4, "--ranks", 1), (2, "--ranks", 3, "--checkpoint", "half"),
                (4, "--ranks", 2, "--schedule", "gpipe", "--checkpoint",
                 "half", "--resume")):
            b.call("run", "plan", "--transport", "self", "-m", 2, "--steps",
                   steps, "--lr", LR, "--data", "x.safetensors", "--dump",
                   "dump", *options)
            dumps.append(load_file(b.folder / "dump"))
        for name, tensor in dumps[0].items():
            if name.startswith("param."):
                assert torch.equal(tensor, dumps[2][name]), name


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.rep = nn.Linear(6, 6)

    def forward(self, x):
        return self.rep(torch.tanh(self.rep(x))).pow(2).mean()


def one_call(b):
    """Replaces one call of a module. After that, each call must have an
    adapter of its own, named like the parameters of the call."""
    model, x = Twice(), torch.randn(2 * ROWS, 6)
    for call in 0, 1:
        with b.case(f"another module at call {call}"):
            own = nn.Linear(6, 6)
            torch.export.save(torch.export.export(own, (x[:ROWS],)),
                              b.folder / "own.pt2")
            b.export(model, x[:ROWS])
            pairs = b.split(["rep:rank=2"], 2, "--swap",
                            f"rep@{call}={b.folder}/own.pt2")
            assert pairs.keys() == {"rep", f"rep@{call}"}, pairs.keys()
            layers = [(model.rep, pairs["rep"])] * 2
            layers[call] = own, pairs[f"rep@{call}"]
            y = x
            for k, (layer, (down, up)) in enumerate(layers):
                y = torch.tanh(y) if k else y
                y = layer(y) + 8 / 2 * (y @ down.T @ up.T)
            near(b.run(x, 2, "--adopt")["loss"], y.pow(2).mean(), "loss")


def refused(b):
    b.export(Deep(), torch.randn(ROWS, 6))
    for spec, code, words in (
            ("h.0.norm:rank=2", 65, "\"h.0.norm\" (LayerNorm) is not a linear"),
            ("h.0:rank=2", 65, "\"h.0\" (Mlp) is not a linear"),
            ("h.*:rank=2", 65, "not a linear layer"),
            ("h.0.fc3:rank=2", 65, "the nearest name is \"h.0.fc1\""),
            ("head:rank=5", 65, "1 to 4"), ("head:rank=0", 64, "1 or more"),
            ("head:rank=-1", 64, "1 or more"), ("head", 64, "PATTERN:rank"),
            ("head:alpha=2", 64, "PATTERN:rank"),
            ("head:rank=2,alpha=nan", 64, "alpha"),
            ("head:rank=2,x=1", 64, "PATTERN:rank")):
        with b.case(f"refused: {spec}"):
            said = b.call("split", "model.pt2", "-o", "bad", "--lora", spec,
                          code=code)
            assert words in said, said
            assert not (b.folder / "bad").exists()
    b.call("split", "model.pt2", "-o", "plan")
    for option in "--merge", "--adapter":
        with b.case(f"refused: no adapters, {option}"):
            said = b.call("weights", "plan", "-o", "none.safetensors", option,
                          code=65)
            assert "has no adapters" in said, said
            assert not (b.folder / "none.safetensors").exists()
    b.export(Headed(), torch.randn(ROWS, 6))
    b.call("split", "model.pt2", "-o", "plan", "--lora", "head:rank=2")
    with b.case("refused: merged with what is tied"):
        said = b.call("weights", "plan", "-o", "none.safetensors", "--merge",
                      code=65)
        assert "\"head\" is tied" in said, said
        b.call("weights", "plan", "-o", "adapter", "--adapter")


if __name__ == "__main__":
    sys.exit(bench.main(Bench, (layers, dtypes, sizes, starts, resumed,
                                one_call, refused), seed=1))
