# SPDX-License-Identifier: Apache-2.0
"""Runs penstock in the cases of a script and counts those that pass."""
import argparse
import contextlib
import subprocess
from pathlib import Path

import torch


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder = penstock, folder
        self.passed = self.failed = 0
        self.warned = ""  # standard error of the last call: its warnings

    def call(self, *args, code=0):
        """Returns the output of a command, or its error message if an exit
        code other than 0 is expected."""
        done = subprocess.run([self.penstock, *map(str, args)],
                              cwd=self.folder, text=True, capture_output=True,
                              check=False)
        assert done.returncode == code, (args, done.returncode, done.stderr)
        self.warned = done.stderr
        return done.stdout if code == 0 else done.stderr

    @contextlib.contextmanager
    def case(self, name):
        try:
            yield
            self.passed += 1
        except AssertionError as e:
            self.failed += 1
            print(f"FAIL {name}: {e}")


def main(bench, parts, seed=0):
    """Parses the command line PENSTOCK WORKDIR [--seed N], runs the parts and
    returns the exit code."""
    p = argparse.ArgumentParser()
    p.add_argument("penstock", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--seed", type=int, default=seed)
    a = p.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    b = bench(a.penstock.resolve(), a.workdir.resolve())
    for part in parts:
        part(b)
    print(f"{b.passed} passed, {b.failed} failed")
    return 1 if b.failed else 0
