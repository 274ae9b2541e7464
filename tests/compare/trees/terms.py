# SPDX-License-Identifier: Apache-2.0
"""Makes random models whose loss is a sum of terms, as Python source.

Values are rows (`x`, of shape (N, 4)), vectors (4,) and scalars; parameters and
buffers are values like others, and so are views. Any of them may be read again
later, so that a cut anywhere has stages without parameters, stages that only
pass a value on, change its view or add, and scalars between stages. Terms of
the loss come from anywhere and are added one by one at the end, or in between.
"""
import random
import re

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed({seed})


class Model(nn.Module):
    def __init__(self):
        super().__init__()
"""
STATE = {
    "w": "nn.Parameter(0.5 + torch.rand(4))",
    "s": "nn.Parameter(0.5 + torch.rand(()))",
    "lin": "nn.Linear(4, 4)",
    "b": "torch.full((4,), 0.5)",
    "head": "nn.Linear(4, 3)",
}
# Expressions by the kind of their result. x, y: rows; v: a vector; s, t:
# scalars; W: a parameter (4,), S: a parameter (), L: a linear layer.
ROWS = ["torch.tanh(L(x))", "torch.tanh(L(x))", "x * W", "x + y", "x * y * 0.5",
        "torch.tanh(x)", "torch.sigmoid(x) * W", "x * s", "x + s", "x * v",
        "x - v * 0.5", "x.clone()", "x.detach() + y", "F.layer_norm(x, (4,))",
        "torch.softmax(x, -1)", "torch.relu(x) + W", "x - x.mean(0)",
        "x * x.mean()", "torch.where(x > 0, x, y * S)",
        "torch.cat([x[:, :2], y[:, 2:]], 1)", "F.linear(x, torch.outer(v, v))"]
VIEWS = ["x.view(-1, 4)", "x.t().t()", "x.unsqueeze(1).squeeze(1)",
         "x.flip(1).flip(1)", "x.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4)",
         "x.view_as(x)", "x.expand(-1, -1)"]
VECTORS = ["W", "W * 1.0", "W + v", "v * s", "x.mean(0)", "torch.tanh(v)",
           "L.weight.mean(0)", "L.weight[1]", "v.view(2, 2).t().reshape(4)",
           "torch.sigmoid(W)", "x.detach().mean(0) + W", "v.flip(0)"]
SCALARS = ["x.mean()", "x.pow(2).mean()", "x.abs().sum() * 0.1", "v.sum()",
           "W.pow(2).sum()", "S", "S * 1.0", "s + t", "s * t * 0.5", "s * 0.5",
           "s.view(1).squeeze(0)", "v[2]", "torch.tanh(s)", "x[0, 1]",
           "L.weight.pow(2).mean()", "(x - y).pow(2).mean()", "s.detach() * t",
           "x.mean(1).pow(2).mean()", "s.clone()", "x.detach().mean() * S"]


class Terms:
    """Makes the source of one model."""

    def __init__(self, seed):
        rng = self.rng = random.Random(seed)
        self.tokens = rng.random() < .4  # its loss is a cross entropy alone
        self.classes = self.tokens or rng.random() < .3
        self.whole = rng.random() < .2  # an input that is not divided
        self.n = {"w": 0, "s": 0, "lin": 0, "b": 0}
        self.body, self.count = [], 0
        self.rows, self.vectors, self.scalars = ["x"], [], []
        self.add("torch.tanh(L(x))", self.rows)
        self.add("W", self.vectors)
        if self.whole:
            self.vectors.append("whole")
        self.add("x.mean()", self.scalars)
        self.terms = []
        for _ in range(rng.randint(4, 22)):
            self.statement()
        self.loss()
        self.text = self.source(seed)

    def old(self, name):
        """Returns the name of state of this kind; half of it is in use
        already."""
        if self.n[name] == 0 or self.rng.random() < .5 and self.n[name] < 6:
            self.n[name] += 1
        return f"self.{name}{self.rng.randrange(self.n[name])}"

    def pick(self, values):
        """Returns one of the newest values, or any."""
        return self.rng.choice(values[-3:] if self.rng.random() < .5 else
                               values)

    def fill(self, text):
        draw = {"x": lambda: self.pick(self.rows),
                "y": lambda: self.pick(self.rows),
                "v": lambda: self.pick(self.vectors),
                "s": lambda: self.pick(self.scalars),
                "t": lambda: self.pick(self.scalars),
                "W": lambda: self.old("w"), "S": lambda: self.old("s"),
                "L": lambda: self.old("lin")}
        drawn = {}

        def one(match):
            name = match[0]
            return drawn.setdefault(name, draw[name]())
        return re.sub(r"(?<![\w.])[xyvstWSL](?!\w)", one, text)

    def add(self, text, values):
        letter = ("r" if values is self.rows else
                  "v" if values is self.vectors else "s")
        name = f"{letter}{self.count}"
        self.count += 1
        self.body.append(f"{name} = {self.fill(text)}")
        values.append(name)
        return name

    def statement(self):
        rng = self.rng
        pick = rng.random()
        if pick < .42:
            self.add(rng.choice(ROWS), self.rows)
        elif pick < .52:
            self.add(rng.choice(VIEWS), self.rows)
        elif pick < .66:
            self.add(rng.choice(VECTORS), self.vectors)
        elif pick < .86:
            self.add(rng.choice(SCALARS), self.scalars)
        elif pick < .92:
            buffer = self.old("b")
            self.body.append(f"{buffer}.mul_(0.5).add_("
                             f"{self.pick(self.rows)}.detach().mean(0))")
            self.add(rng.choice([buffer + " * 1.0", "v + " + buffer]),
                     self.vectors)
        elif pick < .96:
            name = self.add("x * 1.5", self.rows)
            self.body.append(f"{name}[:, :2].mul_(0.5)")
        else:
            self.terms.append(self.pick(self.scalars))

    def loss(self):
        rng = self.rng
        main = self.pick(self.rows)
        if self.classes:
            scale = rng.choice(["", "", " * 0.5"]) if self.tokens else ""
            self.body += [f"z = self.head({main})",
                          f"loss = F.cross_entropy(z, label){scale}"]
        else:
            self.body.append("loss = " + rng.choice(
                [f"{main}.pow(2).mean()", f"(torch.tanh({main}) - x).pow(2)"
                 ".mean()", f"{main}.mean()", self.pick(self.scalars)]))
        if self.tokens:
            return
        terms = self.terms + [self.pick(self.scalars)
                              for _ in range(rng.randint(0, 4))]
        rng.shuffle(terms)
        if len(terms) > 1 and rng.random() < .2:
            self.body.append(f"loss = loss + torch.stack([{', '.join(terms)}])"
                             f".{rng.choice(['sum', 'mean'])}()")
        else:
            for term in terms:
                self.body.append("loss = " + rng.choice(
                    ["loss + {}", "loss + {}", "loss + {} * 0.5", "{} + loss",
                     "loss - {}"]).format(term))
        if rng.random() < .15:
            self.body.append("loss = " + rng.choice(
                ["loss.clone()", "loss.view(1).squeeze(0)", "loss * 1.0"]))

    def source(self, seed):
        lines = [HEAD.format(seed=seed).rstrip("\n")]
        for name, n in self.n.items():
            for i in range(n):
                text = (f'self.register_buffer("b{i}", {STATE[name]})'
                        if name == "b" else f"self.{name}{i} = {STATE[name]}")
                lines.append("        " + text)
        if self.classes:
            lines.append("        self.head = " + STATE["head"])
        inputs = ["x", "label"] + ["whole"] * self.whole
        lines += ["", f"    def forward(self, {', '.join(inputs)}):"]
        lines += ["        " + line for line in self.body]
        values = [v for v in self.rows + self.vectors + self.scalars
                  if v not in ("x", "whole")]
        outputs = self.rng.sample(values, self.rng.randint(0, 3))
        if not self.classes:
            outputs.append("label + 1")
        lines.append(f"        return {', '.join(['loss', *outputs])},")
        return "\n".join(lines) + "\n"
