#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --on-spike in runs with a step whose loss is far above those before.

usage: on_spike.py PENSTOCK TINY.pt2 self|mpi

skip      the run has the bits of one whose step --on-nan leaves out
rollback  the same, after a return to the checkpoint
skip_data after the return the data continue after the bad step
counted   a step that is left out again after a return counts once
evaluated after the return steps are evaluated again
resumed   killed or stopped at any step, and on other ranks: the same bits
stop      the run ends before the step, with a good checkpoint
refused   options that need another one
"""
import glob
import json
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

STEPS, BAD = 14, 8
FAR = 300.  # a factor of the model: the loss is a hundred times that before
SPIKE = ("--on-spike", "skip", "--spike-window", "6")


def write_data(path, batches, values):
    """Writes batches, which differ in their labels, by number. values: factors
    of the batch with that number."""
    n = len(batches)
    tensor_file.save(path, {
        "tokens": ("I64", [4 * n, 3], struct.pack("<12q", *range(12)) * n),
        "labels": ("I64", [4 * n, 3], b"".join(struct.pack(
            "<12q", *[(i + k) % 16 for i in range(12)]) for k in batches)),
        "extra.scale": ("F32", [16 * n], b"".join(struct.pack(
            "<16f", *[values.get(k, 1) * (1 + .05 * i) for i in range(16)])
            for k in batches)),
        "extra.pair.0": ("F32", [32 * n], struct.pack(
            "<32f", *[.25 + .1 * (i % 7) for i in range(32)]) * n)})


class Bench(job.Bench):
    def __init__(self, penstock, model, transport, folder):
        super().__init__(penstock, folder)
        self.transport, self.n = transport, 0
        os.symlink(model, f"{folder}/tiny.pt2")
        all_batches = range(1, STEPS + 1)
        write_data(self.path("far.safetensors"), all_batches, {BAD: FAR})
        write_data(self.path("nan.safetensors"), all_batches,
                   {BAD: float("nan")})
        write_data(self.path("none.safetensors"), all_batches, {})
        for name, value in (("fars", FAR), ("nans", float("nan"))):
            write_data(self.path(f"{name}.safetensors"), all_batches,
                       {BAD: value, BAD + 1: value, BAD + 5: value})
        # Steps 7 and 8 were drawn when the run went back to step 6.
        kept = [k for k in all_batches if k not in (7, 8)]
        write_data(self.path("kept.safetensors"), kept + [1, 2], {})

    def words(self, data, folder, *words, steps=STEPS, ranks=2):
        self.n += 1
        return ["run", "tiny.pt2", "-n", ranks, "-m", 2, "--data",
                f"{data}.safetensors", "--lr", ".002", "--steps", steps,
                "--transport", self.transport, "--checkpoint", folder,
                "--checkpoint-every", "3", "--checkpoint-sync", "--keep", 0,
                "--threads", 1, "--log-dir", f"log{self.n}", "--quiet", *words]

    def run(self, data, *words, code=0, folder=None, steps=STEPS, ranks=2,
            **env):
        """Runs a job. Returns its events and its weights."""
        folder = folder or f"ck{self.n + 1}"
        self.stderr = self.done(
            *self.words(data, folder, *words, steps=steps, ranks=ranks),
            code=code, **env).stderr
        self.folder_of = folder
        if not os.path.exists(self.path(f"log{self.n}")):
            return [], None
        with open(self.path(f"log{self.n}", "rank-0.log"),
                  encoding="utf-8") as file:
            events = re.findall(
                r" event=(step_skipped|rolled_back) .* step=(\d+) "
                r"(?:skipped|to)=(\d+)", file.read())
        return events, self.weights(folder) if code == 0 else None

    def losses(self, folder):
        """The history has the losses of the applied steps."""
        lines = self.call("history", folder).splitlines()
        return [line.split(",")[:2] for line in lines[1:]]


def skip(b):
    events, got = b.run("far", *SPIKE)
    assert events == [("step_skipped", str(BAD), "1")], events
    assert "far above the losses before" in b.stderr, b.stderr
    assert "tokens" in b.stderr or "rows" in b.stderr, b.stderr
    events, want = b.run("nan", "--on-nan", "skip")
    assert events == [("step_skipped", str(BAD), "1")], events
    assert got == want
    # Without the option the step is applied, and without a spike all are.
    events, applied = b.run("far")
    assert events == [] and applied != want
    events, none = b.run("none", *SPIKE)
    assert events == []
    assert none == b.run("none")[1] and none != want
    # Far enough is not a spike.
    assert b.run("far", *SPIKE, "--spike-threshold", "1e9")[1] == applied
    return want


def rollback(b, want):
    events, got = b.run("far", "--on-spike", "rollback", *SPIKE[2:])
    assert events == [("rolled_back", str(BAD), "6"),
                      ("step_skipped", str(BAD), "1")], events
    assert got == want


def skip_data(b):
    words = ("--on-spike", "rollback,skip-data", *SPIKE[2:])
    events, got = b.run("far", *words)
    assert events == [("rolled_back", str(BAD), "6")], events
    assert got == b.run("kept")[1]
    losses = b.losses(b.folder_of)
    b.run("far", *words)
    assert b.losses(b.folder_of) == losses
    # Before the first checkpoint only the data go on.
    events, _ = b.run("far", *words, "--checkpoint-every", 100)
    assert events == [("rolled_back", str(BAD), str(BAD - 1))], events
    return got


def counted(b):
    """Checks that the log counts different steps, and that a resume goes on
    with their number."""
    back, left = "rolled_back", "step_skipped"
    want = [(back, "8", "6"), (left, "8", "1"), (back, "9", "6"),
            (left, "8", "1"), (left, "9", "2"), (back, "13", "12"),
            (left, "13", "3")]
    ways = {"nans": ("--on-nan", "rollback"),
            "fars": ("--on-spike", "rollback", *SPIKE[2:])}
    if b.transport == "mpi":
        del ways["fars"]
    for data, words in ways.items():
        folder = f"counted-{data}"
        events, _ = b.run(data, *words, folder=folder, steps=10)
        assert events == want[:5], (data, events)
        events, _ = b.run(data, *words, "--resume", folder=folder)
        assert events == want[5:], (data, events)
        assert "left out (3 so far)" in b.stderr, b.stderr


def evaluated(b):
    """Steps that are made again after a return are evaluated again."""
    for way, steps in (("rollback,skip-data", [7, 7, 14]), ("skip", [7, 14])):
        b.run("far", "--on-spike", way, *SPIKE[2:], "--eval-data",
              "none.safetensors", "--eval-every", "7")
        with open(b.path(f"log{b.n}", "rank-0.log"), encoding="utf-8") as file:
            got = re.findall(r" event=evaluated .*? step=(\d+) ", file.read())
        assert list(map(int, got)) == steps, (way, got)


def resumed(b, want, skipped):
    ways = {"skip": skipped, "rollback": skipped, "rollback,skip-data": want}
    for way, weights in ways.items():
        words = ("--on-spike", way, *SPIKE[2:])
        same = b.run("far", *words, "--checkpoint-every", 2,
                     folder=f"whole-{way}")[1]
        for step in 7, BAD, 10, 11:
            folder = f"killed-{way}-{step}"
            b.run("far", *words, "--checkpoint-every", 2, folder=folder,
                  code=None, PENSTOCK_FAULT=f"step:{step + 1}:kill")
            got = b.run("far", *words, "--checkpoint-every", 2, "--resume",
                        folder=folder, ranks=1)[1]
            assert got == same, (way, step)
            if way != "rollback,skip-data":
                assert got == weights, (way, step)
        for step in 5, 9:  # stopped, each time with a checkpoint
            folder = f"parts-{way}-{step}"
            b.run("far", *words, folder=folder, steps=step)
            b.run("far", *words, "--resume", folder=folder, steps=step + 2,
                  ranks=1)
            got = b.run("far", *words, "--resume", folder=folder)[1]
            if way != "rollback,skip-data":
                assert got == weights, (way, step)
        assert "resume" not in b.stderr, b.stderr


def stop(b):
    b.run("far", "--on-spike", "stop", *SPIKE[2:], code=65)
    assert "run.spike" in b.stderr, b.stderr
    rows = json.loads(b.call("checkpoints", b.folder_of, "--verify",
                             "--json"))["checkpoints"]
    assert rows[0]["step"] == BAD - 1, rows
    assert all(x["state"] == "good" for x in rows), rows
    # Goes on where it stopped.
    events, _ = b.run("far", *SPIKE, "--resume", folder=b.folder_of)
    assert events == [("step_skipped", str(BAD), "1")], events
    assert "--on-spike was stop" in b.stderr, b.stderr


def refused(b):
    def expect_refusal(text, *words):
        b.run("far", *words, code=64)
        assert text in b.stderr, b.stderr

    expect_refusal("--spike-window needs --on-spike", "--spike-window", 5)
    expect_refusal("--spike-threshold needs --on-spike", "--spike-threshold",
                   5)
    expect_refusal("is none of none|stop|skip", "--on-spike", "skip-data")
    b.done("run", "tiny.pt2", "--data", "far.safetensors", "--on-spike",
           "rollback", code=64)
    assert not glob.glob(b.path("step-*"))


def main():
    penstock, model, transport = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(os.path.abspath(penstock), os.path.abspath(model),
                  transport, folder) as b:
        skipped = skip(b)
        rollback(b, skipped)
        want = skip_data(b)
        counted(b)
        evaluated(b)
        resumed(b, want, skipped)
        stop(b)
        refused(b)
    print("ok")


if __name__ == "__main__":
    main()
