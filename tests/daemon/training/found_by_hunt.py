#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests courses of jobs in which tests/hunt/ has found faults.

usage: found_by_hunt.py PENSTOCK LATE.pt2 LATE-FC.pt2

inputs   a module is replaced in a model whose inputs are used in another order
         than they are declared
last     a checkpoint is requested during the last step
unreported  a job dies when it has saved a change and has not reported that: the
         change is not among those that are undone
unread   the folder of checkpoints is missing when a run goes back to one, with
         and without a second folder
adapters a cast that would give the two matrices of an adapter different dtypes
         is refused; one that does not can be resumed
fewer    a run is resumed with fewer ranks in the same folder of logs
"""
import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402
from eval_job import write_data  # noqa: E402
from patience import wait_until  # noqa: E402


class Bench(job.Bench):
    def __init__(self, penstock, late, module, folder):
        super().__init__(penstock, folder)
        self.late, self.module = late, module
        self.call("split", late, "-o", "late.plan")
        write_data(self.path("data.safetensors"), 1, x=[20, 4], wanted=[20, 4])

    def words(self, name, *more, plan="late.plan"):
        return ["run", plan, "-m", "2", "--transport", "self", "--data",
                "data.safetensors", "--steps", "6", "--checkpoint", name,
                "--log-dir", name + "-log", "--job", name, "--quiet", *more]

    def gated(self, name, *more, plan="late.plan", **env):
        """Begins a job that waits before its first step."""
        self.gate(0)
        if os.path.exists(self.path("gate.at")):
            os.remove(self.path("gate.at"))
        return self.begin(*self.words(name, *more, plan=plan), **env,
                          PENSTOCK_GATE=self.path("gate"))

    def losses(self, name):
        return [line.split(",")[:2] for line in
                self.said("history", name).splitlines()]


def inputs(b):
    """With a rate of 0 an equal module changes no loss."""
    b.call(*b.words("plain", "--lr", "0"))
    run = b.gated("swapped", "--lr", "0")
    b.paused_after(3, "swapped")
    b.call("swap", "fc", b.module, "--job", "swapped")
    b.call("resume", "--job", "swapped")
    b.gate(6)
    b.ended(run)
    assert b.losses("swapped") == b.losses("plain")


def last(b):
    """A client that asks for a checkpoint during the last step gets the one
    that the run saves at its end."""
    run = b.begin(*b.words("last", "--log-every", "1"),
                  PENSTOCK_FAULT="step@6:4000")
    b.await_event("last-log", "step", "rank-0", 5)
    said = b.said("checkpoint", "--job", "last")
    assert "checkpoint of step 6 saved" in said, said
    b.ended(run)


def unreported(b):
    flag = b.path("flag")
    run = b.gated("saved", "--checkpoint-every", "4", "--max-restarts", "3",
                  PENSTOCK_FAULT="saved:1+:kill", PENSTOCK_FAULT_ONCE=flag)
    b.paused_after(3, "saved")
    b.call("set", "lr=0.5", "--job", "saved")
    with open(flag, "x", encoding="utf-8"):
        pass
    b.call("resume", "--job", "saved")
    b.gate(6)
    out = b.ended(run)
    restart, = b.events("saved-log", "job_restart")
    assert " checkpoint_step=4 " in restart, restart
    assert ' undone="" ' in restart and "undone" not in out.stderr, restart
    restored, = b.events("saved-log", "set_restored", "rank-0")
    assert "lr=0.5" in restored, restored


def unread(b):
    tensors, _ = tensor_file.load(b.path("data.safetensors"))
    dtype, shape, data = tensors["x"]
    at = 4 * 4 * 17  # of row 17, in step 5
    tensors["x"] = (dtype, shape, data[:at] + struct.pack("<f", math.nan) +
                    data[at + 4:])
    tensor_file.save(b.path("nan.safetensors"), tensors)
    more = ("--data", "nan.safetensors", "--on-nan", "rollback",
            "--checkpoint-every", "3")
    b.call(*b.words("whole", *more))
    for second in (), ("--checkpoint-fallback", "second"):
        name = "away" + "".join(second[1:])
        run = b.gated(name, *more, *second)
        b.paused_after(4, name)
        os.rename(b.path(name), b.path("aside"))
        with open(b.path(name), "x", encoding="utf-8"):
            pass
        b.call("checkpoint", "--job", name, code=0 if second else 74)
        b.call("resume", "--job", name)
        b.gate(5)
        wait_until(lambda: b.place() == 6, "step 6")
        os.remove(b.path(name))
        os.rename(b.path("aside"), b.path(name))
        b.gate(6)
        b.ended(run)
        rolled, = b.events(name + "-log", "rolled_back", "rank-0")
        assert (" to=4 " in rolled and
                ("made again" in rolled) == (not second)), rolled
        assert not b.events(name + "-log", "checkpoint_bad", "rank-0")
        assert b.losses(name) == b.losses("whole")
        assert b.weights(name) == b.weights("whole")


def adapters(b):
    """A cast gives frozen matrices another dtype, and only rounds those that
    are trained."""
    b.call("split", b.late, "-o", "lora.plan", "--lora", "fc:rank=2")
    for n, (frozen, cast, code) in enumerate([
            ("*lora_A*", "fc", 65), ("*lora_B*", "fc", 65),
            ("*lora*", "fc.lora_A.default.weight", 65), ("*lora*", "fc", 0)]):
        name = f"lora-{n}"
        run = b.gated(name, plan="lora.plan")
        b.paused_after(2, name)
        b.call("freeze", frozen, "--job", name)
        said = b.call("attr", "cast", cast, "bf16", "--job", name, code=code)
        assert code == 0 or "freeze both or neither" in said, said
        b.call("resume", "--job", name)
        b.gate(6)
        b.ended(run)
        b.call(*b.words(name, "--resume", "--steps", "8", plan="lora.plan"))
        b.call("eval", "lora.plan", "--data", "data.safetensors",
               "--checkpoint", name)


def fewer(b):
    b.call(*b.words("fewer", "-n", "2x1"))
    b.call(*b.words("fewer", "--resume", "--steps", "9"))
    ranks = json.loads(b.call("flight", "fewer-log", "--json"))["ranks"]
    assert len(ranks) == 1, ranks


def main():
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(*map(os.path.abspath, sys.argv[1:4]), folder) as b:
        for part in inputs, last, unreported, unread, adapters, fewer:
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
