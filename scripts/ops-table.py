#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the table of operators in docs/operators.md from the registry.

usage: ops-table.py [--check] PENSTOCK DOCUMENT

Without --check writes the table; with it, exit code 1 if the table is not
current. The table is between the lines "<!-- operators -->" and
"<!-- end of operators -->".
"""
import json
import subprocess
import sys

import doctable

TITLES = {
    "pointwise": "elementwise", "reduce": "reductions", "sort": "order",
    "view": "shapes", "index": "indices", "embed": "embeddings",
    "create": "creation", "matmul": "products", "linalg": "linear algebra",
    "norm": "norms", "conv": "convolutions", "resize": "resizing",
    "rnn": "recurrent", "loss": "losses", "complex": "complex numbers",
}


def table(penstock):
    found = json.loads(subprocess.run(
        [penstock, "ops", "--json"], check=True, capture_output=True,
        text=True).stdout)
    families = {}
    for op in found["operators"]:
        space, name = op["name"].split(".")[:2]
        if space in ("aten", "transformers", "complex", "from_real"):
            names = families.setdefault(op["family"], [])
            if name not in names:
                names.append(name)
    other = []
    for alias in found["other_names"]:
        name = alias["name"].split(".")[1]
        if name not in other and not any(name in f for f in families.values()):
            other.append(name)
    rows = ["| family | operators |", "| --- | --- |"]
    families["other names"] = other
    for family, names in families.items():
        text = " ".join(f"`{n}`" if "__" in n else n for n in sorted(names))
        rows.append(f"| {TITLES.get(family, family)} | {text} |")
    return "\n".join(rows) + "\n"


def main():
    check = sys.argv[1:2] == ["--check"]
    penstock, document = sys.argv[1 + check:]
    return doctable.update_part(
        document, "operators", table(penstock), check,
        "scripts/ops-table.py build/daemon/penstock docs/operators.md")


sys.exit(main())
