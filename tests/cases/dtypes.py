#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators on every dtype that PyTorch accepts, with mixtures of dtypes.

usage: dtypes.py OUTDIR [--count N] [--seed N] [--only TEXT]

Writes programs, tensors and cases.json in the form of README.md,
for the program `cases`. A case is an operator on a first dtype: all its forms
(tensors, 0-dimensional tensors, Python's numbers) that give one dtype.
N: so many of all cases, drawn by the seed; 0 all of them.
"""
import argparse
import json
import os
import random
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

NAMES = {
    "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
    "f16": torch.float16, "i64": torch.int64, "i32": torch.int32,
    "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "bool": torch.bool,
}
SHORT = {dtype: name for name, dtype in NAMES.items()}
TOLERANCE = {"bf16": 0.0079, "f16": 0.00099, "f32": 2e-6, "f64": 1e-13}

# Expressions with `a` and @, which stands for: a tensor b, a 0-dimensional
# tensor z (both of another dtype), an integer, a float, True.
BINARY = """
a + @
a - @
a * @
a / @
a // @
a % @
a ** @
@ + a
@ - a
@ * a
@ / a
@ ** a
a == @
a < @
a >= @
@ <= a
a & @
a | @
a ^ @
a << @
a >> @
torch.add(a, @, alpha=2)
torch.sub(a, @, alpha=2)
torch.rsub(a, @)
torch.div(a, @, rounding_mode='floor')
torch.div(a, @, rounding_mode='trunc')
torch.fmod(a, @)
torch.float_power(a, @)
torch.maximum(a, @)
torch.fmin(a, @)
torch.atan2(a, @)
torch.hypot(a, @)
torch.copysign(a, @)
torch.xlogy(a, @)
torch.logical_and(a, @)
torch.logical_xor(a, @)
torch.where(m, a, @)
torch.where(m, @, a)
torch.clamp(a, @)
torch.clamp(a, max=@)
torch.clamp_min(a, @)
torch.masked_fill(a, m, @)
torch.eq(a, @)
torch.isin(a, @)
torch.gcd(a, @)
torch.nextafter(a, @)
torch.ldexp(a, @)
torch.heaviside(a, @)
torch.logaddexp(a, @)
torch.lerp(a, a, @)
torch.cat([a, @])
torch.stack([a, @], 1)
torch.outer(a.flatten(), @)
torch.addcmul(a, a, @)
torch.addcdiv(a, a, @)
torch.cross(a, @, dim=1)
torch.searchsorted(a.flatten().sort()[0], @)
torch.bucketize(a, torch.tensor([0, 1, 2]))
a.type_as(@)
a.clone().add_(@)
a.clone().mul_(@)
a.clone().fill_(@)
a.clone().copy_(@)
a.clone().clamp_(@)
a.clone().index_put_((k,), @)
torch.igamma(a.abs(), @)
torch.igammac(@, a.abs())
"""
UNARY = """
-a
~a
abs(a)
torch.sign(a)
torch.sgn(a)
torch.square(a)
torch.positive(a)
torch.exp(a)
torch.expm1(a)
torch.log(a.abs() + 1)
torch.log1p(a.abs())
torch.log2(a.abs() + 1)
torch.sqrt(a.abs())
torch.rsqrt(a.abs() + 1)
torch.sin(a)
torch.cos(a)
torch.tan(a)
torch.tanh(a)
torch.asinh(a)
torch.atan(a)
torch.sinh(a)
torch.erf(a)
torch.erfc(a)
torch.lgamma(a.abs() + 1)
torch.sigmoid(a)
torch.logit(a * 0.1 + 0.5)
torch.reciprocal(a + 7)
torch.ceil(a)
torch.floor(a)
torch.round(a)
torch.trunc(a)
torch.frac(a)
torch.rad2deg(a)
torch.isnan(a)
torch.isinf(a)
torch.signbit(a)
torch.logical_not(a)
torch.nan_to_num(a)
torch.sinc(a)
torch.exp2(a)
torch.i0(a)
torch.relu(a)
torch.nn.functional.gelu(a)
torch.nn.functional.silu(a)
torch.nn.functional.softplus(a)
torch.nn.functional.leaky_relu(a)
torch.nn.functional.hardtanh(a)
torch.nn.functional.relu6(a)
torch.nn.functional.threshold(a, 1, 2)
torch.softmax(a, 1)
torch.log_softmax(a, 1)
torch.softmax(a, 1, dtype=torch.float64)
a.sum()
a.sum(1)
a.sum(0, keepdim=True)
a.sum(1, dtype=torch.float64)
a.sum(1, dtype=torch.int32)
a.mean()
a.mean(1, dtype=torch.float64)
a.prod(1)
a.prod()
a.prod(1, dtype=torch.int16)
a.cumsum(1)
a.cumsum(0, dtype=torch.float32)
a.cumprod(1)
a.amax(1)
a.amin()
a.max()
a.max(1)[0]
a.min(1)[1]
a.argmax(1)
a.argmin()
a.all()
a.any(1)
a.std()
a.var(1)
a.norm()
a.norm(p=1, dim=1)
torch.linalg.vector_norm(a, dim=1)
torch.logsumexp(a, 1)
torch.nansum(a, 1)
torch.nanmean(a)
torch.count_nonzero(a, 1)
torch.median(a, 1)[0]
torch.sort(a, 1)[0]
torch.sort(a, 1, descending=True, stable=True)[1]
torch.topk(a, 2, 1)[0]
torch.kthvalue(a, 2, 1)[0]
torch.mode(a, 1)[0]
torch.cummax(a, 1)[0]
torch.cummin(a, 0)[1]
torch.full_like(a, 2)
torch.full_like(a, 1.5)
torch.full_like(a, True)
a.new_full((2,), 2)
a.new_full((2,), 1.5)
torch.diff(a)
torch.trapezoid(a)
torch.aminmax(a, dim=1)[1]
torch.gather(a, 0, k[:, None].expand(2, 3))
a.index_select(0, k)
a[k]
a[:, [0, 2]]
torch.take_along_dim(a, k[:, None], 0)
torch.take(a, k)
a.scatter(0, k[None, :].expand(1, 2), a)
a.scatter_add(0, k[:, None].expand(2, 3), a)
a.scatter(1, k[:, None], 1)
a.index_add(0, k, a)
a.index_add(0, k, a, alpha=2)
a.index_copy(0, k, a)
a.index_fill(0, k, 1)
a.masked_scatter(m, a)
a.index_put((k,), a, accumulate=True)
a.scatter_reduce(0, k[:, None].expand(2, 3), a, 'amax')
a.scatter_reduce(0, k[:, None].expand(2, 3), a, 'mean')
a.scatter_reduce(0, k[:, None].expand(2, 3), a, 'prod')
torch.flip(a, [1])
torch.roll(a, 1, 1)
torch.tril(a)
torch.diag(a[0])
torch.diagonal(a)
torch.trace(a[:, :2])
torch.nn.functional.pad(a, (1, 1), value=1)
torch.repeat_interleave(a, 2, 0)
a.repeat(2, 1)
a.expand(2, 2, 3)
a.unfold(1, 2, 1)
torch.kron(a, a)
a @ a.t()
torch.mv(a, a[0])
torch.dot(a[0], a[1])
torch.einsum('ij,kj->ik', a, a)
torch.addmm(a[:, :2], a, a.t())
torch.zeros_like(a)
torch.ones_like(a, dtype=torch.float16)
torch.full_like(a, 1.5, dtype=torch.int32)
a.new_zeros(2)
a.new_ones(2, dtype=torch.bool)
a.float()
a.double()
a.bfloat16()
a.half()
a.long()
a.int()
a.short()
a.char()
a.byte()
a.bool()
a.view(torch.int8)
a.histc(4, 0, 4)
torch.nn.functional.one_hot(a.long().abs(), 8)
torch.nn.functional.embedding(k, a)
torch.nn.functional.normalize(a)
torch.nn.functional.layer_norm(a, (3,))
torch.nn.functional.mse_loss(a, a + 1)
torch.nn.functional.l1_loss(a, a + 1)
torch.nn.functional.cosine_similarity(a, a, 1)
torch.nn.functional.max_pool1d(a, 2)
torch.nn.functional.avg_pool1d(a, 2)
torch.quantile(a, 0.4, 1)
torch.cdist(a, a)
torch.special.xlog1py(a, a)
torch.special.entr(a)
torch.pow(a, 2)
torch.pow(a, 0.5)
torch.pow(2, a)
torch.pow(2.5, a)
torch.nn.functional.elu(a)
torch.std_mean(a, 1)[0]
torch.bitwise_not(a)
torch.vander(a[0], 3)
torch.logcumsumexp(a, 1)
torch.renorm(a, 2, 0, 1)
torch.tensor_split(a, 2, 1)[0]
torch.meshgrid(a[0], a[1], indexing='ij')[0]
torch.block_diag(a, a)
torch.cartesian_prod(a[0], a[1])
torch.combinations(a[0])
torch.var_mean(a)[1]
torch.linalg.norm(a)
torch.linalg.matrix_norm(a)
torch.nn.functional.cross_entropy(a, k)
torch.nn.functional.nll_loss(a, k)
torch.nn.functional.kl_div(a, a)
torch.nn.functional.smooth_l1_loss(a, a * 2)
torch.nn.functional.huber_loss(a, a * 2)
torch.special.ndtri(a.sigmoid())
"""
# Expressions without a tensor; `a` is not read.
CREATION = """
torch.arange(5)
torch.arange(0, 5, 2)
torch.arange(0., 2.5, 0.5)
torch.arange(3, dtype=D)
torch.arange(0, 2.5, 0.5, dtype=D)
torch.linspace(0, 3, 4, dtype=D)
torch.linspace(0, 1, 5)
torch.logspace(0, 1, 3)
torch.full((2,), 1)
torch.full((2,), 1.5)
torch.full((2,), True)
torch.full((2,), 1.5, dtype=D)
torch.zeros(2, dtype=D)
torch.ones(2, dtype=D)
torch.eye(3, dtype=D)
torch.scalar_tensor(2, dtype=D)
torch.scalar_tensor(2)
torch.tensor(1.5, dtype=D)
torch.tril_indices(3, 3)
"""
ASK = ("b", "z", "2", "1.5", "True")


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def forms():
    """(name, forms of one operator)"""
    for line in lines(BINARY):
        yield line, ([line.replace("@", x) for x in ASK]
                     if "@" in line else [line])
    for line in lines(UNARY) + lines(CREATION):
        yield line, [line]


def values(gen, dtype, size, low, high):
    """Integers, or halves for floating dtypes."""
    t = torch.randint(low * 2, high * 2 + 1, size, generator=gen)
    if dtype == torch.bool:
        return t > low + high
    if dtype.is_floating_point:
        return (t * 0.5).to(dtype)
    return (t // 2).to(dtype)


def make_inputs(gen, first, second):
    signed = first not in (torch.uint8, torch.bool)
    return {
        "a": values(gen, first, (2, 3), -3 if signed else 0, 4),
        "b": values(gen, second, (2, 3), 1, 3),
        "z": values(gen, second, (), 1, 3),
        "k": torch.tensor([1, 0]),
        "m": torch.tensor([[True, False, True], [False, True, True]]),
    }


def evaluate(expression, inputs, dtype):
    """Returns the result, or None if PyTorch refuses."""
    names = dict(inputs, torch=torch, D=dtype)
    try:
        ret = eval(expression, names)  # pylint: disable=eval-used
    except (RuntimeError, TypeError, ValueError, IndexError,
            NotImplementedError, AttributeError, torch.OutOfMemoryError):
        return None
    if not isinstance(ret, torch.Tensor) or ret.dtype not in SHORT:
        return None
    # A value that does not fit into the dtype is undefined.
    return ret if torch.isfinite(ret.double()).all() else None


def export(expressions, inputs, dtype):
    body = ", ".join(expressions)
    source = f"def forward(self, {', '.join(inputs)}):\n    return ({body},)\n"
    names = {"torch": torch, "D": dtype}
    exec(source, names)  # pylint: disable=exec-used
    module = type("Case", (torch.nn.Module,), {"forward": names["forward"]})()
    return torch.export.export(module, tuple(inputs.values()), strict=False)


def attempt(folder, name, line, all_forms, first, second, gen):
    inputs = make_inputs(gen, NAMES[first], NAMES[second])
    by_dtype = {}
    for form in all_forms:
        out = evaluate(form, inputs, NAMES[first])
        if out is not None:
            by_dtype.setdefault(SHORT[out.dtype], []).append((form, out))
    cases = []
    for dtype, group in by_dtype.items():
        case = f"{name}.{dtype}"
        try:
            program = export([f for f, _ in group], inputs, NAMES[first])
            torch.export.save(program, os.path.join(folder, case + ".pt2"))
        except Exception:  # pylint: disable=broad-except
            continue  # what cannot be exported has no program
        said = [n.meta["val"].dtype for n in program.graph.output_node().args[0]]
        if any(d != NAMES[dtype] for d in said):
            continue  # PyTorch's two ways differ: 0-dimensional ldexp
        outs = [o.contiguous() for _, o in group]
        tensors = {"in." + n: t for n, t in inputs.items()}
        tensors.update({f"out.{i}": o.clone() for i, o in enumerate(outs)})
        save_file(tensors, os.path.join(folder, case + ".safetensors"))
        tol = TOLERANCE.get(dtype, 0.0)
        # A 16-bit sum may be rounded on the way.
        largest = max([1.0] + [float(o.double().abs().max()) for o in outs
                               if o.numel() > 0])
        cases.append({
            "case": case, "op": f"dtypes.{line}",
            "call": f"{first}, {second}: " + "; ".join(f for f, _ in group),
            "kind": "close", "pt2": case + ".pt2",
            "safetensors": case + ".safetensors",
            "outputs": [{"dtype": dtype, "shape": list(o.shape)}
                        for o in outs],
            "rtol": tol, "atol": tol * largest, "written": [],
        })
    return cases


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--count", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    args = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.folder, exist_ok=True)
    draw, todo, cases = random.Random(args.seed), [], []
    for i, (line, all_forms) in enumerate(forms()):
        for first in NAMES:
            for second in NAMES if "@" in line else ["f32"]:
                todo.append((i, line, all_forms, first, second))
    if args.count > 0:
        todo = draw.sample(todo, min(args.count, len(todo)))
    for i, line, all_forms, first, second in todo:
        if args.only in line:
            gen = torch.Generator().manual_seed(args.seed + i)
            cases += attempt(args.folder, f"dtypes.{i:03}.{first}.{second}",
                             line, all_forms, first, second, gen)
    with open(os.path.join(args.folder, "cases.json"), "w",
              encoding="utf-8") as f:
        json.dump(cases, f, indent=0)


if __name__ == "__main__":
    main()
