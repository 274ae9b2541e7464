# SPDX-License-Identifier: Apache-2.0
"""Writes strides.json into tests/golden: programs of one operator, in the format
of tests/alias/README.md, with the strides of results in eager PyTorch (2.13).

usage: make_strides.py [--all FILE]

By default writes a sample: for each operator a few sizes and orders of
dimensions, including sizes of 1. --all writes all combinations to FILE.
"""
import itertools
import json
import os
import random
import sys

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = [(2, 3, 4, 3), (2, 1, 4, 3), (1, 3, 4, 3), (1, 1, 4, 3), (2, 3, 1, 1),
         (2, 1, 1, 1), (2, 3, 1, 4), (2, 3, 4, 1), (2, 1, 1, 3), (2, 1, 3, 1),
         (1, 3, 1, 1), (1, 1, 1, 1), (1, 3, 1, 4), (1, 1, 3, 1), (1, 1, 1, 3),
         (2, 2, 2, 2), (2, 1, 2, 2)]
# Operators with arguments. %a and %b have the size of the case; other names
# are those of Operands; $N are sizes that depend on the size of the case.
OPS = """
relu %a | exp %a | neg %a | hardtanh %a | relu6 %a | log_sigmoid %a
nan_to_num %a | threshold %a 2 0 | clamp %a 0 3 | prelu %a %one
add.Tensor %a %b | mul.Tensor %a %row | mul.Tensor %row %a | sub.Scalar %a 2
add.Tensor %a %channels | div.Tensor %a %one | maximum %a %b
floor_divide %a %b | floor_divide %b %a | fmod.Scalar %a 3
pow.Tensor_Tensor %a %b | pow.Tensor_Scalar %a 2 | pow.Scalar 2 %a
gt.Tensor %a %b | gt.Scalar %a 3 | where.self %true %a %b
where.ScalarOther %true %a 2 | masked_fill.Scalar %a %true 1
addcmul %a %b %b | lerp.Scalar %a %b 0.5 | mse_loss %a %b 0
clone %a | flip %a [1] | zeros_like %a | to.dtype %a "float64"
roll %a [1] [1] | roll %a [0] [1] | roll %a [1] [] | roll %a [1,2] [2,3]
rot90 %a 1 [2,3] | tril %a | sort %a 1 | cumsum %a 1 | softmax.int %a 1
log_softmax.int %a 1 | index_add %a 1 %places %b
cat ["%a","%b"] 1 | cat ["%b","%a","%a"] 3 | stack ["%a","%b"] | amax %a [1]
conv2d %a %small | conv2d %a %large null [1,1] [1,1]
conv2d %a %last null [1,1] [1,1] | conv2d %a %narrow
conv_transpose2d.input %a %turned
max_pool2d %a [2,2] [1,1] [1,1] | max_pool2d %a [1,1] | avg_pool2d %a $HW
adaptive_avg_pool2d %a [2,2] | adaptive_avg_pool2d %a [1,1]
adaptive_max_pool2d %a [2,2]
batch_norm %a null null %mean %var false 0.1 1e-5 false | group_norm %a 1
upsample_nearest2d %a $DOUBLE | upsample_bilinear2d %a $DOUBLE false
pixel_unshuffle %a 1 | channel_shuffle %a 1 | channel_shuffle %a $C
constant_pad_nd %a [1,0] | constant_pad_nd %a [0,0,0,1]
replication_pad2d %a [1,1,1,1] | reflection_pad2d %a [0,0,0,0]
layer_norm %a $W
"""


def orders(n, c, h, w):
    """Returns the strides of six layouts: contiguous, channels last, channels
    last of one row, two other orders, and a view of a wider tensor."""
    return list(dict.fromkeys([
        (c * h * w, h * w, w, 1), (c * h * w, 1, c * w, c),
        *([(1, 1, c * w, c)] if n == 1 else []),
        (c * h, h, 1, n * c * h), (h * w, n * h * w, w, 1),
        (c * h * (w + 1), h * (w + 1), w + 1, 1)]))


class Operands:
    def __init__(self, rng, size, first, second):
        self.rng, self.size, self.made = rng, size, {}
        n, c, h, w = size
        self.others = {
            "a": (size, first), "b": (size, second), "row": ((w,), None),
            "one": ((1,), None), "channels": ((n, c, 1, 1), None),
            "small": ((2, c, 1, 1), None), "large": ((2, c, 2, 2), None),
            "last": ((2, c, 2, 2), (4 * c, 1, 2 * c, c)),
            "narrow": ((1, c, 1, 1), None), "turned": ((c, 2, 2, 2), None),
            "mean": ((c,), None), "var": ((c,), None)}
        self.numbers = {"$HW": [h, w], "$DOUBLE": [2 * h, 2 * w], "$C": c,
                        "$W": [w]}

    def make(self, name):
        size, strides = self.others.get(name, (self.size, None))
        if name == "true":
            flat = torch.ones(torch.Size(size).numel(), dtype=torch.bool)
        elif name == "places":
            size = (self.size[1],)
            flat = torch.arange(size[0])
        else:
            strides = strides or torch.empty(size).stride()
            reach = sum((k - 1) * s for k, s in zip(size, strides)) + 1
            flat = torch.tensor([float(self.rng.randrange(1, 5))
                                 for _ in range(reach)])
        strides = strides or torch.empty(size).stride()
        self.made[name] = (flat, flat.as_strided(size, strides))

    def find(self, arg):
        if isinstance(arg, list):
            return [self.find(a) for a in arg]
        if not isinstance(arg, str) or arg == "float64":
            return torch.float64 if arg == "float64" else arg
        if arg[0] == "$":
            return self.numbers[arg]
        if arg[1:] not in self.made:
            self.make(arg[1:])
        return self.made[arg[1:]][1]


def text_of(dtype):
    return str(dtype).split(".")[1]


def case(name, op, args, operands):
    base, _, overload = op.partition(".")
    call = getattr(getattr(torch.ops.aten, base), overload or "default")
    results = call(*operands.find(args))
    results = results if isinstance(results, tuple) else [results]
    y, flats = results[0], {n: f for n, (f, _) in operands.made.items()}
    assert all(y.untyped_storage().data_ptr() != f.untyped_storage().data_ptr()
               for f in flats.values()), name
    assert y.isfinite().all(), name
    return {
        "name": name,
        "storages": {n: {"dtype": text_of(f.dtype), "values": f.tolist()}
                     for n, f in flats.items()},
        "tensors": {n: {"storage": n, "dtype": text_of(t.dtype), "offset": 0,
                        "sizes": list(t.shape), "strides": list(t.stride())}
                    for n, (_, t) in operands.made.items()},
        "args": list(flats), "returns": ["y"], "plan": {},
        "ops": [{"op": "aten." + op,
                 "args": [operands.numbers.get(a, a) if isinstance(a, str)
                          else a for a in args],
                 "out": ["y"] + [f"y{i}" for i in range(1, len(results))]}],
        "expect": {"storages": {n: f.tolist() for n, f in flats.items()},
                   "returns": [[{
                       "dtype": text_of(y.dtype), "storage": "new",
                       "offset": 0, "sizes": list(y.shape),
                       "strides": list(y.stride()),
                       "values": y.reshape(-1).tolist()}]]}}


def arguments(words):
    return [w if w[0] in "%$" else json.loads(w) for w in words]


def every_case(rng):
    ops = [op.split() for line in OPS.strip().splitlines()
           for op in line.split("|")]
    for i, (op, *words) in enumerate(ops):
        for size in SIZES:
            layouts = orders(*size)
            second = layouts if '%b' in " ".join(words) else [None]
            for a, b in itertools.product(layouts, second):
                name = f"{op}.{i}.{size}.{a}.{b}".replace(" ", "")
                yield name, op, arguments(words), (size, a, b)


def sample(rng, cases):
    """Returns four small cases of each operator whose memory has no gaps."""
    by_op = {}
    for case_ in cases:
        name, op, _, (size, first, _) = case_
        if torch.Size(size).numel() <= 9 and first != orders(*size)[0]:
            number = name.removeprefix(op + ".").split(".")[0]
            by_op.setdefault(int(number), []).append(case_)
    return [c for some in by_op.values() for c in rng.sample(some, 4)]


def main():
    torch.set_num_threads(1)
    rng = random.Random(1)
    whole = len(sys.argv) > 2
    path = sys.argv[2] if whole else os.path.join(HERE, "strides.json")
    chosen = list(every_case(rng))
    if not whole:
        chosen = sample(rng, chosen)
    cases = [case(name, op, args, Operands(rng, *how))
             for name, op, args, how in chosen]
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(len(cases), "programs")


main()
