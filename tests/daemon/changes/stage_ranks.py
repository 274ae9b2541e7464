#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a change of a running job moves no stage to another rank, and so
keeps the parameters, optimizer states and averages of all other modules.

usage: stage_ranks.py PENSTOCK CHAIN.pt2 WIDE.pt2 self|mpi

Three stages are on two ranks, where the estimated times of CHAIN's layers place
them. WIDE, which takes far more time, replaces the first layer: by the new
times the second stage would be on the other rank.
"""
import glob
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402


def kept(tensors):
    """Returns the model's tensors that are not of the replaced layer."""
    return {k: v[2] for k, v in tensors.items()
            if ".l.0." not in f".{k}" and not k.startswith("plan.")}


def states(b, folder):
    """Returns the tensors of the newest checkpoint by name."""
    newest = sorted(glob.glob(b.path(folder, "step-*")))[-1]
    found = {}
    for path in sorted(glob.glob(os.path.join(newest, "rank-*.safetensors"))):
        found.update(tensor_file.load(path)[0])
    return kept(found)


def weights(b, folder, *options):
    out = b.path("weights.safetensors")
    b.call("weights", folder, "-o", out, *options)
    return kept(tensor_file.load(out)[0])


def rank_of(b, name):
    text = b.call("attr", "get", name, "--job", "places")
    return text.split(" on ranks ")[1].split(",")[0]


def check(b, wide, number, *options):
    ck = f"ck-{number}"
    run = b.begin("run", "plan", "-m", "2", "--steps", "100000000", "--lr",
                  "0.01", "--ema", "0.9", "--data", "data.safetensors",
                  "--checkpoint", ck, "--log-dir", f"log-{number}", "--job",
                  "places", "--quiet", *options)
    b.await_event(f"log-{number}", "step", "rank-0", 3)
    b.call("pause", "--job", "places")
    b.call("checkpoint", "--job", "places")
    shared = "--shard" in options
    before = [weights(b, ck), weights(b, ck, "--use-ema"),
              {} if shared else states(b, ck)]
    rank = rank_of(b, "l.1.bias")
    b.call("swap", "l.0", wide, "--job", "places")
    assert rank_of(b, "l.1.bias") == rank, options
    b.call("checkpoint", "--job", "places")
    after = [weights(b, ck), weights(b, ck, "--use-ema"),
             {} if shared else states(b, ck)]
    for was, now in zip(before, after):
        assert was == now, (options, [
            k for k in was.keys() | now.keys() if was.get(k) != now.get(k)])
    assert shared or any(k.startswith("adamw.v.l.1.") for k in before[2])
    b.call("resume", "--job", "places")
    b.call("stop", "--job", "places")
    b.ended(run, code=None)


def main():
    penstock, chain, wide, transport = sys.argv[1:]
    numbers = [(i * 7 % 11 - 5) / 4 for i in range(64 * 8)]
    with tempfile.TemporaryDirectory(prefix="pst-places-") as folder, \
            job.Bench(penstock, folder) as b:
        tensor_file.save(b.path("data.safetensors"), {
            "x": ("F32", [64, 8], struct.pack("<512f", *numbers)),
            "label": ("I64", [64], struct.pack(
                "<64q", *(i % 3 for i in range(64))))})
        b.call("split", os.path.abspath(chain), "-o", "plan", "--at", "l.1",
               "--at", "l.2")
        wide = os.path.abspath(wide)
        check(b, wide, 0, "--transport", transport, "-n", "2")
        if transport == "self":
            check(b, wide, 1, "--transport", "self", "-n", "2", "--schedule",
                  "auto")
            for number, shard in enumerate(("zero1", "zero3")):
                check(b, wide, 2 + number, "--transport", "self", "-n", "2x2",
                      "--shard", shard)


if __name__ == "__main__":
    main()
