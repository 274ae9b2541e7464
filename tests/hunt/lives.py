#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets jobs live through drawn events, and compares each with its plain form.

    lives.py PENSTOCK WORKDIR [--seed N] [--number N] [--seconds S] [--keep]

WORKDIR/models gets the models, which needs PyTorch (PENSTOCK_PYTHON). A life
that breaks an invariant leaves life-SEED/, with life.sh, which repeats its
commands. The last line is "N lives, N refused, N broken".
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from ground import Broken, Gone, Ground, kill_all
import check
import draw
import events
import life as lives

HERE = os.path.dirname(os.path.abspath(__file__))


def models_of(folder):
    path = os.path.join(folder, "models.json")
    if not os.path.exists(path):
        subprocess.run([os.environ.get("PENSTOCK_PYTHON", "python3"),
                        os.path.join(HERE, "models.py"), folder], check=True)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def one(options, seed, count):
    """Lives one life. Returns "lived", "refused" or "broken"."""
    models = os.path.join(os.path.abspath(options.work), "models")
    about = models_of(models)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(
            prefix="life-", dir=options.ground) as folder:
        again = f"lives.py PENSTOCK WORKDIR --seed {seed}"
        g = Ground(options.penstock, models, folder, again)
        before = check.digests(models)
        life = events.Life(g, draw.Drawn(rng, about, options.mpi))
        said, why = "lived", ""
        try:
            if not life.live():
                said, why = "refused", life.refusal
            else:
                life.plain()
                check.check(g, life)
            if check.digests(models) != before:
                raise Broken("files: a file of the user has changed")
        except lives.Refused as refused:
            said, why = "refused", refused
        except (Broken, Gone, Exception) as broken:
            said, why = "broken", broken
            kind = ("" if isinstance(broken, Broken) else
                    traceback.format_exc())
            print(f"seed {seed}: {broken}\n{kind}")
            print("\n".join("    " + x for x in life.course))
        finally:
            kill_all(folder)
        for text in life.course:
            if text[0] != " ":
                count[text.split(": ")[1].split()[0]] += 1
        if said == "broken" or options.keep:
            kept = os.path.join(options.work, f"life-{seed}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, symlinks=True,
                            ignore=shutil.ignore_patterns("*.sock", "*fifo"))
            with open(os.path.join(kept, "life.sh"), "w",
                      encoding="utf-8") as file:
                file.write("\n".join(g.script) + "\n")
        if said == "refused" and options.verbose:
            print(f"seed {seed}: refused: {why}")
        return said


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("penstock")
    ask.add_argument("work")
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--number", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=1e9)
    ask.add_argument("--ground", default="/dev/shm")
    ask.add_argument("--mpi", type=float, default=.06)
    ask.add_argument("--keep", action="store_true")
    ask.add_argument("-v", "--verbose", action="store_true")
    options = ask.parse_args()
    os.makedirs(options.work, exist_ok=True)
    # The jobs of a life must not outlive this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found, count = collections.Counter(), collections.Counter()
    begin = time.monotonic()
    for k in range(options.number):
        if time.monotonic() - begin > options.seconds:
            break
        try:
            found[one(options, options.seed + k, count)] += 1
        except KeyboardInterrupt:
            break
        sys.stdout.flush()
    n = max(sum(found.values()), 1)
    seconds = time.monotonic() - begin
    print(f"{seconds / n:.2f} s a life; " + ", ".join(
        f"{k} {v}" for k, v in count.most_common()))
    print(f"{n} lives, {found['refused']} refused, {found['broken']} broken")
    sys.exit(1 if found["broken"] else 0)


if __name__ == "__main__":
    main()
