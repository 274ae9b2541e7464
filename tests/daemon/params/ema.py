#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests averaged parameters (--ema): their values; that cuts, shards,
optimizers and restarts keep their bits; and the commands that read them
(--use-ema).

usage: ema.py PENSTOCK BYTEGPT.pt2 TEXT
"""
import array
import glob
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import wait_until  # noqa: E402
from tensor_file import load  # noqa: E402

DATA = ["--data", "text"]


def floats(tensors):
    """Returns the values of the f32 tensors by name."""
    return {key: array.array("f", data)
            for key, (dtype, _, data) in tensors.items() if dtype == "F32"}


class Trained:
    """Runs trainings, and reads what they save."""

    def __init__(self, b):
        self.b = b

    def run(self, name, *words, steps=3, code=0, lr=".002"):
        return self.b.call("run", "gpt.plan", "--transport", "self", "-m", "2",
                           *DATA, "--steps", steps, "--checkpoint", name,
                           "--threads", "1", "--lr", lr, *words, code=code)

    def begin(self, name, *words, **more):
        """Begins a job of its own name that saves every third step, and waits
        for a checkpoint. It may be any: a save removes the oldest ones."""
        self.run(name, *words, "--job", name, "--detach",
                 "--checkpoint-every", "3", steps=10 ** 9, **more)
        wait_until(lambda: glob.glob(self.b.path(name, "step-*")),
                   "a checkpoint")

    def bytes(self, name, *words):
        out = self.b.path(name + ".safetensors")
        self.b.call("weights", name, "-o", out, *words)
        with open(out, "rb") as file:
            return file.read()

    def tensors(self, name, *words):
        """Returns the f32 tensors by name."""
        self.bytes(name, *words)
        return floats(load(self.b.path(name + ".safetensors"))[0])

    def saved(self, name):
        """Returns (dtype, shape, bytes) of each tensor of the newest
        checkpoint, by name."""
        step = sorted(glob.glob(self.b.path(name, "step-*")))[-1]
        return {key: x for shard in glob.glob(f"{step}/*.safetensors")
                for key, x in load(shard)[0].items()}

    def weights_and_averages(self, name):
        return self.bytes(name), self.bytes(name, "--use-ema")


def moved(old, new, decay):
    """Asserts that averages of `old` moved towards the parameters of `new`."""
    far = 0
    for key, was in old.items():
        now, average = new[0][key], new[1][key]
        for a, p, got in zip(was, now, average):
            assert abs(a + (1 - decay) * (p - a) - got) <= 1e-6 * (
                abs(a) + abs(p)), (key, a, p, got)
            far += got != p
    assert far > 0


def values(t):
    """Checks that the first update copies the parameters, and that later ones
    move the averages."""
    t.run("one", "--ema", ".9", steps=1)
    plain, average = t.weights_and_averages("one")
    assert plain == average
    first = t.tensors("one")
    t.run("one", "--ema", ".9", "--resume", steps=2)
    second = t.tensors("one"), t.tensors("one", "--use-ema")
    moved(first, second, .9)
    t.run("one", "--ema", ".9", "--resume", steps=3)
    third = t.tensors("one"), t.tensors("one", "--use-ema")
    moved(second[1], third, .9)
    t.run("other", steps=3) # averages do not change the training
    assert t.bytes("other") == t.bytes("one")


def bits(t, words, prefix):
    """Checks that cuts, shards and a restart keep the bits of averages."""
    words = [*words, "--ema", ".8"]

    def run(name, *more, steps=3):
        t.run(prefix + name, *more, *words, steps=steps)
        return t.weights_and_averages(prefix + name)

    want = run("one", "-n", "1")
    assert want[0] != want[1]
    assert run("two", "-n", "2", "--schedule", "gpipe") == want
    run("begun", "-n", "2", steps=1)
    assert run("begun", "-n", "1", "--resume") == want
    want = run("replicas", "-n", "2x1")
    assert run("zero1", "-n", "2x1", "--shard", "zero1") == want
    run("resumed", "-n", "2x1", "--shard", "zero1", steps=1)
    assert run("resumed", "-n", "2x2", "--resume") == want
    want = run("zero2", "-n", "2x1", "--shard", "zero2")
    assert run("zero3", "-n", "2x2", "--shard", "zero3") == want


def resumes(t):
    """Checks that a resume reports another decay, and that averages that are
    new begin with the values of the parameters."""
    t.run("late", steps=1)
    out = t.b.call("weights", "late", "-o", "x.safetensors", "--use-ema",
                   code=None)
    assert "has no averaged parameters" in out, out
    out = t.b.call("eval", "gpt.plan", "--checkpoint", "late", *DATA,
                   "--use-ema", code=None)
    assert "has no averaged parameters" in out, out
    start = t.tensors("late")
    out = t.run("late", "--ema", ".75", "--resume", steps=2)
    assert "--ema was 0" in out, out
    moved(start, (t.tensors("late"), t.tensors("late", "--use-ema")), .75)
    out = t.run("late", "--ema", ".5", "--resume", steps=3)
    assert "--ema was 0.75" in out, out
    out = t.run("late", "--resume", steps=4)
    assert "--ema was 0.5" in out, out
    out = t.b.call("weights", "late", "-o", "x.safetensors", "--use-ema",
                   code=None)
    assert "has no averaged parameters" in out, out


def untrained(t):
    """Checks that a run with --ema which trains nothing is not said to have had
    no --ema."""
    t.b.call("run", "gpt.pt2", "--transport", "self", "--stages", "1", "-m", "2",
             *DATA, "--steps", "1", "--checkpoint", "frozen", "--threads", "1",
             "--ema", ".9", "--freeze", "h.0", "--lora", "h.0.up:rank=2")
    says = ("has no averaged parameters: its run had no --ema, or trained no "
            "parameter then")
    out = t.b.call("weights", "frozen", "-o", "x.safetensors", "--use-ema",
                   code=None)
    assert says in out, out
    out = t.b.call("eval", "gpt.pt2", "--checkpoint", "frozen", *DATA,
                   "--use-ema", "--lora", "h.0.up:rank=2,alpha=8", code=None)
    assert says in out, out


def check_thaw(t, name, *words):
    """Checks that in a running job the averages of parameters that are frozen
    end. When these are trained again, their averages begin anew with their
    values. Other averages go on."""
    b = t.b
    t.begin(name, "--ema", ".9", *words, lr=".0001")
    b.call("pause", "--job", name)
    b.call("freeze", "h.0", "--job", name)
    b.call("unfreeze", "h.0", "--job", name)
    b.call("checkpoint", "--job", name)
    plain, average = t.tensors(name), t.tensors(name, "--use-ema")
    b.call("stop", "--job", name, "--now")
    for key, values_of in plain.items():
        if key.startswith("h.0."):
            assert values_of == average[key], key
    for key in "wte.weight", "h.1.up.weight":
        assert plain[key] != average[key], key
        assert max(abs(x - y) for x, y in zip(plain[key], average[key])) < (
            .1 * max(map(abs, plain[key]))), key


def readers(t):
    """Checks that `eval`, `infer` and `weights` read the same averages with
    --use-ema."""
    b = t.b
    name = "one"
    out = b.path("averages.safetensors")
    b.call("weights", name, "-o", out, "--use-ema")
    b.call("split", "gpt.pt2", "--stages", "1", "--weights", out, "-o",
           "averaged.plan")

    def loss(plan, *words):
        return json.loads(b.said("eval", plan, *DATA, "--json", *words))["loss"]

    want = loss("averaged.plan")
    assert loss("gpt.plan", "--checkpoint", name, "--use-ema") == want
    assert loss("gpt.plan", "--checkpoint", name) != want

    def text(plan, *words):
        return b.said("infer", plan, "--prompt", "The ", "--tokens", "8",
                      *words)

    assert text("gpt.plan", "--checkpoint", name, "--use-ema") == text(
        "averaged.plan")


def refused(t):
    for decay, says in ("1", "ema"), ("-1", "ema"), ("nan", "ema"):
        out = t.run("bad", "--ema", decay, code=None)
        assert says in out, (decay, out)
    out = t.b.call("run", "gpt.plan", *DATA, "--optimizer", "none", "--ema",
                   ".9", code=64)
    assert "not of --optimizer none" in out, out
    out = t.b.call("weights", "gpt.plan", "-o", "x.safetensors", "--use-ema",
                   code=64)
    assert "--use-ema is for checkpoints" in out, out


def planned(t):
    """Checks that `plan` counts an average like a state of the optimizer."""
    def memory(*words):
        out = json.loads(t.b.call("plan", "gpt.plan", "--json", *words))
        return sum(x["memory"]["optim_bytes"] if "memory" in x
                   else x["optim_bytes"] for x in out["ranks"])

    one = memory("--optimizer", "lion")
    assert memory("--optimizer", "lion", "--ema", ".9") == 2 * one
    assert memory("--optimizer", "adafactor") < one / 4


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        shutil.copy(model, b.path("gpt.pt2"))
        os.symlink(text, b.path("text"))
        b.call("split", "gpt.pt2", "--stages", "2", "-o", "gpt.plan")
        t = Trained(b)
        planned(t)
        refused(t)
        values(t)
        readers(t)
        resumes(t)
        untrained(t)
        check_thaw(t, "thawed")
        check_thaw(t, "thawed-1", "-n", "2x1", "--shard", "zero1",
                   "--optimizer", "lamb", "--group",
                   "wte:optimizer=sgd,lr=.002")
        bits(t, ["--group", "h.0:optimizer=sgd"], "sgd-")
        bits(t, ["--optimizer", "muon", "--group",
                 "embeddings:optimizer=adafactor"], "muon-")
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
