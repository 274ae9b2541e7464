#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --autocast bf16 and f16: every value has the dtype that PyTorch's lists give,
parameters, gradients and optimizer states stay f32, the same bits for each cut,
and refusals.

usage: autocast.py PENSTOCK AUTOCAST.pt2 AUTOCAST.json AUTOCAST-F16.json F64.pt2
                   FILLS.pt2

The .json files have the dtypes in PyTorch (tests/golden/make/make_autocast.py).
"""
import json
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16",
         "i64": "int64", "bool": "bool"}
CASTS = {"bf16": 29, "f16": 14}
ROWS = 8


class Bench(job.Bench):
    def run(self, plan, ranks, dump, *options):
        self.said("run", plan, "-n", ranks, "--transport", "self", "--threads",
                  1, "-m", 4, "--optimizer", "adamw", "--lr", "1e-2", "--data",
                  "data.safetensors", "--dump", dump, "--quiet", *options)
        with open(f"{self.folder}/{dump}", "rb") as f:
            return f.read()


    def fails(self, text, *words):
        done = self.done(*words, code=None)
        assert done.returncode > 0 and text in done.stderr, done


def check_dtypes(bench, plan, low, expected):
    """Compares the dtypes of all values with PyTorch's."""
    text = bench.said("show", plan, "--stage", "0")
    found = dict(re.findall(r"%([\w.]+): (\w+)\[", text))
    # Of a group norm, the value of that name is its statistics.
    found.pop("group_norm", None)
    wrong = {n: (found[n], d) for n, d in expected.items()
             if n in found and NAMES[found[n]] != d}
    missing = [n for n in expected if n not in found]
    assert not wrong, wrong
    assert len(missing) < len(expected) // 4, missing
    notes = re.findall(rf"torch.autocast with {low}: (\d+) casts",
                       bench.said("show", plan))
    assert notes == [str(CASTS[low])], notes
    params = re.findall(r'^  "([^"]+)": (\w+)\[', text, re.M)
    assert len(params) > 20 and all(d in ("f32", "i64") for _, d in params), \
        params


def check_bits(bench):
    """Compares the bits of cuts and schedules, and of a restart."""
    whole = bench.run("1.plan", 1, "whole", "--steps", 4)
    dtypes = {n: d for n, (d, _, _) in
              tensor_file.load(f"{bench.folder}/whole")[0].items()}
    assert all(d == "F32" for n, d in dtypes.items()
               if n.startswith(("grad.", "param."))), dtypes
    assert dtypes["loss"] == "F32" and dtypes["output.1"] == "BF16", dtypes
    plain = bench.run("plain.plan", 1, "plain", "--steps", 4)
    assert plain != whole
    for plan, ranks, schedule in (("2.plan", 2, "1f1b"), ("3.plan", 3, "gpipe"),
                                  ("3.plan", 1, "1f1b")):
        assert bench.run(plan, ranks, "other", "--steps", 4, "--schedule",
                         schedule) == whole, (plan, ranks, schedule)
    half = ("--checkpoint", "ckpt")
    bench.run("2.plan", 2, "other", "--steps", 2, *half)
    again = bench.run("1.plan", 1, "other", "--steps", 4, "--resume", *half)
    kept = "param."
    first, second = (tensor_file.load(f"{bench.folder}/{n}")[0]
                     for n in ("whole", "other"))
    assert again and all(first[n] == second[n] for n in first
                         if n.startswith(kept))
    bench.fails("another model", "run", "plain.plan", "-n", 1, "--transport",
                "self", "--data", "data.safetensors", "-m", 4, "--steps", 6,
                "--optimizer", "adamw", "--resume", *half)


def check_messages(bench):
    text = bench.said("show", "2.plan")
    assert re.search(r"edge \d+: .* bf16\[", text), text


def check_refusals(bench, wide):
    bench.fails("--autocast bf16 has no effect", "split", wide, "-o",
                "wide.plan", "--autocast", "bf16")
    bench.fails("--autocast", "split", wide, "-o", "wide.plan", "--autocast",
                "f8")
    bench.fails("is split already", "plan", "1.plan", "--autocast", "bf16")


def check_fills(bench, model):
    """Writes a number where a mask is true: PyTorch makes it in the dtype of
    what it writes."""
    bench.said("split", model, "-o", "fills.plan", "--autocast", "bf16")
    tensor_file.save(f"{bench.folder}/fills.safetensors",
                     {"x": ("F32", [2, 4], struct.pack("<8f", *[0.25] * 8)),
                      "wanted": ("F32", [2, 6],
                                 struct.pack("<12f", *[1, -1] * 6))})
    bench.said("run", "fills.plan", "-n", 1, "--transport", "self", "--threads",
               1, "--optimizer", "sgd", "--lr", "0.1", "--steps", 1, "--data",
               "fills.safetensors", "--dump", "fills", "--quiet")
    dtype, shape, body = tensor_file.load(f"{bench.folder}/fills")[0]["output.1"]
    assert (dtype, list(shape)) == ("BF16", [2, 6]), (dtype, shape)
    halves = struct.unpack("<12H", bytes(body))[::2]
    assert set(halves) == {0x3f00}, halves  # 0.5 in bf16


def main():
    penstock, model, *dtypes, wide, fills = sys.argv[1:]
    expected = {}
    for low, path in zip(CASTS, dtypes):
        with open(path, encoding="utf-8") as f:
            expected[low] = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(penstock), folder)
        model, wide = os.path.abspath(model), os.path.abspath(wide)
        tokens = [i * 7 % 11 for i in range(ROWS * 5)]
        data = b"".join(t.to_bytes(8, "little") for t in tokens)
        tensor_file.save(f"{folder}/data.safetensors",
                         {"tokens": ("I64", [ROWS, 5], data),
                          "labels": ("I64", [ROWS, 5], data)})
        for n in (1, 2, 3):
            bench.said("split", model, "-o", f"{n}.plan", "--stages", n,
                       "--autocast", "bf16")
        bench.said("split", model, "-o", "plain.plan")
        bench.said("split", model, "-o", "f16.plan", "--autocast", "f16")
        check_dtypes(bench, "1.plan", "bf16", expected["bf16"])
        check_dtypes(bench, "f16.plan", "f16", expected["f16"])
        check_messages(bench)
        check_bits(bench)
        check_refusals(bench, wide)
        check_fills(bench, os.path.abspath(fills))


main()
