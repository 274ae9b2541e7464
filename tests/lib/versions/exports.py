#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the symbols of libpenstock.

usage: exports.py LIBRARY HEADER MAP SYMBOLS PAGE

The library exports the functions of the header and nothing else, all of them in
version PENSTOCK_0; the Debian package lists them in its file of symbols, and
docs/library.md in its table of calls. It imports no function that prints or
ends the process, but those that no call reaches (UNREACHED).
"""
import re
import subprocess
import sys

OUTPUT = re.compile(r"f?printf|v[fd]?printf|dprintf|f?puts|f?putc|putchar|"
                    r"fwrite|perror|std(err|out)|write|_?exit|quick_exit|abort|"
                    r"assert_fail|signal|sigaction|kill|raise|fork|execv\w*")
UNREACHED = {
    "fprintf": "the log without a sink, and the library sets one",
    "stderr": "the same",
    "dprintf": "faults and the device `shadow`, which tests ask for",
    "_exit": "the same faults; abort() of a transport, which daemons call",
    "abort": "the device `lag`, which tests ask for",
    "assert_fail": "code that protobuf writes",
    "kill": "whether another process lives (signal 0); faults",
    "raise": "faults",
}


def plain(name):
    """Returns the name of a function without what fortifying adds to it."""
    return re.sub(r"^__(\w+?)(_chk)?$", r"\1", name.split("@")[0])


def main():
    library, header, script, symbols, page = sys.argv[1:]
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
    with open(symbols, encoding="utf-8") as file:
        listed = re.findall(r"^ (\w+)@PENSTOCK_0 [\d.]+$", file.read(), re.M)
    assert listed == sorted(wanted | {"PENSTOCK_0"}), \
        set(listed) ^ wanted
    with open(page, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| `penstock_")]
    listed = {name for row in rows
              for name in re.findall(r"`(penstock_\w+)`", row)}
    assert listed == wanted, listed ^ wanted
    out = subprocess.run(["nm", "-D", "--undefined-only", library], check=True,
                         capture_output=True, text=True).stdout
    imports = {plain(line.split()[-1]) for line in out.splitlines()}
    assert "snprintf" in imports and len(imports) > 100
    prints = {name for name in imports if OUTPUT.fullmatch(name)}
    assert prints <= set(UNREACHED), prints - set(UNREACHED)
    about = subprocess.run(["readelf", "-d", library], check=True,
                           capture_output=True, text=True).stdout
    assert "soname: [libpenstock.so.0]" in about, about


main()
