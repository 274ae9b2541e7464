#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training through the library with the command, bit by bit.

usage: bits.py PENSTOCK DRIVE TINY.pt2 BYTEGPT.pt2

With the same options and data `drive` (the library) and `penstock run` have the
same losses, parameters and buffers: from contiguous and strided arrays and from
the callback, on one and two ranks; so have forward and `penstock infer`, evaluate and `penstock eval`, and
runs that one of the two continues from the other's checkpoint. Steps in two
calls, gradients and then the update, have the bits of steps in one. The library
prints nothing.
"""
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

MICROBATCHES, STEPS = 2, 4
TRAIN = {"microbatches": MICROBATCHES, "optimizer": "adamw", "lr": "0.01",
         "threads": 1, "seed": 7}


class Bench:
    def __init__(self, penstock, drive, model, high, folder):
        self.penstock, self.drive = penstock, drive
        self.model, self.folder = model, folder
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}
        self.env.update(XDG_RUNTIME_DIR=folder, LC_ALL="C", HOME=folder)
        self.plan = self.at("plan")
        about = json.loads(self.call(penstock, "split", model, "--stages", "2",
                                     "-o", self.plan, "--json"))
        self.inputs = about["inputs"]
        self.parameters = about["parameters"]
        self.write_data(high)

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    def write_data(self, high):
        """Writes the rows of all steps, as one file for the command and a raw
        file of each input for the library."""
        draw, tensors = random.Random(1), {}
        for i, one in enumerate(self.inputs):
            shape = [one["shape"][0] * MICROBATCHES * STEPS, *one["shape"][1:]]
            n = 1
            for size in shape:
                n *= size
            if one["dtype"] == "i64":
                data = struct.pack(f"<{n}q", *(draw.randrange(high)
                                               for _ in range(n)))
            else:
                data = struct.pack(f"<{n}f", *(draw.gauss(0, 1)
                                               for _ in range(n)))
            tensors[one["name"]] = (one["dtype"].upper(), shape, data)
            with open(self.at(f"in.{i}"), "wb") as file:
                file.write(data)
        tensor_file.save(self.at("data.safetensors"), tensors)
        tensor_file.save(self.at("step-2.safetensors"), {
            name: (dtype, [shape[0] // STEPS, *shape[1:]],
                   data[len(data) // STEPS * 2:len(data) // STEPS * 3])
            for name, (dtype, shape, data) in tensors.items()})

    def call(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.env,
                              cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        if words[0] == self.drive:
            assert done.stderr == "", done.stderr
        return done.stdout

    def run(self, ranks, steps, *more, plan=None):
        """Trains by the command. Returns its losses, and its dump."""
        options = [f"--{name}={value}" for name, value in TRAIN.items()]
        out = self.call(self.penstock, "run", plan or self.plan,
                        "--transport", "self", "-n", ranks, "--steps", steps,
                        "--data", self.at("data.safetensors"), "--json",
                        "--dump", self.at("dump"), *options, *more)
        dump, _ = tensor_file.load(self.at("dump"))
        return json.loads(out.splitlines()[-1])["loss"], dump

    def lib(self, ranks, *words, path=None, opened=(), more=()):
        """Runs `drive`. Returns its lines as (word, rest)."""
        out = self.call(self.drive, "open", path or self.plan, *opened,
                        "session", f"ranks={ranks}",
                        *(f"{name}={value}" for name, value in TRAIN.items()),
                        *more, "data", *(self.at(f"in.{i}")
                                  for i in range(len(self.inputs))), *words)
        lines = [tuple((line + " ").split(" ", 1))
                 for line in out.splitlines()]
        lines = [(word, rest.rstrip()) for word, rest in lines]
        assert {line[0] for line in lines} <= {"loss", "forward", "output",
                                               "loaded", "message",
                                               "evaluated", "swapped",
                                               "refused"}, out
        return lines

    def state(self, folder):
        """Returns what `drive state` wrote: name -> bytes."""
        found = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
        return found

    def folder_of(self, name):
        os.makedirs(self.at(name), exist_ok=True)
        return self.at(name)


def losses(lines):
    return [float.fromhex(rest) for word, rest in lines if word == "loss"]


def same_state(bench, dump, folder, what):
    """The state that the library wrote is that of the command's dump."""
    state = bench.state(folder)
    wanted = {p["name"]: ("param." if p["kind"] == "parameter" else "buffer.")
              + p["name"] for p in bench.parameters
              if p["kind"] in ("parameter", "buffer")}
    assert set(state) == set(wanted), (what, set(state) ^ set(wanted))
    assert len(wanted) > 3
    for name, full in wanted.items():
        assert state[name] == dump[full][2], (what, name)


def train(bench, whole):
    """Arrays, strided arrays and the callback on one and two ranks, and the
    .pt2 cut by the library, against the plan that the command cut."""
    last, dump = bench.run(2, STEPS)
    first = dump["loss"][2]
    start = None
    for ranks in 1, 2:
        for mode in "arrays", "strided", "callback":
            folder = bench.folder_of(f"{mode}.{ranks}")
            lines = bench.lib(ranks, "train", mode, STEPS, "state", folder)
            got = losses(lines)
            assert len(got) == STEPS and len(set(got)) == STEPS, got
            assert struct.pack("<f", got[0]) == first, (mode, ranks, got)
            assert got[-1] == last, (mode, ranks, got, last)
            same_state(bench, dump, folder, (mode, ranks))
            start = start or got
            assert got == start, (mode, ranks)
    folder = bench.folder_of("whole")
    lines = bench.lib(2, "train", "callback", STEPS, "state", folder,
                      path=bench.model, opened=["stages=2", *whole])
    assert losses(lines) == start
    same_state(bench, dump, folder, "whole")


def gradients(bench):
    """The gradients of a step are those of the command's dump, on one and two
    ranks."""
    _, dump = bench.run(2, 1)
    wanted = {name[5:]: data for name, (_, _, data) in dump.items()
              if name.startswith("grad.")}
    assert len(wanted) > 3
    for ranks in 1, 2:
        folder = bench.folder_of(f"grads.{ranks}")
        bench.lib(ranks, "train", "arrays", 1, "grads", folder)
        found = bench.state(folder)
        assert all(found[name] == wanted[name] for name in found), ranks
        # A parameter that no operator reads is not trained.
        rest = set(wanted) - set(found)
        assert not any(any(wanted[name]) for name in rest), rest
        assert len(found) >= 3 and all(any(x) for x in found.values())


def check_split_steps(bench, most):
    """Gradients and updates in two calls, also in turn with whole steps, with
    what an update depends on; most: number of cases."""
    for ranks, more in ((1, ["clip-norm=.1", "lr-schedule=cosine", "warmup=2",
                             f"steps={STEPS}", "ema=.9"]),
                        (2, ["schedule=zb-h1", "clip-norm=.1"]),
                        ("2x2", []), ("2x1", ["shard=zero1"]),
                        ("2x2", ["shard=zero3", "clip-norm=.1"]),
                        (2, ["optimizer=muon", "group=*bias:lr=.1"]))[:most]:
        runs = []
        for k, words in enumerate((["arrays", STEPS], ["apart", STEPS],
                                   ["strided", 1, "train", "apart", 2, "train",
                                    "arrays", STEPS - 3])):
            folder = bench.folder_of(f"apart.{k}")
            lines = bench.lib(ranks, "train", *words, "state", folder,
                              more=more)
            runs.append((losses(lines), bench.state(folder)))
            assert runs[k] == runs[0], (ranks, more, words)
        assert len(set(runs[0][0])) == STEPS and len(runs[0][1]) > 3


def forward(bench):
    """forward in the middle of a training is infer on its checkpoint, and
    changes nothing."""
    out = bench.folder_of("out")
    lines = bench.lib(2, "train", "arrays", 2, "save", bench.at("middle"),
                      "forward", out, "forward", out, "train", "arrays", 1,
                      "forward", out)
    assert losses(lines) == losses(bench.lib(2, "train", "arrays", 3))
    passes = [rest for word, rest in lines if word == "forward"]
    assert passes[0] == passes[1] != passes[2], passes
    lines = bench.lib(2, "load", bench.at("middle"), "forward", out)
    assert passes[0] in [rest for word, rest in lines if word == "forward"]
    bench.call(bench.penstock, "infer", bench.plan, "--data",
               bench.at("step-2.safetensors"), "--checkpoint",
               bench.at("middle"), "-m", MICROBATCHES, "--threads", 1,
               "--seed", 7, "-o", bench.at("infer.safetensors"))
    wanted, _ = tensor_file.load(bench.at("infer.safetensors"))
    outputs = [rest.split() for word, rest in lines if word == "output"]
    assert outputs and {o[0] for o in outputs} == set(wanted), outputs
    for i, (name, *shape) in enumerate(outputs):
        with open(os.path.join(out, f"out.{i}"), "rb") as file:
            got = file.read()
        assert [int(size) for size in shape] == wanted[name][1], name
        assert len(got) > 0 and got == wanted[name][2], name


def evaluate(bench, counts):
    """evaluate is `penstock eval`, also on rows that do not fill a step. If
    the loss can ignore targets, a microbatch without any does not count."""
    tensors, _ = tensor_file.load(bench.at("data.safetensors"))
    each = bench.inputs[0]["shape"][0]
    for name, (dtype, shape, data) in tensors.items():
        if counts and name == "y":  # rows of microbatch 1, and one more
            row = len(data) // shape[0]
            ignored = struct.pack("<q", -100) * (each * row // 8 + 1)
            data = (data[:each * row] + ignored +
                    data[each * row + len(ignored):])
            tensors[name] = dtype, shape, data
    for i, one in enumerate(bench.inputs):
        with open(bench.at(f"eval.{i}"), "wb") as file:
            file.write(tensors[one["name"]][2])
    bench.lib(2, "train", "arrays", 2, "save", bench.at("evaluated"))
    for rows in (each, each * 3, *((each * 3 + 1, each * 3 + 3, 2)
                                   if counts else ())):
        part = {}
        for one in bench.inputs:
            dtype, shape, data = tensors[one["name"]]
            n = rows * one["shape"][0] // each
            part[one["name"]] = (dtype, [n, *shape[1:]],
                                 data[:len(data) // shape[0] * n])
        tensor_file.save(bench.at("part.safetensors"), part)
        wanted = json.loads(bench.call(
            bench.penstock, "eval", bench.plan, "--data",
            bench.at("part.safetensors"), "--checkpoint",
            bench.at("evaluated"), "-m", MICROBATCHES, "--threads", 1,
            "--seed", 7, "--json"))
        assert wanted["rows"] == rows, wanted
        for ranks in 1, 2, "2x2":
            lines = bench.lib(ranks, "load", bench.at("evaluated"), "data",
                              *(bench.at(f"eval.{i}")
                                for i in range(len(bench.inputs))),
                              "evaluate", rows)
            got, = [float.fromhex(rest) for word, rest in lines
                    if word == "evaluated"]
            assert got == wanted["loss"], (rows, ranks, got, wanted)


def resume(bench):
    """Either continues what the other one saved; so does a session with the
    parameters and buffers of another one set, without optimizer states."""
    last, dump = bench.run(2, STEPS)
    bench.lib(2, "train", "arrays", 2, "save", bench.at("by-lib"))
    assert bench.run(2, STEPS, "--checkpoint", bench.at("by-lib"),
                     "--resume")[0] == last
    same = tensor_file.load(bench.at("dump"))[0]
    names = [name for name in dump if name.startswith(("param.", "buffer."))]
    assert names and all(same[name] == dump[name] for name in names)
    bench.run(1, 2, "--checkpoint", bench.at("by-run"))
    folder = bench.folder_of("resumed")
    lines = bench.lib(2, "load", bench.at("by-run"), "train", "callback", 1,
                      "save", bench.at("by-run"), "train", "arrays", 1, "state",
                      folder)
    assert ("loaded", "2") in lines and losses(lines)[-1] == last
    same_state(bench, dump, folder, "resumed")
    # The command goes on with what the library saved into its folder.
    assert bench.run(2, STEPS, "--checkpoint", bench.at("by-run"), "--resume"
                     )[1]["param." + bench.parameters[0]["name"]] == \
        dump["param." + bench.parameters[0]["name"]]
    copy = bench.folder_of("copy")
    bench.lib(1, "set", folder, "state", copy)
    assert bench.state(copy) == bench.state(folder)


def keeps_set(bench):
    """Options that `penstock set` has set in a job stay set in its run after
    the library has gone on with it."""
    folder = bench.at("set-ck")
    job = subprocess.Popen(
        [bench.penstock, "run", bench.plan, "--transport", "self", "-n", "1",
         "--job", "set", "--steps", "1000000000", "--data",
         bench.at("data.safetensors"), "--checkpoint", folder, "--quiet",
         *(f"--{name}={value}" for name, value in TRAIN.items())],
        env=bench.env, cwd=bench.folder)
    while subprocess.run([bench.penstock, "set", "--job", "set", "lr=0.05"],
                         env=bench.env, cwd=bench.folder, check=False,
                         capture_output=True).returncode != 0:
        assert job.poll() is None
    bench.call(bench.penstock, "stop", "--job", "set")
    assert job.wait(PATIENCE) == 130
    line, = [rest for word, rest in
             bench.lib(1, "load", folder, "save", bench.at("set-on"))
             if word == "loaded"]
    bench.run(1, int(line) + 1, "--checkpoint", bench.at("set-on"), "--resume",
              "--log-dir", bench.at("set-log"))
    with open(bench.at("set-log", "rank-0.log"), encoding="utf-8") as file:
        assert " event=set_restored " in file.read()


def second(bench):
    """A run whose second folder has its newest checkpoint: load says so, and
    the library saves nothing that a resume would pass over. Its saves after
    that checkpoint continue the run."""
    first, other = bench.at("ck"), bench.at("ck2")
    newest = os.path.join(other, f"step-{3:08}")

    def run(steps, *more):
        return bench.run(1, steps, "--checkpoint", first, "--resume=auto",
                         *more)[0]

    run(1, "--checkpoint-fallback", other)
    run(3)
    os.rename(os.path.join(first, f"step-{3:08}"), newest)
    lines = bench.lib(1, "load", first, "train", "arrays", 1, "refuse", first)
    assert ("loaded", "1") in lines, lines
    note, = [rest for word, rest in lines if word == "message"
             and "second folder" in rest]
    assert other in note and "has a later save" in note, note
    error, = [rest for word, rest in lines if word == "refused"]
    assert error.startswith("checkpoint.other-run ") and other in error, error
    assert not glob.glob(os.path.join(first, f"step-{2:08}"))
    os.rename(other, other + "-away")
    lines = bench.lib(1, "load", first, "refuse", first)
    assert any("may have a later" in rest for word, rest in lines
               if word == "message"), lines
    os.rename(other + "-away", other)
    # From the newest one the library goes on.
    os.rename(newest, os.path.join(first, f"step-{3:08}"))
    lines = bench.lib(1, "load", first, "train", "arrays", 1, "save", first)
    assert not any("second folder" in rest for _, rest in lines), lines
    assert glob.glob(os.path.join(first, f"step-{4:08}"))


def main():
    penstock, drive, tiny, gpt = (os.path.abspath(a) for a in sys.argv[1:])
    for model, high in (tiny, 16), (gpt, 256):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(penstock, drive, model, high, folder)
            train(bench, [])
            gradients(bench)
            check_split_steps(bench, 9 if model == tiny else 1)
            forward(bench)
            evaluate(bench, model == gpt)
            resume(bench)
            if model == tiny:
                second(bench)
                keeps_set(bench)
    print("ok")


if __name__ == "__main__":
    main()
