# SPDX-License-Identifier: Apache-2.0
"""Writes optim.json into tests/golden: what 200 updates of each optimizer make
of 24 parameters, in PyTorch 2.13 and f32, for tests/optim/test_updates.c.

usage: make_optim.py

A case has the optimizer, its options besides the defaults, the shape unless it
is one dimension, the parameters at the end, the states with their names in
checkpoints, and `off`: the error of PyTorch's own f32 parameters against f64. Of
Muon `bf16` is the difference that PyTorch's bf16 makes. Start values and gradients are exact
in f32 and are made anew in the test: see `start` and `gradients`.

Lion, LAMB and schedule-free AdamW are not PyTorch's: tests/compare/optimizers.py
has them from their papers.
"""
import json
import os
import sys

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(os.path.dirname(HERE), "compare"))
from optimizers import MAKERS  # noqa: E402

N = 24
STEPS = 200
# PyTorch's names of the states, by ours.
STATES = {"sgd.momentum": "momentum_buffer",
          "adamw.m": "exp_avg", "adamw.v": "exp_avg_sq",
          "adam.m": "exp_avg", "adam.v": "exp_avg_sq",
          "adamax.m": "exp_avg", "adamax.u": "exp_inf", "lion.m": "m",
          "rmsprop.v": "square_avg", "rmsprop.momentum": "momentum_buffer",
          "rmsprop.mean": "grad_avg", "adagrad.sum": "sum",
          "adadelta.v": "square_avg", "adadelta.s": "acc_delta",
          "lamb.m": "m", "lamb.v": "v", "muon.momentum": "momentum_buffer",
          "adafactor.row": "row_var", "adafactor.col": "col_var",
          "adafactor.v": "variance", "schedulefree.z": "z",
          "schedulefree.v": "v", "schedulefree.x": "x"}
# PyTorch takes the epsilon of the dtype, here also for f64.
EPS = torch.finfo(torch.float32).eps
BETAS = {"beta1": 0.8, "beta2": 0.95}
CASES = [
    ("sgd", {}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02,
             "dampening": 0.25}),
    ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("adamw", {}),
    ("adamw", {"lr": 0.02, **BETAS, "eps": 1e-3, "weight_decay": 0.1}),
    ("adam", {}),
    ("adam", {"weight_decay": 0.05}),
    ("adam", {"lr": 0.02, **BETAS, "eps": 1e-3, "weight_decay": 0.1}),
    ("adamax", {}),
    ("adamax", {"lr": 0.02, **BETAS, "eps": 1e-3, "weight_decay": 0.1}),
    ("lion", {}),
    ("lion", {"lr": 0.01, "beta1": 0.85, "beta2": 0.95, "weight_decay": 0.1}),
    ("rmsprop", {}),
    ("rmsprop", {"lr": 1e-3, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}),
    ("rmsprop", {"lr": 1e-3, "momentum": 0.9}),
    ("rmsprop", {"lr": 1e-3, "centered": True}),
    ("rmsprop", {"lr": 1e-3, "alpha": 0.95, "momentum": 0.5, "centered": True,
                 "weight_decay": 0.05}),
    ("adagrad", {}),
    ("adagrad", {"lr": 0.1, "lr_decay": 0.01, "eps": 1e-5,
                 "weight_decay": 0.05}),
    ("adadelta", {}),
    ("adadelta", {"lr": 0.5, "rho": 0.95, "eps": 1e-4, "weight_decay": 0.05}),
    ("lamb", {}),
    ("lamb", {"lr": 0.02, **BETAS, "eps": 1e-3, "weight_decay": 0.1}),
    ("muon", {}, [4, 6]),
    ("muon", {"lr": 0.02, "momentum": 0.8, "weight_decay": 0.01}, [8, 3]),
    ("muon", {"lr": 0.01, "momentum": 0.3, "nesterov": False, "ns_steps": 3},
     [1, 24]),
    ("muon", {"lr": 3e-3, "match_rms_adamw": True, "eps": 1e-3}, [6, 4]),
    ("adafactor", {}),
    ("adafactor", {}, [4, 6]),
    ("adafactor", {"lr": 0.05, "weight_decay": 0.1}, [24, 1]),
    ("adafactor", {"beta2_decay": -0.5, "eps": 1e-2, "eps2": 0.1,
                   "clip_threshold": 1.5, "weight_decay": 0.01}, [2, 3, 4]),
    ("adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": 1e-2,
                   "clip_threshold": 2.0}),
    ("schedulefree", {}),
    ("schedulefree", {"lr": 0.02, **BETAS, "eps": 1e-3, "weight_decay": 0.1}),
]


def number(i):
    """Returns a whole number from -1000 to 1000."""
    i = i * 2654435761 % 2**32
    return (i >> 8) % 2001 - 1000


def start():
    return [number(i + 1) / 512 for i in range(N)]


def gradients(step):
    """Element 0 has none, and 1 only in every tenth step; the others differ in
    size, from 2^-6 to 1, and have a mean that is not zero."""
    ret = [(number(1000 + step * N + i) + 300) / 1024 / 2**(i % 7)
           for i in range(N)]
    ret[0] = 0.0
    if step % 10 != 3:
        ret[1] = 0.0
    return ret


def run(name, options, shape, dtype, maker=None):
    p = torch.nn.Parameter(torch.tensor(start(), dtype=dtype).view(shape))
    options = dict(options)
    if options.pop("match_rms_adamw", False):
        options["adjust_lr_fn"] = "match_rms_adamw"
    if "beta1" in options:
        options["betas"] = options.pop("beta1"), options.pop("beta2")
    if name == "adafactor":
        eps = options.pop("eps", EPS), options.pop("eps2", 1e-3)
        options.update(eps=eps, d=options.pop("clip_threshold", 1.0))
    if name not in ("lion", "lamb", "muon", "schedulefree"):
        options["foreach"] = False
    optimizer = (maker or MAKERS[name])([p], **options)
    for step in range(STEPS):
        p.grad = torch.tensor(gradients(step), dtype=dtype).view(shape)
        optimizer.step()
    # No update of Lion is so near zero that rounding decides its sign.
    assert getattr(optimizer, "smallest", 1) > 1e-4
    return p.detach(), optimizer.state[p]


def texts(t):
    """Returns numbers that are read as the same f32."""
    assert t.isfinite().all()
    return [float(f"{x:.9g}") for x in t.flatten().tolist()]


def case(name, options, shape=(N,)):
    p, state = run(name, options, shape, torch.float32)
    exact, _ = run(name, options, shape, torch.float64)
    assert (p.flatten() != torch.tensor(start()))[1:].all()
    states = {ours: texts(state[theirs]) for ours, theirs in STATES.items()
              if ours.split(".")[0] == name and
              isinstance(state.get(theirs), torch.Tensor)}
    off = ((p.double() - exact).abs() / exact.abs().clamp_min(1)).max().item()
    ret = {"optimizer": name, "options": options}
    if len(shape) > 1:
        ret["shape"] = shape
    ret.update(param=texts(p), states=states, off=float(f"{off:.3g}"))
    if name == "muon":
        half, _ = run(name, options, shape, torch.float32, torch.optim.Muon)
        off = ((half - p).abs() / p.abs().clamp_min(1)).max().item()
        ret["bf16"] = float(f"{off:.3g}")
    return ret


def main():
    cases = [case(*c) for c in CASES]
    with open(os.path.join(HERE, "optim.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
