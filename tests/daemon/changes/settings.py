#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests options that change while a run goes on (`penstock set`).

usage: settings.py PENSTOCK TINY.pt2 self|mpi

changes   the run goes on with the bits of a run that was stopped at that step
          and resumed with the new options
restart   a job that dies and is restarted goes on with them
restored  options that a resume restores answer no request of a client
resumes   a resume with the original options goes on with them; one with other
          options takes those
steps     the run becomes longer; the end cannot be before the newest step
groups    a rule is added; a resume keeps it
long_texts, other_schedule, one_unfit, in_fallback, kept_engine
          resumes of long texts, with another schedule, with one option that
          does not fit, of a checkpoint in the
          second folder, in a job that stays
damaged   the options are those of the checkpoint that is loaded
refused   values and options that cannot be set: nothing changes
"""
import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import restart_job  # noqa: E402
from patience import wait_until  # noqa: E402

SLOW = {"PENSTOCK_FAULT": "step:1+:20"}
NEW = {"lr": "0.01", "weight-decay": "0.3", "clip-norm": "0.05",
       "clip-value": "0.001"}


def as_set(options):
    return [f"{key}={value}" for key, value in options.items()]


def as_words(options):
    return [x for key, value in options.items() for x in (f"--{key}", value)]


class Bench(restart_job.Bench):
    def slow(self, name, *more):
        """Begins a run of slow steps without end, and waits for its third
        one."""
        run = self.begin(*self.words(name, "--job", name, "--log-dir",
                                     name + "-log", *more, steps=10 ** 9),
                         **SLOW)
        self.await_step(name + "-log", 3)
        return run

    def set(self, name, *options, code=0):
        return self.call("set", *options, "--job", name, code=code)

    def set_step(self, name, n=0):
        """Returns the step after which options were set."""
        line = self.events(name + "-log", "set", "rank-0")[n]
        return int(job.field(line, "step"))

    def finish(self, run, name, *options):
        """Sets options, and an end of the run 20 steps later, in a pause. Waits
        for the end; returns the last step."""
        self.call("pause", "--job", name)
        paused = self.events(name + "-log", "paused", "rank-0")[-1]
        end = int(job.field(paused, "step")) + 20
        self.set(name, f"steps={end}", *options)
        self.call("resume", "--job", name)
        self.ended(run)
        return end

    def stop(self, run, name):
        """Stops the run; returns its last step."""
        self.call("stop", "--job", name)
        self.ended(run, 130)
        return int(max(x for x in os.listdir(self.path(name))
                       if x.startswith("step-"))[5:])

    def files(self, name, step):
        found = {}
        folder = self.path(name, f"step-{step:08d}")
        for file in os.listdir(folder):
            if file.endswith(".safetensors"):
                with open(os.path.join(folder, file), "rb") as data:
                    found[file] = data.read()
        assert found, folder
        return found


def reference(b, step, end, *more):
    """Returns the weights of a run that was stopped at the step and resumed
    with other options."""
    name = b.fresh()
    b.call(*b.words(name, steps=step))
    b.call(*b.words(name, "--resume", *more, steps=end))
    return b.files(name, end)


def changes(b):
    name = b.fresh()
    run = b.slow(name)
    out = b.set(name, *as_set(NEW))
    step = b.set_step(name)
    assert "lr=0.01 weight-decay=0.3 clip-norm=0.05 clip-value=0.001 from " \
        f"step {step + 1} on" \
        in out, out
    end = b.finish(run, name)
    assert b.files(name, end) == reference(b, step, end, *as_words(NEW))
    assert b.files(name, end) != reference(b, step, end)


def restart(b):
    name = b.fresh()
    run = b.slow(name, "--checkpoint-every", "1", "--max-restarts", "3")
    b.set(name, *as_set(NEW))
    step = b.set_step(name)
    b.await_step(name + "-log", step + 3)
    os.kill(b.pids(name + "-log")[0], signal.SIGKILL)
    b.await_event(name + "-log", "train_begin", "rank-0", n=2)
    end = b.finish(run, name)
    assert len(b.events(name + "-log", "job_restart")) == 1
    assert len(b.events(name + "-log", "set", "rank-0")) == 2
    assert len(b.events(name + "-log", "set_restored", "rank-0")) == 1
    assert b.files(name, end) == reference(b, step, end, *as_words(NEW))


class Held:
    """Rank 1 of a job, which stops itself at each agreement of the ranks until
    it is continued; a failure of the test kills it."""

    HOLD = {"PENSTOCK_FAULT": "agree:1+:stop", "PENSTOCK_FAULT_RANK": "1"}

    def __init__(self, b, log):
        self.pid = b.pid(log, 1)

    def __enter__(self):
        return self

    def __exit__(self, kind, *fault):
        if kind is not None:
            os.kill(self.pid, signal.SIGKILL)

    def run_until(self, until):
        """Continues the rank each time it has stopped, until `until` returns
        true. After that it is stopped, or will be at its next agreement."""
        def holds():
            said = until()
            if not said and self.is_stopped():
                os.kill(self.pid, signal.SIGCONT)
            return said
        return wait_until(holds, "an event of a job that is held")

    def is_stopped(self):
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "T"
        except (FileNotFoundError, ProcessLookupError):
            return False


def restored(b):
    """Checks that options which a resume restores are no answer to a client:
    each request that was accepted before has its own outcome."""
    name, log = b.fresh(), b.fresh() + "-log"
    run = b.slow(name)
    b.set(name, "lr=0.07")
    b.stop(run, name)
    run = b.begin(*b.words(name, "--resume", "--job", name, "--log-dir", log,
                           "--checkpoint-every", "0",
                           steps=10 ** 9), **Held.HOLD)
    with Held(b, log) as rank:
        rank.run_until(lambda: any(" to=training" in x for x in
                                   b.events(log, "state", "rank-0")))
        first = b.begin("set", "group=nosuch:lr=0.9", "--job", name)
        b.await_event(log, "request", "rank-0")
        assert not b.events(log, "train_begin", "rank-0")
        rank.run_until(lambda: any(
            "lr=0.07" in x for event in ("set", "set_restored")
            for x in b.events(log, event, "rank-0")))
        for words, code, text in (
                (("set", "lr=0.08"), 75, "another change has not been made"),
                (None, 65, "holds for no parameter"),
                (("freeze", "fc"), 0, " frozen after "),
                (("set", "lr=0.09"), 0, "lr=0.09 from step"),
                (("stop",), 0, "")):
            order = b.begin(*words, "--job", name) if words else first
            rank.run_until(lambda order=order: order.poll() is not None)
            out = b.ended(order, code)
            assert text in out.stdout + out.stderr, out
        rank.run_until(lambda: run.poll() is not None)
    again, = b.events(log, "set_restored", "rank-0")
    assert "lr=0.07" in again, again


def resumes(b):
    name = b.fresh()
    run = b.slow(name)
    b.set(name, "lr=0.02")
    b.set(name, "lr=0.01")  # of two values, the last one counts
    first, second = [b.set_step(name, n) for n in (0, 1)]
    end = b.stop(run, name) + 2
    out = b.call(*[x for x in b.words(name, "--resume", steps=end)
                   if x != "--quiet"])
    assert " was " not in out, out
    assert "went on, and in force: lr=0.01\n" in out, out
    want = b.fresh()
    b.call(*b.words(want, steps=first))
    b.call(*b.words(want, "--resume", "--lr", "0.02", steps=second))
    b.call(*b.words(want, "--resume", "--lr", "0.01", steps=end))
    assert b.files(name, end) == b.files(want, end)
    out = b.call(*[x for x in b.words(name, "--resume", "--lr", "0.003",
                                      steps=end + 2) if x != "--quiet"])
    assert "--lr was 0.01" in out and "is 0.003 now" in out, out
    b.call(*b.words(want, "--resume", "--lr", "0.003", steps=end + 2))
    assert b.files(name, end + 2) == b.files(want, end + 2)


def steps(b):
    name = b.fresh()
    run = b.slow(name, "--keep", "0")
    out = b.set(name, "steps=1", code=65)
    assert "has made" in out and "[run.set]" in out, out
    end = b.finish(run, name, "log-every=5", "checkpoint-every=7")
    assert b.files(name, end) == reference(b, 1, end)
    saved = [int(job.field(x, "step")) for x in
             b.events(name + "-log", "checkpoint_saved", "rank-0")]
    assert saved[-1] == end, saved
    assert [x for x in saved if end - 20 < x < end] == \
        [x for x in range(end - 19, end) if x % 7 == 0], saved


def groups(b):
    name = b.fresh()
    rule = "*,ndim<=2|h.0:lr=0.5"
    run = b.slow(name, "--group", "*:weight-decay=0.2")
    out = b.set(name, "group.lr=0.5", code=64)
    assert "group.TERMS.OPTION" in out, out
    out = b.set(name, "group.*,ndim<=2|h.0.lr=0.5")
    assert f"group={rule} from step" in out, out
    step = b.set_step(name)
    end = b.stop(run, name) + 5
    b.call(*b.words(name, "--group", "*:weight-decay=0.2", "--resume",
                    steps=end))
    want = b.fresh()
    both = ["--group", "*:weight-decay=0.2", "--group", rule]
    b.call(*b.words(want, *both[:2], steps=step))
    b.call(*b.words(want, *both, "--resume", steps=end))
    assert b.files(name, end) == b.files(want, end)


def long_texts(b):
    """Checks that a schedule of kilobytes is restored, and that one is refused
    that a checkpoint cannot record."""
    name = b.fresh()
    points = "points:" + ",".join(
        f"{x}={1 / (x + 1):.40f}" for x in range(60))
    run = b.slow(name)
    b.set(name, "lr-schedule=" + points)
    step = b.set_step(name)
    out = b.set(name, "group=*:lr=0.1;" + "*:lr=0.1;" * 50 + "x" * 9000, code=65)
    assert "a checkpoint records at most" in out and "(null)" not in out, out
    end = b.stop(run, name) + 5
    b.call(*b.words(name, "--resume", steps=end))
    assert b.files(name, end) == reference(b, step, end, "--lr-schedule",
                                           points)


def other_schedule(b):
    """Checks that options that were set, and are not valid with the options of
    a resume, are left out with a warning."""
    name = b.fresh()
    run = b.slow(name)
    b.set(name, "lr-schedule=wsd", "lr-decay-steps=5", "weight-decay=0.3")
    step = b.set_step(name)
    end = b.stop(run, name)
    b.call(*b.words(name, "--resume", "--lr-schedule", "linear", "--log-dir",
                    name + "-log", steps=end + 5))
    doubt, = b.events(name + "-log", "doubt", "rank-0")
    assert "lr-decay-steps=5" in doubt and "left out" in doubt, doubt
    again, = b.events(name + "-log", "set_restored", "rank-0")
    assert "weight-decay=0.3" in again and "decay-steps" not in again, again
    assert int(job.field(again, "step")) == end, (again, step)


def one_unfit(b):
    """Checks that a resume leaves out only the one option that does not fit,
    although other options need each other."""
    name, log = b.fresh(), b.fresh() + "-log"
    run = b.slow(name, "--eval-data", "data.safetensors")
    b.set(name, "lr-decay-steps=200", "lr-schedule=wsd", "lr-steps=500",
          "eval-every=10")
    end = b.stop(run, name)
    b.call(*b.words(name, "--resume", "--log-dir", log, steps=end + 2))
    doubt, = b.events(log, "doubt", "rank-0")
    assert "eval-every=10" in doubt and "left out" in doubt, doubt
    again, = b.events(log, "set_restored", "rank-0")
    for text in "lr-decay-steps=200", "lr-schedule=wsd", "lr-steps=500":
        assert text in again, again


def damaged(b):
    """Checks that a resume that skips a damaged checkpoint takes the options
    of the one that it loads: those before they were set, or those of a later
    run, which no longer had them."""
    for later in False, True:
        name, log = b.fresh(), b.fresh() + "-log"
        run = b.slow(name, "--keep", "0", "--checkpoint-every", "0")
        if later:
            b.set(name, "lr=0.5")
        b.call("pause", "--job", name)
        b.call("checkpoint", "--job", name)
        step = int(max(x for x in os.listdir(b.path(name))
                       if x.startswith("step-"))[5:])
        if not later:
            b.set(name, "lr=0.5")
        b.call("resume", "--job", name)
        b.await_step(name + "-log", step + 2)
        end = b.stop(run, name)
        if later:
            end += 2
            b.call(*b.words(name, "--resume", "--lr", "0.01", "--keep", "0",
                            "--checkpoint-every", "0", steps=end))
        path = b.path(name, f"step-{end:08d}", "rank-000.safetensors")
        with open(path, "r+b") as file:
            file.seek(-9, os.SEEK_END)
            byte = file.read(1)
            file.seek(-9, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        b.call(*b.words(name, "--resume", "--keep", "0", "--log-dir", log,
                        steps=end + 2))
        skipped, = b.events(log, "checkpoint_skipped", "rank-0")
        assert job.field(skipped, "step") == str(end), skipped
        rates = {float(job.field(x, "lr")) for x in
                 b.events(log, "step", "rank-0")}
        assert rates == {0.5 if later else 0.001}, (later, rates, step, end)


def in_fallback(b):
    """Checks that of two checkpoints of a step, the one with the changed
    options counts as newer."""
    name = b.fresh()
    run = b.slow(name, "--checkpoint-fallback", name + "-second")
    b.call("pause", "--job", name)
    b.call("checkpoint", "--job", name)
    os.rename(b.path(name), b.path(name + "-away"))
    with open(b.path(name), "x", encoding="utf-8"):
        pass
    b.set(name, "lr=0.5")
    b.call("stop", "--job", name)
    b.ended(run, 130)
    os.remove(b.path(name))
    os.rename(b.path(name + "-away"), b.path(name))
    b.call(*b.words(name, "--resume", "--log-dir", name + "-log",
                    steps=b.set_step(name) + 1))
    assert len(b.events(name + "-log", "set_restored", "rank-0")) == 1


def kept_engine(b):
    """Checks that a resume that fails does not affect the options of the next
    run of a job that stays."""
    name = b.fresh()
    run = b.slow(name)
    b.set(name, "lr=0.5")
    b.call("freeze", "fc", "--job", name)  # the checkpoint has a plan then
    end = b.stop(run, name)
    other = b.fresh()
    train = ["train", "--job", "stays", "-m", "2", "--data",
             "data.safetensors", "--lr", "0.001", "--quiet"]
    b.call("up", "tiny.plan", "-n", "2", "--transport", "self", "--job",
           "stays", "--detach", "--log-dir", "stays-log")
    b.call(*train, "--checkpoint", other, "--steps", 4)
    b.call(*train, "--checkpoint", name, "--resume", "--steps", end + 1,
           "--chunk", "nosuch=0", code=None)
    b.call(*train, "--checkpoint", other, "--resume", "--steps", 8)
    b.call("stop", "--job", "stays")
    want = b.fresh()
    b.call(*b.words(want, steps=8))
    assert b.files(other, 8) == b.files(want, 8)


def refused(b):
    name = b.fresh()
    run = b.slow(name)
    for words, text in (
            (["batch=4"], "cannot change while a run goes on"),
            (["microbatches=4"], "is not among those"),
            (["checkpoint=other"], "cannot change while a run goes on"),
            (["optimizer=sgd"], "goes on, nor in its resumes"),
            (["seed=7"], "goes on, nor in its resumes"),
            (["lrr=1"], "did you mean lr"),
            (["lr"], "OPTION=VALUE"),
            (["lr=fast"], "fast"),
            (["lr=-1"], "-1"),
            (["momentum=.9"], "is an option of"),
            (["group=nothing:lr=1"], "holds for no parameter"),
            (["group=*:optimizer=sgd"], "other states"),
            (["group="], "empty"),
            (["group=a|\udcff:lr=1"], "not UTF-8"),
            (["group=a\nb:lr=1"], "line"),
            (["lr=1", "patience=3"], "patience")):
        out = b.set(name, *words, code=None)
        assert text in out, (words, out)
    end = b.stop(run, name)
    assert b.files(name, end) == reference(b, 1, end)
    b.call("set", "lr=1", "--job", name, code=69)


def main():
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(*sys.argv[1:4], folder) as b:
        parts = (changes, restart, restored, resumes, steps, groups,
                 long_texts, other_schedule, one_unfit, damaged, in_fallback,
                 kept_engine, refused)
        both, mpi = parts[:2], parts[2:3]
        for part in both + (mpi if sys.argv[3] == "mpi" else parts[3:]):
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
