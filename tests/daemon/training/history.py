#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the history of a run: `steps.history`, `penstock history`.

usage: history.py PENSTOCK NORM.pt2

whole    each step of a run is in both files, with the numbers of its result,
         and in the curves of the page of `penstock report`
killed   a run that was killed and resumed has the history of an uninterrupted
         one; one that goes back has its own numbers after that step
again    a new run in the same folder renames the history of the former one
damaged  records and files that are damaged are left out or refused
failing  a history that cannot be written costs one event, and no step
"""
import glob
import json
import os
import signal
import struct
import sys
import tempfile
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402

HEAD, RECORD = 64, 32
QUICK = "--checkpoint-every", "20", "--clip-norm", "100", "--lr", "1e-3", \
    "--lr-schedule", "cosine", "--lr-steps", "200"
HTML = "{http://www.w3.org/1999/xhtml}"


class Bench(eval_job.Bench):
    def run(self, name, *more, code=0):
        return self.call(*self.words("log-" + name, "--checkpoint",
                                     "ck-" + name, *QUICK, *more), code=code)

    def history(self, path):
        """Returns the columns of a history but the seconds, by step."""
        lines = self.said("history", path).splitlines()
        assert lines[0] == "step,loss,grad_norm,lr,rows,seconds", lines[0]
        rows = [line.split(",") for line in lines[1:]]
        assert all(float(row[5]) > 0 for row in rows)
        return {int(row[0]): tuple(map(float, row[1:5])) for row in rows}

    def summary(self, path):
        return json.loads(self.said("history", path, "--json"))


def check_history(b):
    said = json.loads(b.run("whole", "--steps", "200"))
    found = b.history("log-whole")
    assert list(found) == list(range(1, 201)), list(found)
    assert b.history("ck-whole") == found
    assert [row[0] for row in found.values()] == said["losses"]
    assert all(row[1] > 0 and row[3] > 0 for row in found.values())
    # The learning rates are exact, and fall.
    assert found[1][2] == 1e-3 and found[200][2] < 1e-5, found
    for name in "log-whole", "ck-whole":
        assert os.path.getsize(b.path(name, "steps.history")) == \
            HEAD + 200 * RECORD
    summary = b.summary("log-whole")
    assert summary["recorded"] == 200 and summary["missing"] == 0, summary
    assert summary["step"] == 200 and summary["loss"] == said["loss"]
    assert summary["least_loss"] == min(said["losses"])
    # The log has far fewer steps than the page.
    assert len(b.events("log-whole", "step", "rank-0")) < 200
    page = json.loads(b.said("report", "log-whole", "--json"))
    assert page["recorded_steps"] == 200 and page["step"] == 200, page
    with open(b.path("log-whole/report.html"), encoding="utf-8") as file:
        root = ET.fromstring(file.read().split("\n", 1)[1])
    curve = next(root.iter(HTML + "polyline"))
    assert len(curve.get("points").split()) == 200


def killed(b):
    """Kills a job between two checkpoints; waits for events, not for times."""
    job = b.begin(*b.words("log-killed", "--checkpoint", "ck-killed", *QUICK,
                           "--steps", "1000000000"))
    b.await_event("log-killed", "checkpoint_saved", "rank-0")
    os.kill(b.pid("log-killed", 0), signal.SIGKILL)
    b.ended(job, code=None)
    newest = max(int(x[-8:]) for x in glob.glob(b.path("ck-killed/step-*"))
                 if os.path.exists(os.path.join(x, "manifest.json")))
    before = b.history("ck-killed")
    assert set(range(1, newest + 1)) <= set(before), (newest, list(before))
    steps = str(max(newest + 50, 200))
    b.run("whole2", "--steps", steps)
    expected = b.history("ck-whole2")
    assert list(expected) == list(range(1, int(steps) + 1))
    b.run("killed", "--steps", steps, "--resume")
    for name in "log-killed", "ck-killed":
        assert b.history(name) == expected, name
    # Resumes from step 100 with another learning rate: the history has the new
    # numbers after that step.
    b.run("back", "--steps", "200", "--keep", "0")
    b.run("back", "--steps", "150", "--resume=100", "--lr", "1e-1")
    back = b.history("ck-back")
    assert list(back) == list(range(1, 151)), list(back)
    assert all(back[k] == expected[k] for k in range(1, 101))
    assert all(back[k] != expected[k] for k in range(101, 151))
    # A new folder of logs has only the steps of this run.
    b.call(*b.words("log-other", "--checkpoint", "ck-back", "--steps", "160",
                    "--resume"))
    assert list(b.history("log-other")) == list(range(151, 161))
    assert list(b.history("ck-back")) == list(range(1, 161))


def check_second_run(b):
    b.call(*b.words("log-again", "--steps", "7"))
    first = b.history("log-again")
    b.call(*b.words("log-again", "--steps", "5"))
    assert list(b.history("log-again")) == list(range(1, 6))
    assert b.history("log-again/steps.history.former") == first
    assert json.loads(b.said("report", "log-again", "--json"))["step"] == 5


def damaged(b):
    b.call(*b.words("log-damaged", "--steps", "9"))
    path = b.path("log-damaged/steps.history")
    with open(path, "rb") as file:
        good = file.read()

    def becomes(data):
        with open(path, "wb") as file:
            file.write(data)

    def refused(data):
        becomes(data)
        text = b.call("history", "log-damaged", code=65)
        assert "[history.damaged]" in text, text
        # The page is made from the logs alone.
        page = json.loads(b.said("report", "log-damaged", "--json"))
        assert page["recorded_steps"] == 0 and page["step"] == 9, page

    becomes(good[:-1])  # the last record is incomplete
    assert list(b.history("log-damaged")) == list(range(1, 9))
    third = HEAD + 2 * RECORD
    becomes(good[:third] + b"\x01" + good[third + 1:])
    assert list(b.history("log-damaged")) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert "1 damaged record of" in b.call("history", "log-damaged")
    # A record at the position of another step counts as damaged.
    becomes(good[:third] + good[HEAD:HEAD + RECORD] + good[third + RECORD:])
    assert b.summary("log-damaged")["damaged"] == 1
    becomes(good[:third] + bytes(RECORD) + good[third + RECORD:])
    summary = b.summary("log-damaged")
    assert summary["missing"] == 1 and summary["damaged"] == 0, summary
    page = json.loads(b.said("report", "log-damaged", "--json"))
    assert page["recorded_steps"] == 8 and page["step"] == 9, page
    for data in (b"", good[:HEAD - 1], b"\0" * 4096,
                 good[:8] + struct.pack("<I", 2) + good[12:],
                 good[:24] + b"\x1b" + good[25:], b"x" + good[1:]):
        refused(data)
    os.remove(path)
    text = b.call("history", "log-damaged", code=65)
    assert "[history.none]" in text, text
    assert "nowhere" in b.call("history", "nowhere", code=None)


def failing(b):
    """A history that cannot be written does not end the run, and the last line
    says that it lacks steps."""
    os.makedirs(b.path("log-failing/steps.history"))
    said = b.call(*b.words("log-failing", "--steps", "50", "--checkpoint",
                           "ck-failing", "--checkpoint-every", "5"))
    assert "log-failing/steps.history" in json.loads(said)["history_lost"], said
    event, = b.events("log-failing", "history_failed", "rank-0")
    assert "steps.history" in event and " level=warn " in event, event
    assert list(b.history("ck-failing")) == list(range(1, 51))
    page = json.loads(b.said("report", "log-failing", "--json"))
    assert page["recorded_steps"] == 0 and page["step"] == 50, page


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, norm, None, "self", folder) as b:
        for test in check_history, killed, check_second_run, damaged, failing:
            test(b)
    print("ok")


if __name__ == "__main__":
    main()
