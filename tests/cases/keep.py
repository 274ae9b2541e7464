#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the programs of a set of cases that failed, as a set of its own.

usage: keep.py SET DIR

Which failed is in SET.*.verdicts, which scripts/cases.sh leaves; DIR gets their
files and a cases.json (README.md).
"""
import glob
import json
import os
import shutil
import sys


def main():
    source, target = sys.argv[1:]
    failed = set()
    for path in glob.glob(source + ".*.verdicts"):
        with open(path, encoding="utf-8") as file:
            failed |= {line.split()[0] for line in file
                       if line.split()[1:] == ["failed"]}
    with open(os.path.join(source, "cases.json"), encoding="utf-8") as file:
        cases = [case for case in json.load(file) if case["case"] in failed]
    if not cases:
        return
    os.makedirs(target, exist_ok=True)
    for case in cases:
        for name in {case["pt2"], case["safetensors"]}:
            shutil.copy(os.path.join(source, name), target)
    with open(os.path.join(target, "cases.json"), "w",
              encoding="utf-8") as file:
        json.dump(cases, file, indent=1)
    print(f"{len(cases)} programs are kept in {target}")


if __name__ == "__main__":
    main()
