# SPDX-License-Identifier: Apache-2.0
"""Invariants of a life that has ended."""
import csv
import glob
import hashlib
import io
import json
import os
import time

import tensor_file  # ground has added the folder to sys.path
from ground import LIMIT_S, Broken, processes


def digests(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def tree(folder):
    """Returns digests of all files below a folder, but for those that each
    start of a job writes."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if name not in ("lock", "owner.json"):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(
                        file.read()).hexdigest()
    return found


def state(folder, step):
    """Returns the tensors of a checkpoint, and what its manifest counts."""
    at = os.path.join(folder, f"step-{step:08d}")
    found = {}
    for path in sorted(glob.glob(at + "/*.safetensors")):
        for name, tensor in tensor_file.load(path)[0].items():
            if name not in ("plan.pb", "plan.base"):
                found[name] = tensor
    with open(at + "/manifest.json", encoding="utf-8") as file:
        said = json.load(file)
    data = {k: said["data"].get(k) for k in ("pass", "at")}
    return found, {"updates": said["updates"], "data": data,
                   "updates_before": said.get("updates_before")}


def steps_in(folder):
    return sorted(int(x[5:]) for x in os.listdir(folder)
                  if x.startswith("step-"))


def history(g, folder, norms):
    return {int(row["step"]): (row["loss"], row["lr"],
                               row["grad_norm"] if norms else "")
            for row in csv.DictReader(io.StringIO(
                g.do("history", folder).out))}


def evaluations(folder):
    path = os.path.join(folder, "evaluations")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {int(r[0]): r[1:] for r in rows}


def different(a, b):
    keys = sorted(a.keys() | b.keys())
    return [k for k in keys if a.get(k) != b.get(k)]


def newest(g):
    """Returns the folder with the newest checkpoint of the job."""
    return max((g.path(x) for x in ("ck", "ck2") if os.path.isdir(g.path(x))),
               key=lambda x: (steps_in(x) or [0])[-1])


def same_numbers(g, life):
    ck, plain = newest(g), g.path("plain-ck")
    last, want = steps_in(ck)[-1], steps_in(plain)[-1]
    if last != want and life.d.patience and (life.lost or life.blind):
        return  # other evaluations end the run elsewhere
    if last != want:
        raise Broken(f"steps: the job ended at step {last}, the plain one at "
                     f"{want}")
    (a, x), (b, y) = state(ck, last), state(plain, want)
    wrong = different(a, b)
    if wrong:
        raise Broken(f"bits: {len(wrong)} of {len(b)} tensors differ: "
                     f"{wrong[:8]}")
    if x != y:
        raise Broken(f"manifest: {x}, plain {y}")
    a, b = (history(g, x, life.d.norms or not life.d.whole)
            for x in ("ck", "plain-ck"))
    wrong = different(a, b)
    if wrong:
        raise Broken(f"history: {len(wrong)} of {len(b)} steps differ: " + str(
            [(k, a.get(k), b.get(k)) for k in wrong[:4]]))
    a, b = evaluations(g.path("ck")), evaluations(plain)
    # A best evaluation stays the best when its step is made again without a
    # change that was lost (docs/commands.md).
    remade = life.lost or (life.changes and "rollback" in life.d.base)
    wrong = [k for k in a.keys() & b.keys() if a[k] != b[k] and not remade]
    if wrong:
        raise Broken(f"evaluations: {[(k, a[k], b[k]) for k in wrong]}")
    # An evaluation that could not be written is in the next file.
    missing = b.keys() - a.keys() - {
        int(x["step"]) for x in g.lines() if x["event"] == "eval_failed"}
    if missing and not life.blind:
        raise Broken(f"evaluations: none of steps {sorted(missing)}")


def best_is_best(g, life):
    found = evaluations(g.path("ck"))
    # --resume=STEP may leave no checkpoint of an evaluation that it keeps.
    if "--keep-best" not in life.d.evals or not found or (
            life.blind and life.went_back):
        return
    # An evaluation counts only with its checkpoint (docs/commands.md).
    failed = {int(x["step"]) for x in g.lines() if
              x["event"] == "checkpoint_failed" and x["dir"].endswith("/best")}
    value = {k: float(v[0]) for k, v in found.items() if k not in failed}
    if not value:
        return
    sign = -1 if life.d.best == "max" else 1
    best = min(value, key=lambda k: (sign * value[k], k))
    there = steps_in(g.path("ck/best"))
    # A start without evaluations removes nothing from `best`.
    if there != [best] and not (life.blind and best in there):
        raise Broken(f"best: {there} is in best, {best} was the best of "
                     f"{value}")
    a, _ = state(g.path("ck/best"), best)
    if best in steps_in(g.path("ck")) and not life.lost:
        b, _ = state(g.path("ck"), best)
        if different(a, b):
            raise Broken("best: other bits than the checkpoint of that step")


def checkpoints_are_good(g, life):
    for folder in "ck", "ck/best", "ck2":
        if not os.path.isdir(g.path(folder)):
            continue
        said = g.json_of("checkpoints", folder, "--verify")
        for row in said["checkpoints"]:
            if row["state"] != "good":
                raise Broken(f"checkpoint: {folder}: {row}")


def evaluates_alike(g, life):
    """Compares the newest evaluation with the command `eval` for the checkpoint
    of the same step, and the weights with those of the plain form."""
    d = life.d
    folder = os.path.relpath(newest(g), g.folder)
    last = steps_in(newest(g))[-1]
    for name, ck in ("weights", folder), ("plain-weights", "plain-ck"):
        g.do("weights", ck, "-o", name + ".safetensors", *(
            ["--use-ema"] if "--ema" in d.base and life.d.some(.5) else []))
    lines = [x for x in g.lines("plain-log") if x["event"] == "evaluated" and
             int(x["step"]) == last]
    if not lines or d.replicas > 1 or d.eval_model or not d.evals:
        return
    data = d.evals[d.evals.index("--eval-data") + 1].split("=")[-1]
    words = ["eval", f"m/{d.name}.pt2", *d.cut, "--data", data, "--checkpoint",
             folder, "-m", d.first]
    for option in ("--batch", "--microbatch-size", "--dtype", "--pack",
                   "--microbatch-weights", "--token-dtype", "--threads"):
        if option in d.base:
            words += [option, d.base[d.base.index(option) + 1]]
    if "--no-chunked-loss" in d.base:
        words.append("--no-chunked-loss")
    if "--eval-batches" in d.evals:
        words += ["--batches", "1"]
    said = g.json_of(*words)
    want = [x for x in g.lines("plain-log") if x["event"] == "eval_set" and
            int(x["step"]) == last][:1] or lines
    if said["step"] != last or said["loss"] != float(want[-1]["loss"]):
        raise Broken(f"eval: {said} is not {want[-1]}")


def events_come_once(watch):
    """Checks that a client of a supervised job has got each event once."""
    numbers = [json.loads(line)["seq"] for line in watch.out.splitlines()]
    if numbers != list(range(1, len(numbers) + 1)):
        raise Broken(f"watch: {len(numbers)} events, first gap at " + str(
            next((a, b) for a, b in zip(numbers, range(1, 10 ** 9))
                 if a != b)))


def nothing_left(g):
    end = time.monotonic() + LIMIT_S
    while True:
        left = processes(g.folder) + glob.glob(
            g.path("penstock-??????")) + glob.glob(g.path("penstock", "*"))
        if not left:
            return
        if time.monotonic() > end:
            raise Broken(f"left: {left}")
        time.sleep(.01)


def pins_are_kept(g, life):
    missing = life.pins - set(steps_in(g.path("ck")))
    if missing:
        raise Broken(f"pins: {missing} are gone, {steps_in(g.path('ck'))} are "
                     "there")


def check(g, life):
    checkpoints_are_good(g, life)
    best_is_best(g, life)
    same_numbers(g, life)
    evaluates_alike(g, life)
    pins_are_kept(g, life)
    nothing_left(g)
