#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests misspelt options, missing values and wrong values of every command.

usage: arguments.py PENSTOCK PENSTOCKD [all]

Each call must be refused with exit code 64 (78 for a path that the system does
not accept) and one line that names the mistake. The line must also suggest the
option, command or word that was probably meant. Without `all`, a random one of
EVERY calls is made; PST_TEST_SEED sets the seed.
"""
import os
import random
import re
import subprocess
import sys
import tempfile

from patience import PATIENCE

OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)(\[=\w+\])?(?: (\S+))?",
                    re.MULTILINE)
COMMAND = re.compile(r"^  ([a-z]+) +\S", re.MULTILINE)
NUMBERS = {"N", "X"}
EVERY = 8


class Bench:
    def __init__(self, folder, rng):
        self.folder, self.rng, self.n, self.faults = folder, rng, 0, 0
        # Keeps the commands away from jobs that already run on this machine.
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder)

    def call(self, *words):
        return subprocess.run(words, cwd=self.folder, text=True, check=False,
                              timeout=PATIENCE, capture_output=True, env=self.env,
                              stdin=subprocess.DEVNULL)

    def refused(self, words, *says, code=(64,)):
        if self.rng is not None and self.rng.randrange(EVERY) > 0:
            return
        self.n += 1
        done = self.call(*words)
        said = done.stderr.strip()
        if (done.returncode not in code or done.stdout or "\n" in said or
                not all(s in said for s in says)):
            self.faults += 1
            print(f"{words[1:]}: {done.returncode}, {says}: {said[:300]}"
                  f"{done.stdout[:80]}")


def misspelt(name):
    """Yields the name with two letters exchanged, then with one letter
    missing.

    The result may be the name of another option."""
    at = len(name) // 2
    yield name[:at] + name[at + 1] + name[at] + name[at + 2:]
    yield name[:-2] + name[-1]


def choices(word):
    return word.split("|") if word and "|" in word and word.islower() else []


def options(b, start):
    text = b.call(*start, "--help").stdout
    return [(m[1], m[3], m[2]) for m in OPTION.finditer(text)]


def check(b, start, plain):
    """Tests all options of one command.

    plain: arguments that the command requires."""
    found = options(b, start)
    names = {name for name, *_ in found} | {"--help", "--version"}
    for name, value, optional in found:
        for other in misspelt(name):
            if other in names or len(name) < 7:
                continue
            b.refused([*start, *plain, other], f"unknown option {other}")
            if not any(n != name and abs(len(n) - len(other)) < 2 and
                       n[:4] == other[:4] for n in names):
                b.refused([*start, *plain, other, "1"],
                          f"did you mean {name}?")
        if value is None or optional:
            continue
        b.refused([*start, *plain, name], name, "value")
        if value in NUMBERS:
            for wrong in "abc", "", "1x", "1e999", "-1e99", "0x", "nan":
                b.refused([*start, *plain, f"{name}={wrong}"], name)
        if choices(value):
            b.refused([*start, *plain, f"{name}=none-such"], "none-such",
                      choices(value)[0])


def main():
    penstock, penstockd = map(os.path.abspath, sys.argv[1:3])
    rng = None
    if sys.argv[3:] != ["all"]:
        seed = int(os.environ.get("PST_TEST_SEED", random.randrange(1 << 30)))
        print(f"PST_TEST_SEED={seed}")
        rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(folder, rng)
        commands = COMMAND.findall(b.call(penstock, "--help").stdout)
        assert len(commands) > 25, commands
        for name in commands:
            if len(name) > 3:
                wrong = next(misspelt(name))
                # "rusn" is as near to "run" as to "runs"
                near = [n for n in commands
                        if n[:3] == name[:3] and len(n) <= len(name)]
                if wrong != name:
                    b.refused([penstock, wrong], "unknown command",
                              *[f"did you mean {n}?" for n in near
                                if near == [name]])
            check(b, [penstock, name], [])
            # these accept any number of arguments
            if name not in ("doctor", "runs", "set"):
                b.refused([penstock, name, *"abcdefghij"], "one argument too")
        check(b, [penstockd], ["x.plan"])
        long = "/tmp/" + 110 * "a"
        b.refused([penstock, "status", "--socket", long], "107",
                  code=(78,))
        b.refused([penstockd, "x.plan", "--socket", long], "107", code=(78,))
        print(f"{b.n} calls, {b.faults} faults")
    return 1 if b.faults else 0


if __name__ == "__main__":
    sys.exit(main())
