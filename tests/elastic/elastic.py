#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs that lose a rank permanently and continue with the other ranks.

usage: elastic.py PENSTOCK NORM.pt2 TINY.pt2

fewer     a rank dies at each start: four ranks become three, then two, and the
          weights at the end have the bits of a run that lost no rank
replicas  each of two pipelines shrinks by a rank
crashes   a crash of a rank itself does not reduce the number of ranks
refused   contradicting options are refused
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402
import eval_job  # noqa: E402

STEPS = 20


def words(b, name, plan="norm.plan", n="4", m="4"):
    data = "norm.safetensors" if plan == "norm.plan" else "data.safetensors"
    return ["run", plan, "-n", n, "-m", m, "--data", data, "--lr", "0.001",
            "--transport", "mpi", "--threads", "1", "--steps", str(STEPS),
            "--checkpoint", name, "--checkpoint-every", "5",
            "--checkpoint-sync", "--log-dir", name, "--quiet"]


def fewer(b):
    b.call(*words(b, "whole"))
    want = b.weights("whole")
    said = b.call(*words(b, "lost"), "--max-restarts", "1", "--min-ranks", "2",
                  "--place", "0=0,1=1,2=2,3=3",
                  PENSTOCK_FAULT="step@13:kill", PENSTOCK_FAULT_RANK="2")
    assert "with 3 ranks instead of 4" in said, said
    assert "with 2 ranks instead of 3" in said, said
    assert b.weights("lost") == want
    assert not b.events("lost", "resume_changed", "rank-0")
    ranks = [(job.field(x, "before"), job.field(x, "ranks"),
              job.field(x, "of_rank"), job.field(x, "cause"))
             for x in b.events("lost", "fewer_ranks")]
    assert ranks == [("4", "3", "2", "signal"), ("3", "2", "2", "signal")], ranks
    again = [(job.field(x, "ranks"), job.field(x, "checkpoint_step"))
             for x in b.events("lost", "job_restart")]
    assert again == [("4", "10"), ("3", "10"), ("3", "10"), ("2", "10")], again
    ends = [job.field(x, "ranks") for x in b.events("lost", "job_ended")]
    assert ends == ["4", "4", "3", "3", "2"], ends
    said = b.last_exit("lost")
    assert said["cause"] == "done" and said["ranks"] == 2, said
    assert said["next_ranks"] == 0 and said["restarts"] == 4, said
    # All stages are placed on ranks: at first on four, at the end on two.
    begin = b.events("lost", "train_begin", "rank-0")
    places = [job.field(x, "placement").strip('"').split(";") for x in begin]
    assert [len(x) for x in places] == [4, 4, 3, 3, 2], places


def limit(b):
    """Checks that the number of ranks does not fall below --min-ranks; the
    budget of restarts ends the job instead."""
    said = b.call(*words(b, "limit"), "--max-restarts", "1", "--min-ranks", "3",
                  code=1, PENSTOCK_FAULT="step@8:kill", PENSTOCK_FAULT_RANK="2")
    assert "with 3 ranks instead of 4" in said, said
    said = b.last_exit("limit")
    assert said["ranks"] == 3 and said["next_ranks"] == 0, said
    assert not said["restarted"] and said["rank"] == 2, said
    assert len(b.events("limit", "fewer_ranks")) == 1


def replicas(b):
    tiny = ("tiny.plan", "2x2", "4")
    b.call(*words(b, "two", *tiny))
    want = b.weights("two")
    said = b.call(*words(b, "two-lost", *tiny), "--max-restarts", "1",
                  "--min-ranks", "2", PENSTOCK_FAULT="step@13:kill",
                  PENSTOCK_FAULT_RANK="3")
    assert "with 2 ranks instead of 4" in said, said
    assert b.weights("two-lost") == want


def crashes(b):
    said = b.call(*words(b, "crash", "tiny.plan", "2", "2"),
                  "--max-restarts", "2", "--min-ranks", "1", code=1,
                  PENSTOCK_FAULT="step@8:crash", PENSTOCK_FAULT_RANK="1")
    assert "instead" not in said, said
    assert not b.events("crash", "fewer_ranks")
    assert b.last_exit("crash")["signal"] == 11


def refused(b):
    for more, text in (
            (("--min-ranks", "2"), "--max-restarts"),
            (("--min-ranks", "5", "--max-restarts", "1"), "more than the 4"),
            (("--min-ranks", "1", "--max-restarts", "1", "--transport", "self"),
             "one process")):
        said = b.call(*words(b, "refused"), *more, code=64)
        assert text in said, (more, said)
    tiny = words(b, "refused-2", "tiny.plan", "2x2", "4")
    said = b.call(*tiny, "--min-ranks", "3", "--max-restarts", "1", code=64)
    assert "multiple of 2" in said, said
    said = b.call(*words(b, "refused-3"), "-n", "2", "--schedule", "zb-v",
                  "--min-ranks", "1", "--max-restarts", "1", code=64)
    assert "--min-ranks 1: " in said and "stages" in said, said


def main():
    penstock, norm, tiny = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", norm, "--stages", "4", "-o", "norm.plan")
        b.call("split", tiny, "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        eval_job.write_data(b.path("norm.safetensors"), 1, x=[96, 4])
        for part in (refused, crashes, replicas, limit, fewer):
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
