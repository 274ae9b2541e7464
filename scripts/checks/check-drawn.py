#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the archived sets of cases in tests/data are up to date.

usage: check-drawn.py ROOT

If the code that draws a set has changed, scripts/cases.sh draws the set again,
which takes a minute and hides that the archive is stale. Prints one line per
fault; exit code 1 if there is any.
"""
import glob
import os
import re
import subprocess
import sys
import tarfile


def fault(root, archive):
    name = re.fullmatch(r"drawn-(\w+)\.tar\.xz", os.path.basename(archive))[1]
    with tarfile.open(archive) as file:
        stamp = file.extractfile("stamp").read().decode().strip()
    digest = subprocess.run(
        [sys.executable, f"{root}/tests/cases/digest.py", name],
        stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if stamp == f"1 {digest}":
        return []
    return [f"{archive}: written by other code; scripts/cases.sh --pack"]


def main():
    archives = sorted(glob.glob(f"{sys.argv[1]}/tests/data/drawn-*.tar.xz"))
    assert archives, "no archives"
    faults = [line for archive in archives
              for line in fault(sys.argv[1], archive)]
    print("\n".join(faults) or f"{len(archives)} sets are up to date")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
