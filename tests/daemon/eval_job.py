# SPDX-License-Identifier: Apache-2.0
"""Runs jobs with evaluations on data of random numbers: the base of tests of
evaluations, and of what reports about them."""
import glob
import json
import math
import os
import random
import re
import struct

import job
import tensor_file

STEPS, EVERY = 12, 3
LONG = 1 << 23  # rows of zeros, more than any test evaluates
EVALUATED = re.compile(r" event=evaluated .* step=(\d+) loss=(\S+) .* "
                       r"best=(\d) best_step=(\d+)")


def write_data(path, seed, **shapes):
    draw = random.Random(seed)
    tensors = {}
    for name, shape in shapes.items():
        n = math.prod(shape)
        tensors[name] = ("F32", shape, struct.pack(
            f"<{n}f", *(draw.gauss(0, 1) for _ in range(n))))
    tensor_file.save(path, tensors)


class Bench(job.Bench):
    def __init__(self, penstock, norm, drops, transport, folder, rows=None):
        super().__init__(penstock, folder)
        self.transport = transport
        write_data(self.path("train.safetensors"), 1, x=[96, 4])
        write_data(self.path("other.safetensors"), 2, x=[27, 4])
        write_data(self.path("empty.safetensors"), 2, y=[28, 4])
        for name, seed in ("pics", 3), ("more", 4):
            write_data(self.path(f"{name}.safetensors"), seed, x=[16, 3, 2, 2],
                       target=[16, 4, 2, 2])
        tensor_file.save(self.path("nan.safetensors"), {
            name: ("F32", shape, struct.pack("<f", math.nan) * math.prod(shape))
            for name, shape in (("x", [16, 3, 2, 2]), ("target", [16, 4, 2, 2]))})
        write_data(self.path("whole.safetensors"), 5, x=[16, 3, 2, 2],
                   target=[2, 4, 2, 2])
        self.call("split", norm, "-o", "norm.plan", "--at", "conv")
        if drops is not None:
            self.call("split", drops, "-o", "drops.plan", "--at", "mean",
                      "--loss-fn", "mse")
        if rows is not None:
            self.call("split", rows, "-o", "rows.plan", "--stages", "2")

    def words(self, name, *more, plan="norm.plan", data="train"):
        return ["run", plan, "-n", "2", "-m", "2", "--transport",
                self.transport, "--data", f"{data}.safetensors", "--steps",
                str(STEPS), "--log-dir", name, "--json", *more]

    def evaluated(self, name, *more, other="other", **options):
        """Runs a job. Returns its evaluations from the log, and its JSON
        result."""
        env = options.pop("env", {})
        said = json.loads(self.call(
            *self.words(name, "--eval-data", f"{other}.safetensors",
                        "--eval-every", str(EVERY), *more, **options), **env))
        return self.evaluations(name), said

    def evaluations(self, name, rank=0):
        with open(self.path(f"{name}/rank-{rank}.log"),
                  encoding="utf-8") as file:
            return [(int(a), float(b), c == "1", int(d))
                    for a, b, c, d in EVALUATED.findall(file.read())]

    def alone(self, plan, data, folder, *more):
        """Returns the result of the command eval for the newest checkpoint."""
        return json.loads(self.call(
            "eval", plan, "--data", f"{data}.safetensors", "-m", "2",
            "--checkpoint", folder, "--json", *more))

    def serve_and_ask(self, plan, folder, rows, *more):
        """Serves the newest checkpoint; its answer is in asked.safetensors."""
        served = self.begin("serve", plan, "-n", "2", "--transport",
                            self.transport, "--checkpoint", folder, "--job",
                            "served", *more)
        while "serving with" not in (line := served.stdout.readline()):
            assert line, served.communicate()
        self.call("ask", f"{rows}.safetensors", "-o", "asked.safetensors",
                  "--job", "served")
        self.call("stop", "--job", "served")
        self.ended(served, code=None)

    def best_of(self, name):
        """Returns the name and the tensors of the only checkpoint in
        `best`."""
        folder, = glob.glob(self.path(f"{name}/best/step-*"))
        # The names of the shards depend on the ranks, so only the bytes count.
        return (os.path.basename(folder),
                sorted(self.bytes_of(path)
                       for path in glob.glob(folder + "/*.safetensors")))

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()
