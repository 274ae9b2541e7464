#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests numbers of microbatches that change from step to step (a ramp of
--microbatches).

usage: ramp.py PENSTOCK TINY.pt2 self|mpi

bits      a ramp has the bits of runs with one number each that resume each
          other, for several schedules, with replicas, shuffled and weighted
          data; of one rank, too
resumed   a run that is killed in a ramp, just before, at and after a step with
          another number, goes on with the bits of one that was not
other     a resume with another ramp says what has changed; with the same one
          nothing
seen      log, history, report and status have the number in force
set       `set microbatches=` changes it on all ranks; a resume goes on with
          it; a number that was not prepared is refused
stays     runs of a job that stays
changed   parameters are frozen before the number changes
epochs    --epochs counts the rows of each step
skipped   --on-nan rollback goes back before the number has changed
refused   ramps that are malformed, or that a schedule, replicas or the memory
          limit do not allow
planned   `plan` shows the memory of the largest number
"""
import json
import os
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import settings  # noqa: E402
import tensor_file  # noqa: E402

RAMP = "2:0,5:3,1:7,4:9"
PARTS = ((2, 3), (5, 7), (1, 9), (4, 12))  # numbers, and where they end
END = PARTS[-1][1]


def write_rows(path, rows, bad=None):
    """Writes rows for tiny.pt2, whose microbatches have two rows. Microbatch
    `bad` has a NaN."""
    def ints(first):
        return "I64", [rows, 3], struct.pack(
            f"<{3 * rows}q", *((7 * i + first) % 12 for i in range(3 * rows)))

    def reals(n, first):
        at = None if bad is None else bad * 2 * n // rows
        return "F32", [n], struct.pack(
            f"<{n}f", *(float("nan") if i == at else first + 0.1 * (i % 13)
                        for i in range(n)))

    tensor_file.save(path, {
        "tokens": ints(0), "labels": ints(5),
        "extra.scale": reals(4 * rows, 0.5),
        "extra.pair.0": reals(8 * rows, -0.3)})


class Bench(settings.Bench):
    def __init__(self, *args):
        super().__init__(*args)
        write_rows(self.path("many.safetensors"), 46)
        write_rows(self.path("few.safetensors"), 6)
        write_rows(self.path("bad.safetensors"), 80, bad=12)

    def ramped(self, name, *more, steps=END):
        """Returns the words of a run with the ramp; later options win."""
        return self.words(name, "-m", RAMP, "--data", "many.safetensors", *more,
                          steps=steps)

    def ramp(self, name, *more, steps=END):
        return self.call(*self.ramped(name, *more, steps=steps))

    def rows(self, log):
        """Returns the rows of each step; a row has three tokens."""
        out = self.said("history", log).splitlines()
        at = out[0].split(",").index("tokens")
        return [int(line.split(",")[at]) // 3 for line in out[1:]]

    def parts(self, *more):
        """Runs with one number each that resume each other; returns the
        files of the last step."""
        name = self.fresh()
        for n, end in PARTS:
            self.call(*self.ramped(name, "-m", str(n), "--resume=auto", *more,
                                   steps=end))
        return self.files(name, END)


def bits(b):
    several = "many.safetensors,few.safetensors"
    cases = [(), ("--schedule", "gpipe", "--shuffle"),
             ("--schedule", "zb-h1"),
             ("--schedule", "auto", "--data", several, "--shuffle")]
    if b.transport == "self":
        cases += [("-n", "1"), ("--schedule", "gpipe", "--stash", "ram"),
                  ("--eval-data", "data.safetensors", "--eval-every", "2"),
                  ("--data-at", "first", "--microbatch-weights", "equal")]
    else:
        cases += [("--data-at", "first")]
    found = []
    for case in cases:
        name = b.fresh()
        b.ramp(name, *case)
        found.append(b.files(name, END))
        assert found[-1] == b.parts(*case), case
    replicas(b)


def replicas(b):
    """Checks a ramp with replicas, which share the microbatches of each step:
    its bits are those of runs with one number each."""
    for case in (("--shard", "zero1"),), (("--shard", "zero3"),):
        case = ("-n", "2x1", *case[0])
        name, want = b.fresh(), b.fresh()
        b.call(*b.words(name, "-m", "2:0,6:3,4:5", *case, steps=7))
        for n, end in ((2, 3), (6, 5), (4, 7)):
            b.call(*b.words(want, "-m", str(n), "--resume=auto", *case, steps=end))
        assert b.files(name, 7) == b.files(want, 7), case


def resumed(b):
    want = b.fresh()
    b.ramp(want)
    for step in 2, 3, 4, 7:
        name = b.fresh()
        b.call(*b.ramped(name, "--checkpoint-every", "1", "--checkpoint-sync",
                         "--keep", "0"), code=None,
               PENSTOCK_FAULT=f"step:{step + 1}:kill")
        log = name + "-again"
        out = b.call(*[x for x in b.ramped(name, "--resume", "--log-dir", log)
                       if x != "--quiet"])
        assert " was " not in out, out
        begin, = b.events(log, "train_begin", "rank-0")
        assert f" first_step={step} " in begin, begin
        assert f" microbatches={number(step)} " in begin, begin
        assert b.files(name, END) == b.files(want, END), step


def number(step):
    """Returns the number of microbatches of the step that follows `step`
    steps."""
    return next((n for n, end in PARTS if step < end), PARTS[-1][0])


def other(b):
    name = b.fresh()
    b.ramp(name, steps=7)  # the next step has another number
    words = [x for x in b.ramped(name, "--resume", steps=8)
             if x != "--quiet"]
    out = b.call(*words)
    assert " was " not in out, out
    words[words.index("-m", 6) + 1] = "2:0,5:3,3:8"
    words[words.index("--steps") + 1] = "9"
    out = b.call(*words)
    assert f"--microbatches was {RAMP} in the run that saved this checkpoint," \
        " and is 2:0,5:3,3:8 now" in out, out
    assert "rows of a step was 2 in the run that saved this checkpoint, and " \
        "is 6 now" in out, out


def seen(b):
    name, log = b.fresh(), b.fresh() + "-log"
    run = b.begin(*b.ramped(name, "--job", name, "--log-dir", log,
                            "--log-every", "1", steps=10 ** 9),
                  **settings.SLOW)
    b.await_step(log, 4)
    b.call("pause", "--job", name)
    at = int(job.field(b.events(log, "paused", "rank-0")[0], "step"))
    said = json.loads(b.call("status", "--json", "--job", name))
    assert said["microbatches"] == number(at - 1), (said, at)
    assert f", {number(at - 1)} microbatch" in b.call("status", "--job", name)
    b.call("stop", "--job", name)
    b.ended(run, 130)
    last = max(at + 6, END)
    b.call(*b.ramped(name, "--resume", "--log-dir", log, "--log-every", "4",
                     steps=last))
    begin = b.events(log, "train_begin", "rank-0")
    assert f" ramp={RAMP} " in begin[0] and " microbatches=2 " in begin[0]
    lines = b.events(log, "microbatches", "rank-0")
    each = int(job.field(lines[0], "rows")) // 5
    assert [(int(job.field(x, "step")), int(job.field(x, "microbatches")),
             int(job.field(x, "before")), int(job.field(x, "rows")) // each)
            for x in lines] == \
        [x for x in [(3, 5, 2, 5), (7, 1, 5, 1), (9, 4, 1, 4)]
         if x[0] != at], (lines, at)  # the resume begins with that step
    rows = [x // each for x in b.rows(log)]
    assert rows == [number(step) for step in range(last)], rows
    steps = b.events(log, "step", "rank-0")
    assert int(job.field(steps[-1], "samples_total")) == each * sum(
        number(step) for step in range(at, last)), steps[-1]
    ends = [int(job.field(line, "step")) for line in steps]
    assert ends[-1] == last, ends
    for line, first, end in zip(steps, [0, *ends], ends):
        rows = each * sum(map(number, range(first, end))) / (end - first)
        took, rate = (float(job.field(line, x)) for x in ("step_s", "samples_s"))
        assert abs(took * rate - rows) < 1e-3 * rows, (line, rows)
    b.call("report", log, "-o", "report.html")
    with open(b.path("report.html"), encoding="utf-8") as file:
        # The log of a resume at step 9 begins with that number.
        assert at == 9 or "microbatches=4 before=1" in file.read()


def set_(b):
    name = b.fresh()
    run = b.slow(name, "-m", "2:0,4:1000000")
    out = b.set(name, "microbatches=3", code=None)
    assert "microbatches 3 is not among those" in out, out
    assert "[run.ramp]" in out, out
    out = b.set(name, "microbatches=4", "lr=0.01")
    assert "microbatches=4" in out, out
    step = b.set_step(name)
    b.await_event(name + "-log", "microbatches", "rank-0")
    line, = b.events(name + "-log", "microbatches", "rank-0")
    assert f" step={step} microbatches=4 before=2 " in line, line
    b.await_step(name + "-log", step + 2)
    end = b.stop(run, name) + 2
    b.call(*b.words(name, "-m", "2:0,4:1000000", "--resume", steps=end))
    want = b.fresh()
    b.call(*b.words(want, steps=step))
    b.call(*b.words(want, "-m", "4", "--lr", "0.01", "--resume", steps=end))
    assert b.files(name, end) == b.files(want, end)


def stays(b):
    """Checks runs of a job that stays: a resume keeps the engine, with the
    options that were set; each run begins with the number of its own step."""
    name, want = b.fresh(), b.fresh()
    train = ["train", "--job", "stays", "-m", RAMP, "--data",
             "many.safetensors", "--lr", "0.001", "--quiet", "--checkpoint"]
    b.call("up", "tiny.plan", "-n", "2", "--transport", "self", "--job",
           "stays", "--detach", "--log-dir", "stays-log")
    for words in (("--steps", 8), ("--steps", END, "--resume")):
        b.call(*train, name, *words)
    b.call(*train, name + "-again", "--steps", 2)
    b.call(*train, name + "-again", "--steps", END, "--resume")
    b.call("stop", "--job", "stays")
    b.ramp(want)
    assert b.files(name, END) == b.files(want, END)
    assert b.files(name + "-again", END) == b.files(want, END)


def changed(b):
    name, log = b.fresh(), b.fresh() + "-log"
    parts = (2, 100), (5, 103), (1, 104), (4, 106)
    run = b.begin(*b.ramped(name, "-m", "2:0,5:100,1:103,4:104", "--job", name,
                            "--log-dir", log, "--checkpoint-every", "0",
                            "--keep", "0", steps=106), **settings.SLOW)
    b.await_step(log, 1)
    b.call("pause", "--job", name)
    for words in (("freeze", "fc"), ("checkpoint",), ("resume",)):
        b.call(*words, "--job", name)
    b.ended(run)
    frozen, = b.events(log, "frozen", "rank-0")
    step = int(job.field(frozen, "step"))
    assert step < 100, frozen
    want = b.fresh()
    shutil.copytree(b.path(name), b.path(want))
    begin = f"--resume={step}"
    for n, end in parts:
        b.call(*b.ramped(want, "-m", str(n), begin, "--adopt", "--keep", "0",
                         "--checkpoint-every", "0", steps=end))
        begin = "--resume"
    assert b.files(name, 106) == b.files(want, 106)


def epochs(b):
    name, log = b.fresh(), b.fresh() + "-log"
    words = b.ramped(name, "--log-dir", log, "--epochs", "1.5")
    at = words.index("--steps")
    del words[at:at + 2]
    b.call(*words)
    begin, = b.events(log, "train_begin", "rank-0")
    rows = b.rows(log)
    wanted = 1.5 * int(job.field(begin, "epoch_rows"))
    assert sum(rows[:-1]) < wanted <= sum(rows), (rows, wanted)
    assert len(set(rows)) > 2, rows


def skipped(b):
    """Checks that a rollback goes back to the number of that step. The step
    that fails again is left out in the end, as with --on-nan skip."""
    log = b.fresh() + "-log"
    words = "-m", "2:0,5:5", "--data", "bad.safetensors", "--keep", "0"
    want, name = b.fresh(), b.fresh()
    b.ramp(want, *words, "--on-nan", "skip")
    b.ramp(name, *words, "--on-nan", "rollback", "--checkpoint-every", "4",
           "--log-dir", log)
    back = b.events(log, "rolled_back", "rank-0")[0]
    assert " step=6 to=4 " in back, back
    assert [(int(job.field(x, "step")), int(job.field(x, "microbatches")))
            for x in b.events(log, "microbatches", "rank-0")] == \
        [(5, 5), (4, 2), (5, 5)]
    assert b.files(name, END) == b.files(want, END)


def refused(b):
    name = b.fresh()
    for text, words in (
            ("is not COUNT:STEP", "2:0,"),
            ("is not COUNT:STEP", ",2:0"),
            ("is not COUNT:STEP", "2:0,4"),
            ("is not COUNT:STEP", "2:x"),
            ("is not COUNT:STEP", "2:-1"),
            ("is not COUNT:STEP", "2.5:0"),
            ("is not COUNT:STEP", ":0"),
            ("is not COUNT:STEP", "2:0:1"),
            ("is not COUNT:STEP", "2:99999999999999999999"),
            ("1 to 65536 microbatches", "0:0"),
            ("1 to 65536 microbatches", "2:0,65537:1"),
            ("from step 0 on, not from step 1", "2:1"),
            ("step 5 comes after step 5", "2:0,4:5,8:5"),
            ("step 3 comes after step 5", "2:0,4:5,8:3"),
            ("at most 32", ",".join(f"2:{i}" for i in range(33))),
            ("not a whole number", "two"),
            ("not a whole number", ""),
            ("not between 1 and 65536", "0")):
        out = b.call(*b.words(name, "-m", words), code=64)
        assert text in out, (words, out)
    for text, words in (
            ("--batch sets the rows", ("-m", RAMP, "--batch", "8")),
            ("with 1 microbatch: 2 replicas need", ("-m", RAMP, "-n", "2x1")),
            ("with 3 microbatches: --shard zero2",
             ("-m", "2:0,3:1", "-n", "2x1", "--shard", "zero2")),
            ("with 1 microbatch: schedule dualpipe-v needs",
             ("-m", "2:0,1:5", "-n", "1", "--schedule", "dualpipe-v")),
            ("with 64 microbatches: with schedule gpipe",
             ("-m", "2:0,64:5", "--schedule", "gpipe", "--recompute", "none",
              "--memory-limit",
              limit(b))),
            # no number of microbatches is to blame
            ("penstock: --shard: \"zero9\" is none of",
             ("-m", RAMP, "--shard", "zero9")),
            ("penstock: unknown schedule", ("-m", RAMP, "--schedule", "no")),
            ("penstock: --stash is none", ("-m", RAMP, "--stash", "no"))):
        out = b.call(*b.words(name, *words), code=None)
        assert text in out, (words, out)
    for command in (("eval", "tiny.plan", "--data", "data.safetensors"),
                    ("verify", "tiny.plan"),
                    ("infer", "tiny.plan", "--data", "data.safetensors", "-o",
                     "out.safetensors")):
        out = b.call(*command, "-m", RAMP, code=64)
        assert "steps of one size" in out and "[run.ramp]" in out, out
    assert not os.path.exists(b.path(name))


def forecast(b, *words):
    return json.loads(b.call("plan", "tiny.plan", "-n", "2", "--schedule",
                             "gpipe", "--json", *words))


def limit(b):
    """Returns a limit between the memory of 2 and of 64 microbatches, in
    MiB."""
    few, many = (max(r["arena_bytes"] for r in
                     forecast(b, "-m", n)["ranks"]) for n in ("2", "64"))
    assert few < many, (few, many)
    return str((few + many) / 2 / 2 ** 20)


def planned(b):
    alone = {n: forecast(b, "-m", str(n)) for n in (2, 5, 9)}
    said = forecast(b, "-m", "2:0,9:3,5:7")
    assert [x["arena_bytes"] for x in said["ranks"]] == \
        [x["arena_bytes"] for x in alone[9]["ranks"]]
    assert [(x["microbatches"], x["step"]) for x in said["ramp"]] == \
        [(2, 0), (9, 3), (5, 7)], said["ramp"]
    for row in said["ramp"]:
        one = alone[row["microbatches"]]
        assert row["schedule"] == one["schedule"]
        assert row["step_s"] == one["step_s"], (row, one["step_s"])
        assert row["bubble"] == one["bubble"]
    assert alone[9]["ramp"] is None
    out = b.call("plan", "tiny.plan", "-n", "2", "-m", "2:0,9:3,5:7")
    assert "9 microbatches (the largest number of the ramp)" in out, out
    assert [x.split()[:2] for x in out.splitlines()
            if x.split()[1:2] in (["2"], ["9"], ["5"]) and "1f1b" in x] == \
        [["0", "2"], ["3", "9"], ["7", "5"]], out
    log = b.fresh() + "-log"
    b.call(*b.words(b.fresh(), "-m", "2:0,9:3,5:7", "--schedule", "gpipe",
                    "--log-dir", log, steps=8))
    logs = ["rank-0"] if b.transport == "self" else ["rank-0", "rank-1"]
    lines = [x for name in logs for x in b.events(log, "memory", name)]
    assert [int(job.field(x, "arena")) for x in lines] == \
        [x["arena_bytes"] for x in said["ranks"]], lines


def main():
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(*sys.argv[1:4], folder) as b:
        parts = [bits, resumed, set_]
        if sys.argv[3] == "self":
            parts += [other, seen, stays, changed, epochs, skipped, refused, planned]
        for part in parts:
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
