#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that data on slow storage are read ahead, one step before they are
used, and that the log says how long reading took.

usage: slow_data.py PENSTOCK LIBRARY BYTEGPT.pt2 NORM.pt2

LIBRARY (tests/files/slow_reads.c) delays each page of the data file and counts
the pages that nobody had asked for when they were read: only the first step has
such pages. Tokens and rows, shuffled.
"""
import json
import os
import random
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402

STEPS = 6


def run(b, steps, model, name, *more):
    """Returns the pages that were read without being asked for before, and
    the seconds that each step has read."""
    data, word = b.path(name), "".join(more)
    b.done("run", model, "-n", "1", "-m", "4", "--threads", "1", "--data",
           data, "--steps", str(steps), "--log-every", "1", "--quiet",
           "--log-dir", f"log-{name}-{steps}{word}", *more, LD_PRELOAD=b.so,
           PST_SLOW_FILE=data, PST_SLOW_COUNT=b.path("count"))
    with open(b.path("count")) as file:
        count = int(file.read())
    os.remove(b.path("count"))
    return count, [float(re.search(r" wait_data_s=(\S+)", line)[1])
                   for line in b.events(f"log-{name}-{steps}{word}", "step",
                                        "rank-0")]


def main():
    penstock, so, model, norm = map(os.path.abspath, sys.argv[1:5])
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        b.so = so
        with open(b.path("tokens.bin"), "wb") as file:
            file.write(rng.randbytes(1 << 20))
        header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 16, 4],
                                   "data_offsets": [0, 1 << 20]}})
        with open(b.path("rows.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header.encode())
            file.write(struct.pack("<262144f", *(rng.random()
                                                 for _ in range(1 << 18))))
        for case in (model, "tokens.bin"), (norm, "rows.safetensors"):
            first, read = run(b, 1, *case, "--shuffle")
            every, times = run(b, STEPS, *case, "--shuffle")
            assert first > 0 and read[0] >= .01, (case, first, read)
            assert len(times) == STEPS and times[0] >= .01, (case, times)
            assert every == first, (case, first, every)
            print(f"{case[1:]}: {first} pages not asked for, seconds {times}")
    print("ok")


if __name__ == "__main__":
    main()
