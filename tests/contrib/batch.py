#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests contrib/penstock.sbatch with a fake scontrol.

usage: batch.py PENSTOCK TINY.pt2 ROOT

A job whose time limit is reached saves a checkpoint, is requeued and resumes:
its weights equal those of an undisturbed run. A job that fails by itself, or
that does not run under Slurm, is not requeued.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import clients  # noqa: E402  pylint: disable=wrong-import-position
from patience import PATIENCE  # noqa: E402  pylint: disable=wrong-import-position

STEPS = 3000


class Batch:
    def __init__(self, penstock, model, root, folder):
        self.penstock, self.folder = penstock, folder
        self.script = os.path.join(root, "contrib", "penstock.sbatch")
        with open(os.path.join(folder, "scontrol"), "w",
                  encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$@" >>queue\n')
        os.chmod(os.path.join(folder, "scontrol"), 0o755)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder,
                        PATH=f"{folder}:{os.environ['PATH']}",
                        PENSTOCK=penstock, SLURM_JOB_ID="77", SLURM_NTASKS="2",
                        SLURM_CPUS_PER_TASK="1")
        clients.write_data(os.path.join(folder, "data.safetensors"))
        done = subprocess.run([penstock, "split", model, "-o", "tiny.plan"],
                              cwd=folder, env=self.env, check=False)
        assert done.returncode == 0

    def begin(self, name, *more, **env):
        return subprocess.Popen(
            ["bash", self.script, "tiny.plan", name, "--transport", "self",
             "-m", "2", "--data", "data.safetensors", "--lr", "0.001",
             "--steps", str(STEPS), "--checkpoint-every", "1000", *more],
            cwd=self.folder, env={**self.env, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, job, code):
        out, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == code, (job.returncode, out, err)
        return out + err

    def steps(self, name):
        return sorted(x for x in os.listdir(os.path.join(self.folder, name))
                      if x.startswith("step-"))

    def weights(self, name):
        out = os.path.join(self.folder, f"{name}.safetensors")
        done = subprocess.run([self.penstock, "weights", name, "-o", out],
                              cwd=self.folder, env=self.env, check=False)
        assert done.returncode == 0
        with open(out, "rb") as file:
            return file.read()

    def queue(self):
        try:
            with open(os.path.join(self.folder, "queue"),
                      encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []


def await_step(path):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                if " event=step " in file.read():
                    return
        time.sleep(.01)
    raise AssertionError(f"{path} has no step")


def main():
    penstock, model, root = (os.path.abspath(p) for p in sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-batch-") as folder:
        b = Batch(penstock, model, root, folder)
        b.end(b.begin("want"), 0)
        for sent in (signal.SIGUSR1, signal.SIGTERM):
            name = f"run-{sent.name}"
            job = b.begin(name, PENSTOCK_FAULT="step:50:500")
            await_step(os.path.join(folder, name, "log", "rank-0.log"))
            job.send_signal(sent)
            b.end(job, 0)
            assert b.queue().pop() == "requeue 77", b.queue()
            steps = b.steps(name)
            assert 0 < len(steps) and int(steps[-1][5:]) < STEPS, steps
            b.end(b.begin(name), 0)
            assert b.steps(name)[-1] == f"step-{STEPS:08d}"
            assert b.weights(name) == b.weights("want"), "other bits"
        assert len(b.queue()) == 2, b.queue()
        said = b.end(b.begin("bad", "--optimizer", "none-such"), 64)
        assert "none-such" in said, said
        said = b.end(b.begin("alone", SLURM_JOB_ID=""), 1)
        assert "is this a job of Slurm?" in said, said
        assert len(b.queue()) == 2, b.queue()
    return 0


if __name__ == "__main__":
    sys.exit(main())
