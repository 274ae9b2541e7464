#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the table of programs in docs/aliasing.md: penstock and PyTorch.

usage: alias-table.py [--check] TEST_ALIAS_CASES CASES.json DOCUMENT

Without --check writes the table; with it, exit code 1 if the table is not
current. The table is between the lines "<!-- programs -->" and
"<!-- end of programs -->". The results of penstock come from running the
programs, those of PyTorch from the file of cases.
"""
import json
import subprocess
import sys

import doctable

COMPILED = {"equal": "as eager", "differs": "**wrong numbers**",
            "raises": "refuses", "raises too": "refuses"}


def row(case, outcome, bases):
    refuses = "raises" in case["expect"]
    theirs = COMPILED[case["torch"]]
    if outcome != "equal":
        ours, bases = f"refuses: `{outcome}`", ""
        if outcome == "refused":
            ours = "refuses"
        if outcome == "wrong":
            ours = "**wrong numbers**"
    else:
        ours = "right numbers" if refuses else "as eager"
    other = case["plan"].get("torch_bases")
    if bases and other is not None:
        bases = f"{bases} (PyTorch: {other})"
    return (f"| `{case['name']}` | {case['text']} | "
            f"{'refuses' if refuses else 'numbers'} | {theirs} | {ours} | "
            f"{bases} |")


def table(driver, path):
    with open(path, encoding="utf-8") as f:
        cases = json.load(f)
    lines = subprocess.run([driver, "--table", path], capture_output=True,
                           text=True).stdout.splitlines()
    ours = {n: (o, b) for n, o, b in (line.split("\t") for line in lines)}
    rows = ["| program | what it does | eager | AOT | penstock | bases |",
            "| --- | --- | --- | --- | --- | --- |"]
    rows += [row(c, *ours[c["name"]]) for c in cases]
    return "\n".join(rows) + "\n"


def main():
    check = sys.argv[1:2] == ["--check"]
    driver, path, document = sys.argv[1 + check:]
    return doctable.update_part(
        document, "programs", table(driver, path), check,
        "scripts/alias-table.py build/tests/alias/test-alias-cases "
        f"{path} {document}")


sys.exit(main())
