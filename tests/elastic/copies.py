#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that damaged copies of parameters are detected, reported and repaired.

usage: copies.py PENSTOCK TINY.pt2

flips     a bit of a replica's weight flips: the next comparison finds and
          reports it, and the job resumes from the checkpoint before, with the
          same bits
third     of three replicas the one that differs is named; of two, both are
clean     no rank is named, and the log names what is compared, by mode of
          --shard
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402

STEPS = 30


def words(name, grid="2x2", *more):
    return ["run", "tiny.plan", "-n", grid, "-m", "6", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "mpi",
            "--steps", str(STEPS), "--checkpoint", name, "--checkpoint-every",
            "10", "--checkpoint-sync", "--log-dir", name, "--quiet", *more]


def flips(b):
    b.call(*words("clean", "2x2", "--compare-replicas", "1"))
    want = b.weights("clean")
    assert not b.events("clean", "replicas_differ", "rank-0")
    event, = b.events("clean", "replicas_compared", "rank-0")
    assert int(job.field(event, "tensors")) > 0, event
    assert job.field(event, "in_parts") == "0", event
    # The bit flips after the update of step 13; copies are compared after step
    # 15.
    flag = b.path("flag")
    with open(flag, "w", encoding="utf-8"):
        pass
    b.call(*words("flipped", "2x2", "--compare-replicas", "5",
                  "--max-restarts", "1"),
           PENSTOCK_FAULT="weights:13:flip", PENSTOCK_FAULT_RANK="3",
           PENSTOCK_FAULT_ONCE=flag)
    assert not os.path.exists(flag)
    line, = b.events("flipped", "replicas_differ", "rank-0")
    assert job.field(line, "step") == "15", line
    # Both stages have this parameter, so there are four copies.
    assert ("after step 15: rank 3 (stage 1) has other values of 'head.weight' "
            "than rank 0 and others: memory was damaged;" in line), line
    end = b.events("flipped", "job_ended")[0]
    assert " cause=corruption of_rank=3 stages=1 " in end, end
    again, = b.events("flipped", "job_restart")
    assert job.field(again, "checkpoint_step") == "10", again
    assert b.weights("flipped") == want
    # Without --compare-replicas the next checkpoint detects the damage.
    with open(flag, "w", encoding="utf-8"):
        pass
    b.call(*words("late", "2x2", "--max-restarts", "1"),
           PENSTOCK_FAULT="weights:13:flip", PENSTOCK_FAULT_RANK="3",
           PENSTOCK_FAULT_ONCE=flag)
    end = b.events("late", "job_ended")[0]
    assert " cause=corruption " in end and "after step 20" in end, end
    assert b.weights("late") == want


def check_which_differs(b):
    said = b.call(*words("pair", "2x1", "--compare-replicas", "1"), code=1,
                  PENSTOCK_FAULT="weights:7:flip", PENSTOCK_FAULT_RANK="0")
    assert ("after step 7: rank 1 (stage 0) has other" in said and
            "than rank 0: memory was damaged on one of them" in said), said
    for rank in "0", "2":
        name = "third-" + rank
        said = b.call(*words(name, "3x1", "--compare-replicas", "1"), code=1,
                      PENSTOCK_FAULT="weights:7:flip", PENSTOCK_FAULT_RANK=rank)
        assert f"after step 7: rank {rank} (stage 0) has other" in said, said
        assert "and others: memory was damaged;" in said, said


def shards(b):
    for mode, whole in ("zero1", True), ("zero2", True), ("zero3", False):
        name = "shard-" + mode
        b.call(*words(name, "2x2", "--compare-replicas", "10", "--shard", mode))
        event, = b.events(name, "replicas_compared", "rank-0")
        parts = int(job.field(event, "in_parts"))
        assert (parts == 0) == whole, (mode, event)
        # In every mode each replica has whole buffers, so some tensors are
        # compared.
        assert int(job.field(event, "tensors")) > 0, (mode, event)
        assert ("each replica has its own" in event) != whole, event


def check_missing_copies(b):
    for ranks, text in ("2", " tensors=1 "), ("1", "no rank has a copy"):
        name = "alone-" + ranks
        b.call(*words(name, ranks, "--compare-replicas", "1"))
        event, = b.events(name, "replicas_compared", "rank-0")
        assert text in event, event  # the stages share a parameter


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        for part in (flips, check_which_differs, shards, check_missing_copies):
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
