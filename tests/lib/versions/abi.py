#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the public headers with those of earlier versions (folder 0).

usage: abi.py CC OLD-FOLDER NEW-FOLDER LIBRARY

What an earlier header has, today's has with the same layout, so that programs
need not be compiled again: members keep their offset, size and type, structs
without a size of their own do not grow, constants keep their values, functions
their prototypes and symbols. The compiler says the layouts.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

HEADERS = ["penstock.h", "penstock_plugin.h"]
FUNCTION = re.compile(r"^(?:PENSTOCK_PLUGIN_EXPORT )?((?:const )?\w+ \*?"
                      r"(penstock_\w+)\([^{;]*\));", re.M)
CALLBACK = re.compile(r"^typedef [^;{]*\(\*penstock_\w+\)[^;]*;", re.M)


class Header:
    """What a header declares."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
        # Macros of several lines declare nothing.
        text = re.sub(r"\\\n", " ", text)
        self.structs = {name: self.members(body) for name, body in re.findall(
            r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)}
        self.constants = re.findall(r"^#define (PENSTOCK_\w+) +\d+$", text,
                                    re.M)
        for body in re.findall(r"^enum \w+ \{(.*?)\};", text, re.M | re.S):
            self.constants += re.findall(r"\b(PENSTOCK_\w+) *=", body)
        self.functions = {name: " ".join(whole.split())
                          for whole, name in FUNCTION.findall(text)}
        self.callbacks = {" ".join(x.split()) for x in CALLBACK.findall(text)}

    @staticmethod
    def members(body):
        """Returns the members of a struct with their types, those of a union
        without a name, too."""
        body = re.sub(r"\bunion \{(.*?)\};", r"\1", body, flags=re.S)
        found = {}
        for line in body.split(";"):
            words = " ".join(line.split())
            pointer = re.search(r"\(\*(\w+)\)", words)
            if pointer:
                found[pointer.group(1)] = words
                continue
            plain = re.fullmatch(r"((?:const |struct |enum )*\w+) (.*)", words)
            for name in plain.group(2).split(",") if plain else []:
                bare = re.sub(r"[*\s]|\[.*", "", name)
                found[bare] = plain.group(1) + name.replace(bare, "").strip()
        return found


def layouts(cc, folder, header, structs, constants):
    """Returns sizes of structs, offsets and sizes of members, and values of
    constants, as the compiler sees them in that folder."""
    lines = ["#include <stdio.h>", f"#include <{header}>", "int main(void) {"]
    for name, members in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name}.{m} %zu %zu\\n", offsetof(struct {name}, '
                  f"{m}), sizeof(((struct {name} *)0)->{m}));"
                  for m in members]
    lines += [f'printf("{c} %lld\\n", (long long){c});' for c in constants]
    with tempfile.TemporaryDirectory() as at:
        source, program = os.path.join(at, "a.c"), os.path.join(at, "a")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join([*lines, "return 0; }", ""]))
        subprocess.run([*cc, "-I", folder, source, "-o", program], check=True)
        out = subprocess.run([program], check=True, capture_output=True,
                             text=True).stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


def compare(cc, old_folder, new_folder, header):
    """Returns the faults of a header."""
    old = Header(os.path.join(old_folder, header))
    new = Header(os.path.join(new_folder, header))
    assert len(old.structs) >= 8 and len(old.constants) >= 20, header
    faults = [f"{name}.{m} was {kind}, is {new.structs.get(name, {}).get(m)}"
              for name, members in old.structs.items()
              for m, kind in members.items()
              if new.structs.get(name, {}).get(m) != kind]
    faults += [f"{c} is gone" for c in old.constants if c not in new.constants]
    faults += [f"was {text}, is {new.functions.get(name)}"
               for name, text in old.functions.items()
               if new.functions.get(name) != text]
    faults += [f"{text} is gone" for text in old.callbacks - new.callbacks]
    if faults:
        return faults
    before, now = (layouts(cc, folder, header, old.structs, old.constants)
                   for folder in (old_folder, new_folder))
    for name, value in before.items():
        grows = "size" in old.structs.get(name, {})
        if name == "PENSTOCK_VERSION_MINOR" or (
                grows and int(now[name]) >= int(value)):
            continue
        if now[name] != value:
            faults.append(f"{name}: {value} before, {now[name]} now")
    # In the padding at the end of an old struct, new members would be what
    # an old program happens to have there.
    added = {name: {m: "" for m in new.structs[name] if m not in members}
             for name, members in old.structs.items()}
    for name, at in layouts(cc, new_folder, header, added, []).items():
        if "." in name and int(at.split()[0]) < int(
                before[name.split(".")[0]]):
            faults.append(f"{name} is in the padding of the old struct")
    return faults


def main():
    cc, old, new, library = sys.argv[1:]
    faults = [f"{header}: {fault}" for header in HEADERS
              for fault in compare(shlex.split(cc), old, new, header)]
    wanted = set(Header(os.path.join(old, HEADERS[0])).functions)
    assert len(wanted) > 30, wanted
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    have = {line.split()[-1] for line in out.splitlines()}
    faults += [f"{name}@@PENSTOCK_0 is not exported" for name in sorted(wanted)
               if f"{name}@@PENSTOCK_0" not in have]
    if faults:
        raise SystemExit("\n".join(faults))


main()
