#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoint folders that are removed or moved away while a run uses
them, and links in them.

usage: lost_folders.py PENSTOCK TINY.pt2 self|mpi
"""
import glob
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import wait_until  # noqa: E402
from restart_job import EVERY, STEPS, Bench  # noqa: E402


def moved_in_pause(b):
    """Checks that the checkpoint of a step is saved again if it is no longer
    in its folder: on request in a pause, and at a stop."""
    name = b.fresh()
    run = b.begin(*b.words(name, "--job", name, "--log-dir", name + "-log",
                           steps=10 ** 9), PENSTOCK_FAULT="step:1+:20")
    b.await_step(name + "-log", 3)
    b.call("pause", "--job", name)
    b.call("checkpoint", "--job", name)
    step = max(x for x in os.listdir(b.path(name)) if x.startswith("step-"))
    for order in "checkpoint", "stop":
        shutil.move(b.path(name), b.path(f"{name}-before-{order}"))
        b.call(order, "--job", name)
        assert os.path.exists(b.path(name, step, "manifest.json")), order
    b.ended(run, 130)
    b.call(*b.words(name, "--resume", "--quiet", steps=int(step[5:]) + 1))


def killed_after_save(b):
    """Checks that a removed folder has its owner's record again before the
    first checkpoint in it is complete, so that a job that is killed then can
    be resumed."""
    name = b.fresh()
    run = b.begin(*b.words(name, "--job", name, "--log-dir", name + "-log",
                           steps=10 ** 9), PENSTOCK_FAULT="step:1+:100")
    b.await_event(name + "-log", "checkpoint_saved", "rank-0")
    shutil.rmtree(b.path(name))
    while not glob.glob(b.path(name, "step-*", "manifest.json")):
        assert run.poll() is None, "the run has ended"
    for pid in b.pids(name + "-log"):
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    assert os.path.exists(b.path(name, "owner.json"))
    newest = max(os.listdir(b.path(name)))
    b.call(*b.words(name, "--resume", "--quiet", steps=int(newest[5:]) + 1))


def first_folder_dies(b):
    """Checks that a job whose first folder has disappeared is restarted from
    its second one."""
    name = b.fresh()
    first, second = name, name + "-second"
    os.mkdir(b.path(first))
    for step in range(EVERY, STEPS, EVERY):  # so that saves here fail
        with open(b.path(first, f"step-{step:08}"), "x", encoding="utf-8"):
            pass
    run = b.begin(*b.words(first, "--checkpoint-fallback", second,
                           "--max-restarts", "2", "--log-dir", name + "-log",
                           "--keep", "0"), PENSTOCK_FAULT="step:1+:20")
    wait_until(lambda: os.path.exists(b.path(
        second, f"step-{2 * EVERY:08}", "manifest.json")), "a checkpoint")
    shutil.rmtree(b.path(first))
    os.kill(b.pids(name + "-log")[0], signal.SIGKILL)
    b.ended(run)
    again, = b.events(name + "-log", "job_restart")
    assert int(job.field(again, "checkpoint_step")) >= 2 * EVERY, again
    assert b.weights(first) == b.want


def second_by_record(b):
    """Checks that a job that resumes without --checkpoint-fallback is
    restarted from the second folder, which the first one names."""
    name = b.fresh()
    second = name + "-second"
    b.call(*b.words(name, "--checkpoint-fallback", second, steps=EVERY))
    for step in range(2 * EVERY, STEPS, EVERY):  # saves of these steps fail
        with open(b.path(name, f"step-{step:08}"), "x", encoding="utf-8"):
            pass
    run = b.begin(*b.words(name, "--resume", "--max-restarts", "2", "--keep",
                           "0", "--log-dir", name + "-log"),
                  PENSTOCK_FAULT="step:1+:20")
    wait_until(lambda: os.path.exists(b.path(
        second, f"step-{3 * EVERY:08}", "manifest.json")), "a checkpoint")
    os.kill(b.pids(name + "-log")[0], signal.SIGKILL)
    b.ended(run)
    again, = b.events(name + "-log", "job_restart")
    assert int(job.field(again, "checkpoint_step")) >= 3 * EVERY, again
    assert b.weights(name) == b.want


def folder_is_another(b):
    """Checks that a resume warns if another folder is where one of the run's
    two folders was at the last save, as if a disk is not mounted, until the run
    has saved again; and that it does not if the folders were moved."""
    name = b.fresh()
    second, n = name + "-second", 1

    def resumed(first, *more):
        """Makes some steps. Returns the folders of the warnings."""
        nonlocal n
        n += 1
        log = f"{name}-log{n}"
        said = b.call(*b.words(first, "--resume", "--quiet", "--log-dir", log,
                               *more, steps=n * EVERY))
        lines = b.events(log, "checkpoint_replaced", "rank-0")
        assert ("is not the folder that this run had" in said) == bool(lines)
        return [os.path.basename(job.field(x, "dir")) for x in lines]

    given = "--checkpoint-fallback", second
    b.call(*b.words(name, *given, steps=EVERY))
    assert resumed(name) == []
    os.rename(b.path(second), b.path("away"))
    os.mkdir(b.path(second))
    assert resumed(name) == [second]
    assert resumed(name) == []
    # The disk is back, and what was saved meanwhile may be elsewhere.
    shutil.rmtree(b.path(second))
    os.rename(b.path("away"), b.path(second))
    assert resumed(name) == [second]
    os.rename(b.path(name), b.path("away"))
    os.mkdir(b.path(name))
    newest = max(x for x in os.listdir(b.path("away")) if x[:5] == "step-")
    os.rename(b.path("away", newest), b.path(second, newest))
    assert resumed(name, *given) == [name]
    for old in name, second:
        os.rename(b.path(old), b.path(old + "-moved"))
    assert resumed(name + "-moved", given[0], second + "-moved") == []
    shutil.rmtree(b.path("away"))


def disk_is_away(b):
    """Checks that no run starts from step 0 while the disk of the checkpoints
    is missing, and that the job continues when the disk is back."""
    name = b.fresh()
    os.mkdir(b.path("disk"))
    run = b.begin(*b.words("disk/ck", "--max-restarts", "50", "--log-dir",
                           name + "-log", "--keep", "0"),
                  PENSTOCK_FAULT="step:1+:20")
    wait_until(lambda: os.path.exists(b.path(
        "disk/ck", f"step-{2 * EVERY:08}", "manifest.json")), "a checkpoint")
    os.rename(b.path("disk"), b.path("away"))
    os.mkdir(b.path("disk"))
    os.kill(b.pids(name + "-log")[0], signal.SIGKILL)
    wait_until(lambda: any("id=checkpoint.none" in x for x in b.events(
        name + "-log", "job_ended", "supervisor")), "a start that is refused")
    assert os.listdir(b.path("disk")) == []
    os.rmdir(b.path("disk"))
    os.rename(b.path("away"), b.path("disk"))
    b.ended(run)
    assert b.weights("disk/ck") == b.want


def record_is_away(b):
    """Checks that a start is refused by the name of owner.json if the folder
    has lost that file alone, and that the job continues when it is back."""
    name = b.fresh()
    log = name + "-log"
    run = b.begin(*b.words(name, "--max-restarts", "50", "--log-dir", log,
                           "--job", name, steps=10 ** 9),
                  PENSTOCK_FAULT="step:1+:20")
    b.await_event(log, "checkpoint_saved", "rank-0")
    b.call("pause", "--job", name)  # a save would write the file again
    os.rename(b.path(name, "owner.json"), b.path("away"))
    os.kill(b.pids(log)[0], signal.SIGKILL)
    refused = b.await_event(log, "job_ended", n=2)
    assert "id=checkpoint.none" in refused and \
        "has checkpoints, but not the file owner.json" in refused, refused
    os.rename(b.path("away"), b.path(name, "owner.json"))
    b.await_event(log, "train_begin", "rank-0", n=2)
    b.call("stop", "--job", name, code=None)
    b.ended(run, None)


def pause_is_kept(b):
    """Checks that a run that was paused is paused again however many restarts
    are refused: before the ranks are started, and by the ranks."""
    name = b.fresh()
    log = name + "-log"
    os.mkdir(b.path(name))
    with open(b.path("data.safetensors"), "rb") as file, \
            open(b.path(name, "data.safetensors"), "xb") as copy:
        copy.write(file.read())
    run = b.begin(*b.words(name + "/ck", "--max-restarts", "90", "--log-dir",
                           log, "--job", name, "--data",
                           name + "/data.safetensors", steps=10 ** 9),
                  PENSTOCK_FAULT="step:1+:20")
    b.await_event(log, "checkpoint_saved", "rank-0")
    b.call("pause", "--job", name)
    for n, lost in enumerate(("ck", "data.safetensors"), 2):
        before = len(b.events(log, "job_ended"))
        os.rename(b.path(name, lost), b.path(name, "away"))
        os.kill(b.pids(log)[0], signal.SIGKILL)
        b.await_event(log, "job_ended", n=before + 3)
        os.rename(b.path(name, "away"), b.path(name, lost))
        b.await_event(log, "train_begin", "rank-0", n=n)
        again = b.events(log, "job_restart")
        assert all(" paused=1 " in x for x in again), again
        b.await_event(log, "paused", "rank-0", n=n)
        refused = [x for x in b.events(log, "job_ended")[before:]
                   if " cause=refused " in x]
        assert len(refused) >= 2, refused
    b.call("resume", "--job", name)
    b.await_event(log, "continued", "rank-0")
    os.kill(b.pids(log)[0], signal.SIGKILL)
    again = b.await_event(log, "job_restart", n=len(again) + 1)
    assert " paused=0 " in again, again
    b.call("stop", "--job", name, code=None)
    b.ended(run, None)


def others_files(b):
    """Checks that folders with names of steps in which another program has its
    checkpoints stay, and so does a file `evaluations`."""
    name = b.fresh()
    kept = [b.path(name, x) for x in (
        "step-00000005/lit_model.pth", "step-00000070/old/weights",
        "best/step-00000005/x.ckpt", "evaluations")]
    for path in kept:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write("thesis\n")
    b.call(*b.words(name, "--log-dir", name + "-log"))
    for path in kept:
        with open(path, encoding="utf-8") as file:
            assert file.read() == "thesis\n", path
    lines = [x for x in b.events(name + "-log", "checkpoint_kept", "rank-0")
            if "lit_model.pth" in x]
    assert len(lines) == 1, lines


def step_zero(b):
    """Checks that a job goes on from a checkpoint of step 0, with the changes
    that were made there."""
    name = b.fresh()
    log = name + "-log"
    run = b.begin(*b.words(name, "--job", name, "--log-dir", log,
                           "--max-restarts", "5", steps=3),
                  PENSTOCK_FAULT="step:1+:2000")
    b.await_event(log, "train_begin", "rank-0")
    pause = b.begin("pause", "--job", name)
    b.await_event(log, "request", "rank-0")
    for n in 1, 2:
        os.kill(b.pids(log)[0], signal.SIGKILL)
        b.await_event(log, "paused", "rank-0", n)
        if n == 1:
            b.call("attr", "set", "fc.bias", "0.5", "--job", name)
            b.call("checkpoint", "--job", name)
    out = b.call("attr", "get", "fc.bias", "--job", name)
    assert "min 0.5, max 0.5" in out or ": 0.5 0.5" in out, out
    b.call("stop", "--now", "--job", name)
    b.ended(run, None)
    b.ended(pause, None)


def other_run(b):
    """Checks that a job that began with --resume does not go on from the
    checkpoints of a run that has taken the folder since then."""
    name = b.fresh()
    b.call(*b.words(name, steps=EVERY))
    run = b.begin(*b.words(name, "--resume", "--log-dir", name + "-log",
                           "--max-restarts", "9"),
                  PENSTOCK_FAULT="step:15:kill")
    b.await_event(name + "-log", "job_ended", n=4)
    b.call(*b.words(name, "--adopt", steps=3))
    out = b.ended(run, None)
    assert out.returncode == 78 and "another run has taken" in out.stderr, out


def links(b):
    """Checks that a link at the path of an old checkpoint stays, and so does
    the folder that it refers to."""
    name = b.fresh()
    os.makedirs(b.path("archive", "kept"))
    os.mkdir(b.path(name))
    with open(b.path("archive", "kept", "thesis.txt"), "x", encoding="utf-8"):
        pass
    os.symlink(b.path("archive", "kept"), b.path(name, "step-00000003"))
    b.call(*b.words(name, "--keep", "1", "--log-dir", name + "-log"))
    assert os.path.islink(b.path(name, "step-00000003"))
    assert os.listdir(b.path("archive", "kept")) == ["thesis.txt"]
    kept, = b.events(name + "-log", "checkpoint_kept", "rank-0")
    assert "symbolic link" in kept, kept


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, sys.argv[3], folder) as b:
        for part in (moved_in_pause, killed_after_save, first_folder_dies,
                     second_by_record, folder_is_another,
                     disk_is_away, record_is_away, pause_is_kept, others_files, step_zero, other_run, links):
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
