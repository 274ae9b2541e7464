#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares loss, gradients and buffers of two steps with expected results, for
modules that are called several times. Compares these results with PyTorch's
module tree in a table.

usage: fixtures.py PENSTOCK FOLDER TABLE

FOLDER/expected.json has the expected results, and what torch.export.unflatten
makes from each FOLDER/*.pt2. TABLE must equal the table of the results;
PST_UPDATE_GOLDEN=1 writes it. The loss is a mean square with a target for
which each element of the first output has the gradient 1.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

HEAD = """\
# Trees of modules: penstock beside PyTorch

Programs whose modules are called several times, with constants that specialise
them or what is below them. *right*: outputs of two runs, gradients and buffers
are those of the model in eager mode, on one stage and on two, and the calls,
their names and their templates are the expected ones. PyTorch is
`torch.export.unflatten` of 2.13.0, of which outputs of one run alone are
compared. The test `tests/frontend/fixtures.py` makes this table and compares it
with this file.

| file | calls | templates | penstock | PyTorch |
| --- | --- | --- | --- | --- |
"""

DTYPES = {"float32": ("F32", "f", 4), "bool": ("BOOL", "?", 1),
          "int64": ("I64", "q", 8)}
NAMES = {"F32": "f", "BOOL": "?", "I64": "q"}


def write(path, tensors):
    """Writes a file. tensors: name -> (dtype, shape, values)."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        kind, letter, _ = DTYPES[dtype]
        part = struct.pack(f"<{len(values)}{letter}", *values)
        header[name] = {"dtype": kind, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    n, = struct.unpack("<Q", raw[:8])
    ret = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        part = raw[8 + n + a:8 + n + b]
        letter = NAMES[t["dtype"]]
        ret[name] = list(struct.unpack(
            f"<{len(part) // struct.calcsize('<' + letter)}{letter}", part))
    return ret


def close(a, b):
    return len(a) == len(b) and all(
        math.isclose(x, y, rel_tol=2e-6, abs_tol=2e-6) for x, y in zip(a, b))


class Fixture:
    def __init__(self, penstock, folder, work, name, want):
        self.penstock, self.work, self.want = penstock, work, want
        self.path = os.path.join(folder, name)

    def call(self, *args):
        done = subprocess.run([self.penstock, *map(str, args)], cwd=self.work,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    def names(self):
        """Returns the names of the model's arguments and of its first
        output."""
        text = self.call("show", self.path)
        inputs = [line.split("%", 1)[1].split(":")[0]
                  for line in text.splitlines() if line.startswith("  input ")]
        first = next(line for line in text.splitlines()
                     if line.startswith("  output user "))
        return inputs, json.loads(first.rsplit(" ", 1)[1])

    def data(self, names, target):
        """Writes the data of two steps."""
        tensors = {}
        for name, t in zip(names, self.want["inputs"]):
            times = 2 if t["shape"] else 1
            tensors[name] = (t["dtype"],
                             [2 * t["shape"][0], *t["shape"][1:]]
                             if t["shape"] else [], t["values"] * times)
        one, two = self.want["outputs"][0], self.want["second_run"][0]
        n = len(one["values"])
        tensors[target] = ("float32", [2 * one["shape"][0], *one["shape"][1:]],
                           [v - n / 2 for v in one["values"] + two["values"]])
        write(os.path.join(self.work, "data.safetensors"), tensors)
        return n * n / 4  # the loss of each of the two steps

    def run(self, stages):
        names, output = self.names()
        self.call("split", self.path, "-o", f"plan-{stages}", "--loss-fn",
                  f"mse:output={output}", "--stages", stages, "--policy",
                  "flops")
        plan = json.loads(self.call("show", f"plan-{stages}", "--format",
                                    "text", "--json"))
        inputs = [i["name"] for i in plan["inputs"]]
        target, = set(inputs) - set(names)
        used = [n for n in names]
        loss = self.data(used, target)
        result = self.call("run", f"plan-{stages}", "--transport", "self",
                           "-n", stages, "-m", 1, "--steps", 2, "--optimizer",
                           "sgd", "--lr", 0, "--data", "data.safetensors",
                           "--dump", "dump", "--threads", 1, "--json")
        losses = json.loads(result.splitlines()[-1])["losses"]
        assert close(losses, [loss] * len(losses)), (losses, loss)
        self.compare(read(os.path.join(self.work, "dump")))

    def compare(self, have):
        want = self.want
        for i, t in enumerate(want["outputs"]):
            got = have[f"output.{i}"]
            assert close(got, t["values"]), (f"output.{i}", got, t["values"])
        tied = {n: group for group in want["tied"] for n in group}
        for name, t in want["grads"].items():
            found = [have["grad." + n] for n in tied.get(name, [name])
                     if "grad." + n in have]
            assert found and all(close(g, t["values"]) for g in found), (
                name, found, t["values"])
        for name, t in want["buffers_after_two_runs"].items():
            assert close(have["buffer." + name], t["values"]), (
                name, have["buffer." + name], t["values"])

    def check_calls(self):
        result = json.loads(self.call("modules", self.path, "--calls",
                                      "--json"))
        assert result == {k: self.want[k] for k in result}, result

    def outcome(self):
        try:
            self.check_calls()
            cuts = 2 if sum(1 for line in
                            self.call("show", self.path).splitlines()
                            if "  # " in line) > 1 else 1
            for stages in range(1, cuts + 1):
                self.run(stages)
        except AssertionError as error:
            return f"**wrong**: {error}"
        return "right"


def pytorch(result):
    if "error" in result:
        return "raises"
    return "right" if result["equal"] else "**wrong**"


def main():
    penstock, folder, table = map(os.path.abspath, sys.argv[1:4])
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    rows, failed = [], 0
    for name, want in sorted(expected.items()):
        with tempfile.TemporaryDirectory(prefix="pst-") as work:
            outcome = Fixture(penstock, folder, work, name, want).outcome()
        if outcome != "right":
            failed += 1
            print(f"{name}: {outcome}")
        rows.append(f"| {name[:-4]} | {len(want['calls'])} | "
                    f"{want['templates']} | {outcome} | "
                    f"{pytorch(want['unflatten'])} |\n")
    text = HEAD + "".join(rows)
    if os.environ.get("PST_UPDATE_GOLDEN"):
        with open(table, "w", encoding="utf-8") as f:
            f.write(text)
    with open(table, encoding="utf-8") as f:
        if not f.read().startswith(text):
            failed += 1
            print(f"{table} does not have this table (PST_UPDATE_GOLDEN=1 "
                  "writes it)")
    print(f"{len(expected)} models, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
