#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the plugin of docs/plugins.md as it stands in the page.

usage: page.py CC PENSTOCK ROOT

The model is tests/golden/plugin-page.pt2, which the page's Python program wrote
as net.pt2. Gradients are compared with finite differences (verify) and with
what Python computes; a kernel that fails names its reason. Then the plugin that
`ops --missing` prints is compiled and loaded.
"""
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

from bench import Bench, compare, numbers, tensor_file


def compile_plugin(cc, root, source, library):
    done = subprocess.run([*cc.split(), "-std=c11", "-Wall", "-Wextra",
                           "-Werror", "-pedantic", "-O2", "-fPIC", "-shared",
                           "-I", os.path.join(root, "include"), source, "-o",
                           library, "-lm"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0 or done.stderr:
        raise SystemExit(done.stderr)
    return library


def loss_of(path, x, y):
    """The loss of the page's model, in double."""
    p = {name: numbers(t) for name, t in tensor_file.load(path)[0].items()}
    total = 0.0
    for row, want in zip(x, y):
        out = p["fc2.bias"][0]
        for i in range(16):
            h = p["fc1.bias"][i] + sum(
                p["fc1.weight"][4 * i + k] * row[k] for k in range(4))
            out += p["fc2.weight"][i] * h / (1 + math.exp(-1.5 * h))
        total += (out - want) ** 2
    return total / len(y)


def main():
    cc, penstock, root = sys.argv[1:]
    penstock, root = os.path.abspath(penstock), os.path.abspath(root)
    model = os.path.join(root, "tests", "golden", "plugin-page.pt2")
    with open(os.path.join(root, "docs", "plugins.md"),
              encoding="utf-8") as file:
        text, = re.findall(r"```c\n(.*?)```", file.read(), re.S)
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(penstock, folder)
        source = b.at("mylib.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        b.plugin = compile_plugin(cc, root, source, b.at("mylib.so"))
        x = [[math.sin(4 * i + k) for k in range(4)] for i in range(32)]
        y = [math.cos(i) for i in range(32)]
        data = b.at("net.safetensors")
        tensor_file.save(data, {
            "x": ("F32", [32, 4], struct.pack("<128f", *sum(x, []))),
            "y": ("F32", [32, 1], struct.pack("<32f", *y))})
        plan = b.split(model, 2)
        dump = b.run(plan, data, "-m", "4", "--check-plugins", ranks=2)
        b.call("weights", plan, "-o", b.at("start.safetensors"))
        compare("loss", numbers(dump["loss"]),
                [loss_of(b.at("start.safetensors"), x, y)], 1e-5)
        b.call("verify", plan, "--data", data, "--check-plugins")

        # What `ops --missing` prints compiles, loads, and fails in a step.
        start = b.call("ops", "--missing", model, plugin=False)
        for word in ('"mylib::swish(Tensor x, float beta) -> Tensor"',
                     "const double beta_ = c->args[1].f;"):
            if word not in start:
                raise SystemExit(f"{word} is not in\n{start}")
        with open(b.at("start.c"), "w", encoding="utf-8") as file:
            file.write(start)
        made = compile_plugin(cc, root, b.at("start.c"), b.at("start.so"))
        if "plugin.gradient" not in b.call("show", model, "--plugin", made,
                                           plugin=False, good=False):
            raise SystemExit("training without a gradient is not refused")
        text = b.call("infer", model, "--loss", "none", "--data", data, "-o",
                      b.at("out.safetensors"), "--plugin", made, plugin=False,
                      good=False)
        if "not written yet" not in text:
            raise SystemExit(text)
        if "no operator of the model" not in b.call("ops", "--missing", model):
            raise SystemExit("the plugin is loaded, and something is missing")
        # An operator of PyTorch's that nobody knows is no plugin's.
        several = os.path.join(root, "tests", "golden", "plugin.pt2")
        start = b.call("ops", "ours", "--missing", several, plugin=False)
        with open(b.at("more.c"), "w", encoding="utf-8") as file:
            file.write(start)
        made = compile_plugin(cc, root, b.at("more.c"), b.at("more.so"))
        for word in ("SymInt[] dims", "(Tensor, Tensor)", "ours::halves(Tensor"):
            if word not in start:
                raise SystemExit(f"{word} is not in\n{start}")
        b.call("ops", "ours", "--plugin", made, plugin=False)
        lists = os.path.join(root, "tests", "golden", "plugin-lists.pt2")
        start = b.call("ops", "--missing", lists, plugin=False)
        with open(b.at("lists.c"), "w", encoding="utf-8") as file:
            file.write(start)
        made = compile_plugin(cc, root, b.at("lists.c"), b.at("lists.so"))
        if "ours::spread(Tensor x, float[] w) -> Tensor[]" not in start:
            raise SystemExit(start)
        b.call("split", lists, "-o", b.at("lists"), "--loss", "none",
               "--plugin", made, plugin=False)


if __name__ == "__main__":
    main()
