# SPDX-License-Identifier: Apache-2.0
"""Defines a case (one line of the table) for each elementwise operator."""
import torch
import torch.nn.functional as F

from .case import case

M, N = 256, 768
IMAGE = "[8, 64, 28, 28]"
# Inputs by name: the type in our graph, and the function that makes PyTorch's
# tensor.
INPUTS = {
    "x": (f"F[{M}, {N}]", lambda: torch.randn(M, N)),
    "y": (f"F[{M}, {N}]", lambda: torch.randn(M, N)),
    "g": (f"F[{M}, {N}]", lambda: torch.randn(M, N)),
    "p": (f"F[{M}, {N}]", lambda: torch.rand(M, N) * 1.8 + 0.2),
    "m": (f"bool[{M}, {N}]", lambda: torch.rand(M, N) < 0.5),
    "k": (f"bool[{M}, {N}]", lambda: torch.rand(M, N) < 0.5),
    "row": (f"F[{N}]", lambda: torch.randn(N)),
    "col": (f"F[{M}, 1]", lambda: torch.randn(M, 1)),
    "one": ("F[]", lambda: torch.randn(())),
    "image": (f"F{IMAGE}", lambda: torch.randn(8, 64, 28, 28)),
    "chan": ("F[1, 64, 1, 1]", lambda: torch.randn(1, 64, 1, 1)),
    "att": ("F[2, 12, 128, 128]", lambda: torch.randn(2, 12, 128, 128)),
    "mask": ("bool[2, 1, 128, 128]",
             lambda: torch.rand(2, 1, 128, 128) < 0.5),
    "bias": ("F[2, 1, 1, 128]", lambda: torch.randn(2, 1, 1, 128)),
    "tr": (f"F[{M}, {N}]:(1, {M})", lambda: torch.randn(N, M).t()),
    "i": (f"i64[{M}, {N}]", lambda: torch.randint(-5, 5, (M, N))),
    "h": (f"bf16[{M}, {N}]", lambda: torch.randn(M, N).bfloat16()),
}

# Pairs: the operator with its arguments (%names are those of INPUTS), and
# PyTorch's equivalent.
LINES = [
    ("add.Tensor(%x, %y)", lambda x, y: x + y),
    ("add.Tensor(%x, %y, alpha=2.0)", lambda x, y: torch.add(x, y, alpha=2)),
    ("add.Scalar(%x, 1.5)", lambda x: x + 1.5),
    ("mul.Scalar(%x, 1.5)", lambda x: x * 1.5),
    ("div.Tensor(%x, %p)", lambda x, p: x / p),
    ("rsub.Scalar(%x, 1.0)", lambda x: torch.rsub(x, 1.0)),
    ("add.Tensor(%x, %row)", lambda x, row: x + row),
    ("mul.Tensor(%x, %col)", lambda x, col: x * col),
    ("mul.Tensor(%x, %one)", lambda x, one: x * one),
    ("mul.Tensor(%image, %chan)", lambda image, chan: image * chan),
    ("add.Tensor(%att, %bias)", lambda att, bias: att + bias),
    ("add.Tensor(%x, %tr)", lambda x, tr: x + tr),
    ("add.Scalar(%i, 1)", lambda i: i + 1),
    ("mul.Tensor(%h, %h)", lambda h: h * h),
    ("neg.default(%x)", lambda x: -x),
    ("abs.default(%x)", lambda x: x.abs()),
    ("sign.default(%x)", lambda x: x.sign()),
    ("floor.default(%x)", lambda x: x.floor()),
    ("ceil.default(%x)", lambda x: x.ceil()),
    ("round.default(%x)", lambda x: x.round()),
    ("trunc.default(%x)", lambda x: x.trunc()),
    ("sqrt.default(%p)", lambda p: p.sqrt()),
    ("rsqrt.default(%p)", lambda p: p.rsqrt()),
    ("reciprocal.default(%p)", lambda p: p.reciprocal()),
    ("exp.default(%x)", lambda x: x.exp()),
    ("exp2.default(%x)", lambda x: x.exp2()),
    ("expm1.default(%x)", lambda x: x.expm1()),
    ("log.default(%p)", lambda p: p.log()),
    ("log2.default(%p)", lambda p: p.log2()),
    ("log10.default(%p)", lambda p: p.log10()),
    ("log1p.default(%p)", lambda p: p.log1p()),
    ("sin.default(%x)", lambda x: x.sin()),
    ("cos.default(%x)", lambda x: x.cos()),
    ("tan.default(%x)", lambda x: x.tan()),
    ("tanh.default(%x)", lambda x: x.tanh()),
    ("erf.default(%x)", lambda x: x.erf()),
    ("erfc.default(%x)", lambda x: x.erfc()),
    ("erfinv.default(%x)", lambda x: x.erfinv()),
    ("digamma.default(%p)", lambda p: p.digamma()),
    ("polygamma.default(1, %p)", lambda p: p.polygamma(1)),
    ("atan.default(%x)", lambda x: x.atan()),
    ("sigmoid.default(%x)", lambda x: x.sigmoid()),
    ("relu.default(%x)", lambda x: x.relu()),
    ("silu.default(%x)", F.silu),
    ("gelu.default(%x)", F.gelu),
    ("elu.default(%x)", F.elu),
    ("softplus.default(%x)", F.softplus),
    ("hardswish.default(%x)", F.hardswish),
    ("hardsigmoid.default(%x)", F.hardsigmoid),
    ("hardtanh.default(%x, 0.0, 6.0)", F.relu6),
    ("leaky_relu.default(%x)", F.leaky_relu),
    ("mish.default(%x)", F.mish),
    ("log_sigmoid.default(%x)", F.logsigmoid),
    ("_prelu_kernel.default(%x, %row)", torch.ops.aten._prelu_kernel),
    ("silu_backward.default(%g, %x)", torch.ops.aten.silu_backward),
    ("tanh_backward.default(%g, %x)", torch.ops.aten.tanh_backward),
    ("sigmoid_backward.default(%g, %x)", torch.ops.aten.sigmoid_backward),
    ("threshold_backward.default(%g, %x, 0)",
     lambda g, x: torch.ops.aten.threshold_backward(g, x, 0)),
    ("gelu_backward.default(%g, %x)", torch.ops.aten.gelu_backward),
    ("clamp.default(%x, -1.0, 1.0)", lambda x: x.clamp(-1, 1)),
    ("maximum.default(%x, %y)", torch.maximum),
    ("pow.Tensor_Scalar(%x, 2.0)", lambda x: x.pow(2)),
    ("pow.Tensor_Scalar(%p, 2.5)", lambda p: p.pow(2.5)),
    ("pow.Tensor_Tensor(%p, %x)", torch.pow),
    ("pow.Scalar(10000.0, %x)", lambda x: torch.pow(10000.0, x)),
    ("remainder.Scalar(%x, 0.7)", lambda x: x.remainder(0.7)),
    ("fmod.Scalar(%x, 0.7)", lambda x: x.fmod(0.7)),
    ("addcmul.default(%x, %y, %p)", torch.addcmul),
    ("addcdiv.default(%x, %y, %p)", torch.addcdiv),
    ("lerp.Scalar(%x, %y, 0.3)", lambda x, y: torch.lerp(x, y, 0.3)),
    ("eq.Tensor(%x, %y)", torch.eq),
    ("gt.Scalar(%x, 0.5)", lambda x: x > 0.5),
    ("eq.Scalar(%i, 0)", lambda i: i == 0),
    ("isnan.default(%x)", torch.isnan),
    ("logical_and.default(%m, %k)", torch.logical_and),
    ("logical_not.default(%m)", torch.logical_not),
    ("bitwise_and.Tensor(%m, %k)", torch.bitwise_and),
    ("where.self(%m, %x, %y)", torch.where),
    ("masked_fill.Scalar(%x, %m, -1.0)", lambda x, m: x.masked_fill(m, -1)),
    ("masked_fill.Scalar(%att, %mask, -1.0)",
     lambda att, mask: att.masked_fill(mask, -1)),
    ("mul.Tensor(%x, %m)", lambda x, m: x * m),
    ("_to_copy.default(%x, dtype=bf16)", lambda x: x.bfloat16()),
    ("_to_copy.default(%h, dtype=f32)", lambda h: h.float()),
    ("_to_copy.default(%m, dtype=f32)", lambda m: m.float()),
    ("_to_copy.default(%i, dtype=f32)", lambda i: i.float()),
    ("_to_copy.default(%x, dtype=i64)", lambda x: x.long()),
    ("_to_copy.default(%x, dtype=f64)", lambda x: x.double()),
    ("_to_copy.default(%x, dtype=bool)", lambda x: x.bool()),
]


def line(text, run, inputs=None, want=0.0):
    """Makes a case from the text of one node. inputs: inputs besides
    INPUTS."""
    known = dict(INPUTS, **(inputs or {}))
    names, place = [], 0
    while (place := text.find("%", place)) >= 0:
        end = place + 1
        while text[end].isalnum():
            end += 1
        if text[place + 1:end] not in names:
            names.append(text[place + 1:end])
        place = end
    head = "".join(f"input %{n}: {known[n][0]}; " for n in names)

    def make():
        made = [known[n][1]() for n in names]
        return lambda: run(*made)
    space = "" if "penstock." in text else "aten."
    return case(text, want, [f"{head}%r = {space}{text}"], make)


def calls(text, run, inputs):
    """Makes a case of 1000 calls with little work, so that a millisecond in
    the table is a microsecond per call. The goal is less than 100 ns per
    call."""
    def make():
        made = [torch.randn(4) for _ in inputs]

        def run_1000():
            for _ in range(1000):
                run(*made)
        return run_1000
    head = "".join(f"input %{n}: F[4]; " for n in inputs)
    return case(f"1000 calls: {text}", 0.0, [f"{head}%r = aten.{text}"], make,
                "chain")


def cases():
    return [line(text, run) for text, run in LINES] + [
        calls("neg.default(%x)", torch.neg, "x"),
        calls("add.Tensor(%x, %y)", torch.add, "xy"),
        calls("mul.Scalar(%x, 2.0)", lambda x: x * 2.0, "x"),
        calls("sum.dim_IntList(%x, [0])", lambda x: x.sum(0), "x")]
