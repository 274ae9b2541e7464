#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files with invalid resizes are refused with the error names of
docs/models.md.

usage: resizes.py PENSTOCK

PyTorch accepts and exports each program; `split` must refuse it. A valid
program of the same operators must be accepted, so that the operators alone are
no reason to refuse.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch._inductor.fx_passes.reinplace  # noqa: F401 (its operators)
import torch.distributed.fsdp._fully_shard._fsdp_collectives  # noqa: F401

RESIZE = torch.ops.inductor.resize_storage_bytes_


def grown(p):
    RESIZE(p, 12)
    return p + 1


def part(p):
    RESIZE(p[:1], 0)
    return torch.ones(2)


def changed(p):
    p.mul_(2)
    h = p + 1
    RESIZE(p, 0)
    return h


def given(p):
    RESIZE(p, 0)
    p.set_(torch.ones(2))
    return p + 1


def unfilled(p):
    RESIZE(p, 8)
    return p + 1


def freed(p):
    h = p + 1
    RESIZE(p, 0)
    return h + p


def mutated(p):
    RESIZE(p, 8)
    torch.ops.fsdp.copy_(p, torch.ones(2))
    p.mul_(2)
    h = p + 1
    RESIZE(p, 0)
    return h


def right(p):
    RESIZE(p, 8)
    torch.ops.fsdp.copy_(p, torch.ones(2))
    h = p + 1
    RESIZE(p, 0)
    return h


# (program, error, words of the message)
WRONG = [(grown, "E_RESIZE_PARTIAL", "from 8 to 12 bytes"),
         (part, "E_RESIZE_VIEW", "%slice_1: is resized by a name"),
         (changed, "E_RESIZE_MUT", "the change would be lost"),
         (given, "changes storage", "aten.set_.source_Tensor"),
         (unfilled, "E_RESIZE_UNINIT", "grown and not filled"),
         (freed, "E_RESIZE_UNINIT", "was freed"),
         (mutated, "E_SHARDED_MUT", "changed after it was filled")]


class Program(torch.nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, p):
        return self.run(p)


class Parameter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        h = x * self.w
        RESIZE(self.w, 0)
        return h


def split(penstock, folder, module):
    program = torch.export.export(module, (torch.ones(2),), strict=False)
    program._example_inputs = None
    path = os.path.join(folder, "model.pt2")
    torch.export.save(program, path)
    done = subprocess.run([penstock, "split", path, "--stages", "1", "-o",
                           os.path.join(folder, "plan")], text=True,
                          capture_output=True, check=False)
    return done.returncode, done.stderr


def main():
    penstock, bad = sys.argv[1], 0
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        code, text = split(penstock, folder, Program(right))
        if code != 0:
            bad += 1
            print(f"FAIL right: {code}, {text.strip()}")
        for run, error, words in WRONG:
            code, text = split(penstock, folder, Program(run))
            if code != 65 or error not in text or words not in text or \
                    "resizes.py:" not in text:
                bad += 1
                print(f"FAIL {run.__name__}: {code}, {text.strip()}")
        code, text = split(penstock, folder, Parameter())
        if code != 65 or "E_SHARDED_MUT" not in text:
            bad += 1
            print(f"FAIL parameter: {code}, {text.strip()}")
    print(f"{len(WRONG) + 2 - bad} passed, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
