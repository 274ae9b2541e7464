#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests which matrix a model reads last, and so which parameters --optimizer
muon leaves to adamw: the same ones for all cuts, before and after changes of
the model.

usage: last_matrix.py PENSTOCK FOLDER

FOLDER has order*.pt2 (tests/golden/make/make_order.py).
"""
import glob
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

ROWS = 16
MATRICES = {"up.weight", "mid.weight", "down.weight"}


def held(b, model, rule, *words):
    """Returns the trained parameters for which the term holds."""
    out = json.loads(b.call("plan", model + ".pt2", "--json", "--group",
                            rule + ":lr=.5", *words))
    names, = [g["names"] for g in out["groups"] if g["rules"]]
    return set(names)


def planned(b):
    head = {"head.weight"}
    for words in ([], ["--at", "mid"], ["--stages", "2"], ["--stages", "5"],
                  ["--swap", "mid=order-more.pt2"],
                  ["--freeze", "mid"],
                  ["--lora", "mid:rank=2", "--unfreeze", "head"]):
        assert held(b, "order", "last-matrix", *words) == head, words
        assert held(b, "order", "embeddings", *words) == (
            set() if "--lora" in words else {"table"}), words
    for words in ([], ["--unfreeze", "mid"], ["--stages", "2"],
                  ["--at", "up", "--at", "mid"],
                  ["--unfreeze", "mid", "--stages", "4"]):
        assert held(b, "order-16", "last-matrix", *words) == head, words
        assert held(b, "order-16", "embeddings", *words) == {"table"}, words
    # The adapter of the last matrix is treated like that matrix, other adapters
    # are not.
    adapter = {f"head.lora_{x}.default.weight" for x in "AB"}
    for words in ["--stages", "1"], ["--stages", "3"]:
        assert held(b, "order", "last-matrix", "--lora", "*:rank=2",
                    *words) == adapter
        assert held(b, "order", "others", "--lora", "*:rank=2",
                    *words) == adapter


def states(b):
    """Saves a checkpoint. Returns from its manifest: for each optimizer the
    parameters with states; for states that began after the first update, the
    number of updates before; and the number of all updates."""
    b.call("checkpoint", "--job", "last")
    path = max(glob.glob(b.path("saved", "step-*", "manifest.json")))
    with open(path, encoding="utf-8") as file:
        saved = json.load(file)
    found = {"muon": set(), "adamw": set()}
    for name in saved["tensors"]:
        optimizer, _, param = name.split(".", 2) if name.startswith(
            ("muon.", "adamw.")) else (None, None, None)
        if optimizer:
            found[optimizer].add(param)
    return found, saved.get("updates_before", {}), saved["updates"]


def changed(b):
    """Checks that a change of another module gives no matrix another
    optimizer, and that a change that does so reports it."""
    tensor_file.save(b.path("data.safetensors"), {
        "word": ("I64", [ROWS], struct.pack(f"<{ROWS}q", *range(ROWS))),
        "label": ("I64", [ROWS], struct.pack(
            f"<{ROWS}q", *(x % 5 for x in range(ROWS))))})
    run = b.begin("run", "order.pt2", "-n", "1", "-m", "2", "--threads", "1",
                  "--data", "data.safetensors", "--steps", 10 ** 9, "--quiet",
                  "--optimizer", "muon", "--checkpoint", "saved", "--job",
                  "last", "--log-dir", "log", "--freeze", "mid.bias")
    b.await_event("log", "train_begin", "rank-0")
    b.call("pause", "--job", "last")
    want = states(b)[0]
    assert want["muon"] == MATRICES, want
    for words in (["attr", "cast", "mid", "bf16"], ["attr", "cast", "up", "f16"],
                  ["attr", "set", "down.bias", "0"], ["unfreeze", "mid.bias"],
                  ["freeze", "mid"], ["unfreeze", "mid"],
                  ["swap", "mid", "order-more.pt2"]):
        said = b.call(*words, "--job", "last")
        assert "another optimizer" not in said, (words, said)
        found, before, updates = states(b)
        inner = {x for x in found["muon"] if x.startswith("mid.")}
        assert found["muon"] - inner == MATRICES - {"mid.weight"}, words
        assert len(inner) == (0 if "freeze" in words else
                              3 if "swap" in words else 1), (words, inner)
        assert not {"up.weight", "down.weight", "head.weight"} & set(before)
    said = b.call("swap", "head", "order-cut.pt2", "--job", "last")
    assert "warning: another optimizer updates 'down.weight' from now on: its " \
        "states begin anew" in said, said
    assert " renewed='down.weight' " in b.events("log", "swapped", "rank-0")[
        -1].replace('"', ""), b.events("log", "swapped", "rank-0")
    found, before, updates = states(b)
    assert "down.weight" in found["adamw"] - found["muon"], found
    assert before["down.weight"] == updates > 0, before
    b.call("stop", "--job", "last")
    b.ended(run, 130)


def main():
    penstock, models = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        for path in glob.glob(os.path.join(models, "order*.pt2")):
            os.symlink(path, b.path(os.path.basename(path)))
        planned(b)
        changed(b)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
