#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that compositions read sizes as expressions, not as plain numbers.

usage: check-sizes.py ROOT

Compositions and the functionalisation build a graph whose sizes may be free. A
number or a decision that they take from `meta.size` is right only for the
sizes of the exported example; a plan for other sizes is silently wrong. So
they must use pst_rw_size, pst_extent_of, pst_extent_numel and the like
(stages/graph/sizes/extent.h). The check covers every function that gets a builder as
a parameter or in a structure. Inference, kernels and gradients see final sizes
and may read them.

sizes-allowed.txt beside it lists functions that may read sizes, with the reason;
a line that is not needed is a fault, too. Prints one line per fault; exit code
1 if there is any.
"""
import os
import re
import sys

FOLDERS = ["stages/ops", "stages/frontend/functional"]
# Structures that contain a graph builder. holders() adds structures that
# contain one of these.
BUILDERS = {"pst_rewrite", "pst_build", "pst_formula"}
# Functions that get one of these structures compute gradients, shapes or
# kernels: they see final sizes, although some of them emit nodes.
FINAL = {"pst_vjp", "pst_infer", "pst_call", "pst_site"}
READS = (r"\bmeta(?:\.|->)size\b|\bpst_meta_(?:numel|bytes|span)\b|"
         r"\bpst_meta_(?:is_contiguous|same\w*)\b|\bpst_matrix_(?:size|count)\b|"
         r"\bpst_(?:rw|extent)_\w+\((?:[^()]|\([^()]*\))*\)\.value\b")
# Declarations of a meta; of a function that returns an extent; of extents.
METAS = re.compile(r"\bstruct pst_meta (\*?)(\w+)")
MADE = re.compile(r"^static struct pst_extent (\w+)\(", re.M)
EXTENTS = re.compile(r"\bstruct pst_extent ([^;]*);")
FUNCTION = re.compile(r"^(?:static |inline |const |struct |enum |unsigned )*"
                      r"[\w *]*?\b(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.M | re.S)
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\}", re.M | re.S)


def plain(text):
    """Replaces comments, strings and the arguments of refusals by blanks;
    keeps the line numbers."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", blank, text,
                  flags=re.S)
    return re.sub(r"\bpst_rewrite_(?:fail|refuse)\([^;{]*;", blank, text)


def holders(text, known):
    """Returns the names of the structures that contain a builder: the known
    ones and those in the text."""
    found = set(known)
    for _ in range(3):
        for name, body in STRUCT.findall(text):
            if any(re.search(rf"\bstruct {b}\b", body) for b in found):
                if not any(re.search(rf"\bstruct {b}\b", body)
                           for b in FINAL):
                    found.add(name)
    return found


def declared(text):
    """Yields the names of the extents that a text declares."""
    for names in EXTENTS.findall(text):
        while re.search(r"[(\[{]", names):
            less = re.sub(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}", "", names)
            if less == names:
                break
            names = less
        for name in names.split(","):
            yield from re.findall(r"^\s*\*?(?:const )?(\w+)", name)


def patterns(text, params, body):
    """Returns a pattern for code of this function that reads a size as a
    number."""
    ret = [READS]
    for name in MADE.findall(text):
        ret.append(rf"\b{name}\((?:[^()]|\([^()]*\))*\)[.]value\b")
    for name in declared("".join(b for _, b in STRUCT.findall(text))):
        ret.append(rf"(?:->|[.]){name}(?:\[[^]]*\])?[.]value\b")
    for pointer, name in METAS.findall(params + body):
        ret.append(rf"\b{name}{'->' if pointer else '[.]'}size\b")
    for name in declared(params.replace(",", ";") + ";" + body):
        ret.append(rf"\b{name}(?:\[[^]]*\])?[.]value\b")
    return re.compile("|".join(ret))


def reads(text, known):
    """Yields (function, line number, line) for sizes that are read as numbers."""
    text = plain(text)
    given = holders(text, known)
    for match in FUNCTION.finditer(text):
        name, params, body = match.groups()
        has = set(re.findall(r"\bstruct (\w+) \*", params))
        if not has & given or has & FINAL:
            continue
        pattern = patterns(text, params, body)
        first = text.count("\n", 0, match.start(3)) + 1
        for k, line in enumerate(body.split("\n")):
            if pattern.search(line):
                yield name, first + k, line.strip()


def allowed(path):
    ret = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                where, reason = line.rstrip("\n").split(": ", 1)
                ret[where] = reason
    return ret


def main():
    root = sys.argv[1]
    excuses = allowed(os.path.join(root, "scripts/checks/sizes-allowed.txt"))
    unused = set(excuses)
    faults = []
    texts = {}
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in (n for n in names if n.endswith((".c", ".h"))):
                path = os.path.relpath(os.path.join(at, name), root)
                with open(os.path.join(at, name), encoding="utf-8") as file:
                    texts[path] = file.read()
    known = holders("\n".join(plain(texts[p]) for p in sorted(texts)
                              if p.endswith(".h")), BUILDERS)
    for path in sorted(texts):
        for function, number, line in reads(texts[path], known):
            where = f"{path} {function}"
            unused.discard(where)
            if where not in excuses:
                faults.append(f"{path}:{number}: {function} reads a size as a "
                              f"number: {line}")
    faults += [f"scripts/checks/sizes-allowed.txt: nothing needs \"{where}\""
               for where in sorted(unused)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
