#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rates.def: learning rates of PyTorch's and transformers' schedules.

usage: make_rates.py > rates.def

A schedule of neither is a LambdaLR with its formula. The schedulers run as in
training: a step of the optimizer, then one of the scheduler.
"""
import math

import numpy
import torch
import transformers
from torch.optim.lr_scheduler import (CosineAnnealingWarmRestarts, LambdaLR,
                                      OneCycleLR)

LR = 0.3
W, E, N = 7, 40, 46  # updates of the warmup, until the end, and in the table
D = 12  # updates of wsd's decay
MIN = 0.05  # lowest rate, as a share of LR
POINTS = ((4, .25), (11, 1.5), (30, 1e-3), (31, .75))


def lambdas(after):
    """Returns a function that makes a LambdaLR with the warmup, then
    after(update)."""
    return lambda optimizer: LambdaLR(
        optimizer, lambda u: u / W if u < W else after(u))


def wsd(shape):
    """Returns the share of the rate: shape(x) while x goes from 0 to 1."""
    return lambda u: shape(min(1., max(0., (u - (E - D)) / D)))


def above_minimum(f):
    return MIN + (1 - MIN) * f


def interpolate(u):
    return float(numpy.interp(u, *zip(*POINTS)))


def points(optimizer):
    return LambdaLR(optimizer, interpolate)


def warm_points(optimizer):
    return LambdaLR(optimizer, lambda u: u / W * interpolate(W) if u < W
                    else interpolate(u))


def one_cycle(warmup, **more):
    return lambda optimizer: OneCycleLR(
        optimizer, max_lr=LR, total_steps=E, pct_start=warmup / E,
        anneal_strategy="cos", div_factor=25, cycle_momentum=False, **more)


def of_transformers(name, *args, **more):
    make = getattr(transformers, f"get_{name}")
    return lambda optimizer: make(optimizer, *args, **more)


WARM = f".warmup_steps = {W}"
SPAN = f"{WARM}, .total_steps = {E}"
LOW = f".min_lr_ratio = {MIN!r}"
WSD = f"{SPAN}, .lr_decay_steps = {D}"
NO_WARMUP = f".total_steps = {E}"
LIST = ", ".join("{%d, %r}" % p for p in POINTS)
LIST = f".n_lr_points = {len(POINTS)}, .lr_points = {{{LIST}}}"
CASES = [  # schedule, options in C, scheduler
    ("CONSTANT", WARM, of_transformers("constant_schedule_with_warmup", W)),
    ("LINEAR", SPAN, of_transformers("linear_schedule_with_warmup", W, E)),
    ("COSINE", SPAN, of_transformers("cosine_schedule_with_warmup", W, E)),
    ("COSINE", f"{SPAN}, {LOW}", of_transformers(
        "cosine_with_min_lr_schedule_with_warmup", W, E, min_lr_rate=MIN)),
    ("COSINE_RESTARTS", f"{SPAN}, .lr_cycles = 3", of_transformers(
        "cosine_with_hard_restarts_schedule_with_warmup", W, E, 3)),
    ("COSINE_RESTARTS", f"{SPAN}, .lr_cycles = 5", of_transformers(
        "cosine_with_hard_restarts_schedule_with_warmup", W, E, 5)),
    ("COSINE_RESTARTS", f"{NO_WARMUP}, .lr_cycles = 4, {LOW}",
     lambda optimizer: CosineAnnealingWarmRestarts(
         optimizer, E // 4, eta_min=MIN * LR)),
    ("POLYNOMIAL", f"{SPAN}, .lr_power = 1", of_transformers(
        "polynomial_decay_schedule_with_warmup", W, E, lr_end=0, power=1)),
    ("POLYNOMIAL", f"{SPAN}, .lr_power = 2.5, {LOW}", of_transformers(
        "polynomial_decay_schedule_with_warmup", W, E, lr_end=MIN * LR,
        power=2.5)),
    ("WSD", WSD, of_transformers("wsd_schedule", W, D, E,
                                 decay_type="linear")),
    ("WSD", f"{WSD}, .lr_shape = PST_LR_SHAPE_COSINE", of_transformers(
        "wsd_schedule", W, D, E, decay_type="cosine")),
    ("WSD", f"{WSD}, .lr_shape = PST_LR_SHAPE_SQRT", of_transformers(
        "wsd_schedule", W, D, E, decay_type="1-sqrt")),
    ("WSD", f"{WSD}, {LOW}, .lr_shape = PST_LR_SHAPE_SQRT",
     lambdas(wsd(lambda x: above_minimum(1 - math.sqrt(x))))),
    ("WSD", f"{WSD}, {LOW}, .lr_shape = PST_LR_SHAPE_EXP",
     lambdas(wsd(lambda x: MIN ** x))),
    ("ONE_CYCLE", f"{SPAN}, .min_lr_ratio = 1.0 / 25 / 1e4", one_cycle(W)),
    ("ONE_CYCLE", f"{SPAN}, {LOW}", one_cycle(W, final_div_factor=.04 / MIN)),
    ("ONE_CYCLE", f"{NO_WARMUP}, .min_lr_ratio = 1.0 / 25 / 1e4",
     one_cycle(0)),
    ("INVERSE_SQRT", WARM, of_transformers("inverse_sqrt_schedule", W)),
    ("POINTS", LIST, points),
    ("POINTS", f"{WARM}, {LIST}", warm_points),
]


def rates(name, options, make):
    """Returns the rates of N updates. OneCycleLR ends with update E - 1; a
    cosine would rise again after the end, ours stays at the lowest rate."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    scheduler = make(optimizer)
    ret = []
    for u in range(N):
        ret.append(optimizer.param_groups[0]["lr"])
        if u < E - 1 or not isinstance(scheduler, OneCycleLR):
            optimizer.step()
            scheduler.step()
    if name.startswith("COSINE"):
        ret[E:] = [MIN * LR if LOW in options else 0.0] * (N - E)
    return ret


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("/* Made by make_rates.py with PyTorch "
          f"{torch.__version__.split('+')[0]} and transformers "
          f"{transformers.__version__}.\n"
          f" * RATES(schedule, (options), rates of updates 0 to {N - 1}); "
          f"lr is {LR}. */")
    print("// clang-format off")
    for name, options, make in CASES:
        print(f"RATES({name}, ({options}),")
        values = [repr(float(x)) for x in rates(name, options, make)]
        for i in range(0, N, 3):
            end = ")" if i + 3 >= N else ","
            print("    " + ", ".join(values[i:i + 3]) + end)


if __name__ == "__main__":
    main()
