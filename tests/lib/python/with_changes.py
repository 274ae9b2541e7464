#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints of runs that have changed their model in the library,
saves them, and resumes the runs.

usage: with_changes.py ROOT LIBRARY PENSTOCK

A session of the model that the run began with goes on with the changed model:
the resume has the bits of one without the session in between. So it has if the
session was opened with a part frozen that the run had frozen: nothing is
trained again because a program had the checkpoint in its hands.
"""
import filecmp
import os
import shutil
import struct
import sys
import tempfile

ROOT, LIBRARY, PENSTOCK = map(os.path.abspath, sys.argv[1:4])
sys.path[:0] = [os.path.join(os.path.dirname(LIBRARY), "python"),
                os.path.join(ROOT, "tests", "daemon")]
sys.dont_write_bytecode = True
import penstock  # noqa: E402
import tensor_file  # noqa: E402
from job import Bench  # noqa: E402

LATE = os.path.join(ROOT, "tests", "golden", "late.pt2")
FC = os.path.join(ROOT, "tests", "golden", "late-fc.pt2")
CHANGES = {
    "freeze": [("freeze", "fc.bias")],
    "set": [("attr", "set", "fc.weight", ".25")],
    "cast": [("freeze", "fc.bias"), ("attr", "cast", "fc.bias", "f16")],
    "swap": [("swap", "fc", FC)],
    "both": [("swap", "fc", FC), ("freeze", "fc.bias")],
}


def words(folder, steps):
    return ["run", LATE, "--stages", "1", "--transport", "self", "-n", "1",
            "--threads", "1", "--optimizer", "adamw", "--lr", ".01", "--data",
            "rows.safetensors", "--checkpoint", folder, "--steps", str(steps),
            "--quiet", "--dump", folder + ".dump"]


def changed(b, name):
    """Makes a checkpoint of step 4 of a run that was changed after step 2."""
    b.gate(0)
    if os.path.exists(b.path("gate.at")):
        os.unlink(b.path("gate.at"))
    run = b.begin(*words(name, 4), "--job", name, PENSTOCK_GATE="gate")
    b.paused_after(2, name)
    for change in CHANGES[name]:
        b.call(*change, "--job", name)
    b.gate(99)
    b.call("resume", "--job", name)
    b.ended(run)


def through_session(b, folder, said, **options):
    with penstock.Model(LATE, **options) as model, model.session(
            lr=.01, threads=1, message=said.append) as session:
        assert session.load(b.path(folder)) == 4
        names = [p.name for p in session.parameters]
        for p in names:
            session.get(p)
        session.save(b.path(folder))
        # What has been loaded can be loaded again.
        assert session.load(b.path(folder)) == 4
        assert [p.name for p in session.parameters] == names


def main():
    penstock.load(LIBRARY)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(PENSTOCK, folder) as b:
        tensor_file.save(b.path("rows.safetensors"), {
            name: ("F32", [16, 4], struct.pack("<64f", *(
                (k * k % of - of // 2) / of for k in range(64))))
            for name, of in (("x", 17), ("wanted", 23))})
        for name in CHANGES:
            changed(b, name)
            opened = [{}]
            if name == "freeze":
                opened.append({"freeze": "fc.bias"})
            for k, options in enumerate(opened):
                other, said = f"{name}-{k}", []
                shutil.copytree(b.path(name), b.path(other))
                through_session(b, other, said, **options)
                assert any("has changed its model" in x for x in said) == \
                    (not options), (name, said)
                b.call(*words(other, 6), "--resume")
            b.call(*words(name, 6), "--resume")
            for k in range(len(opened)):
                assert filecmp.cmp(b.path(name + ".dump"),
                                   b.path(f"{name}-{k}.dump"), False), name
    print("ok")


main()
