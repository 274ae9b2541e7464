#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `penstock plan` writes is valid: SVG as XML, traces and results as JSON,
and they tell the same.

usage: pictures.py PENSTOCK MODEL.pt2
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
WORK = {"forward", "backward", "input gradients", "parameter gradients"}


def plan(penstock, model, folder, *options):
    svg, trace = os.path.join(folder, "a.svg"), os.path.join(folder, "a.json")
    done = subprocess.run(
        [penstock, "plan", model, "--json", "--svg", svg, "--trace", trace,
         *options], stdout=subprocess.PIPE, check=True)
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return json.loads(done.stdout), ElementTree.parse(svg).getroot(), events


def check(result, svg, events, ranks, microbatches):
    spans = [e for e in events if e["ph"] == "X"]
    step = result["step_s"] * 1e6
    assert len(result["ranks"]) == ranks
    assert svg.tag == SVG + "svg"
    texts = ["".join(t.itertext()) for t in svg.iter(SVG + "text")]
    for rank in result["ranks"]:
        mine = sorted((e for e in spans if e["tid"] == rank["rank"]),
                      key=lambda e: e["ts"])
        # No hole, no overlap, from the beginning to the end.
        end = 0.0
        for e in mine:
            assert abs(e["ts"] - end) < 0.01, (e, end)
            end = e["ts"] + e["dur"]
        assert abs(end - step) < 0.01
        # Work and the four causes make up the step.
        kinds = {}
        for e in mine:
            kinds[e["cat"]] = kinds.get(e["cat"], 0.0) + e["dur"]
        for key, cat in (("warm_up", "warm-up"), ("drain", "drain"),
                         ("imbalance", "imbalance"),
                         ("message", "waits for a message")):
            assert abs(rank[key] * step - kinds.get(cat, 0.0)) < 0.1, key
        forwards = [e for e in mine if e["cat"] == "forward"]
        numbers = {e["args"]["microbatch"] for e in forwards}
        assert numbers == set(range(microbatches))
        assert "rank %d" % rank["rank"] in texts
        assert rank["bubble"] > 0
    for number in range(microbatches):
        assert str(number) in texts
    assert "forward" in texts and "warm-up" in texts


def main():
    penstock, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        awkward = os.path.join(folder, "a<b>&\"c'.pt2")
        shutil.copy(model, awkward)
        for schedule in "gpipe", "1f1b":
            result, svg, events = plan(penstock, awkward, folder, "--stages",
                                       "3", "-m", "4", "--schedule", schedule)
            assert result["schedule"] == schedule
            check(result, svg, events, 3, 4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
