# SPDX-License-Identifier: Apache-2.0
"""Defines tiny models for features of an export that have no node of their own
or were refused at first: regions of vmap and jvp, numbers read from constants,
loops, vectors as weights, writes into detached memory, fake quantisation.

Entries of SMALL are functions that return (module, function that makes one
microbatch).
"""
import torch
from torch import nn
from torch.nn import functional as F

SMALL = {}
# Models whose decomposed file lacks the detach (docs/models.md).
TRAINING_ONLY = ["cut", "returned"]


def small(*shape):
    """Registers a function (model, x) -> tensor as a model that has a layer
    before and one after it."""
    def entry(function):
        class Small(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)
                self.shift = nn.Parameter(torch.randn(6))
                self.register_buffer("table", torch.randn(5, 6))
                self.register_buffer("count", torch.tensor(2))

            def forward(self, x, wanted):
                y = function(self, self.up(x))
                return (self.down(y) - wanted).square().mean(), y

        SMALL[function.__name__] = lambda: (Small(), lambda: dict(
            x=torch.randn(*shape, 4), wanted=torch.randn(*shape, 3)))
        return function
    return entry


def index(x, *places):
    """Returns x[places] by the operator index; x[...] itself would read data
    on the host under vmap."""
    return torch.ops.aten.index.Tensor(x, places)


# --- regions of vmap and jvp that build masks ---------------------------------

@small(2, 3)
def masks(_, y):
    """Makes masks as in transformers.masking_utils: four nested vmaps; reads a
    mask of the batch by indices."""
    real = torch.arange(3).lt(torch.tensor([3, 2]).unsqueeze(1))

    def allowed(b, h, q, k):
        return (k <= q) & index(real, b, k) & ((q - k < 2) | (h == 0))

    for dims in ((None, None, None, 0), (None, None, 0, None),
                 (None, 0, None, None), (0, None, None, None)):
        allowed = torch.vmap(allowed, dims)
    mask = allowed(torch.arange(2), torch.arange(2), torch.arange(3),
                   torch.arange(3))
    heads = y.view(2, 3, 2, 3).transpose(1, 2)
    near = (heads @ heads.mT).masked_fill(~mask, -9.0).softmax(-1)
    return (near @ heads).transpose(1, 2).flatten(2)


@small(2, 3)
def distances(model, y):
    """Computes a value for each pair of positions by comparisons and
    `where`."""
    def far(i, j):
        d = (i - j).abs()
        return torch.where(d > 1, -0.5 * d, torch.logical_not(d == 0) * 0.25)

    places = torch.arange(3)
    bias = torch.vmap(torch.vmap(far, (None, 0)), (0, None))(places, places)
    return y + bias.to(y.dtype).softmax(-1) @ y * model.shift


@small(3, 2)
def lanes(model, y):
    """Applies vmap over the last dimension of one operand or of both."""
    y = y + torch.vmap(lambda v: v.sin(), -1, -1)(y)
    z = torch.vmap(lambda v, w: v.cos() * w, (2, 0))(y, model.shift)
    return y * z.sum(0).unsqueeze(-1)


@small(4)
def primal(_, y):
    """Uses the output of jvp, but not its derivative."""
    def mask(v):
        return torch.relu(v) * v.sign()

    return y + torch.func.jvp(mask, (y,), (torch.ones_like(y),))[0]


# --- numbers read from constants
# ----------------------------------------------

@small(4)
def counted(model, y):
    """Uses item() of constants as a factor and as a size; the export
    specialises on both."""
    n = torch.tensor([3, 2]).sum().item()
    torch._check(n == 5)
    rows = torch.tensor(4).item()
    torch._check(rows == 4)
    return y * n + model.table[:rows]


@small(4)
def read(model, y):
    """Uses item() of buffers and of computed values as operands."""
    y = y * model.table[0, 1].item() + model.table[1:2, 2].item()
    y = (y - 2 * y.amax().item()) / (model.count.item() + 3)
    model.count += 1
    return y + model.count.item()


# --- random numbers -----------------------------------------------------------

@small(4)
def drawn(_, y):
    """Calls all forms of randn, rand, randint and randperm with
    generator=None; the result does not depend on the values drawn."""
    none = dict(generator=None)
    y = y + torch.rand((4, 1), **none).lt(1) * 0.5
    y = y + torch.rand(6, **none).ge(0) * torch.randn((1, 6), **none).isfinite()
    y = y + torch.randint(2, 3, (4, 1), **none) * 0.25
    y = y + torch.randint(1, (6,), **none)
    order = torch.randperm(6, **none)
    return y[:, order][:, order.argsort()]


# --- vectors as weights -------------------------------------------------------

@small(2, 3)
def vector(model, y):
    """Calls linear with a one-dimensional weight, with a bias and without."""
    y = y + F.linear(y, model.shift).unsqueeze(-1)
    return y * F.linear(y, model.table[0], model.shift[0]).tanh().unsqueeze(-1)


# --- writes into detached memory ---------------------------------------------

@small(4)
def written(model, y):
    """Writes values with a gradient into detached tensors and reads these
    tensors only under the detached names."""
    a = model.table[:4].clone().detach()
    a.mul_(y)
    b = torch.ones_like(y).detach()
    b[:, 1:3] += y[:, :2]
    c = torch.ones_like(y).detach()
    row = c[1]
    c.copy_(y)
    return a + b + c.sin() + row


@small(4)
def cut(model, y):
    """Writes as written() does, but values whose gradient detach or no_grad
    cuts off."""
    a = (y * 2).detach()
    a += model.shift
    with torch.no_grad():
        b = model.up.weight.sum() + y
        b.clamp_(-1, 1)
        b[0] += 2
    return a + y * b


@small(4)
def returned(model, y):
    """Reads results under no_grad that are their operands themselves. The
    export then uses their names for the operands, whose gradients pass."""
    z = torch.complex(y, model.shift.expand_as(y))
    wide = model.shift.expand(4, 6)
    left, right = y * 2, y + model.shift
    with torch.no_grad():
        size = y.flatten(-1).abs().mean() + F.dropout(y, 0.5, False).sum()
        size = size + F.dropout(model.shift, 0).sum() + z.flatten(1).abs().sum()
        made, rows = torch.broadcast_tensors(model.shift, wide)
        size = size + (made + rows).mean()
        size = size + torch.native_dropout(left, 0.5, False)[0].sum()
        size = size + torch.native_dropout(right, 0, True)[0].abs().sum()
    return (y + model.shift + z.real + z.imag + wide) * size + made * y + \
        left * right


# --- fake quantisation --------------------------------------------------------

@small(4)
def rounded(model, y):
    """Fake-quantises with scale and zero point as numbers, as tensors and per
    channel; also uses the masks."""
    y = torch.fake_quantize_per_tensor_affine(y, 0.25, 3, 0, 15)
    step = model.table[0].abs().float() + 0.1
    zero = torch.zeros(6, dtype=torch.int32)
    y = torch.fake_quantize_per_channel_affine(y, step, zero, 1, -8, 7)
    y = y * model.shift
    return torch.fake_quantize_per_tensor_affine(y, step[:1], zero[:1], -8, 7)


@small(4)
def learnt(model, y):
    """Fake-quantises with scales and zero points that are trained."""
    step = (model.shift.abs() * 0.1 + 0.05).float()
    zero = model.shift.float()
    z = torch._fake_quantize_learnable_per_tensor_affine(
        y.float(), step[:1], zero[:1], 0, 15, 0.5)
    return torch._fake_quantize_learnable_per_channel_affine(
        z, step, zero * 0, 1, -8, 7, 1.0).to(y.dtype)


class Watched(nn.Module):
    """Holds the state of torch.ao's fused observers, which stays f32 in every
    precision.

    channels: number of channels, or None for per-tensor statistics."""

    def __init__(self, channels, **options):
        super().__init__()
        n = channels or 1
        self.options = dict(averaging_const=0.25, quant_min=0, quant_max=15,
                            ch_axis=0, per_row_fake_quant=bool(channels),
                            symmetric_quant=False)
        self.options.update(options)
        for name, start in (("on", torch.tensor([1])),
                            ("quantises", torch.tensor([1])),
                            ("low", torch.full((n,), torch.inf)),
                            ("high", torch.full((n,), -torch.inf)),
                            ("scale", torch.ones(n)),
                            ("zero", torch.zeros(n, dtype=torch.int32))):
            self.register_buffer(name, start)

    def _apply(self, fn, recurse=True):
        return self

    def forward(self, x):
        return torch.fused_moving_avg_obs_fake_quant(
            x.float(), self.on, self.quantises, self.low, self.high,
            self.scale, self.zero, **self.options).to(x.dtype)


class Watching(nn.Module):
    """A model with per-tensor observers (one is called twice and continues its
    averages), per-channel observers, and one that is switched off."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 3)
        self.first = Watched(None)
        self.even = Watched(None, symmetric_quant=True, quant_min=-8,
                            quant_max=7)
        self.channels = Watched(4)
        self.rows = Watched(3, symmetric_quant=True)
        self.off = Watched(None)
        self.off.quantises.zero_()
        self.none = Watched(None)
        self.none.on.zero_()
        self.none.low.fill_(-1)
        self.none.high.fill_(2)
        self.narrow = Watched(None)
        self.zeros = Watched(None)

    def forward(self, x, wanted):
        y = self.first(self.up(x))
        y = self.first(y * 2) + self.even(y)
        y = self.channels(y.unsqueeze(2)).squeeze(2)
        y = y + self.none(y) + self.narrow(y * 1e-6) + self.zeros(y * 0)
        y = self.off(F.linear(y, self.rows(self.down.weight), self.down.bias))
        return (y - wanted).square().mean(), y


SMALL["watching"] = lambda: (Watching(), lambda: dict(
    x=torch.randn(4, 4), wanted=torch.randn(4, 3)))


# --- loops --------------------------------------------------------------------

@small(2, 3)
def slices(model, y):
    """Calls scan in reverse, with two states."""
    from torch._higher_order_ops import scan

    def step(state, z):
        h, sums = state
        h = torch.tanh(h + z * model.shift)
        return (h, sums + h.square()), h * 2

    start = torch.zeros_like(y[:, 0]), torch.ones_like(y[:, 0])
    (_, sums), ys = scan(step, start, y, dim=1, reverse=True)
    return ys + sums.unsqueeze(1)


@small(2, 3)
def each(model, y):
    """Calls map over pairs of slices."""
    from torch._higher_order_ops.map import map as over
    return over(lambda z, w: z * model.shift.sigmoid() + w, y, y[0].cos())


@small(4)
def trips(model, y):
    """Calls while_loop with a decreasing counter and a state."""
    from torch._higher_order_ops import while_loop
    return while_loop(lambda i, z: i > 1,
                      lambda i, z: (i - 2, torch.sin(z * model.shift)),
                      (torch.tensor(6), y))[1]
