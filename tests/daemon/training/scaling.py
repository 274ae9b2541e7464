#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --loss-scale, alone and with --autocast f16.

usage: scaling.py PENSTOCK BYTEGPT.pt2 TEXT self|mpi

Scales are powers of two, so that in f32 they change no bit. With f16 a large
first scale makes steps overflow, and a small growth interval makes the scale
grow back to where they do. All cuts, schedules, shards and restarts must leave
out the same steps and end with the same bits.
"""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

STEPS = 10
SCALE = "init=2097152,growth-interval=2"
OPTIMIZERS = ("sgd", "adamw", "lion", "lamb", "muon", "adafactor",
              "schedulefree")


class Bench(job.Bench):
    def __init__(self, penstock, model, text, transport, folder):
        super().__init__(penstock, folder)
        self.transport, self.n = transport, 0
        with open(text, "rb") as f:
            data = f.read()
        with open(f"{folder}/text.bin", "wb") as f:
            f.write(data)
        for stages in (1, 2, 3):
            self.said("split", model, "-o", f"f16-{stages}.plan", "--stages",
                      stages, "--autocast", "f16")
        self.said("split", model, "-o", "f32.plan")

    def run(self, plan, *words, code=0, scale=SCALE, steps=STEPS):
        """Runs a job. Returns its standard error."""
        self.n += 1
        return self.done("run", f"{plan}.plan", "--data", "text.bin",
                         "--transport", self.transport, "--threads", 1,
                         "--steps", steps, "--loss-scale", scale, "--log-dir",
                         f"log{self.n}", "--log-every", 1, "--quiet", *words,
                         code=code).stderr

    def dumped(self, plan, *words, **more):
        """Runs a job. Returns its dump."""
        self.run(plan, "--dump", "dump", *words, **more)
        return tensor_file.load(self.path("dump"))[0]

    def norms(self):
        return [job.field(line, "grad_norm") for line in
                self.events(f"log{self.n}", "step", "rank-0")]

    def course(self):
        """Returns of each step if it overflowed, the scale after that or in
        the step, loss and norm."""
        found = []
        with open(self.path(f"log{self.n}", "rank-0.log"),
                  encoding="utf-8") as file:
            for line in file:
                if " event=step_overflow " in line:
                    found.append(("left out", job.field(line, "step"),
                                  job.field(line, "loss_scale"),
                                  job.field(line, "overflows")))
                if " event=step " in line:
                    found.append(tuple(
                        job.field(line, key) for key in
                        ("step", "loss_scale", "loss", "grad_norm")))
        return found


def check_layouts(b):
    """Compares the bits of cuts, schedules and shards."""
    words = ("--optimizer", "adamw", "--lr", "1e-3", "--clip-norm", ".5",
             "-m", 2)
    first = None
    cuts = [("f16-2", "2", "1f1b"), ("f16-3", "3", "gpipe"),
            ("f16-3", "3", "zb-h1")]
    if b.transport == "self":
        cuts = [("f16-1", "1", "1f1b"), *cuts, ("f16-2", "1", "gpipe")]
    for plan, ranks, schedule in cuts:
        found = (b.dumped(plan, *words, "-n", ranks, "--schedule", schedule),
                 b.course())
        first = first or found
        assert found == first, (plan, ranks, schedule, found[1], first[1])
    course = first[1]
    left = [x for x in course if x[0] == "left out"]
    assert len(course) == STEPS and 2 < len(left) < STEPS - 3, course
    assert course[0] == ("left out", "1", "1048576", "1"), course
    scales = [float(x[1]) for x in course if x[0] != "left out"]
    assert any(y == 2 * x for x, y in zip(scales, scales[1:])), course
    # docs/guarantees.md: zero2 and zero3 add replicas' sums in another order.
    for shard in ("none", "zero1", "zero2", "zero3"):
        first = None if shard in ("none", "zero2") else first
        dump = b.dumped("f16-1", *words, "-n", "2x1", "--shard", shard)
        course = [x[:3] for x in b.course()]  # norms are added by shards
        found = dump, course
        first = first or found
        assert found == first, (shard, found[1], first[1])
    assert sum(x[0] == "left out" for x in course) > 2, course


def check_restarts(b):
    """A run that is resumed after any step has the bits of a whole one, and
    its manifests have the scale."""
    words = ("--optimizer", "adamw", "--lr", "1e-3", "-m", 2, "-n", 2,
             "--checkpoint-every", 1, "--keep", 0)
    b.run("f16-2", *words, "--checkpoint", "whole")
    course, want = b.course(), b.weights("whole")
    for k in range(1, STEPS + 1):
        with open(b.path("whole", f"step-{k:08}", "manifest.json"),
                  encoding="utf-8") as file:
            state = json.load(file)["loss_scale"]
        left = [x for x in course[:k] if x[0] == "left out"]
        applied = course[k - 1][0] != "left out"
        assert state["overflows"] == len(left), (k, state, course)
        assert applied or state["good_steps"] == 0, (k, state)
        after = float(course[k - 1][1 if applied else 2])
        assert 2.0 ** state["exponent"] in (after, after * 2), (k, state)
    for k in (1, 4, 6) if b.transport == "self" else (4,):
        b.run("f16-2", *words, "--checkpoint", f"part{k}", steps=k)
        assert b.course() == course[:k], (k, b.course(), course)
        b.run("f16-2", *words, "--checkpoint", f"part{k}", "--resume")
        assert b.course() == course[k:], (k, b.course(), course)
        assert b.weights(f"part{k}") == want, k
    b.run("f16-2", *words, "--checkpoint", "part4", "--resume", steps=STEPS +
          1, scale="none")
    assert not b.events(f"log{b.n}", "step_overflow", "rank-0")
    # A resume raises the scale to its minimum.
    b.run("f16-2", *words, "--checkpoint", "part4", "--resume", steps=STEPS +
          2, scale="init=64,growth-interval=9")
    b.run("f16-2", *words, "--checkpoint", "part4", "--resume", steps=STEPS +
          3, scale="init=1024,min=1024")
    assert [x[1] for x in b.course()] == ["1024"], b.course()


def check_f32(b):
    """In f32 the scale changes no bit of losses, gradients and parameters."""
    for name in OPTIMIZERS:
        words = ("--optimizer", name, "-m", 2, "-n", 1, "--clip-norm", ".5",
                 "--clip-value", ".01")
        plain = b.dumped("f32", *words, steps=2, scale="auto")
        assert "loss_scale=" not in b.events(f"log{b.n}", "step", "rank-0")[0]
        norms = b.norms()
        for scale in ("init=64,growth-interval=1", "1024")[:1 + (
                name == "adamw")]:
            scaled = b.dumped("f32", *words, steps=2, scale=scale)
            wrong = [n for n in plain if plain[n] != scaled[n]]
            assert not wrong, (name, scale, wrong)
            assert b.norms() == norms, (name, scale, b.norms(), norms)


def check_limits(b):
    """A scale that cannot be halved makes an overflow a fault."""
    for scale, left in (("16777216", 0), ("init=16777216,min=4194304", 2)):
        said = b.run("f16-1", "-n", 1, code=65, scale=scale)
        assert f"step {left + 1} was not applied" in said, said
        assert "the gradient of" in said, said
        found = b.events(f"log{b.n}", "step_overflow", "rank-0")
        assert len(found) == left, found
        assert b.events(f"log{b.n}", "fault", "rank-0"), scale
    b.run("f16-1", "-n", 1, "--on-nan", "skip", scale="16777216", steps=2)
    found = b.events(f"log{b.n}", "step_skipped", "rank-0")
    assert len(found) == 2, found


def check_change(b):
    """A change of the model during the run keeps the scale."""
    b.gate(0)
    b.n += 1
    run = b.begin("run", "f16-2.plan", "--data", "text.bin", "-n", 2,
                  "--transport", "self", "--threads", 1, "--steps", 9,
                  "--loss-scale", "init=1048576", "--lr", "1e-3", "--log-dir",
                  f"log{b.n}", "--log-every", 1, "--quiet", "--job", "scaled",
                  PENSTOCK_GATE="gate")
    b.paused_after(6, "scaled")
    b.call("freeze", "h.0.ln_1.bias", "--job", "scaled")
    b.gate(9)
    b.call("resume", "--job", "scaled")
    b.ended(run)
    course = b.course()
    left = [x for x in course if x[0] == "left out"]
    assert 0 < len(left) < 6 and course[:len(left)] == left, course
    assert {x[1] for x in course[len(left):]} == {left[-1][2]}, course
    assert b.events(f"log{b.n}", "frozen", "rank-0")


def check_metrics(b):
    b.run("f16-1", "-n", 1, "--prom", "run.prom")
    with open(b.path("run.prom"), encoding="utf-8") as file:
        text = file.read()
    course = b.course()
    left = sum(x[0] == "left out" for x in course)
    assert left > 2, course
    assert re.search(rf"^penstock_overflows_total\{{.*\}} {left}$", text,
                     re.M), text
    scale = re.search(r"^penstock_loss_scale\{.*\} (\S+)$", text, re.M)
    last = [x for x in course if x[0] != "left out"][-1]
    assert float(scale.group(1)) == float(last[1]), (scale, last)
    b.run("f16-1", "-n", 1, scale="auto", steps=1)
    assert b.course()[0][1] == "65536", b.course()


def check_refusals(b):
    for text, said in (("3", '"3" is not a power of two'),
                       ("init=0", '"0" is not a power of two'),
                       ("nan", '"nan" is not a power of two'),
                       ("init=1024,min=2048", "min=2048 is more than"),
                       ("growth-interval=0", "not a number of steps"),
                       ("growth=2", '"growth" is none of auto'),
                       ("init=8,", '"" is none of auto'),
                       ("dynamic", '"dynamic" is none of auto')):
        found = b.run("f16-1", "-n", 1, code=64, scale=text)
        assert said in found, (text, found)


def main():
    penstock, model, text, transport = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, \
            Bench(penstock, os.path.abspath(model), text, transport,
                  folder) as b:
        check_layouts(b)
        check_restarts(b)
        if transport == "self":
            check_f32(b)
            check_limits(b)
            check_change(b)
            check_metrics(b)
            check_refusals(b)


main()
