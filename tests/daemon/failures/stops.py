#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs that are stopped, paused, changed or queried while they die and
are restarted by `penstock run --max-restarts`.

usage: stops.py PENSTOCK TINY.pt2 self|mpi [all [SEED]]

With mpi and without `all`, four of these parts, drawn with the seed:

stopped   a job dies after it was requested to stop
unsaved   `stop` says if a job dies before its last save, unless that is `--now`
early     signals arrive before the ranks have started
loading   a job is stopped while it reads its model
between   commands are used while no rank runs
attaching  ranks end and are restarted during `attach`
taken     a job is killed and another job takes its name
foreign   another run saves checkpoints between two starts
moved     the job's journal is a different file after a restart
lost      the last checkpoint of a stopped job cannot be written
pausing   a job dies before an accepted pause has begun
pausing_early  a pause arrives before the order to train
resumed_busy  a resume arrives while a checkpoint is saved in a pause
resumed_early  a resume takes back a pause that arrived before the run began
paused_again  a pause arrives before a resume has taken effect
asleep    a client does not run while the ranks die and are restarted
stopped_paused  a paused job is stopped without a checkpoint
kept      a stopped job may not replace the checkpoint of its last step
sparse    ranks that report few steps are killed after a checkpoint
changed   a job with a changed model is restarted, also in a pause
passing   files are missing for a while
"""
import glob
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job as jobs  # noqa: E402
import restart_job  # noqa: E402
from patience import PATIENCE, wait_until  # noqa: E402
from restart_job import EVERY  # noqa: E402


def commands(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read()


def loading(b):
    """Checks that a job that is stopped before its run has begun ends as a
    stopped one."""
    for more in [], ["--max-restarts", "3"]:
        name = b.fresh()
        job = b.begin(*b.words(name, "--job", name, *more, steps=10 ** 9),
                      PENSTOCK_FAULT="load:1:2000")
        while b.done("status", "--job", name, code=None).returncode != 0:
            assert job.poll() is None, job.communicate()
        b.call("stop", "--job", name)
        said = b.ended(job, 130).stderr
        assert "stopped before its run began" in said, said


def between(b):
    """Checks that a job exists even while its ranks are restarted: commands
    find it, clients that watch it wait, and `stop` ends it, reports that, and
    frees its name."""
    if b.transport == "mpi":  # the test would do the same with mpirun
        return
    name = b.fresh()
    words = b.words(name, "--max-restarts", "9", "--log-dir", name, "--job",
                    "away", steps=10 ** 9)
    away = b.begin(*words, PENSTOCK_FAULT="updated:5:kill")
    b.await_event(name, "start", "rank-0")
    seen = b.begin("attach", "away")
    b.await_event(name, "job_restart", n=5)  # takes 8 s
    said = b.call("status")
    assert "is being started again" in said, said
    said = b.call("pause", "--job", "away", code=75)
    assert "[job.starting]" in said, said
    waiting = [b.begin(w, "--job", "away") for w in ("attach", "watch")]
    for w in waiting:
        assert "are being started" in w.stderr.readline()
    other = b.fresh()
    second = b.begin(*b.words(other, "--log-dir", other, "--job", "other",
                              steps=10 ** 9))
    b.await_step(other, 1)
    said = b.call("stop", code=64)
    assert "away" in said and "other" in said, said
    b.call("stop", "--job", "away")
    assert away.wait(PATIENCE) == 130, away.communicate()
    said = b.last_exit(name)
    assert said["cause"] == "stopped" and not said["restarted"], said
    assert said["restarts"] >= 4, said
    for w in seen, waiting[0]:  # attach ends with the messages of `run`
        said = b.ended(w, code=130).stderr
        assert "--resume goes on" in said and "[run.stopped]" in said, said
    b.ended(waiting[1])
    for _ in range(3):  # the name is free at once
        b.call("stop", "--job", "other")
        second = b.begin(*b.words(b.fresh(), "--job", "other", "--log-dir",
                                  f"job-{b.n}", steps=10 ** 9))
        b.await_step(f"job-{b.n}", 1)
    b.call("stop")
    assert second.wait(PATIENCE) == 130, second.communicate()


def attaching(b):
    """Checks that `attach` continues with the restarted ranks if ranks end
    just after it has connected (1) or has requested their state (2)."""
    if b.transport == "mpi":
        return
    for point in 1, 2:
        name = b.fresh()
        words = b.words(name, "--max-restarts", "9", "--log-dir", name,
                        "--job", name, steps=10 ** 9)
        away = b.begin(*words, PENSTOCK_FAULT="updated:600:kill")
        b.await_event(name, "start", "rank-0")
        seen = b.begin("attach", name, PENSTOCK_FAULT=f"attached:{point}:1000")
        b.await_event(name, "start", "rank-0", n=4)
        while "loss" not in (line := seen.stdout.readline()):
            assert line, seen.communicate()
        b.call("stop", "--job", name)
        assert away.wait(PATIENCE) == 130, away.communicate()
        said = b.ended(seen, code=130)
        assert "[run.stopped]" in said.stderr, said


def is_there(pid):
    return os.path.exists(f"/proc/{pid}")


def begin_seen(b, *more):
    """Starts a job and two clients that watch it."""
    name = b.fresh()
    job = b.begin(*b.words(name, *more, "--log-dir", name, "--job", "seen",
                           steps=10 ** 9))
    b.await_step(name, 1)
    seen = [b.begin("attach", "seen"), b.begin("watch", "--job", "seen")]
    for s in seen:
        assert s.stdout.readline()
    return name, job, seen


def taken(b):
    """Checks that a client that follows a job ends when the job ends, even if
    another job has taken the name meanwhile."""
    if b.transport == "mpi":
        return
    name, killed, seen = begin_seen(b, "--max-restarts", "9")
    for s in seen:
        s.send_signal(signal.SIGSTOP)
    killed.kill()
    killed.communicate()
    wait_until(lambda: not any(map(is_there, b.pids(name))), "its ranks end")
    other = begin_seen(b)[1]
    for s in seen:
        s.send_signal(signal.SIGCONT)
    said = b.ended(seen[0], code=1)
    assert "was killed" in said.stderr, said
    b.ended(seen[1])
    b.call("stop", "--job", "seen")
    b.ended(other, code=130)


def foreign(b):
    """Checks that a job that died before it owned its checkpoint folder does
    not resume from checkpoints that another run has saved there."""
    if b.transport == "mpi":
        return
    name, flag = b.fresh(), b.path("dies")
    logs = name + "-log"
    other = b.fresh()
    b.call(*b.words(other))
    want = b.weights(other)
    open(flag, "w", encoding="utf-8").close()
    job = b.begin(*b.words(name, "--max-restarts", "9", "--log-dir", logs),
                  PENSTOCK_FAULT="load:kill", PENSTOCK_FAULT_ONCE=flag)
    for n in range(1, 5):  # the next start is in 4 s
        wait_until(lambda: not os.path.exists(flag), "it dies")
        if n < 4:
            open(flag, "w", encoding="utf-8").close()
        b.await_event(logs, "job_restart", n=n)
    os.rename(b.path(other), b.path(name))
    said = b.ended(job, code=78).stderr
    assert "belongs to another run" in said, said
    assert b.weights(name) == want


def moved(b):
    """Removes the journal, as a program that cleans /tmp does. After the next
    restart there must be a new one, and clients must continue to follow the
    job."""
    if b.transport == "mpi":
        return
    name, job, seen = begin_seen(b, "--max-restarts", "9")
    for path in glob.glob(b.path("penstock-??????")):
        shutil.rmtree(path)
    os.kill(b.pids(name)[0], signal.SIGKILL)
    b.await_event(name, "start", "rank-0", n=2)
    while (line := seen[1].stdout.readline()) and " start " not in line:
        pass
    assert line, seen[1].communicate()
    b.call("stop", "--job", "seen")
    b.ended(job, code=130)
    assert "started again" in b.ended(seen[0], code=130).stderr
    b.ended(seen[1])


def passing(b):
    """Checks that a restart is repeated as often as the budget allows if files
    are missing, since they may come back, but that the first start of a job is
    refused at once."""
    for what in "data.safetensors", "tiny.plan":
        name = b.fresh()
        job = b.begin(*b.words(name, "--max-restarts", "5", "--log-dir", name),
                      PENSTOCK_FAULT="step:1+:50")
        b.await_step(name, 1)
        os.rename(b.path(what), b.path("away"))
        os.kill(b.pids(name)[0], signal.SIGKILL)
        b.await_event(name, "job_restart", n=3)
        os.rename(b.path("away"), b.path(what))
        b.ended(job)
        assert " cause=refused " in b.events(name, "job_ended")[1]
        assert b.weights(name) == b.want


def lost(b):
    """Checks that `stop` reports that the last checkpoint could not be
    written."""
    name = b.fresh()
    logs = name + "-log"
    job = b.begin(*b.words(name, "--checkpoint-retry", "0", "--log-dir", logs,
                           "--job", "lost", steps=10 ** 9))
    b.await_step(logs, EVERY)
    os.rename(b.path(name), b.path(name + "-was"))
    with open(b.path(name), "w", encoding="utf-8"):
        pass
    said = b.call("stop", "--job", "lost", code=74)
    assert "the last checkpoint, of step " in said and "is lost" in said, said
    b.ended(job, 74)


def stop_by_command(b, name):
    b.call("stop", "--no-wait", "--job", name)


def stop_and_interrupt(b, name):
    """Sends Ctrl-C to a waiting `stop` after it has sent its request."""
    waits = b.begin("stop", "--job", name)
    b.await_event(name, "stop", "rank-0")
    time.sleep(.2)
    waits.send_signal(signal.SIGINT)
    waits.communicate()


def stop_by_signal(b, name):
    os.kill(b.pids(name)[0], signal.SIGTERM)


def stopped(b):
    """Checks that a job is not restarted after a request to stop, even if its
    ranks hang or are killed before they have stopped."""
    stops = stop_by_command, stop_and_interrupt, stop_by_signal
    for stop in stops if b.transport == "mpi" else stops[:1]:
        for hangs in (True, False) if b.transport == "mpi" else (False,):
            name = b.fresh()
            job = b.begin(*b.words(name, "--max-restarts", "5", "--log-dir",
                                   name, "--watchdog", "3" if hangs else "60",
                                   "--log-every", "1", "--job", name,
                                   steps=10 ** 9),
                          PENSTOCK_FAULT="step:1+:20" if hangs else
                          f"step@{2 * EVERY + 1}:20000")
            b.await_step(name, 2 * EVERY)
            b.await_event(name, "checkpoint_saved", "rank-0")
            rank = b.pids(name)[-1]
            if hangs:
                os.kill(rank, signal.SIGSTOP)
            stop(b, name)
            if not hangs:
                # A pause is refused after the request to stop.
                if stop == stop_by_command:
                    b.call("pause", "--job", name, code=75)
                os.kill(rank, signal.SIGKILL)
            said = b.ended(job, 130).stderr
            assert "stopped" in said and "--resume goes on" in said, said
            said = b.last_exit(name)
            assert said["cause"] == "stopped" and said["restarts"] == 0, said
            assert said["exit_code"] == 130 and not said["restarted"], said
            assert said["error_id"] == "run.unsaved", said
            assert not b.events(name, "job_restart")


def unsaved(b):
    """Checks that `stop` and the run say so if the job dies while it saves its
    last step."""
    for words in [], ["--max-restarts", "2"], ["--detach"]:
        name = b.fresh()
        job = b.begin(*b.words(name, "--log-dir", name + "-log", "--job", name,
                               "--checkpoint-every", str(10 ** 9), *words,
                               steps=10 ** 9), PENSTOCK_FAULT="manifest:kill")
        b.await_step(name + "-log", 2 * EVERY)
        said = b.done("stop", "--job", name, code=None)
        assert said.returncode != 0, said
        assert "killed" in said.stderr, said
        if words:
            assert "died before it could save" in said.stderr, said
            assert "[run.unsaved]" in said.stderr, said
            assert b.last_exit(name + "-log")["error_id"] == "run.unsaved"
        b.ended(job, 0 if words == ["--detach"] else said.returncode)
    name = b.fresh()
    job = b.begin(*b.words(name, "--log-dir", name, "--job", name,
                           "--max-restarts", "2", steps=10 ** 9),
                  PENSTOCK_FAULT=f"step@{EVERY + 1}:20000")
    b.await_event(name, "checkpoint_saved", "rank-0")
    stop = b.begin("stop", "--now", "--job", name)
    b.await_event(name, "stop", "rank-0")
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.ended(stop)
    b.ended(job, 130)


def changed(b):
    """Checks that a changed model is saved soon, that other lost changes are
    reported, and that a job that was paused is paused again."""
    name = b.fresh()
    words = b.words(name, "--max-restarts", "2", "--log-dir", name, "--job",
                    "changed", steps=10 ** 9)
    words[words.index("--checkpoint-every") + 1] = str(10 ** 9)
    job = b.begin(*words)
    b.await_step(name, 1)
    b.call("freeze", "fc", "--job", "changed")
    b.await_event(name, "checkpoint_saved", "rank-0")
    os.kill(b.pids(name)[0], signal.SIGKILL)
    again = b.await_event(name, "job_restart")
    assert " paused=0 undone=\"\"" in again, again
    assert " checkpoint_step=0 " not in again, again
    b.await_event(name, "train_begin", "rank-0", n=2)
    assert "2 parameters" in b.call("unfreeze", "fc", "--job", "changed")
    b.call("pause", "--job", "changed")
    b.await_event(name, "paused", "rank-0")
    b.call("freeze", "head", "--job", "changed")
    os.kill(b.pids(name)[0], signal.SIGKILL)
    again = b.await_event(name, "job_restart", n=2)
    assert " paused=1 " in again and "froze head" in again, again
    b.await_event(name, "paused", "rank-0", n=2)
    at = json.loads(b.call("status", "--job", "changed", "--json"))
    assert at["paused"], at
    assert f" checkpoint_step={at['step']} " in again, (at, again)
    # The numbers of a step that these ranks have not made are left out.
    assert [at[key] for key in ("loss", "lr", "step_s", "tok_s", "bubble")] \
        == [None] * 5, at
    assert "no step so far" in b.call("top", "--job", "changed")
    said = b.call("status", "--job", "changed")
    assert f"run 1: step {at['step']} of {10 ** 9}, 2 microbatches\n" in said, \
        said
    assert "undone with it: " in said and "froze head\n" in said, said
    b.call("resume", "--job", "changed")
    assert "0 parameters" in b.call("unfreeze", "head", "--job", "changed")
    b.call("stop", "--job", "changed")
    assert job.wait(PATIENCE) == 130, job.communicate()
    said = job.stderr.read()
    assert "undone: " in said and "was paused" in said, said


def pausing(b):
    """Checks that an accepted pause holds after a restart if the job dies
    before the pause has begun, and that a pause that was revoked does not."""
    for taken_back in False, True:
        name = b.fresh()
        env, _ = b.once(f"step@{2 * EVERY + 1}", 0, "20000")
        job = b.begin(*b.words(name, "--max-restarts", "2", "--log-dir", name,
                               "--log-every", "1", "--job", name,
                               steps=10 ** 9), **env)
        b.await_step(name, 2 * EVERY)
        b.await_event(name, "checkpoint_saved", "rank-0")
        b.call("pause", "--job", name, "--detach")
        if taken_back:
            waits = b.begin("pause", "--job", name)
            while waits.poll() is None:  # until the pause is accepted
                b.done("resume", "--job", name, code=None)
                time.sleep(.05)
            said = b.ended(waits, 75).stderr
            assert "a resume came before the pause began" in said, said
        os.kill(b.pids(name)[-1], signal.SIGKILL)
        again = b.await_event(name, "job_restart")
        assert f" paused={0 if taken_back else 1} " in again, again
        if taken_back:
            b.await_event(name, "train_begin", "rank-0", n=2)
        else:
            b.await_event(name, "paused", "rank-0")
            at = json.loads(b.call("status", "--job", name, "--json"))
            assert at["paused"] and f" checkpoint_step={at['step']} " in again
            b.call("resume", "--job", name)
            b.await_event(name, "continued", "rank-0")
        b.call("stop", "--job", name)
        b.ended(job, 130)


def pausing_early(b):
    """Checks that a pause and a checkpoint that are accepted before rank 0 has
    received the order to train are carried out in that run."""
    for word in "pause", "checkpoint":
        name = b.fresh()
        job = b.begin(*b.words(name, "--job", name, steps=10 ** 9),
                      PENSTOCK_FAULT="order:1:2000")
        while b.done(word, "--job", name, code=None).returncode != 0:
            assert job.poll() is None, job.communicate()
            time.sleep(.01)
        b.call("stop", "--job", name)
        b.ended(job, 130)


def resumed_early(b):
    """Checks that a pause that was accepted before the run began can be
    revoked during the first step."""
    begun = False
    while not begun:
        name = b.fresh()
        job = b.begin(*b.words(name, "--job", name, "--log-dir", name,
                               steps=10 ** 9), PENSTOCK_FAULT="step@1:2000")
        while b.done("pause", "--detach", "--job", name, code=None).returncode:
            assert job.poll() is None, job.communicate()
        begin = b.await_event(name, "train_begin", "rank-0")
        # Rank 0 logs the requests that it accepts.
        last = b.events(name, "request", "rank-0")[-1]
        begun = int(jobs.field(last, "seq")) < int(jobs.field(begin, "seq"))
        if begun:
            b.call("resume", "--job", name)
            b.await_event(name, "continued", "rank-0")
        b.call("stop", "--job", name)
        b.ended(job, 130)


def paused_again(b):
    """Checks that a pause that is accepted before a resume has taken effect
    waits until it has begun itself."""
    name = b.fresh()
    env, _ = b.once("resumed", 0, "3000")
    job = b.begin(*b.words(name, "--max-restarts", "2", "--log-dir", name,
                           "--job", name, steps=10 ** 9), **env)
    while b.done("pause", "--job", name, code=None).returncode != 0:
        assert job.poll() is None, job.communicate()
    b.call("resume", "--job", name)
    b.call("pause", "--job", name)
    line = b.await_event(name, "continued", "rank-0")
    assert " asked=0" in line, line
    b.call("stop", "--job", name)
    b.ended(job, 130)


def resumed_busy(b):
    """Checks that a resume ends a pause even if another pause was accepted
    while rank 0 was saving a checkpoint in the first one."""
    name = b.fresh()
    job = b.begin(*b.words(name, "--job", name, "--log-dir", name,
                           "--log-every", "1", steps=10 ** 9),
                  PENSTOCK_FAULT="manifest:1+:1000")
    b.await_step(name, 1)
    b.call("pause", "--job", name)
    at = json.loads(b.call("status", "--job", name, "--json"))["step"]
    saves = b.begin("checkpoint", "--job", name)
    b.await_event(name, "request", "rank-0", n=2)
    b.call("pause", "--detach", "--job", name)
    b.call("resume", "--job", name)
    b.ended(saves)
    b.await_step(name, at + 1)
    b.call("stop", "--job", name)
    b.ended(job, 130)


def asleep(b):
    """Checks that a client that was stopped while the ranks died and were
    restarted does not wait for a request that the new ranks do not know."""
    name = b.fresh()
    env, _ = b.once(f"step@{2 * EVERY + 5}", 0, "60000")
    job = b.begin(*b.words(name, "--max-restarts", "2", "--log-dir", name,
                           "--log-every", "1", "--job", name, steps=10 ** 9),
                  **env)
    b.await_step(name, 2 * EVERY + 4)
    waits = [b.begin(*words, "--job", name)
             for words in (["checkpoint"], ["freeze", "fc"])]
    b.await_event(name, "request", "rank-0", n=2)
    time.sleep(.3)  # until the clients have read that they are accepted
    for client in waits:
        os.kill(client.pid, signal.SIGSTOP)
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "train_begin", "rank-0", n=2)
    b.await_event(name, "checkpoint_saved", "rank-0", n=3)
    for client in waits:
        os.kill(client.pid, signal.SIGCONT)
    for client, code in zip(waits, (74, 75)):
        said = b.ended(client, code).stderr
        assert "the ranks died before that" in said, said
    b.call("stop", "--job", name)
    b.ended(job, 130)


def pause(b, name, *more):
    """Starts a job, pauses it and saves a checkpoint."""
    job = b.begin(*b.words(name, "--log-dir", name + "-log", "--job", name,
                           "--keep", "0", *more, steps=10 ** 9))
    while b.done("pause", "--job", name, code=None).returncode != 0:
        assert job.poll() is None, job.communicate()
    b.call("checkpoint", "--job", name)
    return job


def stopped_paused(b):
    """Checks that `stop --now` of a paused run writes no checkpoint, and that
    the job names the changes that the newest one lacks."""
    for more in [], ["--max-restarts", "2"]:
        name = b.fresh()
        job = pause(b, name, *more)
        before = sorted(os.listdir(b.path(name)))
        b.call("freeze", "fc", "--job", name)
        b.call("set", "lr=.5", "--job", name)
        b.call("stop", "--now", "--job", name)
        said = b.ended(job, 130).stderr
        assert "--resume goes on from there; no checkpoint has these " \
            "changes of the model, which are undone: froze fc, set lr=.5" \
            in said, said
        after = sorted(os.listdir(b.path(name)))
        assert after == before, (before, after)
        if more:
            said = b.last_exit(name + "-log")
            assert said["undone"] == "froze fc, set lr=.5", said
    # A change that is saved is not undone.
    name = b.fresh()
    job = pause(b, name, "--max-restarts", "2")
    b.call("freeze", "fc", "--job", name)
    b.call("stop", "--job", name)
    assert "undone" not in b.ended(job, 130).stderr
    assert b.last_exit(name + "-log")["undone"] == ""


def kept(b):
    """Checks that the record of the end names a change that the last save has
    lost, since it may not replace a pinned checkpoint."""
    name = b.fresh()
    job = pause(b, name, "--max-restarts", "2")
    step = json.loads(b.call("status", "--job", name, "--json"))["step"]
    b.call("checkpoints", name, "--pin", step)
    b.call("freeze", "fc", "--job", name)
    b.done("stop", "--job", name, code=None)
    assert "[checkpoint.kept]" in b.ended(job, 77).stderr
    said = b.last_exit(name + "-log")
    assert said["undone"] == "froze fc", said
    assert said["step"] == said["checkpoint_step"] == step, said
    assert "undone with it: froze fc\n" in b.call("status", name + "-log")


def sparse(b):
    """Checks that the newest step of a job that has died is not older than its
    checkpoint, although only the first step has an event."""
    name = b.fresh()
    job = b.begin(*b.words(name, "--max-restarts", "2", "--log-dir", name,
                           "--job", name, "--log-every", str(10 ** 9),
                           steps=10 ** 9))
    b.await_event(name, "checkpoint_saved", "rank-0", n=3)
    assert len(b.events(name, "step", "rank-0")) == 1
    os.kill(b.pids(name)[-1], signal.SIGKILL)
    b.await_event(name, "train_begin", "rank-0", n=2)
    said = b.last_exit(name)
    assert said["step"] >= said["checkpoint_step"] >= 3 * EVERY, said
    b.call("stop", "--job", name)
    b.ended(job, 130)


def warned(b):
    """Checks that SIGHUP and SIGUSR1 do not end ranks that have not yet
    installed their handlers, or that have already removed them."""
    name = b.fresh()
    job = b.begin(*b.words(name, "--log-dir", name + "-log", steps=3))
    children, sent = f"/proc/{job.pid}/task/{job.pid}/children", 0
    while job.poll() is None:
        try:
            with open(children, encoding="utf-8") as file:
                for pid in map(int, file.read().split()):
                    os.kill(pid, (signal.SIGHUP, signal.SIGUSR1)[sent % 2])
                    sent += 1
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(.0005)
    b.ended(job)
    assert sent > 2, sent


def early(b):
    """Checks that no run begins and the job ends soon if a signal arrives
    before the ranks have started."""
    if b.transport == "self":  # the only process starts within milliseconds
        warned(b)
        return
    b.n += 1
    met = 0
    for ms in (0, 10, 20, 30, 40, 60, 80, 120):
        name = f"early-{b.n}-{ms}"
        words = b.words(name, "--log-dir", name + "-log", "--job", name)
        begin = time.monotonic()
        job = b.begin(*words)
        # Waits until the child process executes penstock instead of Python.
        while "penstock" not in commands(job.pid):
            assert job.poll() is None
        time.sleep(ms / 1000)
        job.send_signal(signal.SIGTERM)
        said = b.ended(job, None).stderr
        if job.returncode != 143 or "before the ranks were" not in said:
            continue  # the signal came before the handlers or after the start
        assert not b.events(name + "-log", "train_begin", "rank-0"), (ms, said)
        # The job must not wait for the watchdog's limit.
        assert time.monotonic() - begin < PATIENCE, ms
        b.nothing_left(b.pids(name + "-log"))
        met += 1
    assert met > 0


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    number = len(restart_job.POINTS) if "all" in sys.argv[4:5] else 0
    seed = int(sys.argv[5] if sys.argv[5:] else os.environ.get(
        "PST_TEST_SEED", random.randrange(1 << 30)))
    print(f"PST_TEST_SEED={seed}")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            restart_job.Bench(penstock, model, sys.argv[3], folder) as b:
        restart_job.run_parts(
            b, [stopped, unsaved, early, loading, between, attaching, taken,
                moved, foreign, lost, pausing, pausing_early, resumed_early,
                paused_again, resumed_busy, asleep, stopped_paused, kept,
                sparse, changed, passing], number, seed)
    print("ok")


if __name__ == "__main__":
    main()
