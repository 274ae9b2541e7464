#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests activation checkpointing: regions that the author put under
torch.utils.checkpoint.

usage: activation_checkpoints.py PENSTOCK CHECKPOINTS.pt2 NORM.pt2

The regions are recomputed by default. This must change no bit (each has a
dropout and a batch norm) and must need less memory. NORM.pt2 has no region.
"""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from eval_job import write_data  # noqa: E402
from tensor_file import contents  # noqa: E402

REGIONS = {"parts.0.inner.up": "0", "parts.1": "1", "parts.1.inner.up": "1.2"}


class Bench(job.Bench):
    def __init__(self, penstock, folder):
        super().__init__(penstock, folder)
        write_data(self.path("x.safetensors"), 1, x=[96, 8])

    def plan(self, *words):
        return json.loads(self.call("plan", *words, "--loss-fn",
                                    "mse:target=x", "--schedule", "gpipe",
                                    "-m", "8", "--json"))

    def run(self, *words):
        self.call("run", *words, "-m", "4", "--steps", "3", "--data",
                  "x.safetensors", "--loss-fn", "mse:target=x", "--dump",
                  "dump", "--quiet", "--lr", "0.01", "--log-dir", "log",
                  "--verify")
        with open(self.path("log/rank-0.log"),
                  encoding="utf-8") as f:
            was = re.findall(r" event=train_begin .* recompute=(\S+)", f.read())
        return was[-1], contents(self.path("dump"))


def shown(b, model):
    """Checks that `show` prints the region of each node, and omits the wrapper
    module that a strict export adds."""
    text = b.call("show", model)
    for module, region in REGIONS.items():
        assert re.search(rf"# {module} .* region={region}\n", text), module
    assert "_export_root" not in text
    assert not re.search(r"# parts.2\S* .* region=", text)


def same_bits(b, model):
    _, want = b.run(model, "--recompute", "none", "-n", "1")
    for words in ((), ("--recompute", "marked"), ("--stages", "3"),
                  ("--stages", "2", "--schedule", "zb-h1"),
                  ("--stages", "3", "--recompute", "marked,parts.2"),
                  ("--stages", "2", "--schedule", "zb-h1", "--recompute",
                   "marked,twice")):
        ranks = words[1] if words[:1] == ("--stages",) else "1"
        was, got = b.run(model, "-n", ranks, *words)
        assert "marked" in was, (words, was)
        assert got.keys() == want.keys()
        for name, data in want.items():
            assert got[name] == data, (words, name)


def less_memory(b, model):
    def plan_bytes(*words):
        plan = b.plan(model, "-n", "1", *words)
        rank, = plan["ranks"]
        return plan["recompute"], rank["arena_bytes"], rank["stash_bytes"]

    kept, marked = plan_bytes("--recompute", "none"), plan_bytes()
    assert kept[0] == "none" and marked[0] == "marked"
    # With recomputation, eight microbatches keep the inputs of two of the
    # three layers instead of their activations.
    assert marked[2] < .5 * kept[2], (marked, kept)
    assert marked[1] < kept[1] - .9 * (kept[2] - marked[2]), (marked, kept)
    assert plan_bytes("--recompute", "marked") == marked
    assert plan_bytes("--recompute", "0=none")[1] == kept[1]
    # In the last stage, which separates I and W, values that W reads are kept
    # or, with `twice`, recomputed.
    def last_rank_bytes(words, schedule="zb-h1"):
        plan = json.loads(b.call(
            "plan", model, "-n", "2", "--stages", "2", "-m", "8", "--schedule",
            schedule, "--loss-fn", "mse:target=x", "--recompute", words,
            "--json"))
        return plan["ranks"][1]["arena_bytes"], plan["ranks"][1]["for_w_bytes"]

    for words in "marked", "full":
        twice = words + ",twice"
        arena, for_w = last_rank_bytes(words)
        less, for_w_less = last_rank_bytes(twice)
        assert less < arena and for_w_less < .9 * for_w, (words, less, arena)
        assert last_rank_bytes(f"{words},1={words},1=twice") == (
            less, for_w_less)
        assert (last_rank_bytes(words, "1f1b") ==
                last_rank_bytes(twice, "1f1b"))
    # With a memory limit, recomputation of the marked regions is one of the
    # choices.
    low = plan_bytes("--memory-limit", str((kept[1] - 1) / 2 ** 20))
    assert low[0] != "none" and low[1] < kept[1], low
    said = b.call("plan", model, "-n", "1", "--loss-fn", "mse:target=x",
                  "--what-if")
    assert re.search(r"^marked +", said, re.M), said


def refused(b, norm):
    said = b.call("plan", norm, "--recompute", "marked", code=64)
    assert "no region of torch.utils.checkpoint" in said, said


def main():
    penstock, model, norm = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        for part in shown, same_bits, less_memory:
            part(b, model)
        refused(b, norm)
    print("ok")


if __name__ == "__main__":
    main()
