#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that an older build of penstock and this one work together.

usage: older.py OLD/penstock NEW/penstock TINY.pt2

Tests in both directions: plans, checkpoints (with the bits of one version
alone), commands for a job of the other version, and logs.
"""
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "daemon"))
import clients  # noqa: E402  pylint: disable=wrong-import-position
import job as jobs  # noqa: E402  pylint: disable=wrong-import-position

STEPS = 12


def words(what, *more, steps=STEPS):
    return ["run", what, "-n", "2", "-m", "2", "--data", "data.safetensors",
            "--lr", "0.001", "--transport", "self", "--steps", steps, "--quiet",
            *more]


def files(one, two, name):
    """Checks that the other version uses the plan and the checkpoint of one
    version."""
    plan, ck = f"{name}.plan", f"{name}.ck"
    one.call("split", "tiny.pt2", "--stages", "2", "-o", plan)
    alone = json.loads(one.call(*words(plan, "--json")))["losses"]
    assert json.loads(two.call(*words(plan, "--json")))["losses"] == alone
    one.call(*words(plan, "--checkpoint", ck, steps=STEPS // 2))
    rest = json.loads(two.call(*words(plan, "--checkpoint", ck, "--resume",
                                      "--json")))
    assert rest["first_step"] == STEPS // 2
    assert rest["losses"] == alone[STEPS // 2:], (rest, alone)
    assert "good" in two.call("checkpoints", ck, "--verify")


def commands(one, two, name):
    """Checks that commands of one version control a job of the other
    version."""
    run = one.begin(*words(f"{name}.plan", "--job", name, "--log-dir", name,
                           "--checkpoint", name + ".job", steps=10 ** 9),
                    PENSTOCK_FAULT="F:1+:2")
    one.await_event(name, "step", "rank-0", 3)
    status = json.loads(two.call("status", "--job", name, "--json"))
    assert status["state"] == "training" and status["step"] > 0, status
    two.call("pause", "--job", name)
    one.await_event(name, "paused", "rank-0")
    assert "paused" in two.call("status", "--job", name)
    two.call("resume", "--job", name)
    two.call("checkpoint", "--job", name)
    assert "measured step" in two.call("trace", "--job", name)
    two.call("flight", name)
    assert " step " in two.call("log", "--job", name)
    watched = two.begin("watch", "--job", name, "--from", "1", "--json")
    time.sleep(.5)
    two.call("stop", "--job", name)
    one.ended(run, 130)
    seen = [json.loads(x) for x in two.ended(watched, None).stdout.splitlines()]
    assert {"train_begin", "step", "train_end"} <= {x["event"] for x in seen}
    assert "report.html" in two.call("report", name)


def main():
    old, new, model = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            jobs.Bench(old, folder) as a, jobs.Bench(new, folder) as b:
        os.symlink(model, a.path("tiny.pt2"))
        clients.write_data(a.path("data.safetensors"))
        for one, two, name in (a, b, "old"), (b, a, "new"):
            files(one, two, name)
            commands(one, two, name)
            print(f"{name} writes and works, the other reads and asks: good")


if __name__ == "__main__":
    main()
