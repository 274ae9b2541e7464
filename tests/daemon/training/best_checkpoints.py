#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that evaluations and best checkpoints in a folder belong to one run.

usage: best_checkpoints.py PENSTOCK NORM.pt2

copied   no run takes the folder `best` of another run; a copy of it is a
         folder to resume from
taken    a run with --keep-best refuses a folder `best` that is the folder of
         another run, and removes nothing there
others   the evaluations of a former run, and those after --resume=STEP, are
         forgotten also by a start without --eval-data
left     a job that could not take its first folder changes nothing in it; once
         it can take the folder, it sets aside checkpoints of other runs
second   a run resumes and saves in its first folder if it cannot take the
         second one
refused  a start that is refused because of its evaluations has changed nothing
         in the folder
unsaved  an evaluation is recorded only with its checkpoint, whose event has
         its metric
foreign  a resume says that its checkpoint was saved by another run
grows    older best checkpoints are removed although newer ones are being saved
rests    a resume removes what a killed job has left beside the best checkpoint
failed   an evaluation whose checkpoint could not be saved does not count
away     a best checkpoint that comes back is not removed for a worse one
otherwise  nor is one whose step is made again with other options
recorded a best checkpoint records the options of the run, however it is saved
"""
import glob
import json
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402
import saves  # noqa: E402
import tensor_file  # noqa: E402
from patience import wait_until  # noqa: E402

KEEP = "--keep-best", "--checkpoint-every", "3"


class Bench(saves.Bench):
    def train(self, name, *more, **options):
        """Trains with evaluations and with checkpoints in the folder
        `name`."""
        return self.evaluated("log-" + name, "--checkpoint", name, *KEEP,
                              *more, **options)

    def plain(self, name, *more, code=0):
        """Trains without evaluations, with checkpoints in the folder
        `name`."""
        return self.call(*self.words("log-" + name, "--checkpoint", name,
                                     *more), code=code)

    def tree(self, name):
        """Returns the bytes of all files below a folder."""
        return {os.path.join(folder, file): self.bytes_of(
            os.path.join(folder, file))
                for folder, _, files in os.walk(self.path(name))
                for file in files}

    def steps(self, name):
        """Returns the steps in the file of evaluations of a checkpoint
        folder."""
        path = self.path(name, "evaluations")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [int(line.split()[0]) for line in file.readlines()[1:]]

    def values(self, name):
        """Returns the numbers in the file of evaluations of a checkpoint
        folder."""
        with open(self.path(name, "evaluations"), encoding="utf-8") as file:
            return [float(line.split()[1]) for line in file.readlines()[1:]]

    def saved(self, *names):
        return sorted(map(os.path.basename,
                          glob.glob(self.path(*names, "step-*"))))


def copied(b):
    _, said = b.train("ck")
    best = f"step-{said['best_step']:08d}"
    before = b.tree("ck")
    os.symlink(b.path("ck"), b.path("link"))
    os.symlink(b.path("ck/best"), b.path("other-name"))
    for name in ("ck/best", "ck/best/", f"{b.path('ck')}//best", "link/best",
                 "other-name"):
        for more in ((), ("--resume",), ("--adopt",)):
            text = b.call(*b.words("log-no", "--checkpoint", name, *more),
                          code=78)
            assert "cp -r" in text and "checkpoint.folder" in text, text
        b.call(*b.words("log-no", "--checkpoint", "free",
                        "--checkpoint-fallback", name), code=78)
    assert b.tree("ck") == before
    assert b.alone("norm.plan", "other", "ck/best")["step"] == said["best_step"]
    shutil.copytree(b.path("ck/best"), b.path("copy"))
    found, _ = b.train("copy", "--resume", "--steps", "18")
    # The folder has no evaluation of that step, so it is evaluated first.
    assert [x[0] for x in found] == [*range(said["best_step"], 19, 3)], found
    resumed, = b.events("log-copy", "resume", "rank-0")
    assert f"step={said['best_step']} " in resumed, resumed
    assert b.saved("ck/best") == [best]
    # runs/ is not the checkpoint folder of a run, so runs/best is an ordinary
    # name.
    b.plain("runs/best")


def taken(b):
    """Checks folders `best` that another run owns: one that it took before the
    parent belonged to a run, and one that it takes while the job runs, by a
    path without that parent (a link)."""
    b.plain("parent/best", "--steps", "6", "--keep", "0")
    before = b.tree("parent/best")
    words = b.words("log-taken", "--checkpoint", "parent", "--eval-data",
                    "other.safetensors", "--eval-every", "3")
    text = b.call(*words, "--keep-best", code=78)
    assert "owner.json" in text and "another place" in text, text
    assert b.saved("parent") == [] and b.tree("parent/best") == before
    b.call(*words)
    assert b.tree("parent/best") == before
    os.makedirs(b.path("elsewhere"))
    os.makedirs(b.path("linked"))
    os.symlink(b.path("elsewhere"), b.path("linked/best"))
    # The loss of the training data falls slowly, so a new best step comes
    # soon.
    job = b.begin(*b.words("log-linked", "--job", "linked", "--checkpoint",
                           "linked", "--eval-data", "train.safetensors",
                           "--eval-every", "60", "--lr", "1e-6", "--keep-best",
                           "--steps", "1000000000"))
    b.await_event("log-linked", "best_saved", "rank-0")
    b.call("pause", "--job", "linked")
    shutil.rmtree(b.path("elsewhere"))
    b.plain("elsewhere")
    before = b.tree("elsewhere")
    b.call("resume", "--job", "linked")
    b.await_event("log-linked", "checkpoint_failed", "rank-0")
    b.call("stop", "--job", "linked")
    b.ended(job, code=130)
    assert b.tree("elsewhere") == before


def others(b):
    b.train("a", "--keep", "0")
    assert b.steps("a") == [3, 6, 9, 12]
    for name, more in (("adopted", ("--adopt", "--steps", "6")),
                       ("back", ("--resume=6", "--steps", "7"))):
        shutil.copytree(b.path("a"), b.path(name))
        b.plain(name, *more)
        assert b.steps(name) == ([3, 6] if name == "back" else []), name
        assert all(int(x[5:]) <= 6 for x in b.saved(name, "best")), name
        if name == "adopted":
            assert b.saved(name, "best") == []
            assert b.saved(name, "best/former-1") == b.saved("a/best")
        found, said = b.train(name, "--resume", "--steps", "15")
        assert [x[0] for x in found][-3:] == [9, 12, 15], found
        if name == "adopted":
            # The first evaluation of a new run is its best one: that of the
            # loaded step, which was not evaluated.
            assert found[0][0] == 6 and found[0][2], found
            assert b.steps(name) == [6, 9, 12, 15]
            assert b.best_of(name)[0] == f"step-{said['best_step']:08d}"
    # Evaluations of other data are forgotten, also after a run without any.
    shutil.copytree(b.path("a"), b.path("moved"))
    b.plain("moved", "--resume", "--steps", "14")
    found, _ = b.train("moved", "--resume", "--steps", "18", other="train")
    assert [x[0] for x in found] == [15, 18] and found[0][2], found
    assert b.steps("moved") == [15, 18]
    assert b.saved("moved/best/former-1") == b.saved("a/best")
    # A resume without --eval-data continues the same run.
    shutil.copytree(b.path("a"), b.path("same"))
    b.plain("same", "--resume", "--steps", "14")
    assert b.steps("same") == [3, 6, 9, 12]
    assert b.saved("same/best") == b.saved("a/best")


def left(b):
    """Puts a folder at the path of ck/lock, so that no job can take the folder
    ck. A job of another run is refused without --adopt."""
    b.train("held", "--keep", "0")
    os.unlink(b.path("held/lock"))
    os.mkdir(b.path("held/lock"))
    before = b.tree("held")
    for i, more in enumerate(((), ("--adopt",), ("--resume",),
                              ("--resume=6",))):
        for words in ((), ("--eval-data", "other.safetensors", "--eval-every",
                           "2", "--keep-best")):
            name = f"log-left-{i}-{len(words)}"
            b.call(*b.words(name, "--checkpoint", "held",
                            "--checkpoint-fallback", f"second-{i}-{len(words)}",
                            "--checkpoint-every", "2", "--steps", "15", "--lr",
                            "0.02", *words, *more), code=0 if more else 78)
            assert b.events(name, "checkpoint_failed", "rank-0") or not more
            assert b.tree("held") == before, name
    for way, words in (("eval", ("--eval-data", "other.safetensors",
                                 "--eval-every", "1000000000")), ("none", ())):
        for more in "--adopt", "--resume=6":
            late(b, f"{way}{more[:5]}", more, *words)


def late(b, name, *words):
    shutil.copytree(b.path("held"), b.path(name))
    job = b.begin(*b.words("log-" + name, "--job", name, "--checkpoint", name,
                           "--checkpoint-fallback", name + "-2", "--steps",
                           "1000000000", *words))
    b.await_event("log-" + name, "train_begin", "rank-0")
    os.rmdir(b.path(name, "lock"))
    said = json.loads(b.call("checkpoint", "--job", name, "--json"))
    assert said["dir"].endswith(name), said
    b.call("stop", "--job", name)
    b.ended(job, code=130)
    back = "--resume=6" in words
    assert b.steps(name) == ([3, 6] if back else []), (name, b.steps(name))
    assert all(int(x[5:]) <= 6 and back for x in b.saved(name, "best")), name
    aside = b.saved(name, "former-1")
    assert ("step-00000012" in aside) and ("step-00000006" in aside) != back
    assert b.saved(name, "best/former-1") or back, name


def check_blocked_lock(b):
    """Puts a folder at the path of the second folder's lock: the run resumes
    and saves in the first one."""
    words = "--checkpoint", "one", "--checkpoint-fallback", "two", \
        "--checkpoint-every", "2"
    b.call(*b.words("log-two", *words))
    # Commands that read the first one report a later save in the second one.
    read = ("eval", "norm.plan", "--data", "other.safetensors", "-m", "2",
            "--checkpoint", "one"), ("weights", "one", "-o", "w.safetensors")
    assert "later save" not in b.call(*read[0])
    shutil.copytree(b.path("one/step-00000012"), b.path("two/step-00000012"))
    for command in read:
        assert f"{b.path('two')}, " in b.call(*command), command
    shutil.rmtree(b.path("two/step-00000012"))
    before = b.tree("two")
    os.unlink(b.path("two/lock"))
    os.mkdir(b.path("two/lock"))
    b.call(*b.words("log-two-2", *words, "--resume", "--steps", "16"))
    assert "step-00000016" in b.saved("one"), b.saved("one")
    failed, = b.events("log-two-2", "checkpoint_failed", "rank-0")
    assert " dir=" + b.path("two") + " " in failed, failed
    os.rmdir(b.path("two/lock"))
    assert b.call(*b.words("log-two-3", *words, "--resume", "--steps", "18"))
    assert not b.events("log-two-3", "checkpoint_failed", "rank-0")
    assert {k: v for k, v in b.tree("two").items() if k in before and
            "step-" in k} == {k: v for k, v in before.items() if "step-" in k}


def refused(b):
    b.train("kept", "--keep", "0")
    tensors, _ = tensor_file.load(b.path("other.safetensors"))
    name = sorted(tensors)[0]
    dtype, shape, data = tensors[name]
    tensor_file.save(b.path("wrong.safetensors"), {
        **tensors, name: (dtype, [*shape, 1], data)})
    before = b.tree("kept")
    for how in (), ("--resume",), ("--resume=6",), ("--adopt",):
        for data, more, code in (("wrong", (), 65), ("missing", (), 74),
                                 ("other", ("--eval-metric", "9:max"), None)):
            done = b.done(*b.words(
                "log-refused", "--checkpoint", "kept", "--eval-data",
                f"{data}.safetensors", *KEEP, "--steps", "15", *how, *more),
                          code=code)
            assert done.returncode in (64, 65, 74), done
            now = b.tree("kept")
            assert now == before, (how, data, more, [
                x for x in now.keys() | before.keys()
                if now.get(x) != before.get(x)])


def of_event(event):
    """Returns step and metric of an event."""
    return tuple(eval_job.job.field(event, key) for key in ("step", "metric"))


def unsaved(b):
    """Kills a job while it saves a best checkpoint. The file of evaluations
    must not have the evaluation yet: a resume would look for that checkpoint,
    and forget all evaluations without it. The events of the saves have the
    numbers of their own evaluations."""
    words = "--eval-every", "1", "--keep-best", "--eval-metric", "0:max"
    found, _ = b.evaluated("log-all", "--checkpoint", "all", *words,
                           other="train")
    assert found[0][2] and found[1][2] and found[2][2], found
    saved = b.events("log-all", "best_saved", "rank-0")
    assert len(saved) >= 3, saved
    assert {of_event(e) for e in saved} <= {of_event(e) for e in b.events(
        "log-all", "evaluated", "rank-0")}, saved
    b.call(*b.words("log-cut", "--checkpoint", "cut", "--eval-data",
                    "train.safetensors", *words), code=1,
           PENSTOCK_FAULT="manifest:3:kill")
    assert "step-00000002" in b.saved("cut/best"), b.saved("cut/best")
    assert b.steps("cut") == [1, 2], b.steps("cut")


def foreign(b):
    """Puts a checkpoint of another run into a folder. In a copy, which
    belongs to no run yet, it is expected."""
    for name in "mine", "theirs":
        b.plain(name, "--steps", "4", "--keep", "0")
    first, second = (json.loads(b.bytes_of(b.path(name, "owner.json")))["run"]
                     for name in ("mine", "theirs"))
    b.plain("mine", "--steps", "5", "--resume")
    assert not b.events("log-mine", "doubt", "rank-0")
    for step in "4", "5":
        shutil.rmtree(b.path(f"mine/step-0000000{step}"))
    shutil.copytree(b.path("theirs/step-00000004"),
                    b.path("mine/step-00000004"))
    b.plain("mine", "--steps", "6", "--resume")
    doubt, = b.events("log-mine", "doubt", "rank-0")
    assert "step-00000004 was saved by another run" in doubt, doubt
    assert first in doubt and second in doubt, doubt
    b.plain("mine", "--steps", "7", "--resume")
    assert len(b.events("log-mine", "doubt", "rank-0")) == 1
    os.makedirs(b.path("strangers"))
    shutil.copytree(b.path("mine/step-00000007"),
                    b.path("strangers/step-00000007"))
    b.plain("strangers", "--steps", "8", "--resume")
    assert not b.events("log-strangers", "doubt", "rank-0")


def grows(b):
    """Kills a job in the fourth save of a best checkpoint. Evaluations are
    quicker than saves: when one save ends, a better evaluation waits for its
    own."""
    words = "--eval-every", "1", "--keep-best", "--eval-metric", "0:max"
    b.call(*b.words("log-grows", "--checkpoint", "grows", "--eval-data",
                    "train.safetensors", *words), code=1,
           PENSTOCK_FAULT="manifest:4:kill")
    done = [s for s in b.saved("grows/best") if os.path.exists(
        b.path("grows/best", s, "manifest.json"))]
    assert done == ["step-00000003"], done


def rests(b):
    """Leaves an older checkpoint and the rest of a save in best/."""
    words = "--eval-every", "1", "--keep-best", "--eval-metric", "0:max"
    b.evaluated("log-rests", "--checkpoint", "rests", "--steps", "3", "--keep",
                "0", "--checkpoint-every", "1", *words, other="train")
    assert b.saved("rests/best") == ["step-00000003"], b.saved("rests/best")
    path = b.path("rests", "evaluations")
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert lines[-1].split()[0] == "3", lines
    with open(path, "w", encoding="utf-8") as file: # no later one is better
        file.write("\n".join(lines[:-1] + ["3 1e30", ""]))
    for name in "1", "2":
        shutil.copytree(b.path(f"rests/step-0000000{name}"),
                        b.path(f"rests/best/step-0000000{name}"))
    for name in "2", "9":
        os.makedirs(b.path(f"rests/best/step-0000000{name}"), exist_ok=True)
        with open(b.path(f"rests/best/step-0000000{name}/saving"), "x",
                  encoding="utf-8"):
            pass
    os.remove(b.path("rests/best/step-00000002/manifest.json"))
    said = b.evaluated("log-rests", "--checkpoint", "rests", "--steps", "4",
                       "--resume", *words, other="train")[1]
    assert said["best_step"] == 3, said
    assert b.saved("rests/best") == ["step-00000003"], b.saved("rests/best")


def failed(b):
    """Checks that an evaluation whose checkpoint could not be saved neither
    keeps later ones from being saved nor, at a resume, lets worse ones replace
    the best checkpoint there is."""
    words = "--eval-every", "1", "--keep-best", "--eval-metric", "0:min"
    every = "--checkpoint-every", "1", "--keep", "0"
    found, _ = b.evaluated("log-full", "--checkpoint", "full", *words, *every,
                           other="train")
    of = dict(zip((x[0] for x in found), b.values("full")))
    last = max(of)
    best, left, *_ = sorted(of, key=of.get)
    assert max(best, left) < last - 1, of

    def train(*more):
        return b.evaluated("log-lost", "--checkpoint", "lost", *words, *every,
                           *more, other="train")[1]

    # The save of the best one fails: a file has the name of its folder.
    path = b.path("lost", "best", f"step-{best:08d}")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb"):
        pass
    said = train("--steps", str(last - 1))
    assert said["best_lost_step"] == best, said
    assert said["best_step"] == left, said
    assert b.events("log-lost", "checkpoint_failed", "rank-0")
    assert b.saved("lost/best") == sorted(
        f"step-{s:08d}" for s in (left, best)), b.saved("lost/best")
    os.remove(path)
    # A resume says it, and keeps what is there.
    shutil.copytree(b.path("lost"), b.path("again"))
    train("--resume")
    gone, = b.events("log-lost", "best_gone", "rank-0")
    assert f" step={best} " in gone and f" left={left}" in gone, gone
    assert b.saved("lost/best") == [f"step-{left:08d}"], b.saved("lost/best")
    assert b.steps("lost") == b.steps("full")
    # A resume at the step of the lost one makes its checkpoint.
    shutil.rmtree(b.path("lost"))
    os.rename(b.path("again"), b.path("lost"))
    said = train(f"--resume={best}")
    assert said["best_step"] == best, said
    assert said["best_lost_step"] == 0, said
    assert b.saved("lost/best") == [f"step-{best:08d}"], b.saved("lost/best")
    # No save succeeds, so that no evaluation counts.
    os.makedirs(b.path("none", "best"))
    for step in of:
        with open(b.path("none", "best", f"step-{step:08d}"), "wb"):
            pass
    for mode in (), ("--checkpoint-sync",):
        said = b.evaluated("log-none", "--checkpoint", "none", "--adopt",
                           *words, *every, *mode, other="train")[1]
        assert said["best_step"] == 0 and said["best_loss"] is None, said
        assert said["best_lost_step"] == best, (best, said)


def state_of(pid):
    """Returns the letter of a process's state: "T" if it is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def check_absent_disk(b):
    """Checks that a best checkpoint whose disk comes back while a run goes on
    is not removed for a worse one."""
    words = "--eval-every", "1", "--keep-best", "--eval-metric", "0:min"
    best = b.evaluated("log-away", "--checkpoint", "away", *words, "--steps",
                       "3", other="train")[1]["best_step"]
    shutil.copytree(b.path("away"), b.path("late"))
    os.rename(b.path("late/best"), b.path("disk"))
    os.symlink(b.path("nothing"), b.path("late/best"))
    said = b.call(*b.words("log-away", "--checkpoint", "late", *words,
                           "--eval-data", "train.safetensors", "--resume"),
                  code=74)
    assert "is a link to a folder that cannot be reached" in said, said
    os.remove(b.path("late/best"))
    job = b.begin(*b.words("log-late", "--checkpoint", "late", *words,
                           "--eval-data", "train.safetensors", "--resume"),
                  PENSTOCK_FAULT="step:1:stop")
    pid = b.pid("log-late", 0)
    # The resume begins with an evaluation, since that of its step is lost.
    wait_until(lambda: state_of(pid) == "T", "the stop before the evaluation")
    os.rename(b.path("disk"), b.path("late/best"))
    os.kill(pid, signal.SIGCONT)
    b.ended(job)
    assert b.events("log-late", "best_gone", "rank-0")
    assert b.saved("late/best") == [f"step-{best:08d}"]


def otherwise(b):
    """Checks that the best checkpoint stays if its step is made again with
    other options, and is evaluated as worse."""
    words = b.words("log-other", "--checkpoint", "other", "--eval-every", "5",
                    "--keep-best", "--eval-metric", "0:min", "--eval-data",
                    "train.safetensors", "--checkpoint-every", "3", "--keep",
                    "0", "--steps", "5")
    b.call(*words)
    # As if the job had been killed before its newest checkpoint.
    shutil.rmtree(b.path("other/step-00000005"))
    assert b.saved("other/best") == ["step-00000005"], b.saved("other/best")
    before = b.tree("other/best"), b.values("other")
    said = b.call(*words, "--resume", "--lr", "1e-6")
    newest = b.events("log-other", "evaluated", "rank-0")[-1]
    assert float(eval_job.job.field(newest, "metric")) > before[1][0], newest
    assert " best=0 best_step=5 " in newest, newest
    assert (b.tree("other/best"), b.values("other")) == before, said
    # A better evaluation of the step takes its place.
    shutil.rmtree(b.path("other/step-00000005"))
    b.call(*words, "--resume", "--lr", "0.1")
    assert b.values("other")[0] < before[1][0], b.values("other")
    assert b.saved("other/best") == ["step-00000005"], b.saved("other/best")
    assert b.tree("other/best") != before[0]


def recorded(b):
    """Checks that a resume from a copy of the best checkpoint knows the options
    of the run, those that were set while it ran among them."""
    for mode in (), ("--checkpoint-sync",):
        name = "recorded" + "".join(mode)
        words = b.words(f"log-{name}", "--checkpoint", name, "--eval-every",
                        "2", "--keep-best", "--eval-data", "train.safetensors",
                        "--lr", "1e-3", "--steps", "6", "--job", name,
                        *mode)
        b.gate(0)
        job = b.begin(*words, PENSTOCK_GATE=b.path("gate"))
        b.paused_after(1, name)
        b.call("set", "lr=2e-3", "--job", name)
        b.call("resume", "--job", name)
        b.gate(6)
        b.ended(job)
        shutil.copytree(b.path(name, "best"), b.path(f"copy-{name}"))
        said = b.done(*b.words(f"log-{name}-on", "--checkpoint",
                               f"copy-{name}", "--resume", "--lr", "1e-3",
                               "--clip-norm", "1", "--steps", "9")).stderr
        assert "--clip-norm" in said, (mode, said)
        rates = {e.rpartition(" lr=")[2].split()[0] for e in
                 b.events(f"log-{name}-on", "step", "rank-0")}
        assert rates == {"0.002"}, (mode, rates)


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with Bench(penstock, norm, None, "self", folder) as b:
            for part in copied, taken, others, left, check_blocked_lock, \
                    refused, unsaved, foreign, grows, rests, failed, \
                    check_absent_disk, otherwise, recorded:
                part(b)
    print("ok")


if __name__ == "__main__":
    main()
