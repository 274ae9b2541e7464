#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `run --eval-metric`.

usage: metric.py PENSTOCK METRIC.pt2 ENTROPIES.pt2 self|mpi

best      the metric is the mean over the evaluated rows, and the best one by it
          decides what --keep-best keeps and when --patience ends the run
weights   a mean over rows is weighted by rows, one over targets by the targets
          that count, so that it is the same for all sizes of a microbatch
long_options
          nothing takes an accuracy for a loss if options are long
resumed   a resume knows the best one; with another metric it is forgotten
between   also if the run went on without evaluations in between
refused   outputs that do not exist or are no number, and malformed texts
"""
import json
import math
import os
import random
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402
import tensor_file  # noqa: E402

ROWS = {"train": 64, "other": 44}  # the second is no multiple of a step


def write_data(path, rows, seed):
    draw = random.Random(seed)
    x = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(rows)]
    label = [max(range(3), key=lambda k, r=r: r[k]) for r in x]
    tensor_file.save(path, {
        "x": ("F32", [rows, 4], struct.pack(f"<{4 * rows}f", *sum(x, []))),
        "label": ("I64", [rows], struct.pack(f"<{rows}q", *label))})


class Bench(eval_job.Bench):
    def __init__(self, penstock, model, transport, folder):
        super(eval_job.Bench, self).__init__(penstock, folder)
        self.transport = transport
        for seed, (name, rows) in enumerate(ROWS.items()):
            write_data(self.path(f"{name}.safetensors"), rows, seed)
        self.call("split", model, "-o", "metric.plan", "--at", "head")

    def run(self, name, *more, metric="accuracy:max", code=0):
        return self.call(*self.words(
            "log-" + name, "--eval-data", "other.safetensors", "--eval-every",
            "3", "--lr", "0.05", "--checkpoint", "ck-" + name,
            *(("--eval-metric", metric) if metric is not None else ()), *more,
            plan="metric.plan"), code=code)

    def evaluated(self, name):
        """Returns [(step, loss, metric, is best, best step)]."""
        return [(int(x["step"]), float(x["loss"]), float(x["metric"]),
                 x["best"] == "1", int(x["best_step"]))
                for x in (dict(re.findall(r"(\w+)=(\S+)", line)) for line in
                          self.events("log-" + name, "evaluated", "rank-0"))
                if "metric" in x]

    def report(self, name, best):
        for folders in ("log-", "ck-"), ("ck-",), ("log-",):
            row, = json.loads(self.call("runs", *(x + name for x in folders),
                                        "--json"))["runs"]
            if folders == ("log-",):
                assert row["best_eval"] is None, row
            else:
                assert abs(row["best_eval"] - best) < 1e-6, (row, best)

    def best_of(self, name):
        return sorted(x for x in os.listdir(self.path("ck-" + name, "best"))
                      if x.startswith("step-"))


def check_best(rows, better):
    best = None
    for step, _, metric, is_best, best_step in rows:
        if best is None or better(metric, best[1]):
            best = step, metric
        assert is_best == (best[0] == step) and best_step == best[0], rows
    return best


def best(b):
    b.run("max", "--keep-best", "--steps", "24")
    rows = b.evaluated("max")
    assert [x[0] for x in rows] == list(range(3, 25, 3)), rows
    # Each metric is a number of hits of all rows.
    for row in rows:
        hits = row[2] * ROWS["other"]
        assert abs(hits - round(hits)) < 1e-3, rows
    step, metric = check_best(rows, lambda x, y: x > y)
    assert step > 3 and metric > .4, rows
    assert b.best_of("max") == [f"step-{step:08d}"], (b.best_of("max"), rows)
    saved = b.events("log-max", "best_saved", "rank-0")[-1]
    assert f" step={step} " in saved and " metric=" in saved, saved
    # With :min the first evaluation is the best one until one is smaller.
    b.run("min", "--keep-best", "--steps", "24", "--patience", "4",
          metric="accuracy:min")
    rows = b.evaluated("min")
    step, _ = check_best(rows, lambda x, y: x < y)
    assert rows[-1][0] == step + 12 < 24, rows
    line, = b.events("log-min", "early_stop", "rank-0")
    assert f" best_step={step} " in line and " best_metric=" in line, line
    # With the loss as the metric, all decisions are those without a metric.
    b.run("loss", "--steps", "24", metric="loss:min")
    assert all(x[1] == x[2] or abs(x[1] - x[2]) < 1e-12
               for x in b.evaluated("loss")), b.evaluated("loss")
    b.report("max", metric)


def weights(b, model):
    """The first six rows have one target that counts, the next five have eight,
    one of them wrong; the last row has none."""
    t = sum([[0] + [-100] * 7 for _ in range(6)], [])
    t += [0, 0, 0, 1, 0, 0, 0, 0] * 5 + [-100] * 8
    tensor_file.save(b.path("tokens.safetensors"), {
        "x": ("I64", [12, 8], bytes(8 * 96)),
        "t": ("I64", [12, 8], struct.pack("<96q", *t))})
    expected = {"exact": 7 / 12, "share": (6 / 8 + 5 * 7 / 8) / 12,
                "accuracy": 41 / 46, "inverse": 41 / 46, "bits": None}
    for name, right in expected.items():
        for size, stages in (1, 1), (5, 1), (4, 2):
            done = json.loads(b.call(
                "run", model, "--loss", "plain", "--data",
                "tokens.safetensors", "--eval-data", "tokens.safetensors",
                "--eval-metric", f"{name}:max", "--steps", "1", "--lr", "0",
                "--transport", "self", "-n", str(stages), "--stages",
                str(stages), "--microbatch-size", str(size), "--quiet",
                "--json"))["evaluations"][0]
            if right is None:
                right = done["loss"] / math.log(2)
            assert abs(done["metric"] - right) < 1e-5, (name, size, right, done)


def long_options(b):
    """Checks that an accuracy is not taken for a loss if the log lacks
    --eval-metric, since it has only the beginning of the options."""
    b.run("long", "--steps", "6", "--data", "./" * 800 + "train.safetensors")
    line, = b.events("log-long", "train_begin", "rank-0")
    assert "accuracy" not in line and '..."' in line, line
    b.report("long", max(x[2] for x in b.evaluated("long")))


def resumed(b):
    b.run("on", "--keep-best", "--steps", "12")
    b.run("on", "--keep-best", "--steps", "24", "--resume")
    assert b.evaluated("on") == b.evaluated("max")
    b.run("on", "--keep-best", "--steps", "27", "--resume",
          metric="accuracy:min")
    before, after = b.evaluated("on")[-2:]
    assert before[0] == 24 and before[3:] == (True, 24), before
    assert after[3] == (after[2] < before[2]), (before, after)
    assert any(" name=--eval-metric " in x for x in
               b.events("log-on", "resume_changed", "rank-0"))


def between(b):
    def run_with_metrics(name, lr, first, then):
        """Runs with one metric, then without evaluations, then with another
        metric."""
        more = "--lr", lr
        b.run(name, "--keep-best", "--steps", "12", *more, metric=first)
        b.call(*b.words("log-" + name, "--checkpoint", "ck-" + name,
                        "--resume", *more, "--steps", "14",
                        plan="metric.plan"))
        b.run(name, *more, "--keep-best", "--steps", "24", "--resume",
              metric=then)

    # The last run is compared by its loss: the accuracies of the first run are
    # forgotten, although they are smaller than any loss.
    run_with_metrics("gap", "0.001", "accuracy:min", None)
    worst = min(x[2] for x in b.evaluated("gap"))
    losses = [x for x in b.evaluations("log-gap") if x[0] > 14]
    assert [x[0] for x in losses] == [15, 18, 21, 24], losses
    assert losses[0][1] > worst and losses[0][2], (losses, worst)
    assert b.best_of("gap") == [f"step-{losses[-1][3]:08d}"], losses
    assert any("are of --eval-batches=0 --eval-metric=accuracy:min" in x
               for x in b.events("log-gap", "doubt", "rank-0"))
    # With the same metric, they are still known.
    run_with_metrics("same", "0.05", "accuracy:max", "accuracy:max")
    assert b.evaluated("same") == b.evaluated("max")
    assert not any("earlier evaluations" in x
                   for x in b.events("log-same", "doubt", "rank-0"))
    # Files of older versions do not name what was evaluated.
    b.run("old", "--keep-best", "--steps", "12")
    with open(b.path("ck-old", "evaluations"), "r+", encoding="utf-8") as file:
        lines = file.readlines()
        assert lines[0].startswith("penstock evaluations 1 of "), lines
        file.seek(0)
        file.truncate()
        file.writelines(["penstock evaluations 1\n"] + lines[1:])
    b.run("old", "--keep-best", "--steps", "24", "--resume")
    assert b.evaluated("old") == b.evaluated("max")


def refused(b):
    for metric in "accuracy", "accuracy:most", ":max", "":
        text = b.run("no", metric=metric, code=64)
        assert "--eval-metric" in text, text
    for metric in "logits:max", "nothing:min":
        text = b.run("no", metric=metric, code=None)
        assert f"--eval-metric {metric}" in text and '"accuracy"' in text, text
    text = b.call(*b.words("log-no", "--eval-metric", "accuracy:max",
                           plan="metric.plan"), code=64)
    assert "--eval-metric needs --eval-data" in text, text


def main():
    penstock, model, entropies = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, sys.argv[4], folder) as b:
        for test in best, long_options, resumed, between, refused:
            test(b)
        if b.transport == "self":
            weights(b, entropies)
    print("ok")


if __name__ == "__main__":
    main()
