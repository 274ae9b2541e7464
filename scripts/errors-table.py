#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md's list of errors, made from the catalogue.

usage: errors-table.py [--check] PENSTOCK DOCUMENT

Without --check the list is written; with it, exit code 1 if it is not current.
It stands between the lines "<!-- errors -->" and "<!-- end of errors -->".
"""
import json
import subprocess
import sys

BEGIN, END = "<!-- errors -->\n", "<!-- end of errors -->\n"


def cell(text):
    return text.replace("|", "\\|")


def table(penstock):
    found = json.loads(subprocess.run(
        [penstock, "explain", "--list", "--json"], check=True,
        capture_output=True, text=True).stdout)["errors"]
    areas = {}
    for row in found:
        areas.setdefault(row["id"].split(".")[0], []).append(row)
    lines = []
    for area, rows in areas.items():
        lines += ["", f"### {area}", "", "| id | exit code | what it means "
                  "| what to do |", "| --- | --- | --- | --- |"]
        lines += [f"| `{r['id']}` | {r['exit_code']} | {cell(r['cause'])} "
                  f"| {cell(r['remedy'])} |" for r in rows]
    return "\n".join(lines[1:]) + "\n"


def main():
    check = sys.argv[1:2] == ["--check"]
    penstock, document = sys.argv[1 + check:]
    with open(document, encoding="utf-8") as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    new = table(penstock)
    if check:
        if old != new:
            print("the list of errors is not current: run "
                  "scripts/errors-table.py build/daemon/penstock "
                  "docs/errors.md")
        sys.exit(old != new)
    with open(document, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + new + END + after)


main()
