#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares models with modules replaced at the split (`--swap`) with PyTorch
models that have the other module: loss, gradients and buffers of a step.

    swap.py PENSTOCK WORKDIR [--seed N]

The seed draws weights and data. Ends with "N passed, N failed".
"""
import copy
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import bench  # noqa: E402

ROWS = 3  # rows per microbatch


# --- models and modules ------------------------------------------------------

class Flag(nn.Module):
    def forward(self, x, plus_one):
        return x + 1 if plus_one else x + 2


class Plus(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x, *_):
        return x + self.k


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))

    def forward(self, x, *_):
        return x * self.w


class Chain(nn.Sequential):
    def forward(self, x, *_):
        return super().forward(x)


class Twice(nn.Module):
    """A model that calls one module with two constants. The model to compare
    with has two modules."""
    def __init__(self, first=None, second=None):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.n = first if first is not None else Flag()
        if second is not None:
            self.other = second

    def forward(self, x):
        x = self.n(self.lin(x) + 3, True) + 4
        second = self.other if hasattr(self, "other") else self.n
        return (second(x, False) + 5).pow(2).mean()


class Block(nn.Module):
    def __init__(self, width=8, p=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.fc = nn.Linear(4, width)
        self.out = nn.Linear(width, 4)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.out(torch.tanh(self.fc(self.norm(x)))))


class Deep(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.h = nn.ModuleList([Block(p=p) for _ in range(3)])

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x.pow(2).mean()


class Normed(nn.Module):
    """A model that calls a module with buffers twice."""
    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(4, 4), nn.Linear(4, 4)
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.c(self.bn(self.bn(self.a(x)))).pow(2).mean()


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4, momentum=0.5)
        self.w = nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return self.bn(x) * self.w + self.count


class Before(nn.Module):
    """A model that writes in place into the argument and a result of its
    module."""
    def __init__(self, q):
        super().__init__()
        self.o, self.q = nn.Linear(4, 4), q

    def forward(self, x):
        y = self.o(x) * 1.5
        y.add_(0.25)
        y = self.q(y)
        y.mul_(2)
        return y.pow(2).mean()


class Shared(nn.Module):
    """A model in which one layer norm has three names."""
    def __init__(self):
        super().__init__()
        norm = nn.LayerNorm(4)
        self.norms = nn.ModuleList([norm, norm, norm])
        self.o = nn.Linear(4, 4)

    def forward(self, x):
        for norm in self.norms:
            x = self.o(norm(x))
        return x.pow(2).mean()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.mid = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.mid(self.a(x)))).pow(2).mean()


class Pair(nn.Module):
    def forward(self, pair, y):
        return pair[0] * y["key"] - pair[1], y["key"] + 1


class OtherPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))

    def forward(self, pair, y):
        return pair[0] - y["key"] * pair[1] * self.w, pair[1] * 3


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.t = Pair()

    def forward(self, x):
        a, b = self.t((self.lin(x), x + 1), y={"key": x * 2})
        return (a * b).mean()


class Viewed(nn.Module):
    def __init__(self, *shapes):
        super().__init__()
        self.shapes = shapes

    def forward(self, x):
        for shape in self.shapes:
            x = x.view(shape)
        return x


class Written(nn.Module):
    """A model that writes in place into the result of q, which may be a view
    of h."""
    def __init__(self, q):
        super().__init__()
        self.p, self.q = nn.Linear(4, 4), q

    def forward(self, x):
        h = self.p(x)
        g = self.q(h)
        g.mul_(2)
        return (g * h).mean()


# --- a case ------------------------------------------------------------------

class Bench(bench.Bench):
    def __init__(self, penstock, folder):
        super().__init__(penstock, folder)
        self.x = torch.randn(2 * ROWS, 4)
        save_file({"x": self.x}, folder / "x.safetensors")

    def export(self, name, module, args=None, kwargs=None, **how):
        args = (self.x[:ROWS],) if args is None else args
        torch.export.save(torch.export.export(module, args, kwargs, **how),
                          self.folder / f"{name}.pt2")
        return f"{name}.pt2"

    def step(self, ranks, *options, steps=1, lr="0"):
        self.call("split", "model.pt2", "-o", "plan", "--stages", str(ranks),
                  *options)
        self.call("run", "plan", "--transport", "self", "-m", "2", "--steps",
                  str(steps), "--lr", lr, "--data", "x.safetensors", "--dump",
                  "dump", "--ranks", str(ranks), "--optimizer", "sgd")
        return load_file(self.folder / "dump")

    def equal(self, have, eager, renamed, n_rows=ROWS):
        """Compares a dump with PyTorch's tensors. The dump has only one name
        of a tied tensor."""
        loss = 0
        for rows in self.x.split(n_rows):
            part = eager(rows) / 2
            part.backward()
            loss += part.item()
        assert abs(have["loss"].item() - loss) <= 1e-5 * max(1, abs(loss)), (
            "loss", have["loss"], loss)
        tensors = {}
        for n, p in eager.named_parameters(remove_duplicate=False):
            grad = p.grad if p.grad is not None else torch.zeros_like(p)
            tensors.setdefault(id(p), ([], grad))[0].append(
                "grad." + renamed(n))
        for n, b in eager.named_buffers():
            if b.is_floating_point():
                tensors[id(b)] = (["buffer." + renamed(n)], b)
        for names, want in tensors.values():
            found = [n for n in names if n in have]
            assert len(found) == 1, (names, sorted(have))
            error = (have[found[0]].view_as(want) - want).abs().max().item()
            assert error <= 1e-5 * max(1, want.abs().max()), (found, error)
        known = {n for names, _ in tensors.values() for n in names}
        extra = [n for n in have
                 if n.startswith(("grad.", "buffer.")) and n not in known
                 and not n.endswith("num_batches_tracked")]
        assert not extra, extra

    def compare(self, name, model, swaps, eager, renamed=lambda n: n,
                aliases=False, **how):
        """Compares a swapped model with PyTorch. swaps: FQN[@K] -> module, or
        (module, arguments)."""
        self.export("model", copy.deepcopy(model), **how)
        options = ["--aliases"] if aliases else []
        how.pop("preserve_module_call_signature", None)
        for i, (where, what) in enumerate(swaps.items()):
            module, *given = what if isinstance(what, tuple) else (what,)
            file = self.export(f"m{i}", copy.deepcopy(module), *given, **how)
            options += ["--swap", f"{where}={file}"]
        for ranks in 1, 2:
            with self.case(f"{name}, {ranks} stages"):
                self.equal(self.step(ranks, *options), copy.deepcopy(eager),
                           renamed)


def with_module(model, path, module):
    """Returns a copy of the model with another module at the path."""
    model, module = copy.deepcopy(model), copy.deepcopy(module)
    outer, _, name = path.rpartition(".")
    setattr(model.get_submodule(outer), name, module)
    return model


def calls(b):
    model, scale = Twice(), Scale()
    b.compare("all calls", model, {"n": Plus(100)},
              with_module(model, "n", Plus(100)))
    two = Twice(Plus(5), Plus(6))
    two.lin = model.lin
    b.compare("each call its own", model, {"n@0": Plus(5), "n@1": Plus(6)},
              two)
    one = Twice(Plus(1), scale)
    one.lin = model.lin
    b.compare("one call", model, {"n@1": scale}, one,
              lambda n: n.replace("other.", "n@1."))
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    two = Twice(Plus(1), Chain(scale, inner[1]))
    two.lin = model.lin
    b.export("m1", nn.Linear(4, 4))
    b.export("m2", copy.deepcopy(inner))
    b.export("m3", copy.deepcopy(scale))
    b.export("m4", Plus(1))
    b.export("model", model)
    with b.case("again, and in what was replaced"):
        have = b.step(1, *(part for swap in (
            "n@1=m1", "n@1=m2", "n.0=m3", "n@0=m4") for part in (
                "--swap", f"{swap}.pt2")))
        b.equal(have, two, lambda n: {
            "other.0.w": "n.0.w", "other.1.weight": "n@1.1.weight",
            "other.1.bias": "n@1.1.bias"}.get(n, n))
    b.compare("calls share a parameter", model, {"n": scale},
              with_module(model, "n", scale))


def layers(b):
    model = Deep()
    block = Block(16)
    b.compare("a block", model, {"h.1": block},
              with_module(model, "h.1", block))
    inner = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 8))
    b.compare("a layer becomes two", model, {"h.0.fc": inner},
              with_module(model, "h.0.fc", inner))
    normed, counted = Normed(), Counted()
    b.compare("buffers", normed, {"bn": counted},
              with_module(normed, "bn", counted))
    b.compare("buffers that go", normed, {"bn": Plus(1)},
              with_module(normed, "bn", Plus(1)))


def names(b):
    shared, tied, scale = Shared(), Tied(), Scale()
    b.compare("one of three names", shared, {"norms.1": scale},
              with_module(shared, "norms.1", scale))
    eager = copy.deepcopy(shared)
    eager.norms = nn.ModuleList([scale] * 3)
    b.compare("all names", shared, {"norms.0": scale}, eager, aliases=True,
              strict=True)
    b.compare("all names, by the state", shared, {"norms.0": scale}, eager,
              aliases=True)
    linear = nn.Linear(4, 4)
    for name in "a", "b":
        b.compare(f"a tied layer, {name}", tied, {name: linear},
                  with_module(tied, name, linear))
    nested, other = Nested(), OtherPair()
    x = b.x[:ROWS]
    b.compare("arguments in containers", nested,
              {"t": (other, ((x, x + 1),), {"y": {"key": x * 2}})},
              with_module(nested, "t", other),
              preserve_module_call_signature=("t",))


def written(b):
    """Checks results of a new module that the model writes in place: it
    matters whether they share memory with other tensors."""
    linear, plus = nn.Linear(4, 4), Plus(1)
    model = Written(nn.Linear(4, 4))
    b.compare("another that makes its result", model, {"q": plus},
              with_module(model, "q", plus))
    before = Before(nn.Linear(4, 4))
    for how in {}, {"preserve_module_call_signature": ("q",)}:
        b.compare(f"of what was written before {len(how)}", before,
                  {"q": linear}, with_module(before, "q", linear), **how)
    b.export("model", model)
    b.export("m0", Viewed((-1, 4)))
    with b.case("refused: returns its input"):
        said = b.call("split", "model.pt2", "-o", "plan", "--swap",
                      "q=m0.pt2", code=65)
        assert "return a clone()" in said, said
    model = Written(Viewed((-1, 4)))
    b.compare("another that returns its input", model, {"q": Viewed(-1, (-1, 4))},
              with_module(model, "q", Viewed(-1, (-1, 4))))
    b.export("model", model)
    b.export("m0", linear)
    with b.case("refused: the old one returns its input"):
        said = b.call("split", "model.pt2", "-o", "plan", "--swap",
                      "q=m0.pt2", code=65)
        assert "of the old module" in said, said


def bits(b):
    """Checks that swapping in an equal block changes no bit, random numbers
    included."""
    model = Deep(p=0.3)
    b.export("model", model)
    b.export("m0", model.h[1])
    with b.case("an equal block with dropout"):
        old = b.step(2, steps=2, lr="0.1")
        new = b.step(2, "--swap", "h.1=m0.pt2", steps=2, lr="0.1")
        assert old.keys() == new.keys()
        for name, tensor in old.items():
            assert torch.equal(tensor, new[name]), name


def frozen(b):
    """Checks that parameters frozen at the split behave as if frozen in
    PyTorch."""
    model = Deep(p=0.3)
    b.export("model", model)
    new = [b.step(2, *options, steps=3, lr="0.1") for options in (
        ["--freeze", "h.1", "--freeze", "h.0.fc"],
        ["--freeze", "*", "--unfreeze", "h.2", "--unfreeze", "h.0.[no]*"])]
    for part in model.h[1], model.h[0].fc:
        part.requires_grad_(False)
    b.export("model", model)
    old = b.step(2, steps=3, lr="0.1")
    for i, have in enumerate(new):
        with b.case(f"frozen, {i}"):
            assert old.keys() == have.keys(), old.keys() ^ have.keys()
            for name, tensor in old.items():
                assert torch.equal(tensor, have[name]), name


class Turned(nn.Module):
    """A module whose export has the sizes of its inputs as constants."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        rows = x.reshape(x.shape[0] * x.shape[1], 4) @ self.w
        mean = rows.sum(0) / (x.shape[0] * x.shape[1])
        return (rows + mean).reshape(x.shape[0], x.shape[1], 4)


class Square(nn.Module):
    def forward(self, x):
        return x + torch.eye(x.shape[0])[:, :1].unsqueeze(1) * x.shape[1]


class Sum(nn.Module):
    def forward(self, p, q):
        return p.sum(-1) - q.prod(-1)


class Other(nn.Module):
    def forward(self, u, v):
        return (v + 1).sum(-1) * u.mean(-1)


class Turn(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, p, q):
        return self.module(q, p)


class Uneven(nn.Module):
    """A model that passes inputs to m which can be matched only by their
    shapes."""
    def __init__(self, m):
        super().__init__()
        self.lin, self.m = nn.Linear(4, 4), m

    def forward(self, x):
        x = self.lin(x)
        return self.m(x, x[:, :2] * 2).pow(2).mean()


def sizes(b):
    """Checks that free sizes stay free if the new module's file leaves them
    free, too, whatever sizes it was exported with."""
    free = ({0: torch.export.Dim("b"), 1: torch.export.Dim("t")},)
    uneven = Uneven(Sum())
    b.export("model", copy.deepcopy(uneven))
    width = {1: torch.export.Dim.DYNAMIC}
    b.export("m0", Other(), (torch.randn(ROWS, 2), torch.randn(ROWS, 4)),
             dynamic_shapes=(width, width))
    with b.case("free sizes, told by those of the export"):
        b.equal(b.step(1, "--swap", "m=m0.pt2"),
                with_module(uneven, "m", Turn(Other())), lambda n: n)
    model, x = Deep(), torch.randn(ROWS, 5, 4)
    long = torch.randn(2 * (ROWS + 2), 9, 4)
    b.export("model", model, (x,), dynamic_shapes=free)

    def step(*options, code=0):
        save_file({"x": long}, b.folder / "x.safetensors")
        said = b.call("run", "plan", "--transport", "self", "-m", "2",
                      "--steps", "1", "--lr", "0", "--data", "x.safetensors",
                      "--dump", "dump", "--ranks", "2", "--optimizer", "sgd",
                      "--microbatch-size", str(ROWS + 2), "--size", "x.1=9",
                      code=code)
        save_file({"x": b.x}, b.folder / "x.safetensors")
        return said

    for name, module, given in (
            ("a block", Block(16), torch.randn(7, 3, 4)),
            ("the same sizes", Block(16), x),
            ("sizes in it", Turned(), torch.randn(2, 6, 4)),
            ("made of sizes", Square(), torch.randn(4, 7, 4))):
        b.export("m0", copy.deepcopy(module), (given,), dynamic_shapes=free)
        with b.case(f"free sizes, {name}"):
            b.call("split", "model.pt2", "-o", "plan", "--stages", "2",
                   "--swap", "h.1=m0.pt2", "--swap", "h.2=m0.pt2")
            step()
            eager = with_module(with_module(model, "h.1", module), "h.2",
                                module)
            whole, b.x = b.x, long
            b.equal(load_file(b.folder / "dump"), eager, lambda n: n,
                    ROWS + 2)
            b.x = whole
    b.export("m0", Block(16), (x,))
    with b.case("free sizes, a file of fixed ones"):
        b.call("split", "model.pt2", "-o", "plan", "--stages", "2", "--swap",
               "h.1=m0.pt2")
        said = step(code=65)
        assert "replaced by one of fixed sizes" in said, said
    b.export("m0", Turned(), (torch.randn(9, 6, 4),), dynamic_shapes=(
        {0: torch.export.Dim("b", min=4), 1: torch.export.Dim("t")},))
    with b.case("free sizes, of another range"):
        said = b.call("split", "model.pt2", "-o", "plan", "--swap",
                      "h.1=m0.pt2", code=65)
        assert "4" in said, said
    b.export("m0", Turned(), (torch.randn(6, 6, 4),), dynamic_shapes=(
        {0: torch.export.Dim("n"), 1: torch.export.Dim("n")},))
    with b.case("free sizes, that have to be one"):
        said = b.call("split", "model.pt2", "-o", "plan", "--swap",
                      "h.1=m0.pt2", code=65)
        assert "is 3 in the new module" in said, said


def refused(b):
    b.export("model", Twice())
    b.export("plus", Plus(1))
    b.export("flag", Flag(), (b.x[:ROWS], True))
    b.export("wide", Plus(1), (torch.randn(ROWS, 5),))
    for spec, code, words in (
            ("nn=plus.pt2", 65, "the nearest name is \"n\""),
            ("n=wide.pt2", 65, "f32[3, 5]"),
            ("n@7=plus.pt2", 65, "has 2 calls"),
            ("n=flag.pt2", 65, "name the call"),
            ("n@x=plus.pt2", 64, "FQN@CALL"),
            ("n", 64, "FQN@CALL"),
            ("n=none.pt2", 74, "none.pt2")):
        with b.case(f"refused: {spec}"):
            said = b.call("split", "model.pt2", "-o", "plan", "--swap", spec,
                          code=code)
            assert words in said, said
    with b.case("refused: nothing to freeze"):
        said = b.call("split", "model.pt2", "-o", "plan", "--freeze",
                      "lin.weigth", code=65)
        assert 'the nearest name is "lin.weight"' in said, said
    with b.case("constants of the call that is named"):
        b.call("split", "model.pt2", "-o", "plan", "--swap", "n@0=flag.pt2")


if __name__ == "__main__":
    sys.exit(bench.main(Bench, (calls, layers, names, written, bits, frozen,
                                sizes, refused)))
