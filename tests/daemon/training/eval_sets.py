#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests evaluations on several sets: `--eval-data NAME=FILES`.

usage: eval_sets.py PENSTOCK BYTEGPT.pt2 TEXT ENTROPIES.pt2

same      each set has the numbers of a run with that set alone, and the first
          one decides; the training has the bits of a run without evaluations
seen      status, result, history (also as CSV), top, metrics and TensorBoard
          have all sets by name
decides   --eval-metric SET/loss
bits      bits per byte, of bytes and by --token-bytes
losses    perplexity and bits per byte only of losses that have them
resumed   a killed run that resumes has the same evaluations
refused   names and files that cannot be used
"""
import array
import glob
import json
import math
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensorboard  # noqa: E402
import top  # noqa: E402

SEQ, STEPS = 128, 6
WEB, CODE = ("--eval-data", "web=web.bin"), ("--eval-data", "code=code.bin")


class Bench(job.Bench):
    def run(self, name, *words, steps=STEPS, code=0, **env):
        """Runs a job. Returns its evaluations {step: {set: fields}}, those
        without a set under ""."""
        done = self.done(
            "run", "two.plan", "-n", 2, "-m", 2, "--transport", "self",
            "--steps", steps, "--optimizer", "adamw", "--lr", ".003",
            "--threads", 1, "--data", "train.bin", "--checkpoint", "ck-" + name,
            "--log-dir", "log-" + name, "--eval-every", 2, "--json", *words,
            code=code, **env)
        self.result = json.loads(done.stdout) if done.stdout else None
        self.stderr = done.stderr
        return self.found(name)

    def found(self, name):
        found = {}
        for event in "eval_set", "evaluated":
            for line in self.events("log-" + name, event, "rank-0"):
                at = found.setdefault(int(job.field(line, "step")), {})
                key = job.field(line, "set") if event == "eval_set" else ""
                at[key] = {k: float(job.field(line, k)) for k in (
                    "loss", "bits_per_byte", "rows", "batches")
                           if f" {k}=" in line}
                if event == "evaluated":
                    at[key]["set"] = " set=" in line and job.field(line, "set")
                    at[key]["best"] = int(job.field(line, "best"))
        return found

    def read_evaluations(self, name):
        with open(self.path("ck-" + name, "evaluations"),
                  encoding="utf-8") as file:
            return file.read().splitlines()


def write_files(b, text):
    with open(text, "rb") as file:
        text = file.read()
    for name, part in {"train.bin": text[:3000], "web.bin": text[5000:6000],
                       "code.bin": bytes(reversed(text[6000:6700]))}.items():
        with open(b.path(name), "wb") as file:
            file.write(part)


def numbers(found, key):
    return {step: at[key] for step, at in found.items()}


def same(b):
    both = b.run("both", *WEB, *CODE)
    assert sorted(both) == [2, 4, 6], both
    assert all(sorted(x) == ["", "code", "web"] for x in both.values()), both
    for key in "web", "code":
        alone = b.run("only-" + key, "--eval-data", f"{key}.bin")
        for step, at in numbers(alone, "").items():
            del at["set"], at["best"]
            assert at == both[step][key], (key, step, at, both)
    for step, at in both.items():
        assert at[""]["set"] == "web" and at[""]["loss"] == at["web"]["loss"]
    assert both[6]["web"]["rows"] == 999 // SEQ, both
    assert both[6]["code"]["rows"] == 699 // SEQ, both
    done = b.done("run", "two.plan", "-n", 2, "-m", 2, "--transport", "self",
                  "--steps", STEPS, "--optimizer", "adamw", "--lr", ".003",
                  "--threads", 1, "--data", "train.bin", "--checkpoint",
                  "ck-none", "--quiet")
    assert done.returncode == 0
    assert b.weights("ck-none") == b.weights("ck-both")
    return both


def seen(b, both):
    b.run("seen", *WEB, *CODE, "--prom", b.path("all.prom"), "--tensorboard",
          b.path("tb"))
    want = {key: both[STEPS][key]["loss"] for key in ("web", "code")}
    evaluations = {x["set"]: x for x in b.result["evaluations"]}
    assert {k: x["loss"] for k, x in evaluations.items()} == want, evaluations
    assert all(x["step"] == STEPS for x in evaluations.values()), evaluations
    assert b.result["best_loss"] == min(x["web"]["loss"]
                                        for x in both.values()), b.result
    with open(b.path("all.prom"), encoding="utf-8") as file:
        prom = file.read()
    for key, loss in want.items():
        line, = [x for x in prom.splitlines() if
                 x.startswith("penstock_eval_set_loss{")
                 and f'set="{key}"' in x]
        assert float(line.split()[1]) == loss, (line, loss)
    tags, _ = tensorboard.curves(b.path("tb"))
    for key in want:
        curve = tags[f"eval/{key}/loss"]
        assert sorted(curve) == [2, 4, 6], curve
        assert math.isclose(curve[STEPS], want[key], rel_tol=1e-6), curve
        assert f"eval/{key}/bits_per_byte" in tags, tags
    head, *rows = b.read_evaluations("seen")
    assert head.startswith("penstock evaluations 2 sets web,code of "), head
    assert [[float(x) for x in row.split()] for row in rows] == [
        [step, at["web"]["loss"], at["web"]["loss"], at["code"]["loss"]]
        for step, at in sorted(both.items())], rows
    lines = b.said("history", "ck-seen").splitlines()
    assert lines[0].endswith(",seconds,eval,eval.web,eval.code"), lines
    for step, line in enumerate(lines[1:], 1):
        cells = line.split(",")[6:]
        at = both.get(step)
        assert cells == ["", "", ""] if at is None else [
            float(x) for x in cells] == [at[""]["loss"], at["web"]["loss"],
                                         at["code"]["loss"]], (step, line)
    lines = b.said("history", "log-seen").splitlines()
    assert lines[0].endswith(",seconds"), lines
    table = json.loads(b.call("runs", "ck-seen", "--json"))["runs"][0]
    assert math.isclose(table["best_eval"], b.result["best_loss"],
                        rel_tol=1e-9), table


def status(b):
    name = "status"
    run = b.begin("run", "two.plan", "-n", 2, "-m", 2, "--transport", "self",
                  "--steps", 10 ** 9, "--threads", 1, "--data", "train.bin",
                  "--eval-every", 1, *WEB, *CODE, "--log-dir", "log-" + name,
                  "--job", name, "--quiet")
    b.await_event("log-" + name, "evaluated", "rank-0")
    b.call("pause", "--job", name)
    line = b.events("log-" + name, "eval_set", "rank-0")[-1]
    said = json.loads(b.call("status", "--json", "--job", name))["evaluations"]
    assert [x["set"] for x in said] == ["web", "code"], said
    assert str(said[1]["step"]) == job.field(line, "step"), (said, line)
    assert math.isclose(said[1]["loss"], float(job.field(line, "loss")))
    text = b.call("status", "--job", name)
    assert f"evaluated on code at step {said[1]['step']}: loss " in text, text
    page = top.Terminal(b, 140, 30, "--job", name)
    losses = r"{:.4f}  code {:.4f}".format(*(x["loss"] for x in said))
    page.await_page(lambda lines: any(
        re.search(r"evaluated [\d.]+, best [\d.]+  web [\d.]+  code [\d.]+",
                  line) and losses in line for line in lines))
    page.end()
    b.call("stop", "--job", name)
    b.ended(run, code=None)


def decides(b):
    found = b.run("decides", *WEB, *CODE, "--eval-metric", "code/loss",
                  "--keep-best")
    best = None
    for step, at in sorted(found.items()):
        assert at[""]["set"] == "code" and at[""]["loss"] == at["code"]["loss"]
        if best is None or at["code"]["loss"] < best[1]:
            best = step, at["code"]["loss"]
        assert at[""]["best"] == (best[0] == step), found
    assert (b.result["best_step"], b.result["best_loss"]) == best, b.result
    saved = [x for x in os.listdir(b.path("ck-decides", "best"))
             if x.startswith("step-")]
    assert saved == [f"step-{best[0]:08d}"], saved


def bits(b, both):
    """Each byte is a token, so bits per byte are the loss in bits. With
    --token-bytes each token stands for as many bytes as the file says."""
    for step, at in both.items():
        for key in "web", "code":
            assert math.isclose(at[key]["bits_per_byte"],
                                at[key]["loss"] / math.log(2), rel_tol=1e-5)
    table = bytes((7 * i) % 5 for i in range(256))
    with open(b.path("table.bin"), "wb") as file:
        file.write(table)
    found = b.run("table", *WEB, *CODE, "--token-bytes", "table.bin")
    for key in "web", "code":
        with open(b.path(key + ".bin"), "rb") as file:
            text = file.read()
        n = (len(text) - 1) // SEQ * SEQ
        targets = text[1:n + 1]
        want = (found[STEPS][key]["loss"] * n / math.log(2) /
                sum(table[x] for x in targets))
        assert math.isclose(found[STEPS][key]["bits_per_byte"], want,
                            rel_tol=1e-5), (key, found[STEPS], want)
        alone = json.loads(b.call(
            "eval", "two.plan", "--checkpoint", "ck-table", "--data",
            key + ".bin", "--token-bytes", "table.bin", "--json"))
        assert math.isclose(alone["bits_per_byte"], want, rel_tol=1e-6), alone
    # Two-byte tokens: the bytes are not known without the table.
    with open(b.path("wide.bin"), "wb") as file:
        array.array("H", list(text)).tofile(file)
    alone = json.loads(b.call("eval", "two.plan", "--data", "wide.bin",
                              "--token-dtype", "uint16", "--json"))
    assert "bits_per_byte" not in alone, alone


def losses(b, model):
    """A perplexity needs a plain cross entropy, bits per byte also targets that
    are tokens of the data. Each token is the one before plus 1."""
    with open(b.path("small.bin"), "wb") as file:
        file.write(bytes(i % 8 for i in range(81)))
    with open(b.path("ones.bin"), "wb") as file:
        file.write(b"\1" * 8)
    for loss, perplexity, has_bits in (
            ("plain", True, True), ("masked", True, True),
            ("moved", True, True), ("folded", True, False),
            ("smooth", False, False), ("weighted", False, False),
            ("soft", False, False)):
        for stages in 1, 2:
            words = ("eval", model, "--loss", loss, "--stages", stages,
                     "--data", "small.bin", "--token-dtype", "uint8")
            said = b.call(*words)
            found = ("(perplexity " in said, " bits per byte)" in said)
            assert found == (perplexity, has_bits), (loss, stages, said)
            done = b.done(*words, "--token-bytes", "ones.bin", "--json",
                          code=0 if has_bits else 65)
            if has_bits:
                at = json.loads(done.stdout)
                assert math.isclose(at["bits_per_byte"],
                                    at["loss"] / math.log(2), rel_tol=1e-5), at
            else:
                assert "so there are no bits per byte" in done.stderr, (
                    loss, done.stderr)


def resumed(b, both):
    """Steps of evaluations count for the fault, too."""
    within = 0
    for fault in 4, 9, 11:
        name = f"killed-{fault}"
        b.run(name, *WEB, *CODE, "--checkpoint-every", 1, code=None,
              PENSTOCK_FAULT=f"step:{fault}:kill")
        if os.path.exists(b.path("ck-" + name, "evaluations")):
            within += 1 < len(b.read_evaluations(name)) < len(both) + 1
        b.run(name, *WEB, *CODE, "--resume")
        assert b.read_evaluations(name) == b.read_evaluations("both"), fault
        assert b.weights("ck-" + name) == b.weights("ck-both"), fault
    assert within > 0
    os.rename(b.path("ck-" + name), b.path("ck-killed"))
    b.run("killed", *WEB, "--eval-data", "code=web.bin", "--resume",
          steps=STEPS + 2)
    assert "--eval-data.code was" in b.stderr, b.stderr
    steps = [row.split()[0] for row in b.read_evaluations("killed")[1:]]
    assert steps == ["6", "8"], b.read_evaluations("killed")


def refused(b):
    def expect_refusal(text, *words):
        b.run("no", *words, code=64)
        assert text in b.stderr, (text, b.stderr)

    expect_refusal("of several sets, each is NAME=FILES", *WEB, "--eval-data",
                   "code.bin")
    expect_refusal("is not NAME=FILES", "--eval-data", "web=")
    expect_refusal("letters", "--eval-data", f"{'x' * 33}=web.bin")
    expect_refusal("there is no such set of --eval-data; there is web", *WEB,
                   "--eval-metric", "books/loss")
    expect_refusal("is not OUTPUT:max", *WEB, "--eval-metric", "web/accuracy")
    expect_refusal("more than 16 sets", *(x for i in range(17) for x in (
        "--eval-data", f"s{i}=web.bin")))
    with open(b.path("short.bin"), "wb") as file:
        file.write(b"\1" * 50)
    b.run("short", *WEB, "--token-bytes", "short.bin")
    line, = b.events("log-short", "eval_failed", "rank-0")[:1]
    assert "--token-bytes has 50 bytes, and the data have the token" in line
    assert "data.token-bytes" in line, line


def main():
    penstock, model, text, entropies = map(os.path.abspath, sys.argv[1:5])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        write_files(b, text)
        b.call("split", model, "-o", "two.plan", "--stages", 2)
        both = same(b)
        seen(b, both)
        status(b)
        decides(b)
        bits(b, both)
        losses(b, entropies)
        resumed(b, both)
        refused(b)
        assert not glob.glob(b.path("*.tmp"))
    print("ok")


if __name__ == "__main__":
    main()
