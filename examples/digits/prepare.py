#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the digits example: model and data.

    python3 prepare.py DIR        (needs PyTorch 2.9 or newer, safetensors)

DIR gets digits.pt2, train.safetensors and test.safetensors. The data are 1797
handwritten digits (digits.csv.gz), images of 8 x 8 pixels, shuffled: 1408 for
training, 384 for the test.

forward(x, target) -> (loss, wrong): x float32 (32, 1, 8, 8), one microbatch;
target int64 (32). The loss is the mean cross-entropy; wrong is the share of
misclassified images.
"""
import gzip
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

MICROBATCH = 32
TRAIN, TEST = 44 * MICROBATCH, 12 * MICROBATCH


def block(channels, to):
    return [nn.Conv2d(channels, to, 3, padding=1, bias=False),
            nn.BatchNorm2d(to), nn.ReLU(inplace=True)]


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            *block(1, 16), *block(16, 32), nn.MaxPool2d(2), nn.Dropout(0.2),
            *block(32, 64), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(256, 10))

    def forward(self, x, target):
        y = self.head(self.features(x))
        wrong = (y.argmax(1) != target).float().mean()
        return F.cross_entropy(y, target), wrong


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as f:
        rows = torch.tensor([[float(n) for n in line.split(",")]
                             for line in f])
    x = rows[:, :-1].reshape(-1, 1, 8, 8) / 16
    y = rows[:, -1].long()
    order = torch.randperm(len(y))
    for name, part in (("train", order[:TRAIN]),
                       ("test", order[TRAIN:TRAIN + TEST])):
        save_file({"x": x[part].contiguous(), "target": y[part].contiguous()},
                  folder / f"{name}.safetensors")
    # Copies: the file has the whole memory of an example, not a part of it.
    example = (x[:MICROBATCH].clone(), y[:MICROBATCH].clone())
    program = torch.export.export(Digits().train(), example, strict=False)
    torch.export.save(program, folder / "digits.pt2")


if __name__ == "__main__":
    main()
