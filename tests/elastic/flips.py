#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages that are damaged on their way, with --verify-messages.

usage: flips.py PENSTOCK TINY.pt2 [N [SEED]]

N times a job has one bit flipped, of a message or of its checksum, when the
message has come: which bit of which message of which rank is drawn by the seed.
Each time the job says which rank's message was damaged, is
started again, and ends with the bits of a run that nobody disturbed. Those of
all steps, of replicas and of saves are among them, and not the FIRST ones of a
start: by these ranks find out whether all have the option, so that they have no
checksum, and a bit of them that flips is not found. The last ones come when the
run is over: then the rank's log says it, and nothing is started again.
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
MOST = 2000  # messages that a rank is sent, to begin with


def words(name):
    return ["run", "tiny.plan", "-n", "2x2", "-m", "6", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--steps", str(STEPS), "--checkpoint", name, "--checkpoint-every",
            "5", "--log-dir", name, "--verify-messages", "--max-restarts", "1",
            "--quiet"]


def fault(b, point, rank, nth, bit):
    """The environment of a flip, and the file that is gone when it is done."""
    flag = b.path("flag")
    with open(flag, "w", encoding="utf-8"):
        pass
    return {"PENSTOCK_FAULT": f"{point}:{nth}:flip",
            "PENSTOCK_FAULT_RANK": str(rank), "PENSTOCK_FAULT_BIT": str(bit),
            "PENSTOCK_FAULT_ONCE": flag}, flag


def flip(b, i, rng, most):
    """One that happens: there are not as many messages as was drawn, perhaps."""
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
