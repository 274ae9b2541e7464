#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the list of errors in docs/errors.md from the catalogue.

usage: errors-table.py [--check] PENSTOCK DOCUMENT

Without --check writes the list; with it, exit code 1 if the list is not
current. The list is between the lines "<!-- errors -->" and
"<!-- end of errors -->".
"""
import json
import subprocess
import sys

import doctable


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
    return doctable.update_part(
        document, "errors", table(penstock), check,
        "scripts/errors-table.py build/daemon/penstock docs/errors.md")


sys.exit(main())
