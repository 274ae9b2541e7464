# SPDX-License-Identifier: Apache-2.0
"""Checks that a job over MPI needs only the system calls and kinds of sockets
that contrib/penstock@.service allows.

usage: unit.py PENSTOCK NORM.pt2 ROOT

Needs strace and systemd-analyze; without these the test prints that and ends
with 77.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "daemon"))
import eval_job  # noqa: E402  pylint: disable=wrong-import-position
from patience import PATIENCE  # noqa: E402  pylint: disable=wrong-import-position


def calls_of(name, seen):
    """Returns the system calls of a group, including its nested groups."""
    calls = set()
    if name in seen:
        return calls
    seen.add(name)
    said = subprocess.run(["systemd-analyze", "syscall-filter", name],
                          check=True, capture_output=True, text=True).stdout
    for word in (line.strip() for line in said.splitlines()[1:]):
        if word.startswith("@"):
            calls |= calls_of(word, seen)
        elif word and word[0] != "#":
            calls.add(word)
    return calls


def main():
    penstock, norm, root = map(os.path.abspath, sys.argv[1:4])
    if not shutil.which("strace") or not shutil.which("systemd-analyze"):
        print("strace or systemd-analyze is not installed")
        return 77
    with open(f"{root}/contrib/penstock@.service", encoding="utf-8") as file:
        unit = dict(re.findall(r"^(\w+)=(.*)$", file.read(), re.MULTILINE))
    allowed = calls_of("@default", set())
    for group in unit["SystemCallFilter"].split():
        allowed |= calls_of(group, set())
    families = unit["RestrictAddressFamilies"].split()
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with eval_job.Bench(penstock, norm, None, "mpi", folder) as b:
            subprocess.run(
                ["strace", "-f", "-qq", "-o", b.path("calls"), penstock, "run",
                 "norm.plan", "-n", "2", "-m", "2", "--data",
                 "train.safetensors", "--steps", "5", "--checkpoint", "ck",
                 "--log-dir", "log", "--max-restarts", "1", "--quiet"],
                cwd=folder, env=b.env, check=True, timeout=PATIENCE)
            with open(b.path("calls"), encoding="utf-8",
                      errors="replace") as file:
                text = file.read()
    used = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    sockets = set(re.findall(r" socket\((AF_\w+)", text))
    # Checks that the trace is complete: any such job uses these calls and
    # sockets.
    assert {"clone3", "mmap", "process_vm_readv"} & used and len(used) > 50
    assert sockets >= {"AF_UNIX", "AF_INET"}, sockets
    print(f"{len(used)} calls, {' '.join(sorted(sockets))}")
    assert used <= allowed, used - allowed
    assert sockets <= set(families), sockets - set(families)
    return 0


if __name__ == "__main__":
    sys.exit(main())
