#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the simulation of examples/fortran with the command.

usage: advection.py MPIFORT MPIEXEC LIBRARY DRIVE PENSTOCK ROOT

Compiles it, and the program for Fortran in docs/library.md, which trains, too.
On 2 and 4 ranks it has the same samples. The losses of its steps are, bit by
bit, those of a program in C (drive.c) and of `penstock run` on these samples,
and within 1e-5 those of PyTorch 2.13, which
`export.py --train PREFIX 12` printed in examples/fortran/.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..",
                                "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

STEPS, ROWS, STENCIL = 12, 64, 5
CLOSURE = "examples/fortran/closure.pt2"
OPTIONS = {"microbatches": "2", "optimizer": "adamw", "lr": "1e-2",
           "threads": "1"}
BY_PYTORCH = [
    0.07936274260282516, 0.02865358628332615, 0.01944074220955372,
    0.030348172411322594, 0.03711692709475756, 0.03431309945881367,
    0.02727899421006441, 0.021038410253822803, 0.017858317587524652,
    0.017697564791888, 0.019299822859466076, 0.021184412762522697,
]


def call(*words, cwd=None):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("PENSTOCK_")}
    done = subprocess.run([str(word) for word in words], capture_output=True,
                          text=True, timeout=PATIENCE, check=False, env=env,
                          cwd=cwd)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def read(path):
    with open(path, "rb") as file:
        return file.read()


def build(mpifort, library, source, program):
    folder = os.path.dirname(library)
    call(mpifort, "-std=f2008", "-fcheck=all", "-Wall", "-Wextra", "-Werror",
         "-J", os.path.dirname(program), os.path.join(
             folder, "fortran", "penstock.f90"), source, "-L", folder,
         "-lpenstock", "-Wl,-rpath," + folder, "-o", program)
    return program


def page(mpifort, library, root, folder):
    """The program of docs/library.md trains `model.pt2`."""
    with open(os.path.join(root, "docs", "library.md"),
              encoding="utf-8") as file:
        text, = re.findall(r"```fortran\n(.*?)```", file.read(), re.S)
    source = os.path.join(folder, "train.f90")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    train = build(mpifort, library, source, os.path.join(folder, "train"))
    with open(os.path.join(folder, "model.pt2"), "wb") as file:
        file.write(read(os.path.join(root, CLOSURE)))
    losses = [float(line.split()[1])
              for line in call(train, cwd=folder).splitlines()]
    assert len(losses) == 10 and losses[-1] < losses[0], losses


def simulate(mpiexec, advection, model, ranks, prefix):
    """Returns the losses and the samples."""
    out = call(mpiexec, "-n", ranks, advection, model, STEPS, prefix)
    losses = re.findall(r"^step (\d+): loss +(\S+)$", out, re.M)
    assert [int(step) for step, _ in losses] == [*range(1, STEPS + 1)], out
    return [float(loss) for _, loss in losses], \
        [read(f"{prefix}.{name}") for name in ("stencil", "correction")]


def run(penstock, model, samples, folder):
    """Returns the losses of the first and of the last step."""
    data, dump = os.path.join(folder, "data"), os.path.join(folder, "dump")
    data += ".safetensors"
    tensor_file.save(data, {
        "stencil": ("F32", [STEPS * ROWS, STENCIL], samples[0]),
        "correction": ("F32", [STEPS * ROWS, 1], samples[1])})
    out = call(penstock, "run", model, "--stages", 2, "-n", 2, "--steps", STEPS,
               "--transport", "self", "--data", data, "--dump", dump, "--json",
               *(f"--{name}={value}" for name, value in OPTIONS.items()))
    return tensor_file.load(dump)[0]["loss"][2], \
        json.loads(out.splitlines()[-1])["loss"]


def main():
    mpifort, mpiexec, library, drive, penstock, root = \
        (os.path.abspath(word) for word in sys.argv[1:])
    model = os.path.join(root, CLOSURE)
    with tempfile.TemporaryDirectory() as folder:
        page(mpifort, library, root, folder)
        advection = build(mpifort, library, os.path.join(
            root, "examples/fortran/advection.f90"),
            os.path.join(folder, "advection"))
        prefix = os.path.join(folder, "samples")
        losses, samples = simulate(mpiexec, advection, model, 2, prefix)
        assert simulate(mpiexec, advection, model, 4, prefix + ".4") == \
            (losses, samples)
        assert len(samples[0]) == 4 * STEPS * ROWS * STENCIL, len(samples[0])
        out = call(drive, "open", model, "stages=2", "session", "ranks=2",
                   *(f"{name}={value}" for name, value in OPTIONS.items()),
                   "data", prefix + ".stencil", prefix + ".correction",
                   "train", "arrays", STEPS)
        in_c = [float.fromhex(x) for x in re.findall(r"^loss (\S+)$", out,
                                                     re.M)]
        assert losses == in_c, (losses, in_c)
        first, last = run(penstock, model, samples, folder)
        assert last == losses[-1], (last, losses)
        assert first == struct.pack("<f", losses[0]), (first, losses)
    assert len(BY_PYTORCH) == STEPS
    for ours, theirs in zip(losses, BY_PYTORCH):
        assert abs(ours / theirs - 1) < 1e-5, (losses, BY_PYTORCH)


main()
