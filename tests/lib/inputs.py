#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of inputs: inputs.py DRIVE INPUTS.pt2 [CASE]

They are those that PyTorch recorded (tests/golden/make/make_inputs.py), and
have the same bits for every cut, schedule, number of ranks and replicas, with
recomputation, with a stash outside of the arena, and sharded.
"""
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

WANTED = ["x", "y", "z", "bias", "half", "double", "side", "target"]
INPUTS = WANTED[:-1] + ["token", "target"]
# Options of the cut, then of the session; all have the same bits.
CASES = {
    "whole": (["policy=flops", "stages=1"], ["ranks=1"]),
    "two": (["policy=flops", "stages=2"], ["ranks=2"]),
    "four": (["stages=4"], ["ranks=4"]),
    "one-rank": (["stages=4"], ["ranks=1"]),
    "gpipe": (["stages=4"], ["ranks=4", "schedule=gpipe"]),
    "interleaved": (["stages=4"], ["ranks=2", "schedule=interleaved-1f1b"]),
    "looped": (["stages=4"], ["ranks=2", "schedule=looped-bfs"]),
    "zb-h1": (["stages=4"], ["ranks=4", "schedule=zb-h1"]),
    "zb-v": (["stages=4"], ["ranks=2", "schedule=zb-v"]),
    "dualpipe-v": (["stages=4"], ["ranks=2", "schedule=dualpipe-v"]),
    "full": (["stages=4"], ["ranks=4", "recompute=full"]),
    "twice": (["stages=4"],
              ["ranks=4", "schedule=zb-h1", "recompute=full,twice"]),
    "stash": (["stages=4"],
              ["ranks=4", "schedule=gpipe", "stash=ram", "stash-keep=2"]),
    "replicas": (["policy=flops", "stages=2"], ["ranks=2x2"]),
    "zero1": (["policy=flops", "stages=2"], ["ranks=2x2", "shard=zero1"]),
    "zero3": (["policy=flops", "stages=2"], ["ranks=2x2", "shard=zero3"]),
}


class Bench:
    def __init__(self, drive, model, folder):
        self.drive, self.model, self.folder = drive, model, folder
        self.all, _ = tensor_file.load(model[:-3] + "safetensors")
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}

    def of(self, step, name):
        return self.all[f"{step}/{name}"]

    def run(self, step, opened, session):
        """Makes a step. Returns loss and gradients."""
        for i, name in enumerate(INPUTS):
            with open(os.path.join(self.folder, f"in.{i}"), "wb") as file:
                file.write(self.of(step, name)[2])
        out = os.path.join(self.folder, "out")
        os.makedirs(out, exist_ok=True)
        rows = self.of(step, "x")[1][0]
        done = subprocess.run(
            [self.drive, "open", self.model, *opened, "session",
             "microbatches=4", f"batch={rows}", "chunk=bias=replicate,side=1",
             "optimizer=sgd", "lr=0", "threads=1", "input-gradients=*",
             *session, "data",
             *(os.path.join(self.folder, f"in.{i}")
               for i in range(len(INPUTS))),
             "train", "arrays", "1", "input-grads", out],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, (opened, session, done.stderr, done.stdout)
        loss = [float.fromhex(line.split()[1])
                for line in done.stdout.splitlines()
                if line.startswith("loss ")]
        found = {}
        for name in os.listdir(out):
            path = os.path.join(out, name)
            with open(path, "rb") as file:
                found[name] = file.read()
            os.remove(path)
        assert set(found) == set(WANTED), found.keys()
        return loss, found


def numbers(dtype, data):
    if dtype == "BF16":
        return struct.unpack(f"<{len(data) // 2}f", b"".join(
            b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))
    size, letter = {"F32": (4, "f"), "F64": (8, "d")}[dtype]
    return struct.unpack(f"<{len(data) // size}{letter}", data)


def like_torch(bench, step, found):
    """The gradients are PyTorch's, up to the order of its sums."""
    for name in WANTED:
        dtype, _, data = bench.of(step, f"grad.{name}")
        got, wanted = numbers(dtype, found[name]), numbers(dtype, data)
        near = 2e-2 if dtype == "BF16" else 2e-5
        largest = max(abs(value) for value in wanted)
        assert (largest > 0) == (name != "z"), name
        assert len(got) == len(wanted), name
        for k, (a, b) in enumerate(zip(got, wanted)):
            assert abs(a - b) <= near * max(largest * .1, abs(b)), \
                (step, name, k, a, b)


def main():
    drive, model = (os.path.abspath(a) for a in sys.argv[1:3])
    cases = {name: CASES[name] for name in sys.argv[3:]} or CASES
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(drive, model, folder)
        for step in "even", "odd":
            first = None
            for name, (opened, session) in cases.items():
                loss, found = bench.run(step, opened, session)
                if first is None:
                    first = loss, found
                    wanted, = numbers("F32", bench.of(step, "loss")[2])
                    assert abs(loss[0] - wanted) < 1e-5 * abs(wanted)
                    like_torch(bench, step, found)
                wrong = [k for k in WANTED if found[k] != first[1][k]]
                assert not wrong and loss == first[0], (step, name, wrong)
    print(f"{2 * len(cases)} runs have the same gradients of inputs")


main()
