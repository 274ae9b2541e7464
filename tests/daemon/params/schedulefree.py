#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the averages of schedule-free AdamW: that evaluations, `weights`,
`eval`, and parameters that leave the optimizer take them instead of the
parameters of the training, on every cut; and that evaluations change no bit.

usage: schedulefree.py PENSTOCK BYTEGPT.pt2 TEXT
"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from ema import Trained, floats  # noqa: E402

OPTIMIZER = ["--optimizer", "schedulefree", "--warmup", "2"]
EVALUATED = ["--eval-data", "short"]


def saved(t, name):
    """Returns the f32 tensors of the newest checkpoint, by name."""
    return floats(t.saved(name))


def state(tensors, prefix):
    return {k.removeprefix(prefix): v for k, v in tensors.items()
            if k.startswith(prefix)}


def loss(b, plan, *words):
    return json.loads(b.said("eval", plan, "--data", "short", "--json",
                             *words))["loss"]


def evaluated(b, name):
    """Returns the losses of the evaluations of a run."""
    return [float(job.field(line, "loss"))
            for line in b.events(name, "evaluated", "rank-0")]


def readers(t):
    """Checks that `weights` writes the averages, and that `eval` and the
    evaluations of a run agree about them."""
    b = t.b
    t.run("one", *OPTIMIZER, "-n", "1", steps=4)
    tensors = saved(t, "one")
    y, x = state(tensors, "param."), state(tensors, "schedulefree.x.")
    assert x and y != x
    written = t.tensors("one")
    assert all(written[k] == v for k, v in x.items())
    b.call("weights", "one", "-o", "x.safetensors", "--use-ema")
    b.call("split", "gpt.pt2", "--stages", "1", "--weights", "x.safetensors",
           "-o", "averaged.plan")
    want = loss(b, "averaged.plan")
    assert loss(b, "gpt.plan", "--checkpoint", "one") == want
    assert want != loss(b, "gpt.plan")
    return want


def evaluations(t, want):
    """Checks that evaluations on every cut are those of the averages, and
    change no bit of the training."""
    plain = saved(t, "one")
    for k, cut in enumerate((["-n", "1"], ["-n", "2", "--schedule", "gpipe"],
                             ["-n", "2x1", "--shard", "zero1"],
                             ["-n", "2x2", "--shard", "zero3"])):
        name = f"cut-{k}"
        t.run(name, *OPTIMIZER, *cut, *EVALUATED, "--eval-every", "1",
              "--log-dir", "log-" + name, steps=4)
        got = evaluated(t.b, "log-" + name)
        assert len(got) == 4, got
        if k < 2:
            assert saved(t, name) == plain, cut
            assert abs(got[-1] - want) < 1e-6 * want, (cut, got, want)
        assert abs(got[-1] - loss(t.b, "gpt.plan", "--checkpoint", name)) < (
            1e-6 * want), (cut, got)


def leaves(t):
    """Checks that a parameter that gets another optimizer at a resume begins
    with its average, and that others go on."""
    x = state(saved(t, "one"), "schedulefree.x.")
    shutil.copytree(t.b.path("one"), t.b.path("left"))
    t.run("left", *OPTIMIZER, "-n", "2", "--resume", "--group",
          "h.0:optimizer=sgd,lr=0", steps=5)
    now = state(saved(t, "left"), "param.")
    own = state(saved(t, "left"), "schedulefree.x.")
    for key, values in x.items():
        assert (now[key] == values) == key.startswith("h.0."), key
        assert (key in own) != key.startswith("h.0."), key


def freezes(t, name, *words):
    """Checks that parameters which are frozen in a running job get the values
    of their averages, and that new states are not taken for averages."""
    b = t.b
    t.begin(name, *OPTIMIZER, *words)
    b.call("pause", "--job", name)
    b.call("checkpoint", "--job", name)
    x = state(saved(t, name), "schedulefree.x.")
    b.call("freeze", "h.0", "--job", name)
    b.call("checkpoint", "--job", name)
    frozen = saved(t, name)
    assert t.tensors(name)["h.0.up.weight"] == x["h.0.up.weight"]
    b.call("unfreeze", "h.0", "--job", name)
    b.call("checkpoint", "--job", name)
    thawed = t.tensors(name)
    b.call("stop", "--job", name, "--now")
    for key, values in x.items():
        is_frozen = key.startswith("h.0.")
        assert (frozen["param." + key] == values) == is_frozen, key
        assert ("schedulefree.x." + key in frozen) != is_frozen, key
        assert thawed[key] == values, key


def is_set(t, name, *words):
    """Checks that a parameter which is set in a running job, and keeps its
    states, has the new value for readers too."""
    b = t.b
    t.begin(name, *OPTIMIZER, *words)
    b.call("pause", "--job", name)
    b.call("attr", "set", "h.0.up.weight", "0.5", "--job", name)
    b.call("checkpoint", "--job", name)
    found = saved(t, name)
    b.call("stop", "--job", name, "--now")
    for key in "param.", "schedulefree.x.", "schedulefree.z.":
        assert set(found[key + "h.0.up.weight"]) == {.5}, key
    assert any(found["schedulefree.v.h.0.up.weight"])
    assert t.tensors(name)["h.0.up.weight"] == found["param.h.0.up.weight"]
    assert found["schedulefree.x.h.0.down.weight"] != (
        found["param.h.0.down.weight"])


def bits(t):
    """Checks that a restart goes on with the same bits."""
    t.run("begun", *OPTIMIZER, "-n", "2", steps=2)
    t.run("begun", *OPTIMIZER, "-n", "1", "--resume", steps=4)
    assert saved(t, "begun") == saved(t, "one")


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
        want = readers(t)
        evaluations(t, want)
        bits(t)
        leaves(t)
        freezes(t, "frozen")
        freezes(t, "frozen-1", "-n", "2x1", "--shard", "zero1")
        is_set(t, "set")
        is_set(t, "set-1", "-n", "2x1", "--shard", "zero1")
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
