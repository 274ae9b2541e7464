#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a job that stays (`penstock up`), and runs that are given to it.

usage: up.py PENSTOCK TINY.pt2 self|mpi

runs      several runs, one after the other, use the options of the job as
          defaults
longer    a run resumes with more steps, which its learning rate depends on
kept      a run goes on with the engine of the last one
recovers  a rank is killed in a run: the run resumes by itself, with the bits
          of an undisturbed run; `train` waits for it, and a paused run stays
          paused
begun     the same with --resume=STEP, which sets newer checkpoints aside once
given_up  a run that dies at the same step again and again is given up; the job
          accepts another one
delayed   a restart that fails for a passing reason is repeated, which `train`
          and `attach` wait for
cleaned   a run goes on without the job's temporary folder; `train` ends if the
          run cannot go on
replaced  a run whose data were replaced does not go on
pause_given_up  if a paused run is given up, the pause ends, too
killed_idle  ranks that are killed without a run, after a request to stop, lose
          nothing
refused   contradicting options are refused
"""
import fcntl
import glob
import json
import os
import shutil
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import restart_job  # noqa: E402


class Bench(restart_job.Bench):
    def up(self, name, *more, **env):
        self.call("up", "tiny.plan", "-n", "2", "--transport", self.transport,
                  "--job", name, "--log-dir", name, "--detach", *more, **env)

    def train(self, name, folder, *more, steps=restart_job.STEPS):
        return ["train", "--job", name, "-m", "2", "--data", "data.safetensors",
                "--lr", "0.001", "--steps", str(steps), "--checkpoint", folder,
                "--checkpoint-every", str(restart_job.EVERY), "--checkpoint-sync",
                "--quiet", *more]

    def status(self, name):
        return json.loads(self.call("status", "--job", name, "--json"))

    def down(self, name):
        pids = self.pids(name)
        self.call("stop", "--job", name)
        self.nothing_left(pids)
        end = self.last_exit(name)
        assert end["cause"] == "done" and end["text"] == "", end
        self.no_files_left()


def runs(b):
    name = b.fresh()
    b.up(name, "-m", "2", "--data", "data.safetensors", "--lr", "0.001")
    assert b.status(name)["state"] == "ready"
    for folder in "first", "second":
        b.call("train", "--job", name, "--steps", restart_job.STEPS,
               "--checkpoint", folder, "--quiet")
        assert b.weights(folder) == b.want
    b.down(name)
    assert not b.events(name, "job_restart")


def longer(b):
    """Checks that a run that resumes with more steps has the learning rates
    that belong to that number of steps, as in a job of its own."""
    name = b.fresh()
    b.up(name)
    for more, steps in ([], 20), (["--resume"], restart_job.STEPS):
        more = ["--lr-schedule", "cosine", *more]
        b.call(*b.words("alone", *more, steps=steps))
        b.call(*b.train(name, "together", *more, steps=steps))
    assert b.weights("together") == b.weights("alone")
    b.down(name)


def kept(b):
    """Checks that an engine that is kept for the next run has copies of the
    options' texts, and that a run begins although the job's temporary folder
    is missing."""
    name = b.fresh()
    b.up(name)
    words = ["--recompute", "full", "--stash", "ram"]
    b.call(*b.train(name, "kept", *words, steps=20))
    folder, = glob.glob(b.path("penstock-*"))
    shutil.rmtree(folder)
    b.call(*b.train(name, "kept", "--resume", *words))
    assert b.weights("kept") == b.want
    begins = b.events(name, "train_begin", "rank-0")
    assert len(begins) == 2, begins
    assert not b.events(name, "doubt", "rank-0")
    for line in begins:
        assert " recompute=full " in line and " stash=ram " in line, line
    b.down(name)
    assert not b.events(name, "job_restart")


def recovers(b):
    name = b.fresh()
    env, _ = b.once(f"updated:{25 * b.lanes}", 1)
    b.up(name, **env)
    b.call(*b.train(name, name + "-a"))
    assert b.weights(name + "-a") == b.want
    again = b.await_event(name, "run_again", "rank-0")
    assert " step=20 tries=1" in again, again
    assert len(b.events(name, "job_restart")) == 1
    # A run of `train` is killed while it is paused.
    run = b.begin(*b.train(name, name + "-b", steps=10 ** 9))
    b.await_event(name, "train_begin", "rank-0", n=3)
    b.await_event(name, "checkpoint_saved", "rank-0",
                  n=restart_job.STEPS // 10 + 1)
    b.call("pause", "--job", name)
    b.await_event(name, "paused", "rank-0")
    at = b.status(name)["step"]
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "paused", "rank-0", n=2)
    assert b.status(name)["paused"] and b.status(name)["step"] <= at
    b.call("resume", "--job", name)
    b.call("checkpoint", "--job", name)
    b.down(name)
    said = b.ended(run, 130).stderr
    assert "the ranks were started again, and the run goes on" in said, said
    assert "stopped after step" in said, said


def begun(b):
    name = b.fresh()
    folder = name + "-c"
    b.call(*b.words(folder, "--steps", "30", "--keep", "9"))
    env, _ = b.once(f"updated:{25 * b.lanes}", 1)
    b.up(name, **env)
    b.call(*b.train(name, folder, "--resume=20", "--keep", "9"))
    assert b.weights(folder) == b.want
    again = b.await_event(name, "run_again", "rank-0")
    assert " step=40 tries=1" in again, again
    b.down(name)


def given_up(b):
    name = b.fresh()
    b.up(name, "--max-restarts", "30",
         PENSTOCK_FAULT=f"updated:{25 * b.lanes}:kill", PENSTOCK_FAULT_RANK="1")
    said = b.call(*b.train(name, name + "-d", "--checkpoint-every", "0"), code=1)
    assert "begun again 3 times without a newer checkpoint" in said, said
    assert "[run.kept]" in said, said
    assert len(b.events(name, "run_again", "rank-0")) == 3
    assert " id=run.kept " in b.await_event(name, "run_given_up", "rank-0")
    at = b.status(name)
    assert at["state"] == "ready" and "begun again" in at["last_error"], at
    b.call(*b.train(name, name + "-e", steps=4))
    # A run that makes progress is restarted without limit.
    b.call(*b.train(name, name + "-f"))
    assert b.weights(name + "-f") == b.want
    assert len(b.events(name, "run_again", "rank-0")) == 3 + 2
    b.down(name)


def attach_paused(b, name):
    """Attaches to a job whose run is paused; returns the process once it
    follows the events."""
    shown = b.begin("attach", name)
    line = shown.stderr.readline()
    assert "paused after step" in line, line
    return shown


def delayed(b):
    """Checks that a restart that fails for a temporary reason is repeated:
    without the folder of the checkpoints, without the data, and while another
    process has the folder locked. The run is still paused then."""
    name = b.fresh()
    b.up(name)
    shutil.copy(b.path("data.safetensors"), b.path("data-2.safetensors"))
    words = b.train(name, name + "-a", "--data", "data-2.safetensors",
                    steps=10 ** 9)
    run = b.begin(*words)
    b.await_event(name, "checkpoint_saved", "rank-0")
    b.call("pause", "--job", name)
    b.await_event(name, "paused", "rank-0")
    shown = attach_paused(b, name)
    for n, lost in enumerate((name + "-a", "data-2.safetensors"), 1):
        os.rename(b.path(lost), b.path("away"))
        os.kill(b.pids(name)[-1], signal.SIGKILL)
        b.await_event(name, "train_end" if n == 2 else "run_delayed", "rank-0")
        late = b.await_event(name, "run_delayed", "rank-0", n=n)
        assert " tries=1 delay_s=1 " in late, late
        os.rename(b.path("away"), b.path(lost))
        b.await_event(name, "paused", "rank-0", n=n + 1)
    with open(b.path(name + "-a/lock"), "r+", encoding="utf-8") as lock:
        wait = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX))
        wait.start()  # gets the lock when the rank is killed
        os.kill(b.pids(name)[-1], signal.SIGKILL)
        late = b.await_event(name, "run_delayed", "rank-0", n=3)
        assert " id=checkpoint.in-use " in late, late
        wait.join()
    b.await_event(name, "paused", "rank-0", n=4)
    assert b.status(name)["paused"]
    again = b.events(name, "job_restart")
    assert all(" paused=1 " in x for x in again), again
    assert not b.events(name, "run_given_up", "rank-0")
    assert run.poll() is None, b.ended(run, None)
    b.call("resume", "--job", name)
    b.await_event(name, "continued", "rank-0")
    b.down(name)
    for client in run, shown:
        said = b.ended(client, 130).stderr
        assert "is tried again in 1 s" in said, said


def write_kept(b, name, text):
    """Writes to the file in which rank 0 describes the current run."""
    with open(f"/proc/{b.pids(name)[0]}/cmdline", encoding="utf-8") as file:
        words = file.read().split("\0")
    with open(words[words.index("--kept-run") + 1], "w",
              encoding="utf-8") as file:
        file.write(text)


def cleaned(b):
    """Checks that a run goes on although the job's temporary folder was
    removed, and that `train` ends if the run's options are lost."""
    name = b.fresh()
    b.up(name)
    run = b.begin(*b.train(name, name + "-a", steps=10 ** 9))
    b.await_event(name, "checkpoint_saved", "rank-0")
    folder, = glob.glob(b.path("penstock-*"))
    shutil.rmtree(folder)
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "run_again", "rank-0")
    b.await_event(name, "train_begin", "rank-0", n=2)
    assert run.poll() is None, b.ended(run, None)
    write_kept(b, name, "")
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    said = b.ended(run, 1).stderr
    assert "`penstock train --resume` with its options" in said, said
    assert len(b.events(name, "run_again", "rank-0")) == 1
    assert " id=run.kept " in b.await_event(name, "run_given_up", "rank-0")
    # No run is lost if the ranks die without one. Rank 0 answers when it has
    # removed the run that it gave up.
    b.status(name)
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "ready", "rank-0", n=4)
    assert len(b.events(name, "run_given_up", "rank-0")) == 1
    b.down(name)


def replaced(b):
    """Checks that a run does not go on with other data than it began with."""
    name, path = b.fresh(), b.path("own.safetensors")
    b.up(name)
    for option, data in ("--data", "own.safetensors"), (
            "--eval-data", "first=data.safetensors;second=own.safetensors"):
        shutil.copy(b.path("data.safetensors"), path)
        begun, ends = (len(b.events(name, event, "rank-0")) for event in (
            "train_begin", "run_given_up"))
        run = b.begin(*b.train(name, name + option, option, data,
                               steps=10 ** 9))
        for n in 1, 2:
            b.await_event(name, "train_begin", "rank-0", n=begun + n)
            # What a start keeps must not lose the digests.
            b.await_event(name, "checkpoint_saved", "rank-0",
                          n=len(b.events(name, "checkpoint_saved", "rank-0"))
                          + 1)
            if n == 2:
                with open(path, "r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    last = file.read(1)
                    file.seek(-1, os.SEEK_END)
                    file.write(bytes([last[0] ^ 1]))
            os.kill(b.pids(name)[-1], signal.SIGKILL)
        gone = b.await_event(name, "run_given_up", "rank-0", n=ends + 1)
        assert " id=plan.replaced " in gone, gone
        said = b.ended(run, 1).stderr
        assert "own.safetensors was replaced since the job began: the " \
            f"digest of {option}" in said, said
    b.down(name)


def pause_given_up(b):
    """Checks that the pause of a run ends when the run is given up."""
    name = b.fresh()
    b.up(name)
    run = b.begin(*b.train(name, name + "-a", steps=10 ** 9))
    b.await_event(name, "checkpoint_saved", "rank-0")
    b.call("pause", "--job", name)
    shown = attach_paused(b, name)
    write_kept(b, name, "damaged")
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "run_given_up", "rank-0")
    for client in run, shown:
        assert "[run.kept]" in b.ended(client, 1).stderr
    again = b.await_event(name, "job_restart")
    assert " paused=1 " in again, again
    run = b.begin(*b.train(name, name + "-b", steps=10 ** 9))
    b.await_event(name, "checkpoint_saved", "rank-0", n=3)
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    again = b.await_event(name, "job_restart", n=2)
    assert " paused=0 " in again, again
    b.call("stop", "--job", name)
    b.ended(run, None)


def stopped_saving(b):
    """Checks that `stop --now` ends a job that stays while the last save of
    its run is tried again and again."""
    name = b.fresh()
    b.up(name, PENSTOCK_FAULT="step@3:2000")
    folder = b.path(name + "-a")
    run = b.begin(*b.train(name, folder, "--checkpoint-retry", "1000",
                           steps=restart_job.EVERY - 1))
    b.await_event(name, "train_begin", "rank-0")
    os.rename(folder, folder + "-was")
    with open(folder, "w", encoding="utf-8"):
        pass
    b.await_event(name, "checkpoint_failed", "rank-0")
    pids = b.pids(name)
    b.call("stop", "--now", "--job", name, code=None)
    b.ended(run, None)
    b.nothing_left(pids)


def killed_idle(b):
    """Checks that ranks which die without a run, after a request to stop, are
    not said to have lost a save."""
    name = b.fresh()
    b.up(name, PENSTOCK_FAULT="order:1:20000")
    stop = b.begin("stop", "--job", name)
    b.await_event(name, "stop", "rank-0")
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.ended(stop)
    end = b.last_exit(name)
    assert end["error_id"] == "run.stopped", end
    assert end["text"].startswith("stopped; it died before its end: "), end
    b.no_files_left()


def refused(b):
    for words in (["--min-ranks", "1"], ["--detach", "--die-with-client"]):
        b.call("up", "tiny.plan", "-n", "2", *words, code=64)


def main():
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(*sys.argv[1:4], folder) as b:
        for part in (runs, longer, kept, recovers, begun, given_up,
                     delayed, cleaned, replaced, pause_given_up,
                     stopped_saving, killed_idle, refused):
            print(part.__name__, flush=True)
            part(b)
    print("ok")


if __name__ == "__main__":
    main()
