#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the paths, options and tests named in *.md files exist.

usage: check-docs.py [--build DIR] [ROOT]

Checks paths in backticks, in fenced blocks and in links. A word is a path if
its first part is a folder of the repository or, in backticks, if it has a
suffix of our files. Paths start at the root or at the folder of the document.
Options (--WORD) must be in daemon/common/options/options.c, or belong to a program in
scripts/ or tests/. With --build, also checks paths below build/ and the tests
of `meson test -C build NAME`. Words with placeholders are skipped. README.md
at the root may have at most 14 KB: reference material belongs into docs/.
"""
import argparse
import json
import os
import re
import sys

WORD = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
PLAIN = re.compile(r"^[A-Za-z0-9_.\-/]+$")
ENDINGS = (".c", ".h", ".def", ".md", ".py", ".sh", ".proto", ".build")
README_BYTES = 14 * 1024
# Options of programs that are not part of penstock.
FOREIGN = {"oversubscribe", "allow-run-as-root", "mca",  # mpirun
           "suite", "benchmark"}  # meson


def documents(root):
    for where, folders, files in os.walk(root):
        folders[:] = sorted(x for x in folders if x[0] != "." and x != "out"
                            and not x.startswith("build"))
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(where, name), root)


def known_options(root):
    with open(os.path.join(root, "daemon/common/options/options.c"),
              encoding="utf-8") as file:
        known = set(re.findall(r'"([a-z0-9][a-z0-9-]+)"', file.read()))
    for top in "scripts", "tests":
        for where, _, files in os.walk(os.path.join(root, top)):
            for name in files:
                if name.endswith((".sh", ".py", ".c")):
                    with open(os.path.join(where, name),
                              encoding="utf-8") as file:
                        known.update(OPTION.findall(file.read()))
    return known | FOREIGN


def built_tests(build):
    with open(os.path.join(build, "meson-info/intro-tests.json"),
              encoding="utf-8") as file:
        return {test["name"] for test in json.load(file)}


def is_path(root, word, fenced):
    if not PLAIN.match(word) or word.startswith(("-", "/")):
        return False
    if ".." in word.replace("../", ""):
        return False
    first = word.split("/")[0]
    if "/" in word and first not in (".", ".."):
        return os.path.isdir(os.path.join(root, first)) and first not in (
            "build", "out")
    return not fenced and word.endswith(ENDINGS) and word not in ENDINGS


class Checker:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.options = known_options(root)
        self.tests = built_tests(build) if build else None

    def has(self, document, word):
        folder = os.path.join(self.root, os.path.dirname(document))
        return any(os.path.exists(os.path.join(base, word))
                   for base in (self.root, folder))

    def faults_of_line(self, document, line, fenced):
        words = (re.findall(r"[A-Za-z0-9_./-]+", line) if fenced
                 else WORD.findall(line))
        for word in words:
            if is_path(self.root, word, fenced):
                if not self.has(document, word.rstrip(".")):
                    yield f"there is no {word}"
            elif self.build and word.startswith("build/") and fenced:
                if not os.path.exists(os.path.join(self.build, word[6:])):
                    yield f"the build makes no {word}"
        for link in LINK.findall(line):
            if "://" not in link and not self.has(document, link):
                yield f"there is no {link}"
        for option in OPTION.findall(line):
            if option not in self.options:
                yield f"nothing takes --{option}"
        for test in re.findall(r"meson test -C build ([a-z][\w-]*)", line):
            if self.tests is not None and test not in self.tests:
                yield f"there is no test {test}"

    def check(self, document):
        size = os.path.getsize(os.path.join(self.root, document))
        if document == "README.md" and size > README_BYTES:
            yield f"{document}: {size} bytes, more than {README_BYTES}"
        fenced = False
        with open(os.path.join(self.root, document),
                  encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.lstrip().startswith(("```", "~~~")):
                    fenced = not fenced
                    continue
                for fault in self.faults_of_line(document, line, fenced):
                    yield f"{document}:{number}: {fault}"


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build")
    p.add_argument("root", nargs="?", default=".")
    a = p.parse_args()
    names = list(documents(a.root))
    if not names:
        sys.exit(f"no documents below {a.root}")
    checker = Checker(a.root, a.build)
    faults = [fault for name in names for fault in checker.check(name)]
    for fault in faults:
        print(fault)
    print(f"{len(names)} documents, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
