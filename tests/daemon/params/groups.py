#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests groups of parameters (--group, --no-decay): their members, refused
rules, and that cuts, shards and restarts keep the bits.

usage: groups.py PENSTOCK BYTEGPT.pt2 TEXT
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402

RULES = ["--no-decay", "norms,biases", "--group",
         "embeddings:lr=.01,beta1=.8", "--group",
         "*.up|*.down,ndim=2:optimizer=sgd,lr=.05,momentum=.9"]


def groups(b, *words):
    """Returns the groups as a dict from rules to the group."""
    out = json.loads(b.call("plan", "gpt.plan", "--json", *words))
    return {x["rules"]: x for x in out["groups"]}


CLIPS = ["--clip-norm", ".05", "--group", "embeddings:clip-norm=.02", "--group",
         "*.up|*.down,ndim=2:clip-value=.0001", "--clip-value", ".01"]


def members(b):
    """Checks that each term selects the right parameters."""
    every, = groups(b).values()
    names = every["names"]
    assert every["rules"] == "" and every["optimizer"] == "adamw"
    for term, holds in (
            ("biases", lambda x: "bias" in x.rsplit(".", 1)[-1]),
            ("norms", lambda x: "ln" in x or "norm" in x),
            ("type=LayerNorm", lambda x: "ln" in x or "norm" in x),
            ("*.bias", lambda x: x.endswith(".bias")),
            ("h.0", lambda x: x.startswith("h.0.")),
            ("h.0|biases", lambda x: x.startswith("h.0.") or
             "bias" in x.rsplit(".", 1)[-1]),
            ("h.0,biases", lambda x: x.startswith("h.0.") and
             "bias" in x.rsplit(".", 1)[-1])):
        want = [x for x in names if holds(x)]
        got = groups(b, "--group", term + ":lr=.5")
        assert want and got[term + ":lr=.5"]["names"] == want, (term, got)
        assert got[term + ":lr=.5"]["lr"] == .5
        assert sorted(got[""]["names"] + want) == sorted(names)
    shown = b.said("show", "gpt.plan", "--group", "biases:lr=.5", "--json")
    assert json.loads(shown) == list(
        groups(b, "--group", "biases:lr=.5").values())
    assert " 0.5  " in b.said("show", "gpt.plan", "--group", "biases:lr=.5")
    two = groups(b, "--group", "ndim<2:weight-decay=0")
    other = groups(b, "--group", "ndim>=2:lr=.1")
    assert two["ndim<2:weight-decay=0"]["names"] == other[""]["names"]
    tables = groups(b, "--group", "embeddings:lr=1")["embeddings:lr=1"]["names"]
    assert tables and all("emb" in x or "wte" in x or "wpe" in x or
                          "tok" in x or "pos" in x for x in tables), tables


def muon(b):
    """Checks that muon updates the matrices inside the model, and AdamW all
    others."""
    every, = groups(b).values()
    by = groups(b, "--optimizer", "muon")
    others = by["others:optimizer=adamw"]
    assert others["optimizer"] == "adamw" and others["lr"] == 1e-3
    assert by[""]["optimizer"] == "muon" and by[""]["lr"] == 1e-3
    assert sorted(others["names"] + by[""]["names"]) == sorted(every["names"])
    assert "h.0.up.weight" in by[""]["names"], by
    tables = groups(b, "--group", "embeddings:lr=1")["embeddings:lr=1"]["names"]
    last, = groups(b, "--group", "last-matrix:lr=1")["last-matrix:lr=1"]["names"]
    flat = groups(b, "--group", "ndim!=2:lr=1")["ndim!=2:lr=1"]["names"]
    assert sorted({*tables, last, *flat}) == sorted(others["names"]), by
    by = groups(b, "--optimizer", "muon", "--group",
                "others:lr=.5,weight-decay=0")
    assert by["others:optimizer=adamw; others:lr=.5,weight-decay=0"]["lr"] == .5
    by = groups(b, "--optimizer", "muon", "--no-decay", "*.bias")
    assert by["others:optimizer=adamw; *.bias:weight-decay=0"][
        "weight_decay"] == 0
    out = b.call("plan", "gpt.plan", "--group", "h.0.up:optimizer=muon",
                 code=64)
    assert "'h.0.up.bias' has 1 dimension: optimizer muon" in out, out
    out = b.call("plan", "gpt.plan", "--group",
                 "h.0.up,ndim=2:optimizer=muon,ns-steps=1.5", code=64)
    assert "ns-steps is 1.5" in out, out
    out = b.call("plan", "gpt.plan", "--optimizer", "muon")
    assert "others:optimizer=adamw: " in out, out


def refused(b):
    for rule, text in (
            ("nothing", "has no ':'"),
            ("x:lr=1", "holds for no parameter"),
            ("h.0.ln1:lr=1", 'the nearest name is "h.0.ln_1"'),
            ("h.0.ln_1.weigth:lr=1", 'the nearest name is "h.0.ln_1.weight"'),
            ("h.0,type=LayrNorm:lr=1", 'the nearest name is "LayerNorm"'),
            ("h.0,h.1,ndim=2:lr=1", "holds for no parameter ["),
            ("*:lr", "OPTION=VALUE"),
            ("*:lr=", "OPTION=VALUE"),
            (":lr=1", "a term is empty"),
            ("*,:lr=1", "a term is empty"),
            ("*:lr=1,lr=2", "two values of lr"),
            ("*:lr=fast", "lr is a number"),
            ("*:lr=-1", "lr is -1"),
            ("*:lr=nan", "lr is"),
            ("*:momentum=.9", "adamw has no option"),
            ("*:rate=1", "no option"),
            ("*:clip-norm=-1", "clip-norm is -1"),
            ("*:clip-value=inf", "clip-value is"),
            ("*:optimizer=none", "freeze"),
            ("*:optimizer=adamx", "no optimizer"),
            ("*:optimizer=sgd,nesterov=yes", "momentum"),
            ("*:lr=1\n", "line break"),
            ("ndim>9223372036854775807:lr=1", "like ndim<2"),
            ("ndim<<2:lr=1", "like ndim<2"),
            ("ndim!2:lr=1", "like ndim<2"),
            ("ndim=!2:lr=1", "like ndim<2"),
            ("ndim<x:lr=1", "like ndim<2")):
        out = b.call("plan", "gpt.plan", "--group", rule, code=None)
        assert text in out and "--group" in out, (rule, out)
    b.call("plan", "gpt.plan", "--group", "*:lr=0", "--no-decay", "*")
    b.call("plan", "gpt.plan", "--group", ";*:lr=0;", "--group", "*:lr=1")
    for words in ["--group", "*:lr=1"], ["--no-decay", "biases"]:
        out = b.call("run", "gpt.plan", "--optimizer", "none", "--data",
                     "text", *words, code=64)
        assert "not of --optimizer none" in out, out
    many = ";".join(f"*:lr={x}" for x in range(65))
    assert "64 rules" in b.call("plan", "gpt.plan", "--group", many, code=64)


def bits(b, words, prefix=""):
    """Checks that cuts, shards and a restart keep the bits."""
    def run(name, *more, steps=2):
        name = prefix + name
        b.call("run", "gpt.plan", "--transport", "self", "-m", "4", "--data",
               "text", "--quiet", "--steps", steps, "--checkpoint", name,
               "--threads", "1", "--lr", ".002", *more)
        return b.weights(name)

    want = run("one", "-n", "1", *words)
    assert run("plain", "-n", "1") != want
    assert run("two", "-n", "2", "--schedule", "gpipe", *words) == want
    run("begun", "-n", "2", *words, steps=1)
    assert run("begun", "-n", "1", "--resume", *words) == want
    two = run("replicas", "-n", "2x1", *words)
    assert run("zero1", "-n", "2x1", "--shard", "zero1", *words) == two
    two = run("zero2", "-n", "2x1", "--shard", "zero2", *words)
    assert run("zero3", "-n", "2x2", "--shard", "zero3", *words) == two


def changed(b, words):
    """Checks that a resume with other rules uses and reports these, and that
    the states of parameters that have another optimizer now begin anew."""
    out = b.call("run", "gpt.plan", "--transport", "self", "-m", "4", "--data",
                 "text", "--steps", 3, "--checkpoint", "one", "--lr", ".002",
                 "--resume", *words, "--group", "biases:lr=.5")
    assert "--group was" in out, out
    out = b.call("run", "gpt.plan", "--transport", "self", "-m", "4", "--data",
                 "text", "--steps", 4, "--checkpoint", "one", "--lr", ".002",
                 "--resume")
    assert "'h.0.up.weight'" in out and "states of the optimizer begin" in out


def begins(b):
    """Checks that the states of a parameter that has another optimizer after a
    resume begin anew, even if the checkpoint has no state of that
    optimizer."""
    out = b.call("run", "gpt.plan", "--transport", "self", "-m", "4", "--data",
                 "text", "--steps", 3, "--checkpoint", "plain", "--lr", ".002",
                 "--resume", "--group",
                 "h.0.up:optimizer=sgd,lr=.01,momentum=.9")
    assert "'h.0.up.weight'" in out and "begin here" in out, out

    def run(name, steps, *more):
        return b.call("run", "gpt.plan", "--transport", "self", "-m", "4",
                      "--data", "text", "--steps", steps, "--checkpoint", name,
                      "--lr", ".002", *more)
    run("alone", 2, "--optimizer", "sgd", "--group", "*:optimizer=adamw")
    out = run("alone", 3, "--optimizer", "sgd", "--momentum", ".9", "--group",
              "h.1:optimizer=adamw", "--resume")
    assert "'wte.weight'" in out and "begin here" in out, out
    run("still", 2, "--optimizer", "rmsprop")
    run("still", 3, "--optimizer", "rmsprop", "--momentum", ".9", "--centered",
        "--resume")


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        os.symlink(model, b.path("gpt.pt2"))
        os.symlink(text, b.path("text"))
        b.call("split", "gpt.pt2", "--stages", "2", "-o", "gpt.plan")
        members(b)
        muon(b)
        refused(b)
        bits(b, RULES)
        bits(b, ["--optimizer", "muon", "--group", "h.0:optimizer=lamb"],
             "muon-")
        bits(b, CLIPS, "clip-")
        changed(b, RULES)
        begins(b)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
