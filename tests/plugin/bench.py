# SPDX-License-Identifier: Apache-2.0
"""Runs penstock with plugins in a temporary folder, for the tests here."""
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

TRAIN = ["--optimizer", "sgd", "--lr", "0.5", "--seed", "3", "--quiet"]


def numbers(tensor):
    """The elements of (dtype, shape, bytes) as floats."""
    dtype, _, data = tensor
    if dtype == "BF16":
        n = len(data) // 2
        wide = b"".join(b"\0\0" + data[2 * i:2 * i + 2] for i in range(n))
        return list(struct.unpack(f"<{n}f", wide))
    kind, size = {"F32": ("f", 4), "F64": ("d", 8)}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{kind}", data))


def flat(rows):
    if not isinstance(rows, list):
        return [rows]
    return [x for row in rows for x in flat(row)]


class Bench:
    def __init__(self, penstock, folder, plugin=None):
        self.penstock, self.folder, self.plugin = penstock, folder, plugin
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}
        self.env.update(XDG_RUNTIME_DIR=folder, LC_ALL="C", HOME=folder)

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    def call(self, *words, good=True, plugin=True):
        """Runs a command; returns what it printed on both outputs."""
        words = [str(word) for word in words]
        if plugin and self.plugin:
            words += ["--plugin", self.plugin]
        done = subprocess.run([self.penstock, *words], env=self.env,
                              cwd=self.folder, timeout=PATIENCE, text=True,
                              capture_output=True, errors="replace")
        if (done.returncode == 0) != good:
            raise SystemExit(f"penstock {' '.join(words)}: exit code "
                             f"{done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def data(self, name, known, repeat=1):
        """Writes the rows of the model to a file."""
        x, y = flat(known["x"]) * repeat, flat(known["y"]) * repeat
        packed = struct.pack(f"<{len(x)}f", *x)
        if known.get("bf16"):
            packed = b"".join(packed[i + 2:i + 4]
                              for i in range(0, len(packed), 4))
        tensor_file.save(self.at(name), {
            "x": ("BF16" if known.get("bf16") else "F32",
                  [len(x) // 8, 8], packed),
            "y": ("F32", [len(y) // 4, 4], struct.pack(f"<{len(y)}f", *y))})
        return self.at(name)

    def split(self, model, stages, *more):
        plan = self.at(f"{os.path.basename(model)}-{stages}.plan")
        if not os.path.exists(plan):
            self.call("split", model, "--stages", stages, "--policy", "flops",
                      "-o", plan, *more)
        return plan

    def run(self, plan, data, *more, ranks=1, steps=1, transport="self",
            plugin=True):
        """Runs a plan, and returns the tensors of its dump."""
        dump = self.at("dump.safetensors")
        self.call("run", plan, "--data", data, "-n", ranks, "--steps", steps,
                  "--transport", transport, "--dump", dump, "--log-dir",
                  self.at("logs"), *TRAIN, *more, plugin=plugin)
        return tensor_file.load(dump)[0]


def known_of(golden, name):
    with open(os.path.join(golden, "plugin.json")) as file:
        known = json.load(file)[name]
    known["bf16"] = name.endswith("bf16")
    return known


def compare(what, got, want, limit):
    """Compares numbers, relative to the largest one."""
    scale = max(abs(x) for x in want) or 1.0
    worst = max(abs(a - b) for a, b in zip(got, want)) / scale
    if len(got) != len(want) or not worst <= limit:
        raise SystemExit(f"{what}: {worst:.3g} of the largest element, "
                         f"at most {limit:g}")
    return worst


def same(what, a, b):
    """Compares the tensors that both have, bit by bit."""
    names = [name for name in a if name.startswith(("grad.", "param.", "loss"))]
    if not names or any(name not in b for name in names):
        raise SystemExit(f"{what}: the dumps have other tensors")
    for name in names:
        if a[name] != b[name]:
            raise SystemExit(f"{what}: {name} has other bits")
