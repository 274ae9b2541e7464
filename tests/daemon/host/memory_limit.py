#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model that needs more than 2 GiB in an address space of 2 GiB.

usage: memory_limit.py PENSTOCK WIDE.pt2

The limit is set by ulimit -v. A run that needs more must be refused with an
error before its first step; one that leaves no space for matmuls, too, which
OpenBLAS would wait for. A run with too few open files says so. With --memory-limit 2048 it must train, with the
same bits as a schedule that needs a tenth of the memory.
"""
import json
import os
import re
import resource
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from eval_job import write_data  # noqa: E402
from tensor_file import contents  # noqa: E402

LIMIT = 2 << 30
STEPS = "1"


def limit_addresses(limit=LIMIT):
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def tight(b):
    """Limits in which OpenBLAS would wait forever for memory, when it starts or
    in the first matmul: commands that need none work, others are refused."""
    for mib in 120, 160, 200, 240, 280, 320, 360:
        def limit(mib=mib):
            limit_addresses(mib << 20)

        done = b.ended(b.begin_as([b.penstock, "help"], env=b.env,
                                  preexec_fn=limit), code=None)
        assert done.returncode == 0, (mib, done)
        done = b.ended(b.begin_as(
            [b.penstock, "run", b.model, "--loss", "0", "-n", "1", "-m", "2",
             "--transport", "self", "--steps", "1", "--data", "x.safetensors",
             "--threads", "1", "--quiet"], env=b.env, preexec_fn=limit),
            code=None)
        assert done.returncode == 0 or "ulimit -v" in done.stderr or \
            "[memory." in done.stderr, (mib, done.returncode, done.stderr)


def few_files(b):
    """Runs with fewer and fewer open files: each one that fails says why."""
    for n in range(8, 24):
        done = b.ended(b.begin_as(
            [b.penstock, "run", b.model, "--loss", "0", "-n", "1", "-m", "2",
             "--transport", "self", "--steps", "1", "--data", "x.safetensors",
             "--threads", "1", "--quiet"], env=b.env, preexec_fn=lambda n=n:
            resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))), code=None)
        assert done.returncode == 0 or "[host.open-files]" in done.stderr, (
            n, done)


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        self.model = model
        # Chains would compute the activations again, which then fit.
        self.env["PENSTOCK_NO_CHAINS"] = "1"
        write_data(self.path("x.safetensors"), 1, x=[18 * 1024, 1])

    def run(self, schedule, *more, limited=True):
        return self.ended(self.begin_as(
            [self.penstock, "run", self.model, "--loss", "0", "-n", "1", "-m",
             "18", "--schedule", schedule, "--steps", STEPS, "--data",
             "x.safetensors", "--threads", "2", "--lr", "0.01", "--dump",
             f"{schedule}.dump", "--log-dir", f"log-{schedule}", "--quiet",
             *more], env=self.env,
            preexec_fn=limit_addresses if limited else None), code=None)

    def dump(self, schedule):
        return contents(self.path(f"{schedule}.dump"))


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, folder) as b:
        plan = b.call("plan", model, "--loss", "0", "-n", "1", "-m", "18",
                      "--schedule", "gpipe", "--json")
        assert json.loads(plan)["ranks"][0]["arena_bytes"] > LIMIT
        too_much = b.run("gpipe")
        said = too_much.stdout + too_much.stderr
        assert too_much.returncode not in (0, 77) and "MiB" in said and \
            re.search("address|ulimit", said), (too_much.returncode, said)
        done = b.run("gpipe", "--memory-limit", "2048")
        assert done.returncode == 0, done
        with open(b.path("log-gpipe", "rank-0.log"), encoding="utf-8") as f:
            began, = re.findall(r" event=train_begin .* recompute=(\S+) .* "
                                r"planned_bytes=(\d+)",
                                f.read().split("event=start")[-1])
        assert began[0] != "none" and int(began[1]) < LIMIT, began
        done = b.run("1f1b", limited=False)
        assert done.returncode == 0, done
        assert b.dump("gpipe") == b.dump("1f1b")
        tight(b)
        few_files(b)
    print("ok")


if __name__ == "__main__":
    main()
