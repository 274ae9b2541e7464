#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests optimizer states in bf16 and in 8 bits (--state-dtype): that cuts,
shards and restarts keep their bits, what a checkpoint has of them, their
memory, that a training learns as with f32, and refusals.

usage: states.py PENSTOCK BYTEGPT.pt2 TEXT
"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from ema import Trained  # noqa: E402


def bits(t, name, words):
    """Checks that cuts, shards and a restart keep all bits of checkpoints."""
    def run(folder, *more, steps=4):
        t.run(name + folder, "-m", "3", *more, *words, steps=steps)
        return t.saved(name + folder)

    want = run("-1", "-n", "1")
    assert run("-2", "-n", "2", "--schedule", "gpipe") == want
    run("-3", "-n", "2", steps=2)
    assert run("-3", "-n", "1", "--resume") == want
    replicas = run("-4", "-n", "3x1")
    assert run("-5", "-n", "3x2", "--shard", "zero1") == replicas
    run("-6", "-n", "3x1", "--shard", "zero1", steps=1)
    assert run("-6", "-n", "3x2", "--resume") == replicas
    if name == "int8":
        return want
    zero2 = run("-7", "-n", "3x1", "--shard", "zero2")
    assert run("-8", "-n", "3x2", "--shard", "zero3") == zero2
    assert run("-9", "-n", "1", "--seed", "5") != want
    return want


def kinds(tensors, key):
    """Returns dtype and size of the states of a parameter."""
    return {k.removesuffix("." + key): (dtype, len(data)) for k, (dtype, _, data)
            in tensors.items() if k.endswith(key) and not k.startswith("param")}


def kept(b, tensors, dtype):
    key = "h.0.up.weight"
    n = len(tensors["param." + key][2]) // 4
    want = {"bf16": {"adamw.m": ("BF16", 2 * n), "adamw.v": ("BF16", 2 * n)},
            "int8": {"adamw.m": ("U8", n), "adamw.v": ("U8", n),
                     "adamw.m-scale": ("F32", (n + 255) // 256 * 4),
                     "adamw.v-scale": ("F32", (n + 255) // 256 * 4)}}[dtype]
    assert kinds(tensors, key) == want, (kinds(tensors, key), want)
    assert any(tensors["adamw.m." + key][2])

    def memory(*words):
        out = json.loads(b.call("plan", "gpt.plan", "--json", *words))
        return sum(x["memory"]["optim_bytes"] if "memory" in x
                   else x["optim_bytes"] for x in out["ranks"])

    share = memory("--state-dtype", dtype) / memory()
    assert abs(share - {"bf16": .5, "int8": .26}[dtype]) < .01, share


def loss(b, name):
    return json.loads(b.said("eval", "gpt.plan", "--checkpoint", name,
                             "--data", "short", "--json"))["loss"]


def learns(t):
    """Checks that a training loses as much as with f32, and is another one."""
    found = {}
    for dtype in "f32", "bf16", "int8":
        t.run("learns-" + dtype, "-n", "1", "--state-dtype", dtype, "--group",
              "ndim<2|embeddings:state-dtype=f32", steps=20)
        found[dtype] = loss(t.b, "learns-" + dtype)
    print(found)
    for dtype in "bf16", "int8":
        assert found[dtype] != found["f32"]
        assert abs(found[dtype] - found["f32"]) < .02 * found["f32"], found


def refused(t):
    b = t.b
    for words in (["--state-dtype", "int8"], [], ["--group",
                                                  "h.0:state-dtype=f32"]):
        out = t.run("bf16-1", "--resume", "-n", "1", *words, steps=5,
                    code=None)
        assert "state-dtype" in out and "in the checkpoint" in out, out
    out = t.run("no", "--optimizer", "muon", "--state-dtype", "bf16", code=None)
    assert "is an option of --optimizer sgd, adamw" in out, out
    out = t.run("no", "--state-dtype", "f16", code=None)
    assert "f32|bf16|int8" in out, out
    out = t.run("no", "--group", "h.0:state-dtype=8", code=None)
    assert "f32, bf16 or int8" in out, out
    assert not os.path.exists(b.path("no"))


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        shutil.copy(model, b.path("gpt.pt2"))
        os.symlink(text, b.path("text"))
        with open(text, "rb") as long, open(b.path("short"), "wb") as short:
            short.write(long.read(2000))
        b.call("split", "gpt.pt2", "--stages", "2", "-o", "gpt.plan")
        t = Trained(b)
        for dtype in "bf16", "int8":
            kept(b, bits(t, dtype, ["--state-dtype", dtype]), dtype)
        bits(t, "mixed", ["--state-dtype", "int8", "--optimizer", "rmsprop",
                          "--momentum", ".9", "--centered", "--ema", ".9",
                          "--group", "embeddings:optimizer=muon", "--group",
                          "h.1:optimizer=schedulefree,state-dtype=bf16"])
        refused(t)
        learns(t)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
