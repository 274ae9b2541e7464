# SPDX-License-Identifier: Apache-2.0
"""Models as users write them, one for each thing that no library's model
does. Entries of HANDWRITTEN are functions that return (module, function that
makes one microbatch), as those of architectures.ARCHITECTURES."""
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
    """Spectral norms: a power iteration without gradients writes its buffers
    with `out=`, in every call anew."""

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
    """Inverse, solution, determinants, Cholesky factor and exponential of
    small matrices, and a weight norm of the whole matrix."""

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
