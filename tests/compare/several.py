#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs scripts of this folder and those below it in turn, each in a fork of
one process.

    several.py PENSTOCK [--at-once N] [--times FILE] [--taken FILE] <LIST

A line of LIST is a title, a script and its words after PENSTOCK, separated by
tabs. A line whose title begins with "+" needs files of the line before it.
Several processes share a list by one --taken: each line runs in the process
that is first to write its title there; lines with "+" run where the line before
them runs. --at-once N makes N such processes by itself. What a script prints
appears when it has ended. Common modules are imported once before the forks: PyTorch, transformers
and what an export imports. FILE gets the seconds of each script. Each script
ends with a line `N passed, N failed`, and so does this one. A script without
that line, or with nothing passed, counts as failed.
"""
import argparse
import fcntl
import os
import re
import resource
import runpy
import sys
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

HERE = Path(__file__).resolve().parent
LAST = re.compile(r"(\d+) passed, (\d+) failed")


def warm_up():
    """Imports the modules that torch.export imports when it is first used."""
    import torch
    import transformers  # noqa: F401
    state = torch.get_rng_state()
    torch.set_num_threads(1)
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),),
                                  strict=False)
    program.run_decompositions()
    torch.set_rng_state(state)


def run_as_main(script, words, out):
    """Runs the script in the forked process as if Python had started it."""
    os.dup2(out, 1)
    os.close(out)
    path = (HERE / script).resolve()
    sys.argv = [str(path), *words]
    sys.path[0] = str(path.parent)
    code = 1
    try:
        runpy.run_path(str(path), run_name="__main__")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:  # pylint: disable=broad-except
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(script, words):
    """Runs a script. Returns (lines that it has printed, passed, failed)."""
    end, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        run_as_main(script, words, out)
    os.close(out)
    with os.fdopen(end, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    os.waitpid(pid, 0)
    last = lines[-1] if lines else ""
    found = LAST.fullmatch(last)
    lines = [line for line in lines if not LAST.fullmatch(line)]
    if not found or found[1] == "0":
        lines.append(f"FAILED  {script} has counted nothing: {last}")
        return lines, 0, 1
    return lines, int(found[1]), int(found[2])


def work():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF,
                                                resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def take(path, title):
    """True if no process has taken the line yet; it is taken then."""
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if title in file.read().splitlines():
            return False
        file.write(title + "\n")
        return True


def run_rows(rows, a):
    """Runs the rows that this process takes. Returns (passed, failed)."""
    passed = failed = 0
    mine = True
    for title, script, *words in rows:
        if not title.startswith("+"):
            mine = take(a.taken, title)
        if not mine:
            continue
        title = title.removeprefix("+ ")
        begin, before = time.monotonic(), work()
        lines, good, bad = run(script, [a.penstock, *words])
        passed, failed = passed + good, failed + bad
        # One write: lines of scripts that run at once stay apart.
        os.write(1, "\n".join([f"\033[1m== {title}\033[0m", *lines, ""])
                 .encode())
        if a.times:
            with open(a.times, "a", encoding="utf-8") as file:
                file.write(f"{time.monotonic() - begin:.1f} "
                           f"{work() - before:.1f} {title}\n")
    return passed, failed


def fork_worker(rows, a):
    """Starts a process that takes rows. Returns a file with its result."""
    end, out = os.pipe()
    if os.fork() == 0:
        os.close(end)
        passed, failed = run_rows(rows, a)
        os.write(out, f"{passed} {failed}".encode())
        os._exit(0)
    os.close(out)
    return os.fdopen(end, encoding="utf-8")


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("--at-once", type=int, default=1, metavar="N",
                   help="scripts that run at the same time")
    p.add_argument("--times", help="a file to which they are added")
    p.add_argument("--taken", help="titles of lines that a process has taken")
    a = p.parse_args()
    rows = [line.rstrip("\n").split("\t") for line in sys.stdin]
    if not rows:
        raise SystemExit("no line to run")
    warm_up()
    passed = failed = 0
    with tempfile.NamedTemporaryFile() as own:
        a.taken = a.taken or own.name
        for worker in [fork_worker(rows, a) for _ in range(a.at_once)]:
            with worker as file:
                counts = file.read().split() or (0, 1)
            passed, failed = passed + int(counts[0]), failed + int(counts[1])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
