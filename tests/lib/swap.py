#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Modules replaced between two steps of the library, bit by bit.

usage: swap.py PENSTOCK DRIVE ORDER.pt2 ORDER-MORE.pt2 ORDER-CUT.pt2

Before the first step it is the model that `penstock split --swap` makes; in the
middle it is what `penstock run --resume` makes of the checkpoint that the
library writes after it. Replacements that are refused change nothing.
"""
import json
import os
import sys
import tempfile

import bits
import tensor_file

STEPS = bits.STEPS
SWAPPED = ["mid.0.bias", "mid.0.weight", "mid.2.bias", "mid.2.weight",
           "mid.4.bias", "mid.4.weight"]


def state(bench, folder, wanted=True):
    found = bench.state(bench.at(folder))
    assert [n for n in sorted(found) if n.startswith("mid.")] == \
        (SWAPPED if wanted else ["mid.bias", "mid.weight"]), sorted(found)
    return found


def run(bench, ranks, folder, *words, **options):
    bench.folder_of(folder)
    lines = bench.lib(ranks, *words, "state", bench.at(folder), **options)
    return bits.losses(lines), [line for line in lines
                                if line[0] in ("swapped", "refused")]


def at_the_start(bench, more):
    """A swap before the first step, on several cuts and with shards."""
    first = None
    for ranks, options in ((1, []), (2, []), ("2x1", ["shard=zero1"]),
                           ("2x2", ["shard=zero3"])):
        kept = run(bench, ranks, "split", "train", "arrays", STEPS,
                   path=bench.model, opened=["stages=2", f"swap=mid={more}"],
                   more=options)
        got = run(bench, ranks, "swap", "swap", "mid", more, "train", "arrays",
                  1, "train", "apart", 1, "train", "strided", STEPS - 2,
                  more=options)
        assert got[1] == [("swapped", "")] and got[0] == kept[0], got
        assert state(bench, "swap") == state(bench, "split")
        first = first or got[0]
        assert len(set(first)) == STEPS
        if ranks in (1, 2):
            assert got[0] == first, ranks


def in_the_middle(bench, more):
    """A swap after two steps, and the runs that go on from it."""
    plain = run(bench, 2, "plain", "train", "arrays", STEPS)[0]
    state(bench, "plain", False)
    words = ["train", "arrays", 2, "swap", "mid", more, "save",
             bench.at("after"), "train", "arrays", STEPS - 2]
    wanted, _ = run(bench, 2, "middle", *words)
    assert wanted[:2] == plain[:2] and wanted[2] != plain[2]
    after = state(bench, "middle")
    assert run(bench, 1, "alone", *words[:6], *words[8:])[0] == wanted
    assert state(bench, "alone") == after
    # Twice, and an evaluation that makes its engine before and after.
    got, _ = run(bench, 2, "twice", "forward", bench.folder_of("out"), "train",
                 "arrays", 2, "swap", "mid", more, "swap", "mid", more,
                 "forward", bench.at("out"), "train", "arrays", STEPS - 2)
    assert got == wanted and state(bench, "twice") == after
    # A session with the same module goes on from the checkpoint.
    got, _ = run(bench, 1, "loaded", "swap", "mid", more, "load",
                 bench.at("after"), "train", "arrays", STEPS - 2)
    assert got == wanted[2:] and state(bench, "loaded") == after
    # So does one that has not replaced it.
    for ranks in 1, 2:
        name = f"carried-{ranks}"
        got, _ = run(bench, ranks, name, "load", bench.at("after"), "train",
                     "arrays", STEPS - 2)
        assert got == wanted[2:] and state(bench, name) == after
    last, dump = bench.run(2, STEPS, "--checkpoint", bench.at("after"),
                           "--resume")
    assert last == wanted[-1], (last, wanted)
    for name in after:
        assert dump[f"param.{name}"][2] == after[name], name


def states(bench, more):
    """Optimizer states of equal names begin anew, or stay."""
    words = ["swap", "mid", more, "train", "arrays", 2, "swap", "mid", more]
    end = ["train", "arrays", 2]
    anew = run(bench, 2, "anew", *words, *end)[0]
    keep = run(bench, 2, "keep", *words, "state=keep", *end)[0]
    assert anew[:3] == keep[:3] and anew[3] != keep[3], (anew, keep)
    one = run(bench, 2, "one", *words, "at-call=0", *end)
    assert one[0][:3] == anew[:3]
    same = write_map(bench, "same.json", {name: name for name in SWAPPED})
    assert run(bench, 2, "mapped", *words, same, *end)[0] == keep


def write_map(bench, name, pairs):
    with open(bench.at(name), "w", encoding="utf-8") as file:
        json.dump(pairs, file)
    return f"state=map:{bench.at(name)}"


def entries(folder):
    """Returns the tensors of the only checkpoint in a folder: name -> bytes."""
    found = {}
    for where, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".safetensors"):
                tensors, _ = tensor_file.load(os.path.join(where, name))
                found.update((k, data) for k, (_, _, data) in tensors.items())
    return found


def mapped(bench, more):
    """Optimizer states move between names: those of the checkpoints before and
    after the swap."""
    pairs = {"mid.0.weight": "mid.2.weight", "mid.2.weight": "mid.0.weight",
             "mid.2.bias": "mid.4.bias", "mid.4.weight": "up.weight"}
    option = write_map(bench, "pairs.json", pairs)
    for ranks, options in ((1, []), (2, []), ("2x2", ["shard=zero1"])):
        before, after = (bench.at(f"{name}.{ranks}.{len(options)}")
                         for name in ("before", "after"))
        run(bench, ranks, "moved", "swap", "mid", more, "train", "arrays", 2,
            "save", before, "swap", "mid", more, option, "save", after, "train",
            "arrays", 1, more=options)
        before, after = entries(before), entries(after)
        for name in SWAPPED + ["up.weight", "up.bias"]:
            for kind in "adamw.m.", "adamw.v.":
                old = pairs.get(name, name)
                wanted = before[kind + old] if old != name or \
                    name not in SWAPPED else bytes(len(before[kind + name]))
                assert after[kind + name] == wanted, (ranks, kind, name)
                assert any(before[kind + name])


def refusals(bench, more, cut):
    words, wanted = [], []
    for name, path, error in (("nobody", more, "module.unknown"),
                              ("mid", bench.at("none.pt2"), "file.missing"),
                              ("mid", bench.at("in.0"), "zip.damaged"),
                              ("mid", cut, "swap.interface")):
        words += ["swap", name, path]
        wanted.append(error)
    for option, error in (
            ("state=map:" + bench.at("none.json"), "file.missing"),
            ("state=map:" + bench.at("in.0"), "state.map"),
            ("state=drop", "option.value"), ("lr=1", "library.option"),
            *((write_map(bench, f"bad.{i}.json", pairs), "state.map")
              for i, pairs in enumerate((
                  ["mid.0.bias"], {"mid.0.bias": 1}, {"": "mid.bias"},
                  {"mid.0.bias": "nobody"}, {"mid.9.bias": "mid.bias"},
                  {"up.bias": "mid.bias"}, {"mid.0.bias": "mid.weight"}))),
            (write_map(bench, "far.json", {"mid.0.bias": "down.bias"}),
             "state.other-stage")):
        words += ["swap", "mid", more, option]
        wanted.append(error)
    words += ["train", "arrays", 1]
    plain, _ = run(bench, 2, "plain", "train", "arrays", STEPS)
    got, said = run(bench, 2, "same", "train", "arrays", 1, *words, *words,
                    "train", "arrays", STEPS - 3)
    assert got == plain, (got, plain)
    assert state(bench, "same", False) == state(bench, "plain", False)
    assert len(said) == 2 * len(wanted)
    for (word, name), error in zip(said, wanted * 2):
        assert word == "refused" and name.startswith(error), (said, wanted)


def main():
    penstock, drive, order, more, cut = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        bench = bits.Bench(penstock, drive, order, 5, folder)
        at_the_start(bench, more)
        in_the_middle(bench, more)
        states(bench, more)
        mapped(bench, more)
        refusals(bench, more, cut)
    print("ok")


main()
