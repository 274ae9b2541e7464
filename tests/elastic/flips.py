#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests messages that are damaged in transit, with --verify-messages.

usage: flips.py PENSTOCK TINY.pt2 [N [SEED]]

N times a job has one bit flipped in a received message or in its checksum. The
seed draws the rank, the message and the bit. Each time the job must name the
rank whose message was damaged, be restarted, and end with the bits of an
undisturbed run. Messages of steps, of replicas and of saves are covered. The
FIRST messages of a start are not: with them the ranks find out whether all
have the option, so they have no checksum. The last messages arrive after the
run has ended: then the rank logs the fault, and nothing is restarted.
"""
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402

STEPS = 20
FIRST = 20
MOST = 2000  # first estimate of the messages that a rank receives


def words(name):
    return ["run", "tiny.plan", "-n", "2x2", "-m", "6", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--steps", str(STEPS), "--checkpoint", name, "--checkpoint-every",
            "5", "--log-dir", name, "--verify-messages", "--max-restarts", "1",
            "--quiet"]


def fault(b, point, rank, nth, bit):
    """Returns the environment variables that inject a bit flip, and the path
    of a file that is removed when the flip happens."""
    flag = b.path("flag")
    with open(flag, "w", encoding="utf-8"):
        pass
    return {"PENSTOCK_FAULT": f"{point}:{nth}:flip",
            "PENSTOCK_FAULT_RANK": str(rank), "PENSTOCK_FAULT_BIT": str(bit),
            "PENSTOCK_FAULT_ONCE": flag}, flag


def flip(b, i, rng, most):
    """Runs jobs until one of them receives the drawn message, one of whose
    bits is then flipped. A number that a job does not reach becomes the new
    upper limit. Returns the name of the job, and what was flipped."""
    rank = rng.randrange(len(most))
    point = rng.choice(["message", "message", "message", "checksum"])
    while True:
        name = f"job-{i}"
        nth, bit = rng.randrange(FIRST, most[rank] + 1), \
            rng.randrange(1 << 20)
        env, flag = fault(b, point, rank, nth, bit)
        b.call(*words(name), **env)
        if not os.path.exists(flag):
            break
        assert nth > FIRST, (point, rank)
        most[rank] = nth - 1
        shutil.rmtree(b.path(name))
    what = (point, rank, nth, bit)
    print(*what, flush=True)
    ends = [x for x in b.events(name, "job_ended") if "=done" not in x]
    if not ends:
        said, = b.events(name, "failed", f"rank-{rank}")
        assert "checksum mismatch" in said, (what, said)
        assert b.events(name, "train_end", "rank-0"), what
        return name, what
    assert len(ends) == 1, (what, ends)
    assert "checksum mismatch" in ends[0], (what, ends)
    assert f"rank {rank}" in ends[0], (what, ends)
    assert b.events(name, "job_restart"), what
    return name, what


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    seed = sys.argv[4] if len(sys.argv) > 4 else \
        os.environ.get("PST_TEST_SEED") or str(random.randrange(1 << 30))
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        b.call(*words("clean"))
        want = b.weights("clean")
        most = [MOST] * 4
        for i in range(n):
            name, what = flip(b, i, rng, most)
            assert b.weights(name) == want, what
            b.no_files_left()
    print(f"{n} bits flipped: all found, and the same weights at the end")


if __name__ == "__main__":
    main()
