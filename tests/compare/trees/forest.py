# SPDX-License-Identifier: Apache-2.0
"""Makes random trees of modules, as Python source.

A model is a text, so that a failing one can be read and run again. Modules
call their children any number of times, with constants that specialise the
children and the modules below. Children have several names or several parents,
parameters are tied, buffers are written. Modules return their input, call
themselves, or call a module that is registered elsewhere.
"""
import linecache
import random
import re
import sys
import types

ROWS, WIDTH = 3, 4

HEAD = """\
import torch
from torch import nn

torch.manual_seed({seed})


def weight():
    return nn.Parameter(0.5 + torch.rand(4))


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = weight()


class Fetch(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = Holder()


class Pair(nn.Module):
    def forward(self, pair, y, unused=None):
        return {{"x": pair[0] * y["key"], "w": y["key"] - 0.5}}
"""

# Modules without children: name -> (lines of __init__, lines of forward).
LEAVES = {
    "Flag": ([], ["return x + 0.5 if flag else x * 0.75"]),
    "Third": ([], ["return x - 0.25 if flag else torch.sin(x)"]),
    "Scale": (["self.w = weight()"], ["return x * self.w"]),
    "Both": (["self.w = weight()", "self.v = weight()"],
             ["return x * self.w if flag else x * self.v + 1"]),
    "Lin": (["self.lin = nn.Linear(4, 4)"], ["return self.lin(x)"]),
    "Maybe": ([], ["return x * 0.5 if flag else x"]),
    "Same": ([], ["return x"]),
    "Count": (['self.register_buffer("b", torch.full((4,), 0.5))'],
              ["self.b.add_(0.25 if flag else 0.5)",
               "return x + self.b"]),
    "Halve": (['self.register_buffer("b", torch.ones(4))',
               'self.register_buffer("c", torch.zeros(4), persistent=False)'],
              ["x = x + self.b", "self.b.mul_(0.5)",
               "self.c.mul_(0.5).add_(x.detach().mean(0))",
               "return x + self.c if flag else x - self.c"]),
    "Norm": (["self.bn = nn.BatchNorm1d(4)"], ["return self.bn(x)"]),
    "Layer": (["self.ln = nn.LayerNorm(4)"], ["return self.ln(x)"]),
    "Const": (["self.k = torch.tensor([0.5, 1.0, 0.25, 2.0])"],
              ["return x + self.k if flag else x * self.k"]),
    "Again": (["self.w = weight()"],
              ["if k == 0:", "    return x",
               "return self(x * self.w, flag, k - 1) + 0.5"]),
    "Write": ([], ["y = x * 2", "y[:, :2].mul_(0.5 if flag else 0.25)",
                   "return torch.tanh(y)"]),
    "Bare": (["self.f = Fetch()"], ["return x + self.f.h.w"]),
    "Hush": (["self.w = weight()"],
             ["with torch.no_grad():", "    y = x * self.w",
              "return x + y if flag else y + x * self.w"]),
    "Branch": (["self.n = Scale()"],
               ["return torch.cond(x.sum() > 0, lambda x: self.n(x) + 1,",
                "                  lambda x: x - self.n(x), (x,))"]),
    "Few": (["self.p = Pair()"],
            ['r = self.p((x, x + 1), y={"key": x * 2})',
             'return torch.tanh(r["x"] + r["w"] if flag else r["x"])']),
}
# These classes write buffers, so they cannot be in a branch.
WRITES = {"Count", "Halve", "Norm"}
TIES = {"Scale", "Both", "Again", "Hush"}


class Forest:
    """Makes the source of one model."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.classes = {}  # modules with children: name -> text
        self.used = set(["Scale"])
        self.past = []  # classes that call a module registered elsewhere
        self.text = HEAD.format(seed=seed)
        root = self.inner(self.rng.randint(2, 4), root=True)
        for name in sorted(self.used):
            self.text += self.leaf(name)
        for text in self.classes.values():
            self.text += text
        self.text += self.root(root)

    def leaf(self, name):
        init, body = LEAVES[name]
        return self.wrap(name, init, body)

    @staticmethod
    def wrap(name, init, body):
        lines = ["", "", f"class {name}(nn.Module):"]
        if init:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += ["        " + line for line in init] + [""]
        lines += ["    def forward(self, x, flag=False, k=2):"]
        lines += ["        " + line for line in body]
        return "\n".join(lines) + "\n"

    def choose(self):
        return self.rng.choice(sorted(LEAVES))

    def make(self, depth):
        """Returns the name of the class of a child: one without children, one
        that exists, or a new one."""
        if depth == 0 or self.rng.random() < 0.35:
            name = self.choose()
            self.used.add(name)
            return name
        if self.classes and self.rng.random() < 0.3:
            return self.rng.choice(sorted(self.classes))
        return self.inner(depth - 1)

    def flag(self):
        return self.rng.choice(["True", "False", "flag", "not flag"])

    def inner(self, depth, root=False):
        rng = self.rng
        init, names, kinds = [], [], {}
        for i in range(rng.randint(1, 3)):
            name = "abc"[i]
            kinds[name] = self.make(depth)
            init.append(f"self.{name} = {kinds[name]}()")
            names.append(name)
        if rng.random() < 0.25:  # gives a child a second name
            other = rng.choice(names)
            init.append(f"self.z = self.{other}")
            kinds["z"] = kinds[other]
            names.append("z")
        if rng.random() < 0.2:
            init.append(f"self.ms = nn.ModuleList([{self.listed(names)}])")
            names.append("ms")
        if rng.random() < 0.3:
            init.append("self.w = weight()")
        body = []
        for _ in range(rng.randint(2, 5)):
            body += self.statement(names, init)
        if rng.random() < 0.1 and not root:
            self.past.append(None)
            init.append("self.other = []")
            body.append(f"x = self.other[0](x, {self.flag()}) if self.other "
                        "else x")
        body.append("return torch.tanh(x)" if rng.random() < 0.5 else
                    "return x")
        name = f"Part{len(self.classes)}"
        self.classes[name] = self.wrap(name, init, body)
        return name

    def listed(self, names):
        """Returns the items of a ModuleList: existing modules, which get a
        second name, or new ones."""
        self.used.update(("Scale", "Lin"))
        return ", ".join(self.rng.choice([f"self.{n}" for n in names] +
                                         ["Scale()", "Lin()"])
                         for _ in range(self.rng.randint(1, 3)))

    def call(self, names):
        name = self.rng.choice(names)
        if name == "ms":
            name = "ms[0]"
        elif self.rng.random() < 0.03 and "a" in names:
            name = "a"
        flag = self.flag()
        return f"self.{name}(x, {flag})" if flag != "False" or \
            self.rng.random() < 0.7 else f"self.{name}(x)"

    def statement(self, names, init):
        rng = self.rng
        pick = rng.random()
        if pick < 0.38:
            return [f"x = {self.call(names)}"]
        if pick < 0.48:
            return [f"x = x + {self.call(names)}"]
        if pick < 0.55:
            return [f"y = {self.call(names)}",
                    f"x = {self.call(names)} - y * 0.5"]
        if pick < 0.62:
            return ["with torch.no_grad():", f"    y = {self.call(names)}",
                    *([f"    y = y + {self.call(names)}"]
                      if rng.random() < 0.5 else []),
                    "x = x + y * 0.5"]
        if pick < 0.68 and "ms" in names:
            return ["for m in self.ms:", f"    x = m(x, {self.flag()})"]
        if pick < 0.75 and "self.w = weight()" in init:
            return ["x = x * self.w"]
        if pick < 0.82:
            return [f"x = x + {rng.choice([0.25, 0.5])} if flag else "
                    f"x * {rng.choice([0.5, 0.75])}"]
        if pick < 0.88:
            return ["x = torch.tanh(x)"]
        if pick < 0.92:
            return ["y = x * 1.5", "y.add_(0.25 if flag else 0.5)", "x = y"]
        if pick < 0.96:
            return ["x = torch.relu(x + 0.5)"]
        return [f"x = x + {rng.choice([1, 0.5])}"]

    def root(self, name):
        return f"""

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.part = {name}()
        self.more = {self.rng.choice(sorted(self.classes))}()
        self.far = Scale()
        scales = [m for m in self.modules() if type(m).__name__ in
                  {sorted(TIES)!r}]
        for m in scales[1::{self.rng.randint(2, 4)}]:
            if {self.rng.random() < 0.4}:
                m.w = scales[0].w
        for m in self.modules():
            if hasattr(m, "other"):
                m.other.append(self.far)

    def forward(self, x):
        h = self.first(x)
        h = self.part(h, {self.rng.random() < 0.5})
        h = self.more(h) + self.part(x, {self.rng.random() < 0.5})
        return h.pow(2).mean(), torch.tanh(h)
"""


def operators(text):
    """Estimates the number of operators of the model from its text."""
    cost = {}
    for name, body in re.findall(r"class (\w+)\(nn.Module\):(.*?)(?=\nclass|$)",
                                 text, re.S):
        kinds = dict(re.findall(r"self\.(\w+) = (\w+)\(\)", body))
        kinds["z"] = kinds.get("z") or max(kinds.values(), key=lambda k:
                                           cost.get(k, 1), default="")
        forward = body.partition("def forward")[2]
        cost[name] = len(forward.splitlines()) + sum(
            cost.get(kinds.get(n, ""), 1)
            for n in re.findall(r"self\.(\w+)(?:\[0\])?\(", forward))
    return cost["Model"]


def source(seed, most=250):
    """Returns the first model of this seed that is not too large."""
    for k in range(1000):
        text = Forest(seed + k * 1000003).text
        if operators(text) <= most:
            return text
    raise AssertionError("no small model")


def load(text, name="forest"):
    """Executes the source of a model as a Python module of this name; returns
    the Python module."""
    sys.modules[name] = ret = types.ModuleType(name)
    linecache.cache[f"{name}.py"] = (len(text), None,
                                     text.splitlines(True), f"{name}.py")
    exec(compile(text, f"{name}.py", "exec"), ret.__dict__)
    return ret
