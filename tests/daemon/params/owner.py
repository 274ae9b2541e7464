#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `split --owner`: a buffer that two stages write is passed from
microbatch to microbatch.

usage: owner.py PENSTOCK T12.pt2 self|mpi

Tests training, eval, infer, checkpoints and `show` for several cuts and
owners. The numbers must equal those of the model in one stage.
"""
import json
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from lora import load, save  # noqa: E402

ROWS, WIDTH = 16, 8


class Bench(job.Bench):
    def __init__(self, penstock, model, transport, folder):
        super().__init__(penstock, folder)
        self.model, self.transport = model, transport
        draw = random.Random(7)
        save(f"{folder}/data.safetensors", {
            name: ([ROWS, WIDTH], struct.pack(
                f"<{ROWS * WIDTH}f",
                *(draw.uniform(-1, 1) for _ in range(ROWS * WIDTH))))
            for name in ("x", "target")})
        for plan, options in (("one", ["--policy", "flops", "--stages", "1"]),
                              ("first", ["--owner", "n=0"]),
                              ("last", ["--owner", "n=1"])):
            self.said("split", model, "-o", plan, "--loss-fn", "mse", *options)

    def run(self, plan, *options, steps=3, schedule="1f1b", ranks=2):
        words = ["run", plan, "--data", "data.safetensors", "-m", 4, "--steps",
                 steps, "--optimizer", "adamw", "--lr", ".01", "--dump",
                 "dump.safetensors", "--quiet", "--schedule", schedule]
        if plan == "one":
            words += ["--transport", "self"]
        else:
            words += ["--transport", self.transport,
                      "--ranks" if self.transport == "self" else "-n", ranks]
        self.said(*words, *options)
        return load(f"{self.folder}/dump.safetensors")


def check_training(b):
    want = b.run("one")
    assert want["buffer.n"] != load(
        f"{b.folder}/one/stage-000.safetensors")["n"], "it never changes"
    for plan in "first", "last":
        for schedule, ranks in (("1f1b", 2), ("gpipe", 2), ("looped-bfs", 1),
                                ("zb-h1", 2), ("auto", 2)):
            assert b.run(plan, schedule=schedule, ranks=ranks) == want, (
                plan, schedule)


def check_checkpoints(b):
    """Checks that a checkpoint contains the buffer once, and that every cut
    can resume from it."""
    want = b.run("one")
    for n, (begin, end) in enumerate((("last", "one"), ("first", "last"),
                                      ("one", "first"), ("last", "first"))):
        kept = f"kept-{n}"
        b.run(begin, "--checkpoint", kept, steps=2)
        tensors = [name for folder, _, files in os.walk(f"{b.folder}/{kept}")
                   for file in files if file.endswith(".safetensors")
                   for name in load(os.path.join(folder, file))]
        assert tensors.count("buffer.n") == 1, tensors
        got = b.run(end, "--checkpoint", kept, "--resume")
        assert got["buffer.n"] == want["buffer.n"], (begin, end)
        assert all(got[name] == tensor for name, tensor in want.items()
                   if name.startswith("param.")), (begin, end)
        b.said("weights", kept, "-o", f"w-{n}.safetensors")
        assert load(f"{b.folder}/w-{n}.safetensors")["n"] == want["buffer.n"]


def check_others(b):
    data = ["--data", "data.safetensors", "-m", 4]
    losses, outputs = set(), []
    for plan in "one", "first", "last":
        losses.add(json.loads(b.said("eval", plan, *data, "--json"))["loss"])
        b.said("infer", plan, *data, "--output", "out.safetensors")
        outputs.append(load(f"{b.folder}/out.safetensors"))
    assert len(losses) == 1 and outputs[0] == outputs[1] == outputs[2]
    b.said("verify", "last", *data)


def check_words(b):
    for plan, owner in ("first", 0), ("last", 1):
        assert "n" in load(f"{b.folder}/{plan}/stage-00{owner}.safetensors")
        assert "n" not in load(
            f"{b.folder}/{plan}/stage-00{1 - owner}.safetensors")
        assert f'"n" is in stages 0, 1; stage {owner} owns it' in b.said(
            "show", plan)
        edge, = (e for e in json.loads(b.said("show", plan, "--json"))["edges"]
                 if e["carries"])
        assert (edge["carries"], edge["from"], edge["to"]) == ("n", 1, 0)
        for form in "dot", "svg":
            assert "carried" in b.said("show", plan, "--format", form)
    assert '"n" as the microbatch before left it' in b.said(
        "show", "last", "--stage", "0")
    words = ["split", b.model, "-o", "bad", "--loss-fn", "mse"]
    assert "--owner n=1 (E_SHARED_MUT)" in b.said(*words, code=65)
    for owner, code, said in (
            ("n=2", 65, "the stages that use the buffer are 0, 1"),
            ("n=-1", 65, "the stages that use the buffer are 0, 1"),
            ("n", 64, "expected FQN=STAGE"), ("=1", 64, "expected FQN=STAGE"),
            ("n=x", 64, "expected FQN=STAGE")):
        said_it = b.said(*words, "--owner", "n=0", "--owner", owner, code=code)
        assert said in said_it, (owner, said_it)
    for owner, said in (("a.weight=0", "that is not a buffer"),
                        ("no=0", "the model has no such buffer")):
        assert said in b.said(*words, "--owner", "n=0", "--owner", owner,
                              code=65)
    assert "there is nothing to own" in b.said(
        *words, "--policy", "flops", "--stages", "1", "--owner", "n=0")


def main():
    penstock, model = (os.path.abspath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder, \
            Bench(penstock, model, sys.argv[3], folder) as b:
        check_training(b)
        check_checkpoints(b)
        if sys.argv[3] == "self":
            check_others(b)
            check_words(b)
    print("ok")


if __name__ == "__main__":
    main()
