#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `penstock prove`: its table, the line about PyTorch, and refused
options.

usage: prove.py PENSTOCK BYTEGPT.pt2 TEXT

A small program stands in for Python with PyTorch: it prints the line that the
script prints, with other numbers.
"""
import json
import os
import re
import sys
import tempfile

import job


def table(b, model, text):
    """Checks that all ways run, and have the same bits. Returns the
    digests."""
    python = b.path("python")
    with open(python, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n[ -s \"$4\" ] && [ -s \"$5\" ] && "
                   "[ \"$6 $7\" = \"2 0\" ] &&\n"
                   "echo 2.99.0 5.5 1.5e-07 2 h.0.up.weight\n")
    os.chmod(python, 0o755)
    said = b.said("prove", model, "--data", text, "-m", "2", "--threads", "1",
                  PENSTOCK_PYTHON=python)
    lines = said.splitlines()
    assert lines[0].split() == ["stages", "ranks", "schedule", "transport",
                                "option", "loss", "gradients", "parameters"]
    rows = [line for line in lines[1:] if re.match(r" +[0-9]", line)]
    ran = [row for row in rows if "not run" not in row]
    assert len(ran) >= 5, said
    digests = {tuple(row.split()[-2:]) for row in ran if "resumed" not in row}
    resumed = {row.split()[-1] for row in ran if "resumed" in row}
    assert len(digests) == 1, said
    assert resumed <= {params for _, params in digests}, said
    assert "PyTorch 2.99.0: loss 5.5; the gradients differ by at most " \
        "1.5e-07 of a tensor's largest (h.0.up.weight); 2 are zero but for " \
        "rounding" in said, said
    assert f"{len(ran)} runs of 3 steps: losses, gradients and parameters " \
        "have the same bits" in said, said
    return digests.pop()


def as_json(b, model, text, before):
    """Checks that options reach the runs: another learning rate gives other
    parameters. before: digests of gradients and parameters with the usual
    one."""
    found = json.loads(b.call(
        "prove", model, "--data", text, "-m", "2", "--threads", "1", "--lr",
        "0.002", "--json", PENSTOCK_PYTHON=b.path("none")))
    assert found["different"] == 0 and found["pytorch"] is None, found
    assert found["pytorch_zeros"] is None, found
    row = found["rows"][0]
    assert row["gradients"] == before[0] and row["parameters"] != before[1], (
        row, before)


def refused(b, model, text):
    said = b.call("prove", model, code=64)
    assert "--data FILE is missing" in said, said
    said = b.call("prove", model, "--data", text, "--schedule", "gpipe",
                  code=64)
    assert "--schedule: prove chooses it for each run" in said, said
    said = b.call("prove", model, "--data", "none.bin", code=64)
    assert "there is nothing to compare" in said and "none.bin" in said, said
    assert not [x for x in os.listdir(b.folder) if x.startswith("penstock-")]


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        refused(b, model, text)
        as_json(b, model, text, table(b, model, text))
    print("ok")


if __name__ == "__main__":
    main()
