#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks --autocast bf16 on the device cuda.

usage: autocast.py PENSTOCK MODEL GPT    PENSTOCK_LIBCUDA: the tests' driver

Gradients and losses of MODEL (autocast.pt2) are as far from those in f32 as on
the CPU, and have the same bits in one and in three stages. They are not the
CPU's: attention on the device rounds probabilities, too, as PyTorch's does, and
other roundings follow from that. Of GPT (bytegpt.pt2) nothing but products may
run on the host.
"""
import json
import math
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import tensor_file  # noqa: E402

# Distances between bf16 and f32. Measured: in the median 4.9e-3, on the CPU
# 5.0e-3; of one tensor at most 2.2 times the CPU's, of all 1.2 times.
LEAST, TIMES, ALL = 2e-3, 3.0, 1.5
# A batch norm follows, so the gradient is zero but for rounding.
NOISE = "grad.groups.bias"
PRODUCTS = {"aten.linear", "aten.matmul", "aten.addmm", "aten.mm", "aten.bmm",
            "aten.baddbmm"}


def tokens(rng, rows):
    numbers = [rng.randrange(11) for _ in range(5 * rows)]
    return "I64", [rows, 5], struct.pack(f"<{5 * rows}q", *numbers)


def gradients(path):
    """Returns the loss and the gradients of a dump of f32 tensors."""
    return {name: struct.unpack(f"<{len(data) // 4}f", data)
            for name, (dtype, _, data) in tensor_file.load(path)[0].items()
            if dtype == "F32" and name != NOISE and
            (name == "loss" or name.startswith("grad."))}


def distances(a, b):
    """Returns the relative distance of each tensor."""
    assert a.keys() == b.keys() and len(a) > 10, (a.keys(), b.keys())
    return {n: math.dist(x, b[n]) / math.hypot(*b[n]) for n, x in a.items()}


def main():
    penstock, model, gpt = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder)

        def call(*words):
            done = subprocess.run([penstock, *words], cwd=folder, text=True,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, check=False, env=env)
            assert done.returncode == 0, (words, done)
            return done.stdout

        rng = random.Random(3)
        tensor_file.save(f"{folder}/data.safetensors",
                         {name: tokens(rng, 4) for name in ("tokens",
                                                            "labels")})

        def dump(name, device, stages, *words):
            call("split", model, "-o", f"{name}.plan", "--policy", "flops",
                 "--stages", str(stages), *words)
            call("run", f"{name}.plan", "--transport", "self", "-n", "1",
                 "--data", "data.safetensors", "-m", "2", "--steps", "1",
                 "--device", device, "--dump", name)
            return f"{folder}/{name}"

        cast = "--autocast", "bf16"
        cuda = dump("cuda", "cuda", 1, *cast)
        f32 = gradients(dump("f32", "cpu", 1))
        ours = distances(gradients(cuda), f32)
        cpus = distances(gradients(dump("cpu", "cpu", 1, *cast)), f32)
        far = {n: (x, cpus[n]) for n, x in ours.items() if x > TIMES * cpus[n]}
        assert not far, far
        assert sum(ours.values()) <= ALL * sum(cpus.values()), (ours, cpus)
        for x in ours, cpus:
            assert statistics.median(x.values()) >= LEAST, x
        with open(cuda, "rb") as a, open(dump("cut", "cuda", 3, *cast),
                                         "rb") as b:
            assert a.read() == b.read(), "three stages have other bits"

        call("split", gpt, "-o", "gpt.plan", *cast)
        hosted = json.loads(call("plan", "gpt.plan", "--device", "cuda",
                                 "--json"))["ranks"][0]["hosted_ops"] or ""
        ops = {x.rsplit(".", 1)[0]
               for x in re.findall(r"(?:aten|penstock)\.\w+\.\w+", hosted)}
        assert ops <= PRODUCTS, ops
    print("ok")


if __name__ == "__main__":
    main()
