#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt.pt2, a smaller form of the model of examples/bytegpt,
for tests that need a GPT. Run again only if PyTorch's format
changes."""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[2] / "examples" / "bytegpt"))
import export  # noqa: E402


def main():
    export.WIDTH, export.HEADS, export.BLOCKS, export.MICROBATCH = 32, 2, 2, 2
    texts = [torch.zeros(export.MICROBATCH, export.LENGTH, dtype=torch.int64)
             for _ in range(2)]
    program = torch.export.export(export.make_model(), tuple(texts),
                                  strict=False)
    torch.export.save(export.without_folders(program),
                      str(HERE.parent / "gpt.pt2"))


if __name__ == "__main__":
    main()
