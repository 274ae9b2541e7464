#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `run --epochs`.

usage: epochs.py PENSTOCK NORM.pt2

counts   a run with --epochs has the numbers of a run of as many steps by
         --steps, also if the learning rate falls until the end
changed  `set` changes options, and the number of steps; a resume with the same
         --epochs goes on with it
resumed  a resume counts the steps before it
other_batch
         a resume with another batch makes the steps of the remaining passes
damaged  a resume counts the steps before the checkpoint that it loads
intervals
         --eval-every and --checkpoint-every in epochs: the steps that end such
         a part of a pass, also after a resume, with a ramp, and set in a run
refused  --steps beside it, values that are no number of passes
"""
import glob
import json
import math
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402

ROWS = 96  # of train.safetensors
FALLS = "--lr-schedule", "cosine", "--warmup", "3"


class Bench(eval_job.Bench):
    def run(self, name, *more, code=0):
        """Runs without the --steps of other tests."""
        words = self.words("log-" + name, *FALLS, *more)
        at = words.index("--steps")
        del words[at:at + 2]
        return self.call(*words, code=code)

    def rows(self, name):
        return self.said("history", "log-" + name).splitlines()[1:]


def counts(b):
    b.run("one", "--steps", "4")
    each = int(b.rows("one")[0].split(",")[4])  # rows of a step
    for epochs in "1", "2", "0.5", "1.3":
        steps = math.ceil(round(float(epochs) * ROWS / each, 9))
        said = json.loads(b.run(epochs, "--epochs", epochs))
        assert said["steps"] == steps, (epochs, said["steps"], steps)
        line, = b.events("log-" + epochs, "train_begin", "rank-0")
        for word in f" steps={steps} ", f" epochs={epochs} ", \
                f" epoch_rows={ROWS} ", f"epochs={epochs}":
            assert word in line, (word, line)
        plain = json.loads(b.run(epochs + "-steps", "--steps", str(steps)))
        assert plain["losses"] == said["losses"]
    text = b.call(*[x for x in b.words("log-print", "--epochs", "2", *FALLS)
                    if x not in ("--steps", "12", "--json")])
    assert f"2 epochs of {ROWS} rows: {2 * ROWS // each} steps" in text, text


def given(b, log):
    line = b.events(log, "train_begin", "rank-0")[-1]
    return re.search(r' options="(.*)"', line)[1].split()


def changed(b):
    words = b.words("log-set", "--job", "set",
                    "--epochs", "1e6", "--checkpoint", "set",
                    "--checkpoint-every", "1000000", *FALLS)
    at = words.index("--steps")
    del words[at:at + 2]
    job = b.begin(*words)
    b.await_event("log-set", "train_begin", "rank-0")
    assert not any(x.startswith("steps=") for x in given(b, "log-set"))
    b.call("pause", "--job", "set")
    b.call("set", "lr=0.001", "--job", "set")
    assert "has made" in b.call("set", "steps=0", "--job", "set", code=None)
    b.call("set", "steps=1000000", "--job", "set")
    line = b.events("log-set", "set", "rank-0")[-1]
    assert " steps=1000000 " in line, line
    b.call("resume", "--job", "set")
    b.call("stop", "--job", "set")
    b.ended(job, code=130)
    # A resume with the same --epochs has the same number of steps.
    job = b.begin(*words, "--resume")
    b.await_event("log-set", "set_restored", "rank-0")
    b.await_event("log-set", "train_begin", "rank-0", n=2)
    line = b.events("log-set", "train_begin", "rank-0")[-1]
    assert " steps=1000000 " in line, line
    b.call("stop", "--job", "set")
    b.ended(job, code=130)


def resumed(b):
    b.run("whole", "--epochs", "2", "--checkpoint", "whole")
    b.run("begun", "--epochs", "1", "--lr-steps",
          str(len(b.rows("whole"))),
          "--checkpoint", "begun")
    b.run("begun", "--epochs", "2", "--checkpoint", "begun", "--resume")
    assert [x.rsplit(",", 1)[0] for x in b.rows("begun")] == \
        [x.rsplit(",", 1)[0] for x in b.rows("whole")]


def other_batch(b):
    each = int(b.rows("one")[0].split(",")[4])
    done = drawn = 0
    for epochs, batch in (("1", each), ("2", each // 2), ("3.5", each),
                          ("3.6", 2 * each), ("2", each)):
        said = json.loads(b.run(
            "batch", "--epochs", epochs, "--checkpoint", "batch", "--batch",
            str(batch), *(("--resume",) if done else ())))
        new = max(math.ceil(round((float(epochs) * ROWS - drawn) / batch, 9)),
                  0)
        done += new
        drawn += new * batch
        line = b.events("log-batch", "train_begin", "rank-0")[-1]
        assert f" steps={done} " in line, (epochs, batch, done, line)
        assert len(said["losses"]) == new, (epochs, batch, new, said)


def damaged(b):
    """The newest checkpoint has a damaged shard, so that an older one is
    loaded: the steps are those of a folder that has only the older one."""
    b.run("older", "--epochs", "1", "--checkpoint", "older", "--keep", "0",
          "--checkpoint-every", "2")
    shutil.copytree(b.path("older"), b.path("damaged"))
    newest = max(x for x in os.listdir(b.path("older")) if x[:5] == "step-")
    shutil.rmtree(b.path("older", newest))
    for path in glob.glob(b.path("damaged", newest, "*.safetensors")):
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
    found = []
    for name in "older", "damaged":
        said = json.loads(b.run(name + "-2", "--epochs", "2", "-m", "6",
                                "--checkpoint", name, "--resume"))
        found.append((said["steps"], [x.rsplit(",", 1)[0]
                                      for x in b.rows(name + "-2")]))
    assert found[0] == found[1], found
    skipped, = b.events("log-damaged-2", "checkpoint_skipped", "rank-0")


def due(every, rows):
    """Returns the steps in which a multiple of `every` passes ends; rows: those
    of each step."""
    drawn, steps = 0, []
    for step, n in enumerate(rows, 1):
        if math.floor((drawn + n) / ROWS / every + 1e-9) > \
                math.floor(drawn / ROWS / every + 1e-9):
            steps.append(step)
        drawn += n
    return steps


def saved(b, name):
    return sorted(int(x[5:]) for x in os.listdir(b.path(name))
                  if x.startswith("step-"))


def intervals(b):
    each = int(b.rows("one")[0].split(",")[4])
    often = ["--eval-data", "other.safetensors", "--eval-every", "0.3epochs",
             "--checkpoint-every", "1epoch", "--keep", "0"]

    def evaluated(log):
        return [x[0] for x in b.evaluations(log)]

    for m, rows in ("5", each // 2 * 5), ("2", each):
        name = "every-" + m
        n = math.ceil(2.5 * ROWS / rows)
        b.run(name, "-m", m, "--epochs", "2.5", "--checkpoint", name, *often)
        assert evaluated("log-" + name) == sorted(
            {*due(.3, [rows] * n), n}), (m, evaluated("log-" + name))
        assert saved(b, name) == sorted({*due(1, [rows] * n), n})
        part = "part-" + m
        middle = max(x for x in range(1, n)
                     if x not in due(.3, [rows] * n) + due(1, [rows] * n))
        words = ["--steps", str(middle), "--lr-steps", str(n)]
        b.run(part, "-m", m, "--checkpoint", part, *words, *often)
        words[1] = str(n)
        b.run(part, "-m", m, "--checkpoint", part, "--resume", *words, *often)
        assert sorted({*evaluated("log-" + part)} - {middle}) == \
            evaluated("log-" + name), (evaluated("log-" + part), middle)
        assert sorted({*saved(b, part)} - {middle}) == saved(b, name)
    ramp = [each] * 10 + [2 * each] * 10
    b.run("ramp", "-m", "2:0,4:10", "--steps", "20", *often[:4])
    assert evaluated("log-ramp") == sorted({*due(.3, ramp), 20})
    line, = b.events("log-ramp", "train_begin", "rank-0")
    assert "eval-every=0.3epochs" in line and "epoch_rows" not in line, line

    words = b.words("log-live", "--job", "live", "--eval-data",
                    "other.safetensors", "--eval-every", "1e6epochs",
                    "--checkpoint", "live", *FALLS)
    words[words.index("--steps") + 1] = str(10 ** 9)
    job = b.begin(*words)
    b.await_event("log-live", "train_begin", "rank-0")
    b.call("set", "eval-every=0.5epochs", "--job", "live")
    b.await_event("log-live", "evaluated", "rank-0", n=2)
    b.call("stop", "--job", "live")
    b.ended(job, 130)
    steps = due(.5, [each] * (max(evaluated("log-live")) + 1))
    assert set(evaluated("log-live")) <= set(steps)
    for value in "0epochs", "-1epochs", "nanepochs", "2epoch.", "epoch", "1.5":
        text = b.run("no", "--eval-every", value, "--eval-data",
                     "other.safetensors", code=64)
        assert "1epoch or 0.5epochs" in text, text
    words = b.words("log-steps", "--job", "steps", "--checkpoint", "steps",
                    *FALLS)
    words[words.index("--steps") + 1] = str(10 ** 9)
    job = b.begin(*words)
    b.await_event("log-steps", "train_begin", "rank-0")
    text = b.call("set", "checkpoint-every=1epoch", "--job", "steps", code=None)
    assert "does not count" in text and "[run.set]" in text, text
    b.call("stop", "--job", "steps")
    b.ended(job, 130)


def refused(b):
    text = b.run("no", "--steps", "5", "--epochs", "2", code=64)
    assert "--steps and --epochs" in text and "[run.options]" in text, text
    for value in "0", "-1", "nan", "two":
        assert "--epochs" in b.run("no", "--epochs", value, code=64)
    # Options that depend on the number of steps are checked with that number.
    text = b.run("no", "--epochs", "0.01", code=64)
    assert "--steps (of --epochs) 1 is not more than --warmup 3" in text, text
    text = b.run("no", "--num-train-epochs", "2", code=64)
    assert "--epochs X" in text, text


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, norm, None, "self", folder) as b:
        for test in (counts, changed, resumed, other_batch, damaged,
                     intervals, refused):
            test(b)
    print("ok")


if __name__ == "__main__":
    main()
