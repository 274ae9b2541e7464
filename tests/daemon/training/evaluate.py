#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests evaluations during training: `run --eval-data`.

usage: evaluate.py PENSTOCK NORM.pt2 DROPS.pt2 ROWS.pt2 PATHS.pt2
           PATHS-EVAL.pt2 FOLDER self|mpi

NORM.pt2 has batch norms, so that model.eval() computes something else than a
training step. DROPS.pt2 has all kinds of dropout, ROWS.pt2 a cross entropy.
PATHS.pt2 has stochastic depth; PATHS-EVAL.pt2 is the same model exported in
eval mode, without it. FOLDER/u06.pt2 has a module with one parameter.
"""
import fcntl
import glob
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402
from eval_job import EVERY, LONG, Bench, write_data  # noqa: E402
from patience import PATIENCE, wait_until  # noqa: E402


def same_numbers(b):
    """Checks that evaluations during a run give the numbers of `eval` and do
    not affect training."""
    b.call(*b.words("log-plain", "--dump", "plain.dump"))
    found, said = b.evaluated("log-1", "--dump", "watched.dump",
                              "--checkpoint", "ck1", "--keep-best")
    assert b.bytes_of("plain.dump") == b.bytes_of("watched.dump")
    assert [x[0] for x in found] == [3, 6, 9, 12], found
    best = min(found, key=lambda x: x[1])
    assert (said["best_step"], said["best_loss"]) == best[:2], (said, best)
    assert not said["ended_early"]
    for step, loss, is_best, best_step in found:
        so_far = [x for x in found if x[0] <= step]
        assert best_step == min(so_far, key=lambda x: x[1])[0], found
        assert is_best == (best_step == step), found
        assert loss > 0
    # 27 rows in microbatches of 4: six of them, then groups of 2 and 1 rows.
    alone = b.alone("norm.plan", "other", "ck1")
    assert alone == {"loss": found[-1][1], "batches": 4, "rows": 27,
                     "step": 12}, alone
    counts_each_row_once(b, alone["loss"])
    alone = b.alone("norm.plan", "other", "ck1/best")
    assert alone["loss"] == best[1] and alone["step"] == best[0], alone
    assert len(glob.glob(b.path("ck1/best/step-*"))) == 1
    if b.transport == "mpi":
        assert b.evaluations("log-1", 1) == found
        again, _ = b.evaluated("log-first", "--data-at", "first")
        assert again == found
    else:
        for schedule in "gpipe", "zb-h1", "auto":
            again, _ = b.evaluated(f"log-{schedule}", "--schedule", schedule)
            assert again == found, (schedule, again, found)
    found, _ = b.evaluated("log-batches", "--eval-batches", "1",
                           "--checkpoint", "ck2")
    assert b.alone("norm.plan", "other", "ck2", "--batches",
                   "1")["loss"] == found[-1][1]
    found, _ = b.evaluated("log-drops", "--checkpoint", "ck3",
                           plan="drops.plan", data="pics", other="more")
    assert b.alone("drops.plan", "more", "ck3")["loss"] == found[-1][1]
    found, _ = b.evaluated("log-replicas", "-n", "2x1", "--checkpoint", "ck4")
    alone = b.alone("norm.plan", "other", "ck4")["loss"]
    assert abs(alone - found[-1][1]) < 1e-6, (alone, found)


def counts_each_row_once(b, whole):
    """Checks that each row counts once for every division into microbatches,
    and that the mean over all rows is the weighted mean over parts of the
    rows."""
    for more in (("-m", "1"), ("-m", "5"), ("-m", "64"), ("--batches", "99"),
                 ("--microbatch-weights", "equal")):
        said = b.alone("norm.plan", "other", "ck1", *more)
        assert (said["loss"], said["rows"]) == (whole, 27), (more, said)
    assert b.alone("norm.plan", "other", "ck1", "--batches", "3")["rows"] == 24
    rows = b.bytes_of("other.safetensors")[-27 * 16:]
    total = 0
    for first, n in (0, 24), (24, 1), (25, 1), (26, 1):
        tensor_file.save(b.path("part.safetensors"), {
            "x": ("F32", [n, 4], rows[16 * first:16 * (first + n)])})
        total += n * b.alone("norm.plan", "part", "ck1")["loss"]
    assert abs(total / 27 - whole) < 1e-6 * abs(whole), (total / 27, whole)


def divides(b):
    """Checks that --chunk applies to evaluation data as to training data."""
    chunk = "--chunk", "target=replicate"
    found, _ = b.evaluated("log-chunk", *chunk, "--checkpoint", "ck-chunk",
                           plan="drops.plan", data="whole", other="whole")
    alone = json.loads(b.call(
        "eval", "drops.plan", "--data", "whole.safetensors", "-m", "2", *chunk,
        "--checkpoint", "ck-chunk", "--json"))
    assert alone["loss"] == found[-1][1], (alone, found)


def weighs(b):
    """Checks that each target that is not ignored counts once, for every
    weighting, even if a microbatch, a step or the padding of the last step has
    no such targets."""
    classes = [0, 1, -100, 2, 3, -100, 4, -100, -100, -100] * 2 + [2]
    classes[12:16] = [-100] * 4
    x = b.bytes_of("train.safetensors")[-588:]
    tensor_file.save(b.path("classes.safetensors"), {
        "x": ("F32", [21, 7], x),
        "target": ("I64", [21], struct.pack("<21q", *classes))})
    tensor_file.save(b.path("ignored.safetensors"), {
        "x": ("F32", [4, 7], x[:112]),
        "target": ("I64", [4], struct.pack("<4q", *[-100] * 4))})
    batch = "--batch", "10", "-m", "3", "--microbatch-weights"
    found, _ = b.evaluated("log-tokens", *batch, "tokens", "--checkpoint",
                           "ck-tokens", plan="rows.plan", data="classes",
                           other="classes")

    def alone(*words):
        return b.alone("rows.plan", "classes", "ck-tokens", *words)["loss"]
    assert alone(*batch, "tokens") == found[-1][1], found
    whole = alone("--batch", "21", "-m", "1")
    for words in ((*batch, "tokens"), (*batch, "rows"), ("--batch", "2"),
                  ("--microbatch-size", "4", "-m", "1"),
                  ("--microbatch-size", "8", "-m", "7")):
        assert abs(alone(*words) - whole) < 1e-6 * whole, (words, whole)
    assert "the loss ignores all targets of the 4 rows" in b.call(
        "eval", "rows.plan", "--data", "ignored.safetensors", code=65)
    b.call("eval", "norm.plan", "--data", "other.safetensors",
           "--microbatch-weights", "tokens", code=65)
    uneven = "--batch", "7", "-m", "2"
    found, _ = b.evaluated("log-equal", *uneven, "--microbatch-weights",
                           "equal", "--checkpoint", "ck-equal", data="other")
    said = b.alone("norm.plan", "other", "ck-equal", *uneven)
    assert said["loss"] == found[-1][1] and said["rows"] == 27, (said, found)


def gathers(b):
    """Checks that replicas with sharded parameters gather the values for an
    evaluation: the results equal those without sharding bit by bit, after each
    step."""
    grid = "-n", "2x1" if b.transport == "mpi" else "2x2", "-m", "4"
    plain, _ = b.evaluated("log-whole-none", *grid)
    for mode, same in (("zero1", plain), ("zero2", None),
                       ("zero3", "zero2"), ("zero3,conv=zero2", "zero2")):
        found, _ = b.evaluated(f"log-{mode}", *grid, "--shard", mode,
                               "--verify", "--checkpoint", f"ck-{mode}")
        if mode == "zero2":
            divided = found
        assert found == (same if mode == "zero1" else divided), (mode, found)
        with open(b.path(f"log-{mode}/rank-0.log"), encoding="utf-8") as file:
            took = re.findall(r" event=eval_memory .* of_rank=(\d+) "
                              r"arena=(\d+)", file.read())
        will = json.loads(b.call(
            "plan", "norm.plan", *grid, "--shard", mode, "--verify",
            "--eval-data", "other.safetensors", "--json"))["ranks"]
        assert took and int(took[0][1]) == will[0]["eval_bytes"], (mode, took)
    # The gradient of a bias before a norm is rounding noise, which depends on
    # the sharding mode; AdamW turns it into steps of size --lr.
    assert len(divided) == len(plain) and all(
        abs(x[1] - y[1]) < 1e-3 for x, y in zip(divided, plain)), (
            divided, plain)
    alone = b.alone("norm.plan", "other", "ck-zero3")["loss"]
    assert abs(alone - divided[-1][1]) < 1e-6, (alone, divided)
    for more in (("--shard-layout", "rows"), ("--unshard-window", "0"),
                 ("--unshard-window", "3"), ("--keep-best", "--checkpoint",
                                             "ck-shares")):
        found, _ = b.evaluated(f"log-shares-{more[1]}", *grid, "--shard", "zero3",
                               "--verify", *more)
        assert found == divided, (more, found)
    found, _ = b.evaluated("log-bf16", *grid, "--shard", "zero3",
                           "--gather-dtype", "bf16")
    assert found != divided, found
    assert [round(x[1], 1) for x in found] == [round(x[1], 1) for x in divided]


def continues(b):
    """Checks that a run in two parts, and one that is killed and restarted,
    have the evaluations of an uninterrupted run."""
    keep = "--keep-best", "--checkpoint-every", "2"
    whole, _ = b.evaluated("log-whole", "--checkpoint", "whole", *keep)
    b.evaluated("log-part", "--checkpoint", "part", *keep, "--steps", "6")
    parts, said = b.evaluated("log-part", "--checkpoint", "part", *keep,
                              "--resume", "--dump", "part.dump")
    head = b.bytes_of("part.dump")
    head = json.loads(head[8:8 + struct.unpack("<Q", head[:8])[0]])
    assert head["__metadata__"] == {"step": "7", "last_step": "12"}, head
    assert parts == whole and said["best_step"] == whole[-1][3], (parts, whole)
    for point in ("update:7", "shard:4", "manifest:5")[b.transport == "mpi":]:
        name = "ck-" + point.split(":", maxsplit=1)[0]
        flag = b.path("flag")
        with open(flag, "w", encoding="utf-8"):
            pass
        b.evaluated("log-" + name, "--checkpoint", name, *keep,
                    "--max-restarts", "2",
                    env={"PENSTOCK_FAULT": f"{point}:kill",
                         "PENSTOCK_FAULT_ONCE": flag,
                         "PENSTOCK_FAULT_RANK": "0"})
        assert not os.path.exists(flag), point
        assert b.bytes_of("whole/evaluations") == \
            b.bytes_of(f"{name}/evaluations"), point
        assert b.best_of("whole") == b.best_of(name), point
    # Resumes from an older step: later evaluations are removed.
    shutil.copytree(b.path("part"), b.path("gone"))
    back = "--resume=10", "--steps", "11"
    b.evaluated("log-part", "--checkpoint", "part", "--checkpoint-every", "2",
                *back)
    text = b.bytes_of("part/evaluations").decode()
    assert [x.split()[0] for x in text.splitlines()[1:]] == \
        ["3", "6", "9", "11"], text
    # An evaluation is not the best one if its checkpoint is no longer in
    # best/, for instance because best/ then held a later step.
    shutil.rmtree(b.path("gone/best"))
    found, said = b.evaluated("log-gone", "--checkpoint", "gone", *keep, *back)
    gone, = b.events("log-gone", "best_gone", "rank-0")
    assert job.field(gone, "step") in ("3", "6", "9"), gone
    assert found == [(11, found[0][1], True, 11)], found
    assert said["best_step"] == 11 and b.best_of("gone")[0] == "step-00000011"
    # Starts a new training in the same folder.
    b.evaluated("log-part", "--checkpoint", "part", *keep, "--adopt",
                "--steps", "3")
    assert len(b.bytes_of("part/evaluations").splitlines()) == 2
    with open(b.path("part/evaluations"), "a", encoding="utf-8") as file:
        file.write("4 nonsense\n")
    b.call(*b.words("log-part", "--checkpoint", "part", "--resume",
                    "--eval-data", "other.safetensors"), code=65)


def other_mode(b, paths, mode, other):
    """Checks that evaluations with --eval-model use another export, with the
    same cut as the model: the results equal those of `eval` and `infer` with
    that file."""
    draw = random.Random(6)
    numbers = [draw.gauss(0, 1) for _ in range(19 * 8)]
    x = ("F32", [19, 8], struct.pack(f"<{19 * 8}f", *numbers))
    classes = [draw.randrange(3) for _ in range(19)]
    tensor_file.save(b.path("paths.safetensors"), {
        "x": x, "target": ("I64", [19], struct.pack("<19q", *classes))})
    tensor_file.save(b.path("rows.safetensors"), {"x": x})
    loss = "--loss-fn", "cross_entropy"
    b.call("split", paths, "-o", "paths.plan", "--at", "blocks.2", *loss)
    b.call("split", paths, "-o", "lora.plan", "--at", "head", *loss,
           "--lora", "blocks.*.linear:rank=2")
    b.call(*b.words("log-none", "--eval-data", "paths.safetensors",
                    plan="paths.plan", data="paths"), code=65)
    b.call(*b.words("log-none", "--eval-model", mode, plan="paths.plan",
                    data="paths"), code=64)
    said = b.call(*b.words(
        "log-none", "--eval-data", "paths.safetensors", "--eval-model",
        other, plan="paths.plan", data="paths"), code=65)
    assert "the evaluation model reads" in said, said
    said = b.done(*b.words(
        "log-none", "--eval-data", "paths.safetensors", "--eval-model",
        "gone.pt2", plan="paths.plan", data="paths"), code=74).stderr
    assert "--eval-model: " in said and "--eval-data" not in said, said
    assert said.count("gone.pt2") == 1, said
    for plan, more in (("paths", ()), ("paths", ("-n", "2x1")),
                       ("lora", ("--microbatch-size", "3"))):
        name = f"ck-{plan}-{len(more)}"
        found, _ = b.evaluated("log-" + name, "--eval-model", mode,
                               "--checkpoint", name, *more, "--lr", "0.01",
                               plan=f"{plan}.plan", data="paths", other="paths")
        lora = ("--lora", "blocks.*.linear:rank=2") if plan == "lora" else ()
        alone = b.alone(mode, "paths", name, "--other-model", *loss, *lora,
                        *(more if "--microbatch-size" in more else ()))
        assert alone["loss"] == found[-1][1], (alone, found)
    memory = json.loads(b.call(
        "plan", "paths.plan", "--eval-data", "paths.safetensors",
        "--eval-model", mode, "--json"))["ranks"]
    assert all(rank["eval_bytes"] > 0 for rank in memory), memory
    b.serve_and_ask("paths.plan", "ck-paths-0", "rows", "--eval-model", mode)
    b.call("infer", mode, "--data", "rows.safetensors", "-o",
           "inferred.safetensors", "--checkpoint", "ck-paths-0",
           "--other-model")
    assert b.bytes_of("asked.safetensors") == b.bytes_of("inferred.safetensors")


def changed_mode(b, mode):
    """Changes a model that --eval-model evaluates, while it trains: the next
    evaluation has the changed values."""
    job = b.begin(*b.words(
        "log-changed-1", "--eval-data", "paths.safetensors", "--eval-every",
        "20", "--eval-model", mode, "--lr", "0.01", "--checkpoint",
        "ck-changed", "--steps", "1000000000", "--job", "changed",
        plan="paths.plan", data="paths"))
    b.await_event("log-changed-1", "evaluated", "rank-0")
    for change in (("attr", "set", "head.bias", "0.5"), ("freeze", "blocks.0")):
        b.call(*change, "--job", "changed")
        n = len(b.events("log-changed-1", "evaluated", "rank-0"))
        b.await_event("log-changed-1", "evaluated", "rank-0", n + 1)
    b.call("stop", "--job", "changed")
    b.ended(job, code=130)
    step = max(int(x[5:]) for x in os.listdir(b.path("ck-changed"))
               if x.startswith("step-"))
    found, _ = b.evaluated("log-changed-2", "--eval-model", mode,
                           "--checkpoint", "ck-changed", "--resume", "--lr",
                           "0.01", "--steps", str(step + 2), plan="paths.plan",
                           data="paths", other="paths")
    alone = b.alone(mode, "paths", "ck-changed", "--other-model", "--loss-fn",
                    "cross_entropy")
    assert alone["loss"] == found[-1][1], (alone, found)


def cast_mode(b, norm):
    """Casts parameters of a model that --eval-model evaluates. If that is the
    file of the model itself, evaluations and answers are those without it,
    with the same bits."""
    cases = [[("freeze", "conv"), ("attr", "cast", "conv", "f16"),
              ("freeze", "fc"), ("attr", "cast", "fc", "f64")],
             [("attr", "cast", "", "bf16")]]
    for n, changes in enumerate(cases if b.transport == "self" else cases[:1]):
        seen = []
        for more in (), ("--eval-model", norm):
            name = f"cast-{n}-{len(more)}"
            job = b.begin(*b.words(
                "log-" + name, "--eval-data", "other.safetensors",
                "--eval-every", "4", "--checkpoint", name, "--steps", "8",
                "--job", name, *more), PENSTOCK_GATE="gate")
            b.paused_after(2, name)
            for change in changes:
                b.call(*change, "--job", name)
            b.call("resume", "--job", name)
            b.gate(1 << 30)
            b.ended(job)
            os.remove(b.path("gate"))
            os.remove(b.path("gate.at"))
            b.serve_and_ask("norm.plan", name, "train", *more)
            seen.append((b.evaluations("log-" + name),
                         b.bytes_of("asked.safetensors")))
        assert seen[0] == seen[1] and len(seen[0][0]) == 2, seen


def reads_once(b):
    """Checks that `eval` evaluates the checkpoint that it has found first, also
    if a newer one, of a changed model, comes before it is loaded."""
    words = dict(plan="drops.plan", data="pics")
    b.call(*b.words("log-once", "--checkpoint", "once", "--steps", "2",
                    **words))
    shutil.copytree(b.path("once"), b.path("newer"))
    job = b.begin(*b.words("log-newer", "--checkpoint", "newer", "--resume",
                           "--steps", "4", "--job", "newer", **words),
                  PENSTOCK_GATE="gate")
    b.paused_after(3, "newer")
    b.call("attr", "cast", "conv", "bf16", "--job", "newer")
    b.call("resume", "--job", "newer")
    b.gate(1 << 30)
    b.ended(job)
    os.remove(b.path("gate"))
    os.remove(b.path("gate.at"))
    want = b.alone("drops.plan", "pics", "once")
    # The command waits in a note, which it prints before it loads.
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(into, False)
    while True:
        try:
            os.write(into, b"." * 4096)
        except BlockingIOError:
            break
    os.set_blocking(into, True)
    with subprocess.Popen(
            [b.penstock, "eval", "drops.plan", "--data", "pics.safetensors",
             "-m", "2", "--checkpoint", "once", "--json"], cwd=b.folder,
            env=b.env, text=True, stdout=subprocess.PIPE, stderr=into) as run:
        os.close(into)
        wait_until(lambda: b"pipe_write" in bytes_of_wait(run.pid), "the note")
        os.rename(b.path("newer/step-00000004"),
                  b.path("once/step-00000004"))
        with open(out, "rb") as file:
            said = file.read()
        assert json.loads(run.stdout.read()) == want, (said, want)
    assert b.alone("drops.plan", "pics", "once")["step"] == 4


def bytes_of_wait(pid):
    with open(f"/proc/{pid}/wchan", "rb") as file:
        return file.read()


def lost_mode(b, models):
    """Changes a model so that --eval-model no longer fits: the run goes on
    without evaluations, and so does a resume."""
    write_data(b.path("lost.safetensors"), 8, x=[16])
    b.call("split", f"{models}/u06.pt2", "-o", "u06.plan", "--loss-fn",
           "mse:target=x", "--policy", "flops", "--stages", "1")
    words = ("--eval-data", "lost.safetensors", "--eval-every", "20",
             "--eval-model", f"{models}/u06.pt2", "--checkpoint", "ck-lost",
             "-n", "1")
    more = dict(plan="u06.plan", data="lost")
    job = b.begin(*b.words("log-lost-1", *words, "--steps", "1000000000",
                           "--job", "lost", **more))
    b.await_event("log-lost-1", "evaluated", "rank-0")
    said = b.done("attr", "cast", "n", "bf16", "--job", "lost").stderr
    assert said == "", said
    said = b.done("swap", "n", f"{models}/u06.pt2", "--job", "lost").stderr
    assert "warning: the changed model cannot be evaluated" in said and (
        'reads "n.w"' in said), said
    b.await_event("log-lost-1", "eval_failed", "rank-0")
    b.call("stop", "--job", "lost")
    b.ended(job, code=130)
    step = max(int(x[5:]) for x in os.listdir(b.path("ck-lost"))
               if x.startswith("step-"))
    b.call(*b.words("log-lost-2", *words, "--resume", "--steps", str(step + 2),
                    **more))
    assert b.events("log-lost-2", "eval_failed", "rank-0")
    assert not b.events("log-lost-2", "evaluated", "rank-0")


def reports_changes(b):
    """Checks that a resumed run reports the options that differ from those of
    the earlier run, and does not compare losses on different evaluation
    data."""
    write_data(b.path("first.safetensors"), 7, x=[96, 4])
    write_data(b.path("second.safetensors"), 8, x=[28, 4])
    keep = "--checkpoint", "told", "--keep-best", "--threads", "1"
    words = dict(data="first", other="second")
    b.evaluated("log-told", *keep, "--steps", "6", **words)
    with open(b.path("told/step-00000006/manifest.json"),
              encoding="utf-8") as file:
        options = json.load(file)["options"]
    assert options["--microbatches"] == "2" and options["--lr"] == "not given"
    assert options["--data"].startswith(
        f"{os.path.getsize(b.path('first.safetensors'))} bytes, digest ")
    found, _ = b.evaluated("log-told-2", *keep, "--steps", "9", "--resume",
                           "-n", "1", "--stash-keep", "0", **words)
    assert len(found) == 1 and not changes(b, "log-told-2")
    write_data(b.path("first.safetensors"), 9, x=[96, 4])
    write_data(b.path("second.safetensors"), 10, x=[28, 4])
    done = b.done(*b.words("log-changed", *keep, "--resume", "--lr", "0.01",
                           "--clip-norm", "2", "--eval-data",
                           "second.safetensors", "--eval-every", str(EVERY),
                           data="first"))
    said = json.loads(done.stdout)
    assert ("penstock: warning: --lr was not given in the run that saved this "
            "checkpoint, and is 0.01 now\n") in done.stderr, done.stderr
    assert "could not go on" not in done.stderr, done.stderr
    diffs = changes(b, "log-changed")
    assert sorted(diffs) == ["--clip-norm", "--data", "--eval-data",
                             "--lr"], diffs
    assert diffs["--lr"] == ("not given", "0.01"), diffs
    assert diffs["--clip-norm"] == ("0", "2"), diffs
    found = b.evaluations("log-changed")
    assert [x[0] for x in found] == [9, 12], found
    assert said["best_step"] == min(found, key=lambda x: x[1])[0], found
    assert b.best_of("told")[0] == f"step-{said['best_step']:08d}"
    assert len(b.bytes_of("told/evaluations").splitlines()) == 3


def reports_rank_changes(b):
    """Checks that changes of replicas, sharding and threads are reported,
    since bits depend on these."""
    def run(name, steps, *more, **env):
        b.call(*b.words("log-" + name, "--checkpoint", "many", "--steps",
                        str(steps), *more), **env)
        return changes(b, "log-" + name)

    grid, same = ("-n", "2x1"), ("--threads", "1")
    assert not run("many-1", 1, *grid, *same, "--shard", "zero1")
    assert not run("many-2", 2, "-n", "2x2", *same, "--resume")
    assert run("many-3", 3, *grid, *same, "--shard", "zero3", "--resume") == {
        "--shard": ("none or zero1", "zero2 or zero3")}
    assert not run("many-4", 4, *grid, *same, "--shard", "zero2", "--resume")
    assert run("many-5", 5, "--threads", "2", "--resume") == {
        "--ranks": ("2xP", "1xP"), "--threads": ("1", "2"),
        "--shard": ("zero2 or zero3", "none or zero1")}
    assert not run("many-6", 6, "-n", "1", "--threads", "2", "--resume")
    diffs = run("many-7", 7, "-n", "1", "--threads", "2", "--resume",
               PST_ISA="any")
    # After the instruction set, the text lists features that kernels check
    # themselves.
    assert diffs["instructions"][1].split()[0] == "any", diffs


def changes(b, name):
    return {m[1]: (m[2].strip('"'), m[3].strip('"')) for m in (
        re.search(r' name=(\S+) before=("[^"]*"|\S+) now=("[^"]*"|\S+) ', line)
        for line in b.events(name, "resume_changed", "rank-0"))}


def ends_early(b):
    """Checks that --patience ends a run whose first evaluation stays the best
    one, as the learning rate is 0."""
    more = ("--lr", "0", "--patience", "2", "--checkpoint", "early",
            "--checkpoint-every", "4")
    found, said = b.evaluated("log-early", *more, plan="drops.plan",
                              data="pics", other="more")
    assert [x[0] for x in found] == [3, 6, 9], found
    assert len({x[1] for x in found}) == 1 and found[-1][3] == 3, found
    assert said["steps"] == 9 and said["ended_early"], said
    assert not said["stopped"] and said["best_step"] == 3, said
    assert os.path.exists(b.path("early/step-00000009/manifest.json"))
    found, said = b.evaluated("log-early-2", *more, "--resume",
                              plan="drops.plan", data="pics", other="more")
    assert found == [] and said["steps"] == 9 and said["ended_early"], said


    words = b.words("log-nan", "--eval-data", "nan.safetensors",
                    "--eval-every", "3", "--patience", "2", plan="drops.plan",
                    data="pics")
    words.remove("--json")
    text = b.call(*words)
    assert "2 evaluations, none of which had a finite loss" in text, text


def interrupted(b):
    """Checks that `checkpoint`, `pause` and `stop` do not wait for the end of
    an evaluation, that an interrupted one is made later, and that a changed
    model is evaluated, too."""
    head = json.dumps({"x": {"dtype": "F32", "shape": [LONG, 4],
                             "data_offsets": [0, 16 * LONG]}}).encode()
    with open(b.path("long.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + 16 * LONG)
    long = "--eval-data", "long.safetensors", "--eval-every", "3"
    run = b.begin(*b.words("log-long", *long, "--job", "long", "--checkpoint",
                           "long", "--log-every", "1"))
    await_text(b, "log-long/rank-0.log", " step=3 ")
    b.call("checkpoint", "--job", "long")
    assert os.path.exists(b.path("long/step-00000003/manifest.json"))
    b.call("trace", "--job", "long")
    shutil.rmtree(b.path("long/step-00000003"))
    b.call("pause", "--job", "long")
    b.call("resume", "--job", "long")
    b.call("stop", "--job", "long")
    b.ended(run, code=130)
    assert b.evaluations("log-long") == []
    assert os.path.exists(b.path("long/step-00000003/manifest.json"))
    whole, _ = b.evaluated("log-uncut")
    assert whole == b.evaluated("log-again", "--checkpoint", "long",
                                "--resume")[0]
    # A checkpoint that is due, and requests that arrive before the evaluation
    # begins, do not wait for it either.
    due = {"due": ["--checkpoint-every", "3"], "checkpoint": [], "pause": []}
    for word in due:
        name = "early-" + word
        run = b.begin(*b.words("log-" + name, *long, "--job", name,
                               "--checkpoint", name, "--log-every", "1",
                               *due[word]),
                      PENSTOCK_FAULT="step@3:1000")
        await_text(b, f"log-{name}/rank-0.log", " step=2 ")
        if word != "due":
            b.call(word, "--job", name)
        if word != "pause":
            await_text(b, f"{name}/step-00000003/manifest.json", "{")
        b.call("stop", "--now", "--job", name)
        b.ended(run, code=130)
    # A run is not done before its last evaluation.
    for more in [], ["--now"]:
        name = "last" + "".join(more)
        run = b.begin(*b.words("log-" + name, *long, "--job", name,
                               "--checkpoint", name, "--steps", "3",
                               "--log-every", "1"))
        await_text(b, f"log-{name}/rank-0.log", " step=3 ")
        b.call("stop", *more, "--job", name)
        b.ended(run, code=130)
        assert whole[:1] == b.evaluated("log-more" + name, "--checkpoint",
                                        name, "--resume=auto", "--steps",
                                        "3")[0]
    run = b.begin(*b.words("log-set", "--eval-data", "other.safetensors",
                           "--eval-every", "100", "--steps", "1000000000",
                           "--job", "set"))
    await_text(b, "log-set/rank-0.log", " event=evaluated ")
    b.call("attr", "set", "fc.bias", "0.5", "--job", "set")
    n = len(b.evaluations("log-set"))
    until = time.monotonic() + PATIENCE
    while len(b.evaluations("log-set")) < n + 2:
        assert time.monotonic() < until and run.poll() is None
        time.sleep(.01)
    b.call("pause", "--job", "set")
    step = json.loads(b.call("status", "--job", "set", "--json"))["step"]
    b.call("set", f"steps={step}", "--job", "set")
    b.call("resume", "--job", "set")
    b.ended(run)
    assert b.evaluations("log-set")[-1][0] == step
    assert b" event=eval_failed " not in b.bytes_of("log-set/rank-0.log")


def await_text(b, name, text):
    until = time.monotonic() + PATIENCE
    while not os.path.exists(b.path(name)) or \
            text.encode() not in b.bytes_of(name):
        assert time.monotonic() < until, (name, text)
        time.sleep(.01)


def prints_perplexity(b):
    """Checks that perplexity is printed only for a loss that is a mean of
    cross entropies."""
    said = b.call("eval", "norm.plan", "--data", "train.safetensors", "-m", "2",
                  "--batches", "2")
    assert re.fullmatch(r"loss \S+ over 16 rows in 2 batches\n", said), said


def refuses(b):
    for words, code in ((["--eval-every", "3"], 64), (["--keep-best"], 64),
                        (["--patience", "1"], 64),
                        (["--eval-data", "none"], 74),
                        (["--dump", "train.safetensors"], 64),
                        (["--eval-data", "empty.safetensors"], 65),
                        (["--eval-data", "other.safetensors", "--keep-best"],
                         64),
                        (["--eval-data", "other.safetensors", "--patience",
                          "1"], 64)):
        b.call(*b.words("log-bad", *words), code=code)


def main():
    penstock, norm, drops, rows, *paths, models = map(os.path.abspath,
                                                      sys.argv[1:8])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with Bench(penstock, norm, drops, sys.argv[8], folder, rows) as b:
            other_mode(b, *paths, drops)
            changed_mode(b, paths[1])
            cast_mode(b, norm)
            lost_mode(b, models)
            reads_once(b)
            for part in (same_numbers, divides, weighs, gathers, continues,
                         reports_changes, reports_rank_changes, ends_early,
                         interrupted, prints_perplexity, refuses):
                part(b)
    print("ok")


if __name__ == "__main__":
    main()
