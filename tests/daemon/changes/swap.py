#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replaces modules and freezes parameters in a running job on three ranks.

usage: swap.py PENSTOCK FOLDER self|mpi

FOLDER/u06.pt2 multiplies x by n.w three times, in three stages. A refused swap
changes no bit. A swap that succeeds skips no step and is saved in checkpoints;
a run that resumes from one ends with the same bits. Many swaps do not use up
memory.
"""
import glob
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402
from tensor_file import contents  # noqa: E402

STEPS = 1000
# Many microbatches make a step long enough to be paused.
MICROBATCHES = "32" if sys.argv[3] == "self" else "8"


class Bench(job.Bench):
    """Runs a job on three ranks; *models* is the folder of the models."""

    def __init__(self, penstock, models, transport, folder):
        super().__init__(penstock, folder)
        self.models = models
        self.ranks = (["--ranks", "3"] if transport == "self" else ["-n", "3"])
        self.transport = transport
        self.job = f"swap-{os.getpid()}"
        for name, shape in ("x", [4]), ("row", [1, 4]):
            tensor_file.save(self.path(name + ".safetensors"), {
                "x": ("F32", shape, struct.pack("<4f", 1, 2, -1, .5))})
        self.call("split", f"{models}/u06.pt2", "-o", "plan", "--loss-fn",
                  "mse:target=x")

    def ask(self, *args, code=0):
        return self.call(*args, "--job", self.job, code=code)

    def swap(self, where, file, *options, code=0):
        return self.ask("swap", where, f"{self.models}/{file}.pt2", *options,
                        code=code)

    def train(self, dump, *options, plan="plan", ranks=None,
              steps=STEPS):
        """Starts a run and pauses it in its first half; `resume` continues
        it."""
        for _ in range(40):
            run = self.begin(
                "run", plan, "--transport", self.transport,
                *(self.ranks if ranks is None else ["-n", ranks]), "-m",
                MICROBATCHES, "--steps", steps, "--lr", "1e-3", "--optimizer",
                "adamw", "--data", "x.safetensors", "--dump", dump, "--job",
                self.job, "--quiet", *options)
            if self.paused(run, steps):
                return run
            self.ended(run, code=None)
            saved = [name for option, name in zip(options, options[1:])
                     if option == "--checkpoint" and "--resume" not in options]
            for name in saved + ["log"]:
                shutil.rmtree(self.path(name), ignore_errors=True)
        raise AssertionError("no run was caught in its first half")

    def paused(self, run, steps):
        """Pauses the run. Returns False if it was no longer in its first
        half."""
        while run.poll() is None:
            self.done("pause", "--job", self.job, code=None)
            said = self.done("status", "--json", "--job", self.job, code=None)
            if said.returncode == 0 and json.loads(said.stdout)["paused"]:
                if json.loads(said.stdout)["step"] < steps // 2:
                    return True
                self.ask("stop", "--now")
            time.sleep(.02)
        return False

    def end(self, run, resume=True, code=0):
        if resume:
            self.ask("resume")
        self.ended(run, code)

    def start(self):
        return contents(self.path("plan", "stage-000.safetensors"))["n.w"]

    def result(self, name):
        return {k: v for k, v in contents(self.path(name)).items()
                if k.startswith(("param.", "buffer."))}


def refused(b):
    b.end(b.train("plain"))
    run = b.train("refused")
    assert 'nearest name is "n"' in b.swap("nn", "u05", code=65)
    assert "f32[" in b.swap("n", "u17-one", code=65)
    assert "has 3 calls" in b.swap("n", "u05", "--at-call", "3", code=65)
    assert "not both" in b.swap("n@1", "u05", "--at-call", "1", code=64)
    assert "call 2147483648:" in b.swap("n@2147483648", "u05", code=64)
    b.call("swap", "n", "none.pt2", "--job", b.job, code=74)
    b.end(run)
    assert b.result("plain") == b.result("refused")


def logged_steps(b):
    """Returns (step, loss) of each step in the log."""
    with open(f"{b.folder}/log/rank-0.log", encoding="utf-8") as f:
        return [(int(m[1]), float(m[2])) for m in re.finditer(
            r"event=step .*?\bstep=(\d+) .*?\bloss=(\S+)", f.read())]


def check_rate(logged, at):
    """Checks that AdamW moves a new parameter by the learning rate in each of
    its first steps. n.w is 2 at first; the output is w ** 9 x."""
    for steps in 5, 40:
        loss = logged[at + steps][1]
        w = (1 + (loss / 1.5625) ** .5) ** (1 / 9)
        assert .8e-3 < (2 - w) / steps < 1.1e-3, (steps, w)


def replaced(b):
    run = b.train("swapped", "--checkpoint", "saved", "--keep", "0",
                  "--checkpoint-every", str(STEPS // 4), "--log-every", "1", "--log-dir", "log")
    swapped = json.loads(b.swap("n", "u06", "--json"))
    assert swapped["calls"] == 3, swapped
    b.end(run)
    after = b.result("swapped")
    assert set(after) == {"param.n.n.w"}, sorted(after)
    logged = logged_steps(b)
    assert [step for step, _ in logged] == \
        list(range(1, STEPS + 1)), logged[:5]
    check_rate(logged, swapped["step"])
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m", MICROBATCHES,
           "--steps", str(STEPS), "--lr", "1e-3", "--optimizer", "adamw",
           "--data", "x.safetensors", "--dump", "resumed", "--quiet",
           "--checkpoint", "saved", "--keep", "0", f"--resume={STEPS * 3 // 4}", "--adopt")
    assert b.result("resumed") == after
    # With the original plan, eval uses the plan in the checkpoint. A plan that
    # was split with the same swap gives the same result.
    b.call("split", f"{b.models}/u06.pt2", "-o", "other", "--loss-fn",
           "mse:target=x", "--swap", f"n={b.models}/u06.pt2")
    said = [b.call("eval", plan, "--checkpoint", "saved", "--data",
                   "x.safetensors", "--batches", "4")
            for plan in ("plan", "other")]
    assert said[0] == said[1], said
    b.call("split", f"{b.models}/u05.pt2", "-o", "other", "--loss-fn",
           "mse:target=x")
    b.call("eval", "other", "--checkpoint", "saved", "--data",
           "x.safetensors", code=78)


def mapped(b):
    """Checks that a file can map a new parameter to an old one, whose
    optimizer moments are then copied."""
    def swap(names, code=0):
        with open(f"{b.folder}/names.json", "w", encoding="utf-8") as f:
            f.write(names)
        return b.swap("n", "u06", "--json", "--state",
                      f"map:{b.folder}/names.json", code=code)

    run = b.train("mapped", "--checkpoint", "mapped.saved")
    for names, words in (
            ('{"n.n.w": "n.w"', "names of parameters as JSON"),
            ('{"n.n.w": "n.v"}', 'the model had no parameter "n.v"'),
            ('{"n.w": "n.w"}', 'the new module has no parameter "n.w"')):
        assert words in swap(names, 65)
    assert "reset|keep|map:FILE" in b.swap("n", "u06", "--state", "x", code=64)
    step = json.loads(swap('{"n.n.w": "n.w"}'))["step"]
    b.ask("stop")
    b.end(run, resume=False, code=130)
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m",
           MICROBATCHES, "--steps", str(step), "--lr", "1e-3", "--optimizer",
           "adamw", "--data", "x.safetensors", "--checkpoint", "short",
           "--quiet")
    new, old = (contents(b.path(name, f"step-{step:08}",
                                "rank-000.safetensors"))
                for name in ("mapped.saved", "short"))
    for state in "m", "v":
        assert any(old[f"adamw.{state}.n.w"])
        assert new[f"adamw.{state}.n.n.w"] == old[f"adamw.{state}.n.w"]


def aliased(b):
    """Replaces one layer norm that has three names, under one name and under
    all."""
    b.call("split", f"{b.models}/u12.pt2", "-o", "norms", "--loss-fn",
           "mse:target=x", "--stages", "3")
    run = b.train("dump", "--data", "row.safetensors", plan="norms")
    for options, calls in ((), 1), (("--aliases",), 2):
        said = b.swap("norms.1" if options else "norms.0", "u12", *options,
                      "--json")
        assert json.loads(said)["calls"] == calls, said
    b.end(run)


def another_model(b):
    """Evaluates a checkpoint with other models that have the same tensor
    names: u06-core computes the same as u06, u20 does not."""
    b.end(b.train("dump", "--checkpoint", "kept"))

    def evaluate(model, *options, code=0):
        said = b.call("eval", model, "--loss-fn", "mse:target=x", "--checkpoint",
                      "kept", "--data", "x.safetensors", *options, code=code)
        # A plan has none of the notes of a model.
        return "".join(line for line in said.splitlines(True)
                       if not line.startswith("note: "))

    own = b.call("eval", "plan", "--checkpoint", "kept", "--data",
                 "x.safetensors")
    whole = "--stages", "1", "--policy", "flops"
    for options in ("u06", *whole), ("u06", "--freeze", "n"), \
            ("u06-core",), ("u06", *whole, "--freeze", "n"):
        assert evaluate(f"{b.models}/{options[0]}.pt2", *options[1:]) == own
    said = evaluate(f"{b.models}/u20.pt2", code=78)
    assert f'of step {STEPS} is of the model "u06" (digest' in said, said
    assert '"u20" (digest' in said and "--other-model" in said, said
    other = evaluate(f"{b.models}/u20.pt2", "--other-model")
    assert other.startswith("loss ") and other != own
    # Changes made in the run are kept, however the given model is split.
    run = b.train("dump", "--checkpoint", "other.kept")
    b.swap("n", "u06")
    b.end(run)
    own = b.call("eval", "plan", "--checkpoint", "other.kept", "--data",
                 "x.safetensors")
    assert evaluate(f"{b.models}/u06.pt2", "--freeze", "n", "--checkpoint",
                    "other.kept") == own
    said = evaluate(f"{b.models}/u20.pt2", "--checkpoint", "other.kept",
                    code=78)
    assert "whose run has changed it" in said and '"u20"' in said, said


def second_folder(b):
    """Checks that the plan of the newest checkpoint is found in the second
    folder, which the first folder refers to."""
    first = f"{b.folder}/first"
    run = b.train("moved", "--checkpoint", "first", "--checkpoint-fallback",
                  "second", "--keep", "0", "--checkpoint-every",
                  str(STEPS // 4), "--checkpoint-retry", "0")
    os.rename(first, first + ".away")  # makes the folder unwritable
    with open(first, "w", encoding="utf-8"):
        pass
    b.swap("n", "u06")
    b.end(run)
    os.remove(first)  # makes it writable again
    os.rename(first + ".away", first)
    shutil.rmtree(f"{b.folder}/second/step-{STEPS:08}")
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m",
           MICROBATCHES, "--steps", str(STEPS), "--lr", "1e-3", "--optimizer",
           "adamw", "--data", "x.safetensors", "--dump", "back", "--quiet",
           "--checkpoint", "first", "--resume")
    assert b.result("back") == b.result("moved")
    assert set(b.result("back")) == {"param.n.n.w"}


def frozen(b):
    run = b.train("frozen", "--checkpoint", "frozen.saved", "--keep", "0",
                  "--checkpoint-every", str(STEPS // 2))
    assert "no parameter" in b.ask("freeze", "m.*", code=65)
    assert "1 parameter frozen" in b.ask("freeze", "n")
    b.ask("resume")
    b.end(run, resume=False)
    half, end = (contents(f"{b.folder}/frozen.saved/step-{step:08}/{shard}")
                 for shard in ("rank-000.safetensors",)
                 for step in (STEPS // 2, STEPS))
    assert not [n for n in half if n.startswith("adamw")], sorted(half)
    assert half["param.n.w"] == end["param.n.w"] != b.start()
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m",
           MICROBATCHES, "--steps", str(STEPS), "--lr", "1e-3", "--optimizer",
           "adamw", "--data", "x.safetensors", "--dump", "thawed", "--quiet",
           "--checkpoint", "frozen.saved", f"--resume={STEPS // 2}", "--adopt")
    assert b.result("thawed") == b.result("frozen")
    run = b.train("stays")
    b.ask("freeze", "n")
    said = b.swap("n", "u06")
    assert "3 calls, 1 parameter stays frozen" in said, said
    assert "n.n.w: parameter f32[1], stages 0,1,2 on ranks 0,1,2, not trained" \
        in b.ask("attr", "get", "n")
    b.ask("unfreeze", "n.n.w")
    said = b.swap("n", "u06")
    assert "3 calls," in said and "frozen" not in said, said
    assert ", trained" in b.ask("attr", "get", "n")
    # A new module stays frozen if all parameters of the old one were frozen,
    # whatever their names.
    b.ask("freeze", "n")
    assert "1 parameter stays frozen" in b.swap("n", "u20")
    b.end(run)


def memory(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            total += int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])
    return total


def daemons(b):
    """Returns the process ids of the job."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                words = f.read().split("\0")
        except OSError:
            continue  # the process has ended meanwhile
        if os.path.basename(words[0]) == "penstockd" and any(
                b.job in w for w in words[1:]):
            found.append(path.split("/")[2])
    assert found
    return found


def swap_often(b):
    # A sanitizer must not keep freed memory here, since the test measures
    # memory.
    b.env["ASAN_OPTIONS"] += (
        ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
    run = b.train("many")
    pids = daemons(b)
    files = "u06", "u05"
    for i in range(60):
        b.swap("n", files[i % 2])
        if i == 19:
            before = memory(pids)
    grown = memory(pids) - before
    assert grown < 4096 * len(pids), f"{grown} KiB more after 40 swaps"
    b.end(run)
    assert not b.result("many")  # u05 has no parameters


def main():
    penstock, models = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, models, sys.argv[3], folder) as b:
        for part in (refused, replaced, mapped, aliased, another_model,
                     second_folder, frozen, swap_often):
            part(b)
    print("ok")


if __name__ == "__main__":
    main()
