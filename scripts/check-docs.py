#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every path of the repository that a *.md names in backticks exists.

usage: check-docs.py [ROOT]

A word is taken for a path if its first part is a folder of the repository, or
if it ends as our files do. It may be written from the root or from the folder
of the document. Fenced blocks and words with placeholders are passed over.
"""
import os
import re
import sys

WORD = re.compile(r"`([^`\n]+)`")
PLAIN = re.compile(r"^[A-Za-z0-9_.\-/]+$")
ENDINGS = (".c", ".h", ".def", ".md", ".py", ".sh", ".proto", ".build")


def documents(root):
    for where, folders, files in os.walk(root):
        folders[:] = sorted(x for x in folders if x[0] != "." and x != "out"
                            and not x.startswith("build"))
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(where, name), root)


def lines_outside_fences(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, line


def is_path(root, word):
    if not PLAIN.match(word) or word.startswith(("-", "/")):
        return False
    if ".." in word.replace("../", ""):
        return False
    first = word.split("/")[0]
    if "/" in word and first not in (".", ".."):
        return os.path.isdir(os.path.join(root, first))
    return word.endswith(ENDINGS) and word not in ENDINGS


def check(root, document):
    faults = []
    with open(os.path.join(root, document), encoding="utf-8") as file:
        text = file.read()
    folder = os.path.join(root, os.path.dirname(document))
    for number, line in lines_outside_fences(text):
        for word in WORD.findall(line):
            if not is_path(root, word):
                continue
            if not any(
                os.path.exists(os.path.join(base, word))
                for base in (root, folder)
            ):
                faults.append(f"{document}:{number}: there is no {word}")
    return faults


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    names = list(documents(root))
    if not names:
        sys.exit(f"no documents below {root}")
    faults = [fault for name in names for fault in check(root, name)]
    for fault in faults:
        print(fault)
    print(f"{len(names)} documents, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
