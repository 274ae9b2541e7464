#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops a rank that owns a part of sharded parameters while others gather it.

usage: unshard.py PENSTOCK TINY.pt2

kill      the job ends and names the rank that was killed; with --max-restarts
          it continues and ends with the weights of an undisturbed run
hang      the watchdog names the waiting rank and the rank that it waits for
alone     a job of one replica prints a note that nothing is sharded; the
          weights are the same
"""
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import job  # noqa: E402

STEPS, LIMIT_S = 8, 2
GATHER = 21  # the rank stops at its GATHER-th gather of the job


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        clients.write_data(os.path.join(folder, "data.safetensors"))

    def run(self, name, *more, fault=None, flag=None, quiet=True):
        """Runs a job. Returns exit code, all output, and seconds."""
        env = {}
        if fault:
            env.update(PENSTOCK_FAULT=fault, PENSTOCK_FAULT_RANK="1")
        if flag:
            with open(self.path(flag), "w"):
                env["PENSTOCK_FAULT_ONCE"] = self.path(flag)
        begin = time.monotonic()
        # If the job hangs, the timeout ends it and the test fails.
        p = self.done("run", "tiny.pt2", "-n", "2x1", "-m", "4", "--shard",
                      "zero3", "--data", "data.safetensors", "--steps", STEPS,
                      "--lr", "0.001", "--transport", "mpi", "--checkpoint",
                      name, "--checkpoint-every", "2", *more,
                      *["--quiet"][:quiet], code=None, **env)
        return p.returncode, p.stdout + p.stderr, time.monotonic() - begin


def expect(what, good, said):
    if not good:
        sys.exit(f"{what}:\n{said}")


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-unshard-") as folder, \
            Bench(penstock, model, folder) as b:
        code, said, _ = b.run("undisturbed")
        expect("undisturbed", code == 0, said)
        want = b.weights("undisturbed")

        for mode in ("zero3", "none"):
            code, said, _ = b.run("alone-" + mode, "-n", "1", "--shard", mode,
                                  quiet=False)
            expect("alone", code == 0 and ("note: --shard zero3" in said) ==
                   (mode == "zero3"), said)
        expect("weights of one replica differ", b.weights("alone-zero3") ==
               b.weights("alone-none"), "")

        code, said, seconds = b.run("killed", fault=f"unshard:{GATHER}:kill")
        expect(f"killed ({seconds:.1f} s)", code != 0 and "rank 1" in said
               and "kill" in said.lower(), said)

        code, said, _ = b.run("again", "--max-restarts", "2",
                              fault=f"unshard:{GATHER}:kill", flag="once")
        expect("killed and started again", code == 0 and not os.path.exists(
            os.path.join(folder, "once")), said)
        expect("weights differ", b.weights("again") == want, said)

        code, said, _ = b.run("hung", "--watchdog", str(LIMIT_S),
                              fault=f"unshard:{GATHER}:hang")
        expect("hung", code != 0 and "nothing has moved" in said
               and "rank 1" in said, said)
    print(json.dumps({"killed_s": round(seconds, 1)}))


if __name__ == "__main__":
    main()
