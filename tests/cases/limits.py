# SPDX-License-Identifier: Apache-2.0
"""How far the results of a random module may be from float64.

For each tensor the norm of its error may be ten times what rounding alone does
to PyTorch in f32 (for f64, that times 2^-29). One run does not tell what
rounding does: the error of the same module differs by a factor of nine between
neighbouring inputs. So it is the largest of several runs; and some of them
round every intermediate result anew, because where terms cancel that depend on
no input, PyTorch's own rounding may be lucky in all runs.
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

TIMES_TORCH = 10
RUNS, NOISY_RUNS = 8, 4
FLOOR = 2e-6  # relative norms, in f32
# A result that is zero except for rounding is a sum of terms as large as the
# others, each of which is rounded: with FLOOR that is three to four times
# 2^-24.
CANCELLED = 0.1
# Limits beyond which rounding errors make a module's results meaningless.
WILD, TINY = 1e-4, 1e-3


def differentiate(module, inputs, cot):
    leaves = {n: t.detach().clone().requires_grad_(t.is_floating_point())
              for n, t in inputs.items()}
    out = module(*leaves.values())
    floats = [n for n, t in leaves.items() if t.requires_grad]
    if cot is None:
        return out.detach(), None
    grads = torch.autograd.grad(out, [leaves[n] for n in floats], cot,
                                allow_unused=True)
    return out.detach(), dict(zip(floats, grads))


def differentiate_in(module, inputs, cot, dtype):
    """Returns {name as in the file: result}, computed in another precision."""
    given = {n: t.to(dtype) if t.is_floating_point() else t
             for n, t in inputs.items()}
    out, grads = differentiate(module, given, cot.to(dtype))
    return {"out.0": out, **{"grad." + n: g for n, g in grads.items()
                             if g is not None}}


def shaken(inputs, by, gen):
    """In f64, with a relative error of about this size in each number."""
    ret = {}
    for n, t in inputs.items():
        if t.is_floating_point():
            noise = torch.randn(t.shape, generator=gen, dtype=torch.float64)
            t = t.double() * (1 + by * noise)
        ret[n] = t
    return ret


class Rounding(TorchDispatchMode):
    """Every new tensor, also of gradients, gets an error of about the rounding of
    f32. Views, and tensors that are written in place, do not."""

    def __init__(self, gen):
        super().__init__()
        self.gen = gen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if any(r.alias_info is not None for r in func._schema.returns):
            return out
        return tree_map(self.rounded, out)

    def rounded(self, t):
        if not isinstance(t, torch.Tensor) or not t.is_floating_point():
            return t
        noise = torch.randn(t.shape, generator=self.gen, dtype=t.dtype)
        return t * (1 + 2.0 ** -24 * noise)


def errors(module, inputs, cot, exact, gen):
    """Effect of rounding in f32: {name: largest norm of the error}."""
    f32, f64 = torch.float32, torch.float64
    pairs = [(differentiate_in(module, inputs, cot, f32), exact),
             (differentiate_in(module, shaken(inputs, 2.0 ** -24, gen), cot,
                               f64), exact)]
    for _ in range(NOISY_RUNS):
        with Rounding(gen):
            noisy = differentiate_in(module, inputs, cot, f64)
        pairs.append((noisy, exact))
    for _ in range(RUNS - 1):
        near = {n: t.float() if t.is_floating_point() else t
                for n, t in shaken(inputs, 2.0 ** -10, gen).items()}
        pairs.append((differentiate_in(module, near, cot.float(), f32),
                      differentiate_in(module, near, cot.float(), f64)))
    return {n: torch.stack([(have[n].double() - want[n]).norm()
                            for have, want in pairs]).max().item()
            for n in exact}  # NaN if one is


def limits_of(module, inputs, cot, dtype, gen):
    """Returns ({name: largest norm of its error}, {name: result in f64}); (None,
    None) if the module is unusable."""
    exact = differentiate_in(module, inputs, cot, torch.float64)
    theirs = errors(module, inputs, cot, exact, gen)
    units = 1.0 if dtype == torch.float32 else 2.0 ** -29  # eps of f64 to f32
    usual = torch.cat([t.flatten() for t in exact.values()])
    usual = usual.double().square().mean().sqrt().item()
    limits = {}
    for name, want in exact.items():
        norm, spread = want.norm().item(), usual * want.numel() ** 0.5
        scale = max(norm, TINY * spread)
        if not theirs[name] <= WILD * scale or not scale > 1e-12:
            return None, None
        limits[name] = units * max(TIMES_TORCH * theirs[name],
                                   FLOOR * max(norm, CANCELLED * spread))
    return limits, exact
