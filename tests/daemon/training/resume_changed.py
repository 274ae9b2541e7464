#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that resume with another number of samples per step, with another
export of the model, within the decay of the learning rate, or with other rates
of matmuls.

usage: resume_changed.py PENSTOCK TINY.pt2
"""
import glob
import json
import os
import re
import struct
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402


def write_data(path, rows):
    """Writes the samples with these numbers of an endless sequence. A sample
    has 1, 1, 4 and 8 rows of the inputs."""
    tensor_file.save(path, {
        "tokens": ("I64", [len(rows), 3], b"".join(struct.pack(
            "<3q", *[(5 * r + i) % 12 for i in range(3)]) for r in rows)),
        "labels": ("I64", [len(rows), 3], b"".join(struct.pack(
            "<3q", *[(7 * r + 3 * i) % 16 for i in range(3)]) for r in rows)),
        "extra.scale": ("F32", [4 * len(rows)], b"".join(struct.pack(
            "<4f", *[1 + .01 * r + .1 * i for i in range(4)]) for r in rows)),
        "extra.pair.0": ("F32", [8 * len(rows)], b"".join(struct.pack(
            "<8f", *[.1 * (i % 7) - .02 * r for i in range(8)])
            for r in rows))})


def export_again(path, to):
    """Writes the same model with other initial parameters."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if "/data/weights/weight_" in info.filename:
                data = struct.pack(f"<{len(data) // 4}f", *[
                    .5 * x + .01 for x in struct.unpack(
                        f"<{len(data) // 4}f", data)])
            new.writestr(zipfile.ZipInfo(info.filename), data)


class Bench(job.Bench):
    def run(self, steps, *words, model="tiny.pt2", m=2, data="all",
            folder=None):
        words = ["run", model, "-n", "1", "-m", m, "--steps", steps, "--data",
                 f"{data}.safetensors", "--quiet", "--transport", "self",
                 *(["--checkpoint", folder] if folder else []), *words]
        return self.done(*words).stderr

    def dumped(self, name):
        return tensor_file.load(self.path(name))[0]

    def saved(self, folder):
        """Returns the tensors of step 6, which must not depend on the
        export."""
        path, = glob.glob(self.path(folder, "step-00000006", "rank-*"))
        return tensor_file.load(path)[0]

    def manifest(self, folder, step):
        path = self.path(folder, f"step-{step:08d}", "manifest.json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def other_steps(b):
    """Checks that a run continues with the next samples after a change of the
    batch size: the loss equals that of a run on these samples alone."""
    write_data(b.path("all.safetensors"), range(20))
    none = "--optimizer", "none"
    b.run(3, *none, folder="place")
    place = b.manifest("place", 3)["data"]
    assert b.path("all.safetensors").endswith(place.pop("source")), place
    assert place == {
        "tokens": False, "pass": 0, "at": 12, "step": 4, "unit": 2}
    said = b.run(4, *none, "--resume", "--dump", "got", m=3, folder="place")
    assert "warning: rows of a step was 4 in the run that saved this " \
        "checkpoint, and is 6 now: the data continues after the last " \
        "sample, with rows 12 to 13 of 'tokens' in all.safetensors (counted " \
        "from 0)" \
        in said.replace(b.folder + "/", ""), said
    write_data(b.path("these.safetensors"), range(12, 18))
    b.run(1, *none, "--dump", "want", m=3, data="these")
    assert b.dumped("got")["loss"] == b.dumped("want")["loss"]
    # Resumes in the second pass over the data, and with unchanged options.
    said = b.run(6, *none, "--resume", folder="place")
    assert "with rows 18 to 19 of" in said, said
    said = b.run(7, *none, "--resume", "--dump", "got", m=1, folder="place")
    assert "with rows 6 to 7 of" in said, said
    assert b.manifest("place", 7)["data"]["pass"] == 1
    write_data(b.path("these.safetensors"), range(6, 8))
    b.run(1, *none, "--dump", "want", m=1, data="these")
    assert b.dumped("got")["loss"] == b.dumped("want")["loss"]
    assert "rows of a step" not in b.run(8, *none, "--resume", m=1,
                                         folder="place")


def other_exports(b):
    """Checks that a run resumed with another export has the same bits and
    reports the difference."""
    adamw = "--optimizer", "adamw", "--lr", ".01"
    export_again(b.path("tiny.pt2"), b.path("again.pt2"))
    b.run(6, *adamw, folder="straight")
    b.run(3, *adamw, folder="parts")
    said = b.run(6, *adamw, "--resume", model="again.pt2", folder="parts")
    assert "warning: this is another export of the model that saved the " \
        "checkpoint, and computes the same" in said, said
    assert "trained" not in said, said
    parts, straight = b.saved("parts"), b.saved("straight")
    assert parts == straight, [k for k in parts if parts[k] != straight[k]]
    # Resumes with the first export again: first with a module frozen, then with
    # all modules trained.
    b.call("split", "tiny.pt2", "-o", "frozen.pln", "--freeze", "fc")
    said = b.run(7, *adamw, "--resume", model="frozen.pln", folder="parts")
    assert "'fc.weight', 'fc.bias': trained before and not now, the states " \
        "of the optimizer are dropped" in said, said
    said = b.run(8, *adamw, "--resume", folder="parts")
    assert "'fc.weight', 'fc.bias': not trained before, the states of the " \
        "optimizer begin here" in said, said
    found = b.manifest("parts", 8)
    assert (found["updates"], found["updates_before"]) == (
        8, {"fc.weight": 7, "fc.bias": 7}), found
    # The state of the module is still in the checkpoint.
    assert "not trained before" not in b.run(9, *adamw, "--resume",
                                             folder="parts")
    assert b.manifest("parts", 9)["updates_before"] == {
        "fc.weight": 7, "fc.bias": 7}


def decays(b):
    """Checks that a run that stops within the decay of its learning rate and
    is resumed has the bits of one that does not stop."""
    wsd = ["--optimizer", "adamw", "--lr", ".01", "--lr-schedule", "wsd",
           "--warmup", "2", "--lr-steps", "6", "--lr-decay-steps", "3",
           "--lr-decay-shape"]
    b.run(6, *wsd, "sqrt", folder="whole")
    b.run(5, *wsd, "sqrt", folder="halves")
    said = b.run(6, *wsd, "sqrt", "--resume", folder="halves")
    assert "--lr" not in said and "--steps" not in said, said
    whole, halves = b.saved("whole"), b.saved("halves")
    assert whole == halves, [k for k in whole if whole[k] != halves[k]]
    said = b.run(7, *wsd, "cosine", "--resume", folder="halves")
    assert "--lr-decay-shape was sqrt in the run that saved this checkpoint, " \
        "and is cosine now" in said, said


def rates(b):
    """Checks that a resume reports other instructions of bf16 matmuls, which
    rates in a file choose, in a run that has such matmuls."""
    b.env["XDG_CACHE_HOME"] = b.path("cache")
    has_bf16 = ", bf16 " in b.call("calibrate")
    path = b.path("cache", "penstock", "rates")
    with open(path, encoding="utf-8") as file:
        kept = file.read()

    def said(step, dtype, rate, *words):
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r" bf16=\S+", f" bf16={rate}", kept))
        return b.run(step, "--dtype", dtype, *words, folder="of-" + dtype)

    for dtype in "bf16", "f32":
        said(2, dtype, 1e15)
        assert "instructions" not in said(3, dtype, 1e15, "--resume")
        text = said(4, dtype, 1e7, "--resume")
        assert ("instructions of bf16 matmuls was bf16 in the run that saved "
                "this checkpoint, and is f32 now: numbers may differ in their "
                "last bits" in text) == (has_bf16 and dtype == "bf16"), text
        assert "instructions" not in said(5, dtype, 1e7, "--resume")


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        os.symlink(model, b.path("tiny.pt2"))
        other_steps(b)
        other_exports(b)
        decays(b)
        rates(b)
    print("ok")


if __name__ == "__main__":
    main()
