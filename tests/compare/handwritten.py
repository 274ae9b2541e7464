# SPDX-License-Identifier: Apache-2.0
"""Defines models as users write them, with features that no library model has.

Entries of HANDWRITTEN are functions that return (module, function that makes
one microbatch), like those of architectures.ARCHITECTURES.
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import (orthogonal, spectral_norm,
                                               weight_norm)

HANDWRITTEN = {}


def handwritten(function):
    HANDWRITTEN[function.__name__] = function
    return function


@handwritten
def critic():
    """Returns a model with spectral norms: every call makes a power iteration
    without gradients, which writes buffers with `out=`."""

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2),
                spectral_norm(nn.Conv2d(8, 8, 4, 2, 1)), nn.LeakyReLU(0.2),
                nn.Flatten(), spectral_norm(nn.Linear(128, 1)))

        def forward(self, real, fake):
            real, fake = self.net(real), self.net(fake)
            return F.relu(1 - real).mean() + F.relu(1 + fake).mean(), real

    return Critic(), lambda: dict(real=torch.randn(2, 3, 16, 16),
                                  fake=torch.randn(2, 3, 16, 16))


@handwritten
def factors():
    """Returns a model with inverse, solve, determinants, Cholesky factor and
    exponential of small matrices, and a weight norm of a whole matrix."""

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = weight_norm(nn.Linear(6, 4), dim=None)
            self.turn = orthogonal(nn.Linear(4, 4))
            self.mix = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4))

        def forward(self, x, wanted):
            h = self.turn(torch.tanh(self.up(x)))
            k = h.transpose(-1, -2) @ h + torch.eye(4, dtype=h.dtype)
            low = torch.linalg.cholesky(k)
            y = torch.linalg.solve(k, wanted) @ self.mix
            y = y + torch.cholesky_solve(wanted, low)
            likely = torch.slogdet(self.mix)[1] + torch.logdet(k).mean()
            return y.square().mean() - likely + torch.linalg.inv(
                self.mix).sum() + torch.det(k).log().mean(), y

    return Factors(), lambda: dict(x=torch.randn(2, 5, 6),
                                   wanted=torch.randn(2, 4, 4))


@handwritten
def small_integers():
    """Returns a model with a uint8 image, int32, int16 and int8 ids, offsets
    and signs, and counts and the largest byte in integer buffers."""

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, stride=2)
            self.emb = nn.Embedding(9, 4)
            self.head = nn.Linear(4, 5)
            self.register_buffer("seen", torch.zeros(9, dtype=torch.int32))
            self.register_buffer("peak", torch.zeros((), dtype=torch.uint8))

        def forward(self, image, ids, offset, sign, label):
            dtype = self.head.weight.dtype
            x = image.to(dtype).div(255).sub(0.5) * 2
            h = self.conv(x).relu().amax((2, 3))
            i = (ids + offset).clamp(0, 8)
            h = h + self.emb(i).mean(1) * sign.to(dtype).unsqueeze(1)
            self.seen.add_(torch.zeros_like(self.seen).scatter_add(
                0, i.flatten().long(), torch.ones_like(i.flatten())))
            self.peak.copy_(torch.maximum(self.peak, image.amax()))
            low = (image >> 1) & 3
            counts = torch.stack([(low == k).sum((1, 2, 3))
                                  for k in range(4)], 1).to(torch.int16)
            y = self.head(h) + counts.to(dtype).log1p().mean(1, keepdim=True)
            return (F.cross_entropy(y, label.long()), y, counts,
                    (image // 16).to(torch.int8), -image, image - 7)

    def ints(high, dtype, *shape, low=0):
        return torch.randint(low, high, shape, dtype=dtype)

    return Small(), lambda: dict(
        image=ints(256, torch.uint8, 3, 3, 9, 9),
        ids=ints(6, torch.int32, 3, 5), offset=ints(4, torch.int16, 3, 5),
        sign=ints(2, torch.int8, 3, low=-1), label=ints(5, torch.int32, 3))


@handwritten
def memory():
    """Returns a model with buffers as in contrastive learning: a ring of keys
    written at a moving position, a counter, an average, a maximum, and a start
    value that the first call sets."""

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(nn.Linear(4, 8), nn.GELU(),
                                      nn.Linear(8, 4), nn.GELU())
            self.up, self.query = nn.Linear(4, 6), nn.Linear(6, 6)
            for name, start in (("mean", torch.zeros(6)),
                                ("calls", torch.zeros((), dtype=torch.long)),
                                ("queue", torch.randn(6, 9)),
                                ("place", torch.zeros(1, dtype=torch.long)),
                                ("high", torch.full((6,), -1e3)),
                                ("begun", torch.tensor(False)),
                                ("shift", torch.zeros(6))):
                self.register_buffer(name, start)

        def forward(self, x):
            h = self.up(self.down(x))
            with torch.no_grad():
                self.calls += 1
                self.mean.lerp_(h.mean(0), 0.1)
                self.high.copy_(torch.maximum(self.high, h.amax(0)))
                self.shift.copy_(torch.where(self.begun, self.shift,
                                             h.mean(0)))
                self.begun.fill_(True)
                i = (self.place + torch.arange(3)) % 9
                self.queue.index_copy_(1, i, F.normalize(h, dim=1).t())
                self.place[0] = (self.place[0] + 3) % 9
            q = self.query(F.normalize(h - self.shift, dim=1))
            logits = q @ self.queue.clone().detach() / 0.2
            unbiased = self.mean / (1 - 0.9 ** self.calls)
            return F.cross_entropy(logits, i) + 0.1 * (
                h - unbiased).square().mean(), logits, unbiased

    return Memory(), lambda: dict(x=torch.randn(3, 4))


@handwritten
def shared_buffers():
    """Returns a model whose modules share buffers under different names; one
    is written under one name and read under the others."""

    class Scale(nn.Module):
        def __init__(self, by):
            super().__init__()
            self.register_buffer("by", by)

        def forward(self, x):
            return x * self.by

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            by = torch.ones(4)
            self.first, self.second = Scale(by), Scale(by)
            self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)
            self.third, self.norm = self.first, nn.BatchNorm1d(4)
            self.again = self.norm
            self.register_buffer("unread", torch.arange(3.))
            self.register_buffer("unread_too", self.unread)
            self.register_buffer("shift", torch.ones(4), persistent=False)
            self.register_buffer("offset", self.shift, persistent=False)

        def forward(self, x):
            with torch.no_grad():
                self.second.by.mul_(0.9)
            h = self.second(self.first(self.norm(self.up(x))))
            y = self.down(self.third(self.again(h)) + self.offset)
            return y.square().mean(), y

    return Shared(), lambda: dict(x=torch.randn(4, 3))


class Spectral(nn.Module):
    """Multiplies the corners of a picture's spectrum by complex weights and
    writes the results into a zero tensor."""

    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        shape = channels, channels, modes, modes
        self.low = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / 8)
        self.high = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / 8)

    def forward(self, x):
        n = self.modes
        f = torch.fft.rfft2(x)
        out = torch.zeros_like(f)
        out[:, :, :n, :n] = torch.einsum("bixy,ioxy->boxy",
                                         f[:, :, :n, :n], self.low)
        out[:, :, -n:, :n] = torch.einsum("bixy,ioxy->boxy",
                                          f[:, :, -n:, :n], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


@handwritten
def fno():
    """Returns a Fourier neural operator: complex parameters, a spectrum
    written in place."""

    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 1, 1)
            self.spectral = nn.ModuleList(Spectral(8, 4) for _ in range(3))
            self.local = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(3))

        def forward(self, x, wanted):
            rows, columns = (torch.linspace(0, 1, n, dtype=x.dtype)
                             for n in x.shape[-2:])
            where = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
            h = self.up(torch.cat(
                [x, where.expand(len(x), *where.shape)], 1))
            for spectral, local in zip(self.spectral, self.local):
                h = F.gelu(spectral(h) + local(h))
            y = self.down(h)
            return (y - wanted).square().mean(), y

    return Operator(), lambda: dict(x=torch.randn(2, 1, 16, 16),
                                    wanted=torch.randn(2, 1, 16, 16))


@handwritten
def waves():
    """Returns a model with complex layers as users write them: literals,
    masks, conjugates, a norm of absolute values, a recurrence of rotations
    written in place."""

    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Parameter(torch.randn(6, 6, dtype=torch.cfloat) / 3)
            self.shift = nn.Parameter(torch.randn(6, dtype=torch.cfloat) / 3)
            self.rate = nn.Parameter(torch.randn(6) / 3)

        def forward(self, x, wanted):
            z = x[..., :6] * (1 + 0.5j) + 1j * x[..., 6:]
            z = F.linear(z, self.mix, self.shift)
            z = torch.where(z.real > 0, z, 0.1 * z.conj())
            turn = torch.exp(1j * self.rate) * 0.9
            seen = torch.empty_like(z)
            state = z[:, 0] * 0
            for t in range(z.shape[1]):
                state = state * turn + z[:, t]
                seen[:, t] = state
            seen *= torch.sigmoid(z.abs())
            seen[:, 0].add_(self.shift)
            near = torch.einsum("bti,bsi->bts", seen, seen.conj()) / 6
            out = torch.softmax(near.abs(), -1).to(z.dtype) @ torch.tanh(seen)
            out = out / torch.linalg.vector_norm(out, dim=-1, keepdim=True)
            out = torch.log(out + 2) ** 2 + out.sqrt().mH.mT
            y = torch.hstack([out.real, out.imag]).mean(-1)
            return (y - wanted).square().mean(), y

    return Waves(), lambda: dict(x=torch.randn(2, 5, 12),
                                 wanted=torch.randn(2, 10))


@handwritten
def denoiser():
    """Returns a model that masks the spectra of short frames of a sound and
    applies the inverse transform."""

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.GRU(17, 12, batch_first=True, bidirectional=True)
            self.mask = nn.Linear(24, 17)
            self.register_buffer("window", torch.hann_window(32))

        def forward(self, x, wanted):
            z = torch.stft(x, 32, 8, window=self.window, return_complex=True)
            h = self.net(torch.log1p(z.abs()).transpose(1, 2))[0]
            z = z * torch.sigmoid(self.mask(h)).transpose(1, 2)
            y = torch.istft(z, 32, 8, window=self.window, length=x.shape[1])
            return (y - wanted).abs().mean(), y

    return Denoiser(), lambda: dict(x=torch.randn(2, 160),
                                    wanted=torch.randn(2, 160))


@handwritten
def branches():
    """Returns a model with torch.cond, some of whose branches are not taken
    and have results and gradients that are not finite."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 3)
            self.by = nn.Parameter(torch.ones(8))
            self.register_buffer("none", torch.zeros(8))

        def forward(self, x, wanted):
            h = self.up(x)
            h = torch.cond(h.min() > 0, lambda h, by: torch.log(h) * by,
                           lambda h, by: torch.tanh(h) * by, (h, self.by))
            h = torch.cond(h.max() < 9, lambda h, by, none: h * by,
                           lambda h, by, none: h * by / none,
                           (h, self.by, self.none))
            y = self.down(h)
            return (y - wanted).square().mean(), y

    return Branches(), lambda: dict(x=torch.randn(4, 6),
                                    wanted=torch.randn(4, 3))


@handwritten
def autocast():
    """Returns a model with operators that decompose into matmuls (einsum, GRU,
    tensordot, LSTM cell), under autocast."""

    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 8)
            self.second = nn.Parameter(torch.randn(8, 8) / 3)
            self.gru = nn.GRU(8, 8, batch_first=True)
            self.cell = nn.LSTMCell(8, 8)

        def forward(self, x, wanted):
            with torch.autocast("cpu", torch.bfloat16):
                h = torch.einsum("bti,ij->btj", self.first(x), self.second)
                h = self.gru(h)[0]
                h = torch.tensordot(h.to(x.dtype), self.second, 1)
                y = self.cell(h[:, -1])[0]
            y = y.to(x.dtype)
            return (y - wanted).square().mean(), y

    return Autocast(), lambda: dict(x=torch.randn(4, 5, 6),
                                    wanted=torch.randn(4, 8))


@handwritten
def sequences():
    """Returns a model whose first dimension is time, the default of PyTorch's
    recurrent layers and transformers. Samples are along dimension 1 of x,
    dimension 0 of the labels and the last dimension of an output."""

    class Sequences(nn.Module):
        # The dimension of the samples, for each input and for each output
        # (None: the output has none).
        along = dict(x=1, wanted=0), (None, 1, 2)

        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(6, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0)
            self.head = nn.Linear(8, 3)

        def forward(self, x, wanted):
            y, (h, _) = self.rnn(x)
            y = self.head(self.layer(y))
            loss = F.cross_entropy(y.permute(1, 2, 0), wanted)
            return loss, y, h.permute(0, 2, 1)

    return Sequences(), lambda: dict(x=torch.randn(7, 4, 6),
                                     wanted=torch.randint(0, 3, (4, 7)))


@handwritten
def columns():
    """Returns a model with rows along dimension 0 of its inputs. Some outputs
    have the rows along another dimension or not at all, although one has a
    dimension of the same size."""
    class Columns(nn.Module):
        along = dict(x=0, wanted=0), (None, 1, 2, None)

        def __init__(self):
            super().__init__()
            self.up = nn.Linear(6, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x, wanted):
            h = torch.tanh(self.up(x))
            y = self.head(h)
            each = (y[:, :, None] * h[:, None, :2]).permute(1, 2, 0)
            return F.cross_entropy(y, wanted), y.t(), each, h.mean(0)

    return Columns(), lambda: dict(x=torch.randn(4, 6),
                                   wanted=torch.randint(0, 3, (4,)))


@handwritten
def loops():
    """Returns a model with loops that the export keeps: scan with a state,
    map, and while_loop with a counter."""
    from torch._higher_order_ops import scan, while_loop
    from torch._higher_order_ops.map import map as each

    class Loops(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(6, 6)
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x, wanted):
            def step(h, z):
                h = torch.tanh(self.cell(z) + h)
                return h, h * self.scale

            def more(i, z):
                return (i < 5) & (i != 7)

            def again(i, z):
                return i + 2, torch.sin(self.cell(z))

            h, ys = scan(step, torch.zeros_like(x[:, 0]), x, dim=1)
            ys = each(lambda z: z * torch.sigmoid(self.cell(z)), ys)
            _, z = while_loop(more, again, (torch.tensor(0), h))
            return (ys.sum(1) + z - wanted).square().mean(), ys

    return Loops(), lambda: dict(x=torch.randn(3, 4, 6),
                                 wanted=torch.randn(3, 6))


@handwritten
def generators():
    """Returns a model with random numbers of `generator=None`, as in libraries
    of image models. Its result does not depend on the values drawn."""

    class Generators(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(6, 4)

        def forward(self, x, wanted):
            y = self.up(x)
            free = dict(generator=None, dtype=torch.float32)
            y = y + (torch.rand(y.shape, **free) < 1) * 0.5
            y = y + torch.randn(y.shape, **free).isfinite() * 0.25
            y = y + (torch.randint(3, y.shape, generator=None) < 3)
            y = y * torch.randint(1, 2, y.shape, generator=None)
            order = torch.randperm(4, generator=None)
            y = y[:, order][:, order.argsort()]
            return (y - wanted).square().mean(), y

    return Generators(), lambda: dict(x=torch.randn(4, 6),
                                      wanted=torch.randn(4, 4))


@handwritten
def quantised():
    """Returns a model with fake-quantised weights and activations and the
    gradients of straight-through estimators."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(6, 8)
            self.down = nn.Linear(8, 3)
            self.register_buffer("scale", torch.linspace(0.02, 0.05, 8))
            self.register_buffer("zero", torch.zeros(8, dtype=torch.int32))
            self.register_buffer("step", torch.tensor([0.03]))
            self.register_buffer("shift", torch.tensor([7],
                                                       dtype=torch.int32))

        def forward(self, x, wanted):
            w = torch.fake_quantize_per_channel_affine(
                self.up.weight, self.scale.float(), self.zero, 0, -8, 7)
            y = F.relu(F.linear(x, w, self.up.bias))
            y = torch.fake_quantize_per_tensor_affine(
                y, self.step.float(), self.shift, 0, 63)
            y = self.down(torch.fake_quantize_per_tensor_affine(
                y, 0.125, 0, 0, 15))
            return F.cross_entropy(y, wanted), y

    return Quantised(), lambda: dict(x=torch.randn(4, 6),
                                     wanted=torch.randint(0, 3, (4,)))


@handwritten
def detached():
    """Returns a model that detaches rows of a table and then writes them with
    a gradient, like position embeddings in transformers. It reads these rows
    under no other name."""

    class Detached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.randn(7, 6))
            self.shift = nn.Linear(6, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x, wanted):
            places = self.table.index_select(0, wanted).detach()
            places += self.shift(x)
            places *= 2
            y = self.head(x + places)
            return F.cross_entropy(y, wanted), y

    return Detached(), lambda: dict(x=torch.randn(4, 6),
                                    wanted=torch.randint(0, 3, (4,)))


@handwritten
def places():
    """Returns a model with sizes that are read from a tensor that is written
    as a literal, as detectors compute the places of a map's cells."""

    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.row = nn.Linear(1, 4)
            self.column = nn.Linear(1, 4)

        def forward(self, x, wanted):
            shape = torch.tensor([[2, 3]])
            high, wide = shape[0, 0], shape[0, 1]
            down = torch.arange(0, high, dtype=x.dtype) / high
            right = torch.arange(0, wide, dtype=x.dtype) / wide
            places = (self.row(down[:, None])[:, None]
                      + self.column(right[:, None])[None])
            y = torch.tanh(x[:, None, None] * places[None])
            y = y.view(x.size(0), high.item() * wide.item(), 4)
            return (y - wanted).square().mean(), y

    return Places(), lambda: dict(x=torch.randn(4, 4),
                                  wanted=torch.randn(4, 6, 4))
