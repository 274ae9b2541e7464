#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that mtail, started in the middle of a run, is up to date after the
next totals in the log.

usage: midrun.py PENSTOCK TINY.pt2 ROOT

Before mtail starts, the job has run steps, saved checkpoints, evaluated and
skipped a step. Then the job is paused, so that mtail sees only the totals,
which are logged every 15 seconds. After these each gauge and counter must have
the value in `penstock status --json` and in the file of --prom. If mtail is
missing, a message says that nothing was compared.
"""
import json
import os
import re
import shutil
import sys
import tempfile
import time

DAEMON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                      "daemon")
sys.path[:0] = [DAEMON, os.path.join(DAEMON, "training")]
import job  # noqa: E402  pylint: disable=wrong-import-position
import on_nan  # noqa: E402  pylint: disable=wrong-import-position
from scrape import Mtail  # noqa: E402  pylint: disable=wrong-import-position
from patience import PATIENCE  # noqa: E402  pylint: disable=wrong-import-position

NAME = "middle"
TOTALS_S = 15
SAMPLE = re.compile(r"^(penstock_\w+)\{[^}]*\} (\S+)", re.MULTILINE)
# Keys of `status --json` -> names of metrics.
STATUS = {"run": "run", "step": "step", "steps": "steps", "loss": "loss",
          "lr": "lr", "grad_norm": "grad_norm", "step_s": "step_seconds",
          "tok_s": "tokens_per_second", "mfu": "mfu_ratio", "bubble": "bubble_ratio",
          "checkpoint_step": "checkpoint_step"}


def begin(b, tiny):
    on_nan.write_data(b.path("data.safetensors"), {6})
    on_nan.write_data(b.path("eval.safetensors"), ())
    run = b.begin("run", tiny, "-n", "2", "-m", "2", "--transport", "self",
                  "--data", "data.safetensors", "--eval-data",
                  "eval.safetensors", "--eval-every", "3", "--on-nan", "skip",
                  "--checkpoint", "ck", "--checkpoint-every", "4", "--steps",
                  "1000000000", "--log-dir", NAME, "--log-every", "1", "--job",
                  NAME, "--prom", "job.prom", "--quiet",
                  PENSTOCK_FAULT="F:1+:2")
    for event in "step_skipped", "evaluated", "checkpoint_saved":
        b.await_event(NAME, event, "rank-0", 3)
    b.call("pause", "--job", NAME)
    # The metrics have the newest step with a loss, `status` also a later one
    # that was left out.
    while newest_step(b, "step_skipped") == newest_step(b, "paused"):
        n = len(b.events(NAME, "step", "rank-0"))
        b.call("resume", "--job", NAME)
        b.await_event(NAME, "step", "rank-0", n + 1)
        b.call("pause", "--job", NAME)
    return run


def newest_step(b, event):
    return job.field(b.events(NAME, event, "rank-0")[-1], "step")


def file_has(b):
    with open(b.path("job.prom"), encoding="utf-8") as file:
        return {k: float(v) for k, v in SAMPLE.findall(file.read())}


def mtail_has(mtail):
    return {k.partition("{")[0]: float(v) for k, v in mtail.seen[-1][1].items()
            if 'rank="0"' in k}


def differ(said, truth):
    """Returns the metrics whose values differ. Times may differ by less than a
    second, since mtail's clock has whole seconds."""
    return {name: (said.get(name), want) for name, want in truth.items()
            if said.get(name) != (int(want) if "timestamp" in name else want)}


def compare(b, mtail):
    """Waits for the next totals; returns mtail's values and the seconds
    waited."""
    started = time.monotonic()
    seen = len(b.events(NAME, "totals", "rank-0"))
    b.await_event(NAME, "totals", "rank-0", seen + 1)
    while differ(mtail_has(mtail), file_has(b)):
        assert time.monotonic() < started + PATIENCE, \
            differ(mtail_has(mtail), file_has(b))
        time.sleep(.1)
    took = time.monotonic() - started
    said = mtail_has(mtail)
    status = json.loads(b.call("status", "--job", NAME, "--json"))
    for key, name in STATUS.items():
        assert said["penstock_" + name] == status[key], (key, status)
    assert 0 <= status["uptime_s"] - said["penstock_uptime_seconds"] < \
        TOTALS_S + time.monotonic() - started
    assert status["state"] == "training" and said["penstock_training"] == 1
    for name in "steps_skipped", "checkpoints":
        assert said[f"penstock_{name}_total"] >= 3, said
    return said, took


def main():
    penstock, tiny, root = map(os.path.abspath, sys.argv[1:4])
    if not shutil.which("mtail"):
        print("mtail is not installed: nothing was compared")
        return
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        run = begin(b, tiny)
        mtail = Mtail(root, folder)
        try:
            said, took = compare(b, mtail)
        finally:
            mtail.stop()
        b.call("resume", "--job", NAME)
        b.call("stop", "--job", NAME)
        run.communicate(timeout=PATIENCE)
    print(f"{len(said)} numbers are alike {took:.1f} s after the start of "
          "mtail")


if __name__ == "__main__":
    main()
