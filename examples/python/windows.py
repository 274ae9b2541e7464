#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learns to continue a series of numbers, which is one NumPy array: all that is
handed over are views of it that overlap, and none of them is copied.

    windows.py MODEL.pt2 [STEPS]

First the series is smoothed in place, by operators of PyTorch on two views: the
series without its last number, and without its first. Then a model is trained:
row i of the input has the numbers i to i+4, and the target of the row is number
i+5. The model is examples/fortran/closure.pt2: five numbers to one.
"""
import sys

import numpy

import penstock

ROWS, WIDTH = 64, 5

# Each number becomes the mean of itself and the next one. `scaled` is new
# memory; `head` is written, and `last` is a view of what was written.
SMOOTH = {
    "tensors": {"head": {"dtype": "float32"}, "tail": {"dtype": "float32"}},
    "args": ["head", "tail"],
    "ops": [
        {"op": "aten.mul.Scalar", "args": ["%tail", 0.5], "out": ["scaled"]},
        {"op": "aten.mul_.Scalar", "args": ["%head", 0.5]},
        {"op": "aten.add_.Tensor", "args": ["%head", "%scaled"]},
        {"op": "aten.slice.Tensor", "args": ["%tail", 0, -3],
         "out": ["last"]}],
    "returns": ["last"]}


def make_series(n):
    """Two triangle waves; all numbers are exact."""
    k = numpy.arange(n)
    return ((abs(k % 32 - 16) + abs(k % 24 - 12)) / 16).astype("float32")


def smooth(series):
    with penstock.Program(SMOOTH) as program:
        last, = program.call({"head": series[:-1], "tail": series[1:]})
        assert numpy.shares_memory(numpy.asarray(last), series)
        print("smoothed, the last three:", *last.tolist())


def train(path, series, steps):
    windows = numpy.lib.stride_tricks.sliding_window_view(series, WIDTH)
    with penstock.Model(path, stages=2) as model:
        session = model.session(microbatches=2, optimizer="adamw", lr=1e-2,
                                threads=1, ranks=2)
        for k in range(0, steps * ROWS, ROWS):
            step = session.train_step(windows[k:k + ROWS],
                                      series[k + WIDTH:k + WIDTH + ROWS])
            print(f"step {step.step}: loss {step.loss!r}")


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: windows.py MODEL.pt2 [STEPS]")
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    series = make_series(steps * ROWS + WIDTH)
    smooth(series)
    train(sys.argv[1], series, steps)


main()
