#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the model and the data of this example.

    python3 prepare.py FOLDER               (needs PyTorch 2.9 or newer)

gpt.pt2         the model of model.py
text.bin        documents: pages of docs/ and READMEs, each ends with a byte 0
code.bin        documents: C sources of stages/
text-val.bin    every fifth document, of both kinds, which is not
code-val.bin    in the others
"""
import sys
from pathlib import Path

import torch

import model

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"text": ["*.md", "docs/*.md", "stages/**/*.md", "tests/**/*.md"],
         "code": ["stages/**/*.c"]}
MOST = 1 << 20  # bytes of a file; of one for validation a tenth
END = b"\0"


def write_data(folder, kind, patterns):
    files = sorted({f for p in patterns for f in ROOT.glob(p)})
    parts = {kind: b"", kind + "-val": b""}
    for i, file in enumerate(files):
        held_out = i % 5 == 4
        name = kind + "-val" if held_out else kind
        if len(parts[name]) < (MOST // 10 if held_out else MOST):
            parts[name] += file.read_bytes() + END
    for name, data in parts.items():
        (folder / (name + ".bin")).write_bytes(data)
        print(f"{name}.bin: {data.count(END)} documents, {len(data)} bytes")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind, patterns in KINDS.items():
        write_data(folder, kind, patterns)
    gpt, shape = model.make_model(), (model.MICROBATCH, model.LENGTH)
    # Each input is a tensor of its own: torch.export merges equal ones.
    tokens, positions, targets = (torch.zeros(shape, dtype=torch.int64)
                                  for _ in range(3))
    mask = torch.ones(shape[0], 1, shape[1], shape[1], dtype=torch.bool)
    torch.export.save(torch.export.export(
        gpt, (tokens, positions, mask, targets), strict=False),
        str(folder / "gpt.pt2"))
    print(f"gpt.pt2: {sum(p.numel() for p in gpt.parameters())} parameters")


if __name__ == "__main__":
    main()
