#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests changes of a running job whose replicas shard parameters (--shard).

usage: shard_changes.py PENSTOCK NORM.pt2 FOLDER self|mpi

Jobs are changed after the same step, with sharded values (zero3: by elements,
by rows, by names) and with whole values (zero2, none). Output, further
training, evaluations and checkpoints must have the same bits. FOLDER/u06.pt2
has a module with one parameter.
"""
import json
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from eval_job import EVALUATED, write_data  # noqa: E402
from patience import PATIENCE  # noqa: E402
from tensor_file import contents  # noqa: E402

STEPS, AT = 10, 5
# Durations of the step before, which is delayed so that a client has time to
# request the pause; the next one is tried if the pause came too late.
NAPS_MS = 500, 2000, 8000, 30000
WHOLE = "zero2"
PARTS = ("zero3",), ("zero3", "--shard-layout", "rows"), (
    "zero3,fc=zero2", "--unshard-window", "0")


class Bench(job.Bench):
    def __init__(self, penstock, norm, models, transport, folder):
        super().__init__(penstock, folder)
        self.models, self.transport, self.n = models, transport, 0
        write_data(self.path("x.safetensors"), 1, x=[96, 4])
        write_data(self.path("more.safetensors"), 2, x=[32, 4])
        write_data(self.path("one.safetensors"), 3, x=[16])
        self.call("split", norm, "-o", "norm.plan", "--at", "conv")
        self.call("split", f"{models}/u06.pt2", "-o", "u06.plan", "--loss-fn",
                  "mse:target=x")

    def words(self, name, plan, mode, *more):
        data = "one" if plan == "u06.plan" else "x"
        grid = "2x1" if plan == "u06.plan" else "2x2"
        return ["run", plan, "-n", grid, "-m", "4", "--transport",
                self.transport, "--shard", mode, "--data",
                f"{data}.safetensors", "--steps", STEPS, "--optimizer", "adamw",
                "--lr", "0.01", "--dump", f"{name}.dump", "--verify",
                "--log-dir", f"log-{name}", "--checkpoint", f"ck-{name}",
                "--keep", "0", "--checkpoint-every", "1", "--quiet", *more]

    def run(self, plan, mode, changes, *more):
        """Runs a job that is changed after step AT. Returns its results."""
        if plan == "norm.plan":
            more = ("--eval-data", "more.safetensors", "--eval-every",
                    str(AT), *more)
        for nap in NAPS_MS:
            self.n += 1
            name = f"job{self.n}"
            run = self.begin(*self.words(name, plan, mode, *more), "--job",
                             name, PENSTOCK_FAULT=f"step@{AT - 1}:{nap}",
                             PENSTOCK_FAULT_RANK="0")
            if self.pauses(run, name, nap):
                said = self.change(run, name, changes)
                break
            if run.poll() is None:
                run.terminate()
            self.ended(run, code=None)
        else:
            raise AssertionError(f"no pause after step {AT} of {name}")
        with open(self.path(f"log-{name}/rank-0.log"), encoding="utf-8") as f:
            losses = EVALUATED.findall(f.read())
        return {"said": said, "losses": losses, "name": name,
                "file": contents(self.path(f"{name}-all.safetensors")),
                "dump": self.state(f"{name}.dump")}

    def state(self, dump):
        """Returns the parameters and buffers of a dump, which are those of its
        last step; its other tensors are those of its first step."""
        return {name: data for name, data in contents(self.path(dump)).items()
                if name.startswith(("param.", "buffer."))}

    def pauses(self, run, name, nap_ms):
        """Pauses the job after step AT. Returns False if the machine was busy
        and the pause came after another step."""
        # Saves go on in steps: during the delay this one has begun. The sleep is
        # for a machine that is slow to make the step before the delay.
        before = self.path(f"ck-{name}/step-{AT - 2:08d}")
        until = time.monotonic() + PATIENCE
        while not os.path.exists(before):
            assert run.poll() is None and time.monotonic() < until, \
                run.communicate()
            time.sleep(.01)
        time.sleep(nap_ms / 10000)
        status = {"paused": False}
        while not status["paused"] and run.poll() is None:
            assert time.monotonic() < until
            for words in ("pause",), ("status", "--json"):
                done = self.done(*words, "--job", name, code=None)
            if done.returncode == 0:
                status = json.loads(done.stdout)
            time.sleep(.02)
        return status["paused"] and status["step"] == AT

    def change(self, run, name, changes):
        said = [re.sub(r", [\d.]+ s\n", "",
                       self.call(*words, "--job", name, code=code))
                for words, code in changes]
        self.call("attr", "get", "", "-o", f"{name}-all.safetensors", "--job",
                  name)
        self.call("resume", "--job", name)
        self.ended(run)
        return said

    def resume_with(self, left, mode, *more):
        """Resumes from the checkpoint after the change, in another sharding
        mode. The state at the end must be the same."""
        words = self.words(left["name"], "norm.plan", mode, *more)
        words[words.index("--dump") + 1] = "again.dump"
        self.call(*words, f"--resume={AT + 2}", "--adopt")
        assert self.state("again.dump") == left["dump"], (mode, more)


def same(a, b):
    for what in "said", "losses", "file":
        assert a[what] == b[what], (what, a[what], b[what])
    assert a["dump"].keys() == b["dump"].keys()
    for name, data in a["dump"].items():
        assert data == b["dump"][name], name


CHANGES = {
    "nothing": [],
    "frozen": [(("freeze", "conv"), 0), (("attr", "get", "conv"), 0),
               (("freeze", "none"), 65)],
    "thawed": [(("freeze", "fc"), 0), (("unfreeze", "fc"), 0)],
    "set": [(("attr", "set", "fc.weight", "0.25"), 0),
            (("attr", "get", "fc"), 0),
            (("attr", "set", "conv", "values.safetensors", "--state",
              "reset"), 0)],
    "cast": [(("attr", "cast", "", "bf16"), 0),
             (("attr", "get", "conv.weight"), 0)],
    "back": [(("attr", "cast", "fc", "bf16"), 0),
             (("attr", "cast", "fc", "f32"), 0), (("freeze", "fc"), 0)],
    # While it is frozen a parameter has 16 bits, trained it has 32.
    "wider": [(("freeze", "conv"), 0), (("attr", "cast", "conv", "bf16"), 0),
              (("unfreeze", "conv"), 0), (("attr", "get", "conv"), 0)],
}


def changed(b):
    """Checks that a job with sharded values has the results of one with whole
    values."""
    seen = []
    for name, changes in CHANGES.items():
        if b.transport == "mpi" and name in ("thawed", "back", "wider"):
            continue  # these take too long with several processes
        want = b.run("norm.plan", WHOLE, changes)
        # The change "set" uses the values of this job.
        if name == "nothing":
            os.rename(b.path(f"{want['name']}-all.safetensors"),
                      b.path("values.safetensors"))
            continue
        assert want["dump"] not in seen
        seen.append(want["dump"])
        for mode in PARTS if b.transport == "self" else PARTS[:1]:
            got = b.run("norm.plan", *mode[:1], changes, *mode[1:])
            same(want, got)
        if name in ("frozen", "cast", "wider"):
            b.resume_with(got, WHOLE)
            b.resume_with(want, "zero3")
        if b.transport == "self" and name == "set":
            same(b.run("norm.plan", "none", changes),
                 b.run("norm.plan", "zero1", changes))


def given_back(b):
    """Checks that setting all values to themselves changes no bit of values or
    states."""
    changes = [(("attr", "get", "", "-o", "now.safetensors"), 0),
               (("attr", "set", "", "now.safetensors"), 0)]
    want = b.run("norm.plan", "zero3", changes[:1])
    got = b.run("norm.plan", "zero3", changes)
    assert want["dump"] == got["dump"]


def replaced(b):
    """Checks that a module can be replaced; the new values come from its
    file."""
    changes = [(("swap", "n", f"{b.models}/u06.pt2"), 0)]
    want = b.run("u06.plan", WHOLE, changes)
    assert "param.n.n.w" in want["dump"]
    same(want, b.run("u06.plan", "zero3", changes))


def main():
    penstock, norm, models = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, norm, models, sys.argv[4], folder) as b:
        for part in changed, given_back, replaced:
            if part != given_back or b.transport == "self":
                part(b)
    print("ok")


if __name__ == "__main__":
    main()
