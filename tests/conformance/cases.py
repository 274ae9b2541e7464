# SPDX-License-Identifier: Apache-2.0
"""Tests cases 14, 15 and 25 to 31: losses, and the backward pass of a stage."""
import json

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split
from torch.nn import functional as F

from conformance import Failed, case, compare, compare_one, torch_step

SCHEDULES = ["gpipe", "1f1b", "zb-h1"]


def sum_mse(y, target):
    return F.mse_loss(y, target, reduction="sum")


# --- losses ------------------------------------------------------------------

class WithOutput(nn.Module):
    """A model that returns (out, loss); it has a split marker between its
    layers."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 8)

    def forward(self, x, target):
        h = torch.relu(self.a(x))
        pipe_split()
        y = self.b(h)
        return y, F.mse_loss(y, target)


@case("14 loss specification (False, True) of (out, loss)")
def loss_specification(t):
    model = WithOutput()
    batch = {"x": torch.randn(8, 16), "target": torch.randn(8, 8)}
    pt2 = t.export(model, {n: v[:4] for n, v in batch.items()})
    want = torch_step(model, batch, 2, loss=1)
    for spec in ("(False, True)", "[False, True]", "1", "-1"):
        compare(t.run(pt2, batch, 2, "--loss", spec), want)
    # Loss specifications that PyTorch refuses, with its messages.
    for spec, text in (
            ("(True, False, False)", "must match length of loss specification "
             "(True, False, False)"),
            ("(False, False)",
             "Did not find loss value in specification (False, False)"),
            ("{'out': True}",
             "must match type of loss specification {'out': True}"),
            ("True", "Loss spec must specify a dynamic value but got"),
            ("False", "Did not find any loss value according to "
             "output_loss_value_spec=False"),
            ("(False, (True,))", "must match type of loss specification "
             "(True,)")):
        said = t.split(pt2, "--loss", spec, code=65)
        if text not in said:
            raise Failed(f"--loss {spec} says: {said}")


class Wrapper(nn.Module):
    """A model whose only output is the loss (PyTorch emits no backward for
    it)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(),
                                    nn.Linear(16, 16), nn.ReLU(),
                                    nn.Linear(16, 4))

    def forward(self, x, target):
        return F.cross_entropy(self.layers(x), target)


@case("15 a wrapper that returns nothing but the loss")
def loss_wrapper(t):
    model = Wrapper()
    batch = {"x": torch.randn(8, 16), "target": torch.randint(4, (8,))}
    pt2 = t.export(model, {n: v[:4] for n, v in batch.items()})
    want = torch_step(model, batch, 2)
    for more in (["--loss", "True"], ["--stages", 3],
                 ["--at", "layers.2", "--at", "layers.4"]):
        compare(t.run(pt2, batch, 2, *more), want)


class Tower(nn.Module):
    def __init__(self, out=5):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 16)
        self.c = nn.Linear(16, out)

    def forward(self, x):
        h = self.b(torch.tanh(self.a(x)))
        return {"h": h, "y": self.c(torch.tanh(h))}


LOSSES = [
    ("cross_entropy:label_smoothing=0.1,output=y", (4, 8),
     lambda x: torch.randint(5, (len(x),)),
     lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1)),
    ("cross_entropy:ignore_index=2,output=y", (4, 6, 8),
     lambda x: torch.randint(5, (len(x), 6)),
     lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(),
                                  ignore_index=2)),
    ("cross_entropy:dim=1,output=y", (4, 6, 8),
     lambda x: torch.randint(6, (len(x), 5)), F.cross_entropy),
    ("cross_entropy:targets=probabilities,reduction=sum,output=y", (4, 6, 8),
     lambda x: torch.randn(len(x), 6, 5).softmax(-1),
     lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(0, 1),
                                  reduction="sum")),
    ("nll:output=y,ignore_index=1", (4, 8),
     lambda x: torch.randint(5, (len(x),)),
     lambda y, t: F.nll_loss(y, t, ignore_index=1)),
    ("mse:output=y", (4, 6, 8), lambda x: torch.randn(len(x), 6, 5),
     F.mse_loss),
    ("l1:output=y", (4, 8), lambda x: torch.randn(len(x), 5), F.l1_loss),
    ("smooth_l1:beta=0.5,output=y", (4, 8), lambda x: torch.randn(len(x), 5),
     lambda y, t: F.smooth_l1_loss(y, t, beta=0.5)),
    ("huber:delta=0.3,output=y", (4, 8), lambda x: torch.randn(len(x), 5),
     lambda y, t: F.huber_loss(y, t, delta=0.3)),
    ("bce_with_logits:output=y", (4, 8), lambda x: torch.rand(len(x), 5),
     F.binary_cross_entropy_with_logits),
    ("bce_with_logits:pos_weight=3,output=y", (4, 8),
     lambda x: (torch.randn(len(x), 5) > 0).float(),
     lambda y, t: F.binary_cross_entropy_with_logits(
         y, t, pos_weight=torch.tensor([3.0]))),
]


class Scored(nn.Module):
    """A model that adds a loss to another model, whose parameters keep their
    names."""

    def __init__(self, inner, loss):
        super().__init__()
        for n, m in inner.named_children():
            self.add_module(n, m)
        self.inner = [inner]
        self.loss = loss

    def forward(self, x, target):
        y = self.inner[0](x)
        return y["h"], y["y"], self.loss(y["y"], target)


@case("15b losses that penstock adds (--loss-fn)")
def loss_functions(t):
    for k, (spec, shape, target, loss) in enumerate(LOSSES):
        model = Tower()
        x = torch.randn(2 * shape[0], *shape[1:])
        batch = {"x": x, "target": target(x)}
        pt2 = t.export(model, {"x": x[:shape[0]]}, f"loss-{k}")
        scored = Scored(model, loss)
        want = torch_step(scored, batch, 2, loss=2)
        for more in (["--stages", 1], ["--stages", 3], ["--at", "c:end"]):
            try:
                compare(t.run(pt2, batch, 2, "--loss-fn", spec, *more), want)
            except Failed as e:
                raise Failed(f"{spec} {more}: {e}")


class Modes(nn.Module):
    """A model of modules that eval() changes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn2 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(144, 16)
        self.bn1 = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(16, 5)

    def forward(self, x, target):
        h = self.drop(torch.relu(self.bn2(self.conv(x)))).flatten(1)
        h = self.drop(self.bn1(self.fc(h)))
        q = h.view(-1, 2, 2, 4)
        h = F.scaled_dot_product_attention(
            q, q, q, dropout_p=0.3 if self.training else 0.0)
        return F.cross_entropy(self.out(h.reshape(-1, 16)), target)


MODES = {
    "Dropout": lambda: nn.Dropout(0.5, inplace=True),
    "Dropout1d": lambda: nn.Dropout1d(0.5),
    "Dropout2d": lambda: nn.Dropout2d(0.5),
    "AlphaDropout": lambda: nn.AlphaDropout(0.5),
    "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.5),
    "RReLU": lambda: nn.RReLU(),
    "LSTM": lambda: nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True),
    "GRU": lambda: nn.GRU(8, 8, 2, dropout=0.5, batch_first=True),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.5, batch_first=True),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "BatchNorm1d without statistics": lambda: nn.BatchNorm1d(
        6, track_running_stats=False),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(
        6, affine=True, track_running_stats=True),
    "InstanceNorm1d without statistics": lambda: nn.InstanceNorm1d(6),
}


class Mode(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.inner = make()

    def forward(self, x, target):
        h = self.inner(self.fc(x))
        return F.mse_loss(h[0] if isinstance(h, tuple) else h, target)


def evaluate(t, source, batch, m):
    data = t.data(batch)
    out = t.call(t.penstock, "eval", source, "--data", data, "-m", m, "--json")
    return json.loads(out.stdout)["loss"]


@case("15e eval() of each module that has modes")
def each_mode(t):
    for k, (name, make) in enumerate(MODES.items()):
        model = Mode(make)
        with torch.no_grad():
            for b in model.buffers():
                if b.is_floating_point():
                    b.uniform_(0.5, 2)
        batch = {n: torch.randn(8, 6, 8) for n in ("x", "target")}
        pt2 = t.export(model.train(), {n: v[:4] for n, v in batch.items()},
                       f"mode{k}")
        model.eval()
        want = sum(model(**{n: v.chunk(2)[i] for n, v in batch.items()})
                   .item() for i in range(2)) / 2
        got = evaluate(t, pt2, batch, 2)
        if abs(got - want) > 2e-6:
            raise Failed(f"{name}: {got}, not {want}")


@case("15c eval() of a model that was exported in training mode")
def modes(t):
    model = Modes()
    with torch.no_grad():
        model.bn2.running_mean.normal_()
        model.bn1.running_var.uniform_(0.5, 2)
    x, target = torch.randn(12, 3, 8, 8), torch.randint(5, (12,))
    for mode in (True, False):
        pt2 = t.export(model.train(mode), {"x": x[:4], "target": target[:4]})
        model.eval()
        want = sum(model(a, b).item() for a, b in
                   zip(x.chunk(3), target.chunk(3))) / 3
        plan, _ = t.split(pt2, "--stages", 3)
        for source in (pt2, plan):
            got = evaluate(t, source, {"x": x, "target": target}, 3)
            if abs(got - want) > 1e-6:
                raise Failed(f"{source}: {got}, not {want}")


def base(s, x):
    return s.b(torch.tanh(s.a(x)))


def no_grad(s, x):
    with torch.no_grad():
        return base(s, x)


ODD = {
    "the loss twice": lambda s, x, y: (
        lambda v: (v, v, base(s, x)))(F.mse_loss(base(s, x), y)),
    "made before the last layer": lambda s, x, y: (
        lambda h: (F.mse_loss(h, y), s.b(h)))(s.a(x)),
    "used by a later stage": lambda s, x, y: (
        lambda v: (v, s.b(x) * v))(F.mse_loss(s.a(x), y)),
    "a sum from two stages": lambda s, x, y: (lambda h: (
        F.mse_loss(h, y) + s.b(h).abs().mean(), h.mean()))(s.a(x)),
    "in f64": lambda s, x, y: F.mse_loss(base(s, x).double(), y.double()),
    "under a mask": lambda s, x, y: (
        base(s, x) * (y > 0)).sum() / (y > 0).sum().clamp(min=1),
    "with other things": lambda s, x, y: {
        "loss": base(s, x).square().mean(), "n": 3, "none": None,
        "rest": (x, "text", 2.5, base(s, x).argmax(-1), x[:0])},
    "with a parameter": lambda s, x, y: (
        F.mse_loss(base(s, x), y), s.a.weight),
    "behind detach": lambda s, x, y: (
        F.mse_loss(s.b(s.a(x).detach()), y), s.a(x)),
    "with a part under no_grad": lambda s, x, y: F.mse_loss(
        base(s, x) + no_grad(s, y), y),
    "with an empty value": lambda s, x, y: (
        F.mse_loss(base(s, x), y) + base(s, x)[:0].sum(), s.a(x)[:0]),
    "by one module twice": lambda s, x, y: F.mse_loss(
        s.b(s.a(torch.tanh(s.a(x)))), y),
    "the greatest value": lambda s, x, y: base(s, x).max(),
    "a norm": lambda s, x, y: (base(s, x) - y).norm(),
    "kl_div": lambda s, x, y: F.kl_div(
        base(s, x).log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "cosines": lambda s, x, y: (
        F.cosine_embedding_loss(base(s, x), y, torch.ones(4)),
        1 - F.cosine_similarity(base(s, x), y).mean()),
    "triplets": lambda s, x, y: F.triplet_margin_loss(base(s, x), y,
                                                      y.flip(0)),
    "focal": lambda s, x, y: (
        (1 - torch.sigmoid(base(s, x))) ** 2 *
        F.binary_cross_entropy_with_logits(
            base(s, x), (y > 0).float(), reduction="none")).mean(),
    "contrastive": lambda s, x, y: (lambda v: (
        F.cross_entropy(v, torch.arange(4)) +
        F.cross_entropy(v.T, torch.arange(4))) / 2)(
        F.normalize(base(s, x), dim=-1) @ F.normalize(y, dim=-1).T * 10),
}


class Odd(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = [function]
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)

    def forward(self, x, y):
        return self.function[0](self, x, y)


@case("15d losses of odd places and forms")
def odd_losses(t):
    for k, (name, function) in enumerate(ODD.items()):
        model = Odd(function)
        batch = {"x": torch.randn(8, 8), "y": torch.randn(8, 8)}
        pt2 = t.export(model, {n: v[:4] for n, v in batch.items()}, f"odd{k}")
        want = torch_step(model, batch, 2)
        for more in (["--policy", "flops", "--stages", 3], ["--at", "b"]):
            try:
                compare(t.run(pt2, batch, 2, *more), want)
            except Failed as e:
                raise Failed(f"{name} {more}: {e}")


# --- the backward pass of a stage --------------------------------------------

class Behind(nn.Module):
    """A stage whose input is a parameter x instead of the output of another
    stage: the gradient of x is the gradient that the stage would send back."""

    def __init__(self, shape, inner):
        super().__init__()
        self.x = nn.Parameter(torch.randn(shape))
        self.inner = inner

    def forward(self, zero, target):
        h = self.x + zero
        pipe_split()
        return sum_mse(self.inner(h), target)


def mlp():
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))


def stage(t, inner, shape=(256, 512), out=None):
    """Exports a stage. Returns (model, path of the .pt2 file, inputs,
    PyTorch's gradients)."""
    model = Behind(shape, inner)
    inputs = {"zero": torch.zeros(shape),
              "target": torch.randn(out or shape)}
    pt2 = t.export(model, inputs)
    want = torch_step(model, inputs, 1)
    return model, pt2, inputs, want


def check_stage(got, want, weights):
    compare_one(want, "grad.x", got["input.0"])
    names = {n for n in want if n.startswith("grad.inner.")}
    have = {n for n in got if n.startswith("grad.")}
    if have != (names if weights else set()):
        raise Failed(f"gradients of {sorted(have)}")
    for n in have:
        compare_one(want, n, got[n])


@case("25 full backward of a stage")
def full_backward(t):
    _, pt2, inputs, want = stage(t, mlp())
    check_stage(t.backward(pt2, inputs, "FIW"), want, True)
    compare(t.run(pt2, inputs, 1, schedule="gpipe"), want)


@case("26 input gradients alone: no parameter is touched")
def input_only(t):
    _, pt2, inputs, want = stage(t, mlp())
    check_stage(t.backward(pt2, inputs, "FI"), want, False)


@case("27 then the weights")
def then_weights(t):
    _, pt2, inputs, want = stage(t, mlp())
    compare(t.run(pt2, inputs, 1, schedule="zb-h1"), want)


@case("28 ten microbatches of I and W add up")
def ten_microbatches(t):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = mlp(), mlp()

        def forward(self, x, target):
            h = self.one(x)
            pipe_split()
            return sum_mse(self.two(h), target)

    model = Deep()
    batch = {n: torch.randn(2560, 512) for n in ("x", "target")}
    pt2 = t.export(model, {n: v[:256] for n, v in batch.items()})
    want = torch_step(model, batch, 10)
    dumps = [t.run(pt2, batch, 10, schedule=s) for s in SCHEDULES]
    for dump in dumps:
        compare(dump, want)
    for n in want:
        if not all(torch.equal(dumps[0][n], d[n]) for d in dumps):
            raise Failed(f"{n} depends on the schedule")


@case("29 a value with two results on the way")
def two_results(t):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(512, 512) / 16)
            self.b = nn.Parameter(torch.randn(256, 512) / 16)

        def forward(self, x):
            left, right = (x @ self.a).split(256, dim=1)
            return torch.tanh(left) @ self.b + torch.tanh(right) @ self.b

    _, pt2, inputs, want = stage(t, Two())
    check_stage(t.backward(pt2, inputs, "FI"), want, False)
    check_stage(t.backward(pt2, inputs, "FIW"), want, True)
    compare(t.run(pt2, inputs, 1, schedule="zb-h1"), want)


@case("30 no gradient of one of two results")
def half_a_gradient(t):
    class Half(nn.Module):
        def __init__(self, which):
            super().__init__()
            self.which = which
            self.a = nn.Parameter(torch.randn(512, 512) / 16)

        def forward(self, x):
            return torch.tanh(
                (x @ self.a).split(256, dim=1)[self.which])

    for which in (0, 1):
        _, pt2, inputs, want = stage(t, Half(which), out=(256, 256))
        check_stage(t.backward(pt2, inputs, "FI"), want, False)
        check_stage(t.backward(pt2, inputs, "FIW"), want, True)
        compare(t.run(pt2, inputs, 1, schedule="zb-h1"), want)


@case("31 a weight twice on one path: x @ w @ w")
def twice(t):
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(512, 512) / 22)

        def forward(self, x):
            return x @ self.w @ self.w

    _, pt2, inputs, want = stage(t, Square())
    check_stage(t.backward(pt2, inputs, "FI"), want, False)
    check_stage(t.backward(pt2, inputs, "FIW"), want, True)
    for schedule in SCHEDULES:
        compare(t.run(pt2, inputs, 1, schedule=schedule), want)
