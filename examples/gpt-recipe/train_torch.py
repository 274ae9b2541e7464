#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does in PyTorch what train.sh does.

    python3 train_torch.py FOLDER

The loader reads the same rows as penstock: windows of each source in the order
of the file, from the source that is furthest below its share.
"""
import math
import sys
import time
from pathlib import Path

import numpy
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import model

STEPS, MICROBATCHES = 300, 2
SHARES = {"text": .6, "code": .4}
WARMUP, DECAY = 20, 100
T = model.LENGTH


def pack(window):
    """Returns the inputs for a window of T + 1 bytes: positions and mask begin
    anew after each 0, and what follows a 0 is no target."""
    tokens, targets = window[:T].astype(int), window[1:].astype(int)
    ends = tokens == 0
    document = numpy.concatenate([[0], numpy.cumsum(ends)[:-1]])
    first = numpy.searchsorted(document, document)
    mask = numpy.tril(document[:, None] == document[None])
    targets[ends] = -100
    return tokens, numpy.arange(T) - first, mask[None], targets


def batch(windows):
    parts = [torch.from_numpy(numpy.stack(x))
             for x in zip(*map(pack, windows))]
    return parts


def rows(data):
    """Yields windows of the blend."""
    used, n = {k: 0 for k in SHARES}, 0
    while True:
        n += 1
        kind = max(SHARES, key=lambda k: n * SHARES[k] - used[k])
        k = used[kind] % ((len(data[kind]) - 1) // T)
        used[kind] += 1
        yield data[kind][k * T:(k + 1) * T + 1]


def rate(step):
    if step < WARMUP:
        return step / WARMUP
    return min(1, (STEPS - step) / DECAY)


@torch.no_grad()
def evaluate(gpt, data):
    """The mean over all targets that count."""
    total, count = 0., 0
    n = (len(data) - 1) // T
    for k in range(0, n, 16):
        inputs = batch([data[i * T:(i + 1) * T + 1]
                        for i in range(k, min(k + 16, n))])
        targets = int((inputs[3] != -100).sum())
        total += float(gpt(*inputs)[0]) * targets
        count += targets
    return total / count


def report(step, gpt, data, what=""):
    for kind in SHARES:
        loss = evaluate(gpt, data[kind + "-val"])
        print(f"step {step}{what}: {kind} loss {loss:.4f} "
              f"({loss / math.log(2):.4f} bits per byte)", flush=True)


def groups(gpt):
    """No decay for norms, biases and embeddings."""
    bare = [p for name, p in gpt.named_parameters()
            if p.ndim < 2 or name.startswith(("wte", "wpe"))]
    ids = set(map(id, bare))
    return [{"params": bare, "weight_decay": 0},
            {"params": [p for p in gpt.parameters() if id(p) not in ids]}]


def main():
    folder = Path(sys.argv[1])
    data = {path.stem: numpy.frombuffer(path.read_bytes(), "u1")
            for path in folder.glob("*.bin")}
    gpt = model.make_model()
    average = AveragedModel(gpt, multi_avg_fn=get_ema_multi_avg_fn(.98))
    optimizer = torch.optim.AdamW(groups(gpt), lr=model.LR, betas=(.9, .95),
                                  weight_decay=.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    source, begin = rows(data), time.time()
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        for _ in range(MICROBATCHES):
            windows = [next(source) for _ in range(model.MICROBATCH)]
            (gpt(*batch(windows))[0] / MICROBATCHES).backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1)
        optimizer.step()
        schedule.step()
        average.update_parameters(gpt)
        if step % 100 == 0:
            report(step, gpt, data)
    report(STEPS, average, data, ", averages")
    print(f"{time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
