#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs that die and are restarted by `penstock run --max-restarts`.

usage: restarts.py PENSTOCK TINY.pt2 self|mpi [KILLS [SEED]]

kills     a rank is killed at a point that is drawn with the seed; the job
          completes without help, with the bits of an undisturbed run
status_reports  `penstock status` alone names rank, stages and cause

and the following parts; with mpi and few kills, four of them, drawn with the
seed:

budget    a job that dies repeatedly at the same step is given up
launcher  mpirun or the supervisor is killed: no process is left
shells    other children of the supervisor's process survive
replaced  penstockd is upgraded while a job runs
replaced_plan  another plan is made in the folder of the job's plan
replaced_weights  the file of --weights is replaced
replaced_data  the files of --data and --eval-data are replaced
unkillable  SIGKILL does not end a process
causes    last_exit.json and supervisor.log name the cause of each kind of end
dump      a rank is killed while the job writes its dump
detach    the job runs in the background
rotated   supervisor.log is renamed, then removed with its folder
forgotten  a run without supervisor removes the last_exit.json of an older job
flipped   a bit of a message is flipped
watchers  clients watch the job through restarts
cleaned   the job's folders are removed while it runs
pipes     named pipes are at the paths of the job's files
links     symbolic links are there, and lead to files of others
unrecorded  the flight record cannot be written
unwatched   the files of --prom and --tensorboard become unwritable
"""
import ctypes
import fcntl
import glob
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import PATIENCE, WATCHDOG, wait_until  # noqa: E402
from restart_job import (  # noqa: E402
    Bench, EVERY, POINTS, RANK_0, RANK_1, STEPS, parent, run_parts, shared_memory)

PTRACE_SEIZE = 0x4206
OTHER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                     "../../golden/norm.pt2")


def steps_lost(b, name):
    """Returns the largest number of steps that one restart repeated. Each
    start must resume from the newest checkpoint that was reported, or from a
    newer one."""
    saved = made = lost = 0
    with open(b.path(name, "rank-0.log"), encoding="utf-8") as file:
        for line in file:
            event = line.split(" event=")[1].split()[0]
            if event == "checkpoint_saved":
                saved = int(job.field(line, "step"))
            elif event == "step":
                made = int(job.field(line, "step"))
            elif event == "train_begin":
                first = int(job.field(line, "first_step"))
                assert first >= saved, (name, line, saved)
                lost = max(lost, made - first)
    return lost


def kills(b, number, rng, points=tuple(POINTS)):
    """Kills ranks `number` times, at all points about equally often. If steps
    wait for checkpoints, a restart loses at most the steps between two
    checkpoints."""
    points = list(points)
    # One process has all ranks, so no message is sent or received.
    if b.transport == "self":
        points = [p for p in points if "RECV" not in p and "SEND" not in p]
    lost, most, seconds = 0, 0, []
    for i in range(number):
        if i % len(points) == 0:
            rng.shuffle(points)
        point = points[i % len(points)]
        nth = rng.randint(1, POINTS[point])
        rank = rng.randrange(2)
        rank = 0 if point in RANK_0 else 1 if point in RANK_1 else rank
        name = b.fresh()
        env, flag = b.once(f"{point}:{nth}", rank)
        begin = time.monotonic()
        b.call(*b.words(name, "--max-restarts", "2", "--log-dir", name,
                        "--log-every", "1",
                        *["--checkpoint-sync"][:i % 2],
                        *["--resume=auto"][:i % 3 // 2]), **env)
        assert not os.path.exists(flag), f"{point}:{nth} was never passed"
        said = b.last_exit(name)
        assert said["cause"] == "done", said
        lost += said["restarts"] == 0
        seconds.append(time.monotonic() - begin)
        assert b.weights(name) == b.want, (point, nth, rank)
        again = steps_lost(b, name)
        assert again <= EVERY or i % 2 == 0, (point, nth, rank, again)
        most = max(most, again)
        b.no_files_left()
    print(f"{number} kills at {min(number, len(points))} points: all came to "
          f"their end with the same bits, from the newest checkpoint, at most "
          f"{most} steps made again; {lost} died when all was done; at most "
          f"{max(seconds):.1f} s in all")


def budget(b):
    """Checks that a job that progresses is restarted without limit, and that
    one that does not progress is given up, with a pause before each start but
    the first."""
    name = b.fresh()
    b.call(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                    "--checkpoint-sync"),
           PENSTOCK_FAULT=f"updated:{15 * b.lanes}:kill",
           PENSTOCK_FAULT_RANK="0")
    again = b.events(name, "job_restart")
    steps = [x.split(" checkpoint_step=")[1].split()[0] for x in again]
    assert steps == ["10", "20", "30", "40", "50"], again
    assert b.last_exit(name)["restarts"] == len(again) > 1
    assert b.weights(name) == b.want
    name = b.fresh()
    said = b.call(*b.words(name, "--max-restarts", "2", "--log-dir", name),
                  code=1, PENSTOCK_FAULT="updated:5:kill",
                  PENSTOCK_FAULT_RANK="0")
    assert "2 times without a newer checkpoint" in said, said
    again = b.events(name, "job_restart")
    assert [x.split(" delay_s=")[1].split()[0] for x in again] == ["0", "1"]
    said = b.last_exit(name)
    assert said["restarts"] == 2 and not said["restarted"], said
    assert said["cause"] == "signal" and said["signal"] == 9, said
    said = b.call("status", name)
    assert "ended; it was started again 2 times" in said, said
    if b.transport == "mpi":
        assert "rank 0 (stages 0), cause signal: " in said, said


def causes(b):
    """Checks the reported causes. Without mpi one process has all ranks, so no
    rank is named."""
    for point, action, cause, key, value in (
            ("updated:12", "kill", "signal", "signal", 9),
            ("kernel:300", "crash", "signal", "signal", 11),
            ("updated:12", "exit", "exit", "exit_code", 3)):
        name = b.fresh()
        env, _ = b.once(point, 1, action)
        b.call(*b.words(name, "--max-restarts", "1", "--log-dir", name), **env)
        end, = [x for x in b.events(name, "job_ended") if "=done" not in x]
        assert f" cause={cause} " in end and f" {key}={value} " in end, end
        if b.transport == "mpi":
            assert " of_rank=1 stages=1 " in end, end
        if action == "crash":
            assert re.search(r" in step \d+, action \d[FB]\d+ \(stage \d, "
                             r"microbatch \d\), operator \S+ at \S+", end), end
        assert b.weights(name) == b.want
    name = b.fresh()
    env, _ = b.once("step:12", 1, "stop" if b.transport == "mpi" else "hang")
    b.call(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                    "--watchdog", WATCHDOG), **env)
    end, = [x for x in b.events(name, "job_ended") if "=done" not in x]
    assert " cause=watchdog " in end, end
    if b.transport == "mpi":
        assert " of_rank=1 " in end, end
    assert b.weights(name) == b.want
    # A start that was refused for a lasting reason is not repeated.
    name = b.fresh()
    b.call("run", "tiny.plan", "-n", "2", "-m", "2", "--data", "none",
           "--transport", b.transport, "--checkpoint", name, "--log-dir", name,
           "--max-restarts", "5", code=74)
    assert b.last_exit(name)["cause"] == "refused", b.last_exit(name)
    assert os.path.exists(b.path(name, "supervisor.log"))
    assert not b.events(name, "job_restart")
    assert "--checkpoint DIR" in b.call(
        "run", "tiny.plan", "--data", "data.safetensors", "--max-restarts", "1",
        code=64)


def dump(b):
    """Checks that the dump is right if a rank was killed while it saved the
    last files."""
    want = b.path(b.fresh())
    b.call(*b.words("dumped", "--dump", want))
    for nth in 1, 2:
        name = b.fresh()
        env, flag = b.once(f"save:{nth}", 0)
        words = b.words(name, "--max-restarts", "2", "--dump", b.path(name) +
                        ".dump")
        words[words.index("--checkpoint-every") + 1] = "0"
        b.call(*words, **env)
        assert not os.path.exists(flag)
        with open(b.path(name) + ".dump", "rb") as got, open(want, "rb") as right:
            assert got.read() == right.read(), nth
        assert b.weights(name) == b.want


def launcher(b):
    """Checks that whichever process is killed, the others end and leave
    nothing."""
    name = b.fresh()
    job = b.begin(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                           "--job", "gone", steps=10 ** 9))
    b.await_step(name, 2 * EVERY)
    ranks = b.pids(name)
    if b.transport == "mpi":
        mpirun = parent(ranks[0])
        assert parent(mpirun) == job.pid
        os.kill(mpirun, signal.SIGKILL)
        b.nothing_left([mpirun, *ranks])
        until = time.monotonic() + PATIENCE
        while set(b.pids(name)) & set(ranks) and time.monotonic() < until:
            time.sleep(.01)
        b.await_step(name, 3 * EVERY)
        ranks = b.pids(name)
        assert " cause=launcher " in b.events(name, "job_ended")[0]
    else:
        assert parent(ranks[0]) == job.pid
    pids = {*ranks, *(parent(p) for p in ranks)} - {job.pid}
    shared = shared_memory(parent(ranks[0])) if b.transport == "mpi" else None
    seen = b.begin("attach", "gone")
    assert "step" in seen.stdout.readline()
    job.kill()
    job.wait()
    b.nothing_left(list(pids))
    assert "was killed, so that no last_exit.json" in b.ended(seen, 1).stderr
    # The next job removes what this job has left, sockets included.
    if shared:
        assert os.path.exists(shared) and glob.glob(b.folder +
                                                    "/penstock-??????")
    b.call(*b.words(b.fresh()))
    assert not glob.glob(b.folder + "/penstock-??????")
    assert not shared or not os.path.exists(shared), shared


def shells(b):
    """Checks that processes that a shell has started before it executes the
    supervisor do not belong to the job, and survive it."""
    name = b.fresh()
    env, flag = b.once("updated:12", 0)
    words = b.words(name, "--max-restarts", "1", "--log-dir", name)
    words.remove("--quiet")
    out = b.path(name + ".txt")
    b.ended(b.begin_as(["bash", "-c", 'exec > >(cat >"$0"); exec "$@"', out,
                        b.penstock, *words], env={**b.env, **env}))
    assert not os.path.exists(flag)
    until = time.monotonic() + PATIENCE
    while True:
        with open(out, encoding="utf-8") as file:
            said = file.read()
        if f"step {STEPS}" in said or f"{STEPS} steps" in said:
            return
        assert time.monotonic() < until, said
        time.sleep(.02)


def replaced(b):
    """Checks that the next restart reports that penstockd was replaced while
    the job ran."""
    if b.transport == "mpi":
        return
    name = b.fresh()
    os.mkdir(b.path("bin"))
    for program in "penstock", "penstockd":
        shutil.copy2(os.path.join(os.path.dirname(b.penstock), program),
                     b.path("bin", program))
    words = b.words(name, "--max-restarts", "3", "--log-dir", name,
                    steps=10 ** 9)
    job = b.begin_as([b.path("bin", "penstock"), *words], env=b.env)
    for n in 1, 2:
        b.await_event(name, "train_begin", "rank-0", n=n)
        b.await_step(name, 1)
        if n == 2:
            shutil.copy2(b.path("bin", "penstockd"), b.path("bin", "new"))
            os.rename(b.path("bin", "new"), b.path("bin", "penstockd"))
        os.kill(b.pids(name)[0], signal.SIGKILL)
        again = b.await_event(name, "job_restart", n=n)
        assert f" replaced={n - 1}" in again, again
    b.await_event(name, "train_begin", "rank-0", n=3)
    job.terminate()
    said = b.ended(job, 143).stderr
    assert said.count("penstockd was replaced") == 1, said
    shutil.rmtree(b.path("bin"))


def replaced_plan(b):
    """Checks that a job is not started again, from the beginning, with another
    plan that was made in the folder of its plan meanwhile."""
    name = b.fresh()
    b.call("split", "tiny.pt2", "-o", "own.plan")
    words = b.words(name, "--max-restarts", "3", "--log-dir", name,
                    "--checkpoint-every", "0", steps=10 ** 9)
    words[1] = "own.plan"
    job = b.begin(*words)
    for n in 1, 2:
        b.await_event(name, "train_begin", "rank-0", n=n)
        b.await_step(name, 1)
        if n == 2:
            shutil.rmtree(b.path("own.plan"))
            b.call("split", OTHER, "-o", "own.plan")
        os.kill(b.pids(name)[0], signal.SIGKILL)
    said = b.ended(job, 78).stderr
    assert "own.plan was replaced since the job began" in said, said
    assert "[plan.replaced]" in said, said
    assert b.last_exit(name)["error_id"] == "plan.replaced"


def replaced_weights(b):
    """Checks the same of the file of --weights, if the plan has to be made
    again because the job's temporary folder was removed."""
    if b.transport == "mpi":
        return
    name = b.fresh()
    b.call("weights", "tiny.plan", "-o", "values")
    b.call("weights", "undisturbed", "-o", "others")
    words = b.words(name, "--max-restarts", "3", "--log-dir", name,
                    "--checkpoint-every", "0", "--weights", "values",
                    steps=10 ** 9)
    words[1] = "tiny.pt2"
    job = b.begin(*words)
    for n in 1, 2:
        b.await_event(name, "train_begin", "rank-0", n=n)
        b.await_step(name, 1)
        for folder in glob.glob(b.path("penstock-??????")):
            shutil.rmtree(folder)
        if n == 2:
            shutil.copy(b.path("others"), b.path("values"))
        os.kill(b.pids(name)[0], signal.SIGKILL)
    said = b.ended(job, 78).stderr
    assert "values was replaced since the job began" in said, said
    assert "[plan.replaced]" in said, said


def replaced_data(b):
    """Checks the same of --data and of each set of --eval-data."""
    for option, before in ("--data", ""), ("--eval-data", "first=data"
                                           ".safetensors;second="):
        name, path = b.fresh(), b.path("own.safetensors")
        shutil.copy(b.path("data.safetensors"), path)
        job = b.begin(*b.words(
            name, "--max-restarts", "3", "--log-dir", name,
            "--checkpoint-every", "0", option, before + "own.safetensors",
            steps=10 ** 9))
        for n in 1, 2:
            b.await_event(name, "train_begin", "rank-0", n=n)
            b.await_step(name, 1)
            if n == 2:
                with open(path, "r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    last = file.read(1)
                    file.seek(-1, os.SEEK_END)
                    file.write(bytes([last[0] ^ 1]))
            os.kill(b.pids(name)[0], signal.SIGKILL)
        said = b.ended(job, 78).stderr
        assert "own.safetensors was replaced since the job began: the " \
            f"digest of {option}" in said, said
        assert b.last_exit(name)["error_id"] == "plan.replaced"


def unkillable(b):
    """Checks that the user gets a message if SIGKILL does not end a process
    (as when it waits for a disk), and can end the wait."""
    if b.transport == "mpi" or "PST_PLANTED" not in os.environ:
        return
    name = b.fresh()
    shim = dict(LD_PRELOAD=os.environ["PST_PLANTED"], PLANT="kill",
                ASAN_OPTIONS=b.env["ASAN_OPTIONS"] +
                ":verify_asan_link_order=0")
    job = b.begin(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                           steps=10 ** 9), **shim)
    b.await_step(name, 1)
    rank, = b.pids(name)
    os.kill(rank, signal.SIGSTOP)
    job.terminate()
    time.sleep(1.1)  # two signals within a second count as one
    job.terminate()
    said = job.stderr.readline()
    while "does not end" not in said:
        assert said, "it ended"
        said = job.stderr.readline()
    assert f"process {rank} was killed and does not end" in said, said
    job.terminate()
    b.ended(job, 143)
    said = b.last_exit(name)
    assert said["cause"] == "stopped", said
    assert f"process {rank} was killed and does not end" in said["text"], said
    b.nothing_left([rank])  # the kernel killed it when its parent ended

    def is_swept():
        """A start removes the folder, once no process has its lock: a rank of
        the killed supervisor may take a moment to die."""
        b.call(*b.words(b.fresh()))
        return not glob.glob(b.path("penstock-??????"))

    wait_until(is_swept, "the next start to remove the folder")


def output_fails(b):
    """Checks that a detached run that has begun does not fail if the client's
    output cannot be written."""
    for out in "closed", "/dev/full":
        words = b.words(b.fresh(), "--detach", "--job", "far", steps=10 ** 9)
        words.remove("--quiet")
        to = "<&- >&-" if out == "closed" else ">" + out
        done = b.ended(b.begin_as(["sh", "-c", f'exec "$@" {to}', "sh",
                                   b.penstock, *words], env=b.env))
        assert "which has begun" in done.stderr, done
        b.call("status", "--job", "far")
        b.call("stop", "--job", "far")
        until = time.monotonic() + PATIENCE
        while glob.glob(b.path("penstock-??????")):
            assert time.monotonic() < until
            time.sleep(.05)


def rotated(b):
    """Checks that after supervisor.log was renamed the next event goes to a
    new file of that name."""
    name = b.fresh()
    logs = name + "-log"
    job = b.begin(*b.words(name, "--max-restarts", "3", "--log-dir", logs),
                  PENSTOCK_FAULT="step:1+:50")
    b.await_step(logs, 1)
    os.kill(b.pids(logs)[0], signal.SIGKILL)
    b.await_event(logs, "job_restart")
    os.rename(b.path(logs, "supervisor.log"), b.path(logs, "supervisor.log.1"))
    b.await_event(logs, "train_begin", "rank-0", n=2)
    os.kill(b.pids(logs)[0], signal.SIGKILL)
    b.await_event(logs, "job_restart")
    b.await_event(logs, "train_begin", "rank-0", n=3)
    # At once: files that are missing are made again.
    os.rename(b.path(logs), b.path(logs + "-away"))
    b.ended(job)
    end, = b.events(logs, "job_ended")
    assert " cause=done " in end, end
    assert b.last_exit(logs)["cause"] == "done"


def forgotten(b):
    """Checks that `status` does not report the end of an older job for a later
    run that has no record."""
    for with_logs in True, False:
        name = b.fresh()
        folder = name + "-log" if with_logs else name
        more = ["--log-dir", folder] if with_logs else []
        b.call(*b.words(name, "--max-restarts", "1", *more))
        assert "cause done" in b.call("status", folder)
        b.call(*b.words(name, "--resume", *more, steps=STEPS + 10))
        said = b.call("status", folder, code=65)
        assert "there is no " + folder in said, said


def detach(b):
    name = b.fresh()
    words = b.words(name, "--detach", "--job", "far", "--max-restarts", "1",
                    "--log-dir", name, "--json", steps=10 ** 9)
    words.remove("--quiet")
    supervisor = json.loads(b.call(*words))["supervisor"]
    b.await_step(name, EVERY)
    os.kill(b.pids(name)[0], signal.SIGKILL)
    b.await_event(name, "job_restart")
    until = time.monotonic() + PATIENCE
    while b.begin("stop", "--job", "far").wait() != 0:
        assert time.monotonic() < until
        time.sleep(.05)
    b.nothing_left([supervisor, *b.pids(name)])
    assert b.last_exit(name)["cause"] == "stopped", b.last_exit(name)
    output_fails(b)
    # A run that cannot begin reports why.
    said = b.call("run", "tiny.plan", "--transport", b.transport, "--data",
                  "none", "--detach", code=74)
    assert "none" in said, said
    b.call("run", "tiny.plan", "--data", "data.safetensors", "--detach",
           "--die-with-client", code=64)
    if b.transport == "self":
        unbegun(b)


def unbegun(b):
    """Checks that the client reports that the supervisor was killed before the
    run began. Tracing the supervisor delays the time at which it is reaped."""
    job = b.begin(*b.words(b.fresh(), "--detach"),
                  PENSTOCK_FAULT="load:1:10000")
    path = f"/proc/{job.pid}/task/{job.pid}/children"
    with open(path, encoding="utf-8") as file:
        child = int(wait_until(lambda: file.seek(0) or file.read(),
                               "its supervisor"))
    if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, child, None, None) != 0:
        print("nothing can be traced here")
    # A folder that is not locked yet would be left for ten minutes.
    wait_until(lambda: glob.glob(b.path("penstock-??????", "owner")),
               "its folder")
    os.kill(child, signal.SIGKILL)
    assert "before its run began" in b.ended(job, 1).stderr
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # tracing is not possible here
    b.call(*b.words(b.fresh()))  # removes the files that are left


def flipped(b):
    """Checks that a flipped bit in a message is detected, reported and
    corrected."""
    if b.transport == "self":  # no message leaves the process
        return
    for nth, rank in (40, 0), (150, 1):
        name = b.fresh()
        env, flag = b.once(f"message:{nth}", rank, "flip")
        b.call(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                        "--verify-messages"), **env)
        assert not os.path.exists(flag)
        end, = [x for x in b.events(name, "job_ended") if "=done" not in x]
        assert re.search(rf"checksum mismatch .* from rank {1 - rank}\b", end), end
        assert b.weights(name) == b.want


def pipes(b):
    """Checks that a named pipe at the path of a log file, or of the temporary
    file of --prom, does not block a job."""
    name = b.fresh()
    os.mkdir(b.path(name))
    os.mkfifo(b.path(name, "supervisor.log"))
    os.mkfifo(b.path(name, "last_exit.json"))
    said = b.call(*b.words(name + "-steps", "--max-restarts", "1", "--log-dir",
                           name), code=74)
    assert "supervisor.log is not a regular file" in said, said
    b.call("status", name, code=65)
    os.mkdir(b.path("metrics"))
    logs = name + "-log"
    job = b.begin(*b.words(b.fresh(), "--log-dir", logs, "--prom",
                           "metrics/a.prom", steps=10 ** 9))
    b.await_step(logs, 1)
    temp = b.path("metrics", f"a.prom.{b.pids(logs)[0]}.tmp")
    os.mkfifo(temp)
    wait_until(lambda: not os.path.exists(temp), "it writes metrics")
    b.call("stop")
    b.ended(job, 130)


def links(b):
    """Checks that a job writes to no file to which a link in its --log-dir
    leads: another user of the folder may have made it."""
    name = b.fresh()
    os.mkdir(b.path(name))
    theirs = b.path(name + "-theirs")
    with open(theirs, "w", encoding="utf-8") as file:
        file.write("theirs")
    words = b.words(name + "-steps", "--max-restarts", "1", "--log-dir", name)
    os.symlink(theirs, b.path(name, "last_exit.json"))
    b.call(*words)
    assert b.last_exit(name)["cause"] == "done"
    assert not os.path.islink(b.path(name, "last_exit.json"))
    for log in "rank-0.log", "supervisor.log":
        os.remove(b.path(name, log))
        os.symlink(theirs, b.path(name, log))
        said = b.call(*words, "--adopt", code=74)
        assert f"{log} is a symbolic link" in said, said
        os.remove(b.path(name, log))
    with open(theirs, encoding="utf-8") as file:
        assert file.read() == "theirs"


def unrecorded(b):
    """Checks that a job runs without a flight record if its file cannot be
    made."""
    name = b.fresh()
    os.makedirs(b.path(name, "rank-0.flight"))
    with open(b.path(name, "rank-0.flight.before"), "w", encoding="utf-8"):
        pass
    b.call(*b.words(name + "-steps", "--log-dir", name))
    assert " of_rank=0 " in b.events(name, "flight_missing", "rank-0")[0]


def unwatched(b):
    """Checks that unwritable files of --prom and --tensorboard are refused
    when a job starts, but do not end a running job."""
    name = b.fresh()
    words = b.words(name, "--max-restarts", "1", "--log-dir", name + "-log",
                    "--prom", "watch/a.prom", "--tensorboard", "board/of")
    said = b.call(*words, code=74)
    assert "watch/a.prom" in said, said
    os.mkdir(b.path("watch"))
    with open(b.path("board"), "w", encoding="utf-8"):
        pass
    said = b.call(*words, code=74)
    assert "board" in said, said
    os.remove(b.path("board"))
    job = b.begin(*words, PENSTOCK_FAULT="step:1+:50")
    b.await_step(name + "-log", 1)
    for folder in "watch", "board":
        shutil.rmtree(b.path(folder))
        with open(b.path(folder), "w", encoding="utf-8"):
            pass
    os.kill(b.pids(name + "-log")[0], signal.SIGKILL)
    b.ended(job)
    assert b.weights(name) == b.want
    for what in "prom", "tensorboard":
        failures = b.events(name + "-log", what + "_failed", "rank-0")
        assert " id=file." in failures[-1], (what, failures)
        os.remove(b.path({"prom": "watch"}.get(what, "board")))


def numbers(lines):
    return [json.loads(line)["seq"] for line in lines]


def watchers(b):
    """Checks that events are numbered per job: a client that watches from
    event 1 gets each event once, through all restarts, however late it begins.
    `attach` ends as `run` does."""
    name = b.fresh()
    env, flag = b.once(f"updated:{600 * b.lanes}", 0)
    b.call(*b.words(name, "--detach", "--job", "seen", "--max-restarts", "1",
                    "--log-every", "1", "--log-dir", name, steps=1500), **env)
    watch = ["watch", "--job", "seen", "--from", "1", "--json"]
    # Output goes to files: a client whose pipe is read slowly loses events.
    early = b.into_file("early", *watch)
    attached = b.begin("attach", "seen", "--quiet")
    left = b.begin("attach", "seen")
    b.await_event(name, "job_restart")
    left.send_signal(signal.SIGINT)
    assert left.wait() == 0 and "the job goes on" in left.stderr.read()
    until = time.monotonic() + PATIENCE
    while b.begin("pause", "--job", "seen").wait() != 0:
        assert time.monotonic() < until
        time.sleep(.02)
    while not json.loads(b.call("status", "--job", "seen", "--json"))["paused"]:
        assert time.monotonic() < until
        time.sleep(.02)
    idle = b.begin("attach", "seen")
    said = idle.stderr.readline()
    assert "paused after step " in said, said
    idle.send_signal(signal.SIGINT)
    idle.communicate()
    late = b.into_file("late", *watch)
    while len(b.lines("late")) < 600:
        assert time.monotonic() < until
        time.sleep(.02)
    b.call("resume", "--job", "seen")
    assert attached.wait(PATIENCE) == 0, attached.stderr.read()
    assert early.wait(PATIENCE) == late.wait(PATIENCE) == 0
    assert not os.path.exists(flag)
    got = numbers(b.lines("early"))
    assert got == list(range(1, len(got) + 1)) and len(got) > 1500, (
        len(got), got[:9], got[-9:])
    assert numbers(b.lines("late")) == got
    b.call("attach", "seen", code=69)


def locked(b):
    """Holds the lock of the checkpoints while the job restarts, as `penstock
    checkpoints --remove` does. The start that this refuses is repeated."""
    name = b.fresh()
    logs = name + "-log"
    job = b.begin(*b.words(name, "--max-restarts", "20", "--log-dir", logs,
                           "--job", "locked", steps=10 ** 9),
                  PENSTOCK_FAULT="step:1+:2")
    b.await_step(logs, 2 * EVERY)
    with open(b.path(name, "lock"), "r+b") as lock:
        pid = b.pids(logs)[0]
        os.kill(pid, signal.SIGKILL)
        fcntl.flock(lock, fcntl.LOCK_EX)
        b.await_event(logs, "job_restart", n=2)
    until = time.monotonic() + PATIENCE
    while b.pids(logs)[0] == pid or not b.events(logs, "train_begin",
                                                 "rank-0")[1:]:
        assert time.monotonic() < until and job.poll() is None, \
            job.communicate()
        time.sleep(.01)
    b.call("stop", "--job", "locked")
    assert b.ended(job, code=None).returncode == 130, job.args


def cleaned(b):
    """Removes checkpoints, sockets or session files while the job runs, as a
    program that cleans /tmp does. The job can still be restarted, from the
    checkpoints that it has saved since."""
    if b.transport == "self":
        return
    os.mkdir(b.path("gone"))
    for i, what in enumerate(("{name}", "penstock", "penstock-??????/*")):
        name = b.fresh()
        logs = name + "-log"
        words = b.words(name, "--max-restarts", "1", "--log-dir", logs,
                        "--job", f"cleaned-{i}", steps=10 ** 9)
        if "??" in what:  # with a model, run writes a temporary plan there
            words[1] = "tiny.pt2"
        job = b.begin(*words,
                      PENSTOCK_FAULT="step:1+:2")
        b.await_step(logs, 2 * EVERY)
        for path in glob.glob(b.path(what.format(name=name))):
            os.rename(path, tempfile.mktemp(dir=b.path("gone")))
        until = time.monotonic() + PATIENCE
        while not os.path.exists(b.path(f"{name}/owner.json")) or \
                not glob.glob(b.path(f"{name}/step-*/manifest.json")):
            assert time.monotonic() < until, what
            time.sleep(.01)
        os.kill(b.pids(logs)[0], signal.SIGKILL)
        b.await_event(logs, "job_restart")
        again, = b.events(logs, "job_restart")
        assert int(again.split(" checkpoint_step=")[1].split()[0]) > 0, again
        while b.begin("stop", "--job", f"cleaned-{i}").wait() != 0:
            assert time.monotonic() < until, what
            assert job.poll() is None, (what, job.communicate())
            time.sleep(.05)
        assert job.wait(PATIENCE) == 130, (what, job.communicate())
        assert b.last_exit(logs)["cause"] == "stopped", b.last_exit(logs)


def status_reports(b, number):
    """Checks that `status` reports the cause of each fault, both while the job
    runs on and after its end."""
    if b.transport == "self":
        return
    faults = [("kill", "signal"), ("crash", "signal"), ("exit", "exit"),
              ("stop", "watchdog")]
    for action, cause in faults if number >= 50 else faults[-1:]:
        name = b.fresh()
        env, _ = b.once("step:25", 1, action)
        job = b.begin(*b.words(name, "--max-restarts", "1", "--log-dir", name,
                               "--watchdog", WATCHDOG, "--job",
                               f"told-{action}",
                               steps=10 ** 9), **env)
        b.await_step(name, 1)
        b.await_event(name, "job_ended")
        status = ["status", "--job", f"told-{action}"]
        want = f"rank 1 (stages 1), cause {cause}: "
        said = b.call(*status)
        assert "is being started again; it was started again 0 times" in (
            said) and want in said, said
        b.await_step(name, 40)
        said = b.call(*status)
        assert "started again 1 time, last end at " in said and want in \
            said, said
        b.call("stop", "--job", f"told-{action}")
        assert job.wait(PATIENCE) == 130, job.communicate()
        said = b.call(*status, code=69)
        assert "penstock status DIR" in said, said
        said = b.call("status", name)
        assert "cause stopped" in said, said


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    more = [int(a) for a in sys.argv[4:]]
    number = more[0] if more else 8
    seed = more[1] if more[1:] else int(os.environ.get(
        "PST_TEST_SEED", random.randrange(1 << 30)))
    print(f"PST_TEST_SEED={seed}")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, sys.argv[3], folder) as b:
        kills(b, number, random.Random(seed))
        # Kills at the end of the run, before the client requests its result.
        if b.transport == "self":
            kills(b, 10, random.Random(seed), ["end", "gather"])
        run_parts(b, [budget, causes, dump, launcher, shells,
                      unkillable, replaced, replaced_plan, replaced_weights,
                      replaced_data, detach, rotated,
                      forgotten, pipes, links, unrecorded, unwatched, flipped,
                      watchers, locked, cleaned], number, seed)
        status_reports(b, number)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
