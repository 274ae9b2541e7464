#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the symbols of libpenstock: exports.py LIBRARY HEADER MAP.

The library exports the functions of the header and nothing else, all of them in
version PENSTOCK_0.
"""
import re
import subprocess
import sys


def main():
    library, header, script = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    wanted = set(re.findall(r"\b(penstock_\w+)\(", text)) - {"penstock_init"}
    assert len(wanted) > 15, wanted
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    names = {name for _, kind, name in rows if kind != "A"}
    assert {f"{name}@@PENSTOCK_0" for name in wanted} == names, \
        names ^ {f"{name}@@PENSTOCK_0" for name in wanted}
    with open(script, encoding="utf-8") as file:
        listed = set(re.findall(r"^    (penstock_\w+);$", file.read(), re.M))
    assert listed == wanted, listed ^ wanted
    about = subprocess.run(["readelf", "-d", library], check=True,
                           capture_output=True, text=True).stdout
    assert "soname: [libpenstock.so.0]" in about, about


main()
