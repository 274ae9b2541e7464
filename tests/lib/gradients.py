#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients that the caller changes between the two parts of a step.

usage: gradients.py DRIVE TIES.pt2 [CASE]

One parameter's gradient is replaced, and another one, which several stages use,
is added to, then gradients are clipped and applied: losses, norms and
parameters are those that PyTorch recorded (tests/golden/make/make_ties.py), and
have the same bits for every cut, schedule, number of ranks and replicas. A
gradient that is set to what it is changes no bit. Refused changes change
nothing.
"""
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

STEPS = 3
NAMES = ["bias", "idle", "norm.bias", "norm.weight", "table.weight", "up.bias",
         "up.weight"]
# Options of the cut, then of the session. Runs with as many replicas have the
# same bits.
CASES = {
    "whole": (["policy=flops", "stages=1"], ["ranks=1"]),
    "two": (["policy=flops", "stages=2"], ["ranks=2"]),
    "four": (["stages=4"], ["ranks=4"]),
    "one-rank": (["stages=4"], ["ranks=1"]),
    "transmit": (["stages=4", "transmit=table.weight"], ["ranks=4"]),
    "zb-h1": (["stages=4"], ["ranks=4", "schedule=zb-h1"]),
    "interleaved": (["stages=4"], ["ranks=2", "schedule=interleaved-1f1b"]),
    "replicas": (["stages=4"], ["ranks=2x2"]),
    "zero1": (["stages=4"], ["ranks=2x2", "shard=zero1"]),
    "zero2": (["stages=4"], ["ranks=2x2", "shard=zero2"]),
    "zero3": (["stages=4"], ["ranks=2x2", "shard=zero3"]),
    # An optimizer that updates whole matrices: only kept gradients.
    "muon": (["stages=4"], ["ranks=2x2", "shard=zero1", "optimizer=muon"]),
}


class Bench:
    def __init__(self, drive, model, folder):
        self.drive, self.model, self.folder = drive, model, folder
        self.all, _ = tensor_file.load(model[:-3] + "safetensors")
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}
        for name, (_, _, data) in self.all.items():
            self.write(name, data)
        size = len(self.all["add.0"][2]) // 4
        self.write("inf", struct.pack(f"<{size}f", *[0] * (size - 1),
                                      float("inf")))
        self.write("large", struct.pack(f"<{size}f", *[3e38] * size))

    def write(self, name, data):
        with open(self.at(name), "wb") as file:
            file.write(data)

    def at(self, name):
        return os.path.join(self.folder, name)

    def numbers(self, name):
        data = self.all[name][2]
        return struct.unpack(f"<{len(data) // 4}f", data)

    def run(self, case, *words):
        """Returns the printed lines, (word, rest), and the parameters."""
        opened, session = CASES[case]
        out = self.at("out")
        os.makedirs(out, exist_ok=True)
        done = subprocess.run(
            [self.drive, "open", self.model, *opened, "session",
             "microbatches=2", "optimizer=adamw", "lr=.05", "clip-norm=.5",
             "threads=1", *session, "data", self.at("token"),
             self.at("target"), *words, "state", out],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, (case, words, done.stderr, done.stdout)
        state = {}
        for name in sorted(os.listdir(out)):
            with open(os.path.join(out, name), "rb") as file:
                state[name] = file.read()
        assert sorted(state) == NAMES, state.keys()
        lines = [tuple(line.split(" ", 1)) for line in
                 done.stdout.splitlines() if not line.startswith("message")]
        return lines, state


def numbers_of(lines, word):
    return [float.fromhex(rest) for name, rest in lines if name == word]


def change(bench, k, mode="arrays", twice=False):
    """Words for a step with changed gradients; twice: in two halves each."""
    words = ["half", mode, "change", "set", "norm.weight", bench.at(f"set.{k}")]
    if twice:
        words += ["half", mode, "change", "set", "norm.weight",
                  bench.at(f"set.{k}")]
    return words + ["change", "add", "table.weight", bench.at(f"add.{k}"),
                    "update"]


def like_torch(bench, lines, state):
    for word in "loss", "norm":
        got = numbers_of(lines, word)
        assert len(got) == STEPS == len(set(got)), lines
        for a, b in zip(got, bench.numbers(word)):
            assert abs(a - b) < 1e-5 * abs(b), (word, got, b)
    for name in NAMES:
        got = struct.unpack(f"<{len(state[name]) // 4}f", state[name])
        for a, b in zip(got, bench.numbers(f"param.{name}")):
            # AdamW divides by the size of a gradient, also of a small one.
            assert abs(a - b) < 1e-4 * max(abs(b), .1), (name, a, b)


def unchanged(bench, case):
    """Kept gradients have the bits of whole steps; refused changes, too."""
    plain = bench.run(case, "train", "arrays", str(STEPS))
    kept = bench.run(case, *["half", "callback", "keep", "update"] * STEPS)
    assert numbers_of(kept[0], "loss") == numbers_of(plain[0], "loss")
    refused = [line for line in kept[0] if line[0] == "refused"]
    assert refused == [("refused", "library.argument idle")] * STEPS, kept[0]
    assert kept[1] == plain[1], case
    order = ["change", "set", "norm.weight", bench.at("set.0")]
    table = {name: ["change", how, "table.weight", bench.at(name)]
             for how, name in (("set", "inf"), ("add", "large"))}
    lines, state = bench.run(
        case, *order, "half", "arrays", *table["large"], *table["large"],
        "half", "strided", *table["inf"], "change", "add", "table.weight",
        bench.at("inf"), "update", *order,
        *["half", "arrays", "update"] * (STEPS - 1))
    assert [rest for word, rest in lines if word == "refused"] == [
        "library.order norm.weight", *["run.not-finite table.weight"] * 3,
        "library.order norm.weight"], lines
    assert numbers_of(lines, "loss") == numbers_of(plain[0], "loss")
    assert state == plain[1], case


def main():
    drive, model = (os.path.abspath(a) for a in sys.argv[1:3])
    cases = sys.argv[3:] or list(CASES)
    known = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(drive, model, folder)
        for case in cases:
            if case in ("whole", "four", "zero3", "muon"):
                unchanged(bench, case)
            if case == "muon":
                continue
            lines, state = bench.run(case, *(
                word for k, mode in enumerate(("arrays", "callback", "strided"))
                for word in change(bench, k, mode, twice=k == 1)))
            like_torch(bench, lines, state)
            # Shards add up the squares of their own elements first.
            lines = [(word, rest[:14] if word == "norm" else rest)
                     for word, rest in lines]
            key = "2x2" in CASES[case][1][0]
            first = known.setdefault(key, (lines, state))
            assert (lines, state) == first, (case, lines, first[0])
    print(f"{len(cases)} cases")


main()
