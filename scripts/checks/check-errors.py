#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the catalogue of errors and the code that reports errors agree.

usage: check-errors.py ROOT

Code in stages/, daemon/ or lib/ reports each row of stages/base/errors/. The id of a
row has the form area.slug and is unique; no two rows have the same status and
the same remedy. pst_diag_set and pst_diag_carry get a row, not a status. Only
pst_diag_errno and the files in ALLOWED print texts of errno (strerror and the
like) or of assert. Prints one line per fault; exit code 1 if there is any.
"""
import os
import re
import sys

ROW = re.compile(r'PST_ERROR\((\w+), "([^"]+)", (\w+),\s*((?:"(?:[^"\\]|\\.)*"'
                 r'\s*)+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)')
FORM = re.compile(r"[a-z][a-z0-9]*(\.[a-z][a-z0-9-]*)$")
TEXTS = re.compile(r"\b(?:uv_|zip_error_)?strerror(?:_r)?\(|\bperror\(|"
                   r"(?<![\w:])assert\(")
# File: the reason why it may use texts of errno or assert.
ALLOWED = {
    "stages/base/diag.c": "pst_diag_errno, with a row for each number",
    "stages/base/host/guard.c": "of PST_LOG=debug alone",
    "stages/files/zip.c": "libzip's words behind a row of their own",
    "stages/files/zip_read.c": "libzip's words behind a row of their own",
    "daemon/ctl/hosts/remote.c": "of a child, with the row of the number",
    "daemon/ctl/run/launch.c": "of a child, with the row of the number",
    "daemon/exec/saves/saving.c": "looks for the text, prints none",
    "daemon/loop/client.c": "libuv's words behind a row of their own",
    "daemon/loop/control.c": "libuv's words behind a row of their own",
    "daemon/loop/loop.c": "libuv's words behind a row of their own",
    "daemon/mailbox.c": "libuv's words behind a row of their own",
}


def sources(root):
    for top in "stages", "daemon", "lib":
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".cu")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, root), file.read()


def blank_strings(text):
    """Replaces strings and comments by blanks; keeps the line numbers."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"'(?:\\.|[^'\\])'|"
                  r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*', blank, text,
                  flags=re.S)


def second_arguments(text, name):
    """Yields (line, second argument) of each call of name."""
    for match in re.finditer(rf"\b{name}\(", text):
        depth, begin, commas, at = 1, 0, 0, match.end()
        while depth > 0 and commas < 2 and at < len(text):
            char = text[at]
            depth += (char in "([{") - (char in ")]}")
            if char == "," and depth == 1:
                commas += 1
                if commas == 1:
                    begin = at + 1
                else:
                    yield text.count("\n", 0, match.start()) + 1, \
                        text[begin:at].strip()
            at += 1


def rows_of(root):
    folder = os.path.join(root, "stages/base/errors")
    rows = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".def"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        found = ROW.findall(text)
        if len(found) != text.count("PST_ERROR("):
            yield f"stages/base/errors/{name}: a row cannot be read"
        rows += found
    seen = {}
    for name, slug, status, cause, remedy in rows:
        cause, remedy = ("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', x))
                         for x in (cause, remedy))
        if not FORM.match(slug):
            yield f"{slug}: an id is area.slug"
        if name != re.sub(r"[.-]", "_", slug).upper():
            yield f"{slug}: its row is called {name}"
        if not cause.endswith(".") or not remedy.endswith("."):
            yield f"{slug}: cause and remedy are sentences"
        for key in (slug, (status, remedy)):
            if key in seen:
                yield f"{slug}: {seen[key]} is the same row"
            seen[key] = slug
    yield [row[0] for row in rows]


def main():
    root, = sys.argv[1:]
    faults = list(rows_of(root))
    names = faults.pop()
    used, stale = set(), set(ALLOWED)
    for path, text in sources(root):
        code = blank_strings(text)
        used |= set(re.findall(r"\bPST_E_(\w+)", code))
        for call in "pst_diag_set", "pst_diag_carry":
            for line, argument in second_arguments(code, call):
                if path.startswith("stages/base/diag."):
                    continue
                if re.search(r"\bPST_(?!E_)|\bstatus\b", argument):
                    faults.append(f"{path}:{line}: {call} wants a row, not "
                                  f"{argument}")
        for match in TEXTS.finditer(code):
            stale.discard(path)
            if path not in ALLOWED:
                faults.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}"
                              f": {match.group(0)}...) reaches users: take "
                              "pst_diag_errno")
    faults += [f"no place reports PST_E_{name}" for name in names
               if name not in used]
    faults += [f"PST_E_{name} is no row" for name in
               sorted(used - set(names) - {"NONE"})]
    faults += [f"{path}: has none of these texts any more: take it out of "
               "scripts/checks/check-errors.py" for path in sorted(stale)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
