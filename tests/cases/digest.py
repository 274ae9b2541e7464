#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a digest of the code of a script of this folder.

usage: digest.py NAME

The digest covers NAME.py and the modules of this folder that it imports, but
neither comments nor docstrings: a set of cases in tests/data stays valid as
long as the code that wrote it is the same.
"""
import hashlib
import io
import os
import re
import sys
import tokenize

FOLDER = os.path.dirname(os.path.abspath(__file__))
LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
LEFT_OUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)


def whole_strings(tokens, lines):
    """Joins the parts of an f-string, which Python splits from 3.12 on."""
    depth, begin = 0, None
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            begin = begin if depth else token.start
            depth += 1
        if not depth:
            yield token
        if name == "FSTRING_END":
            depth -= 1
            if not depth:
                row, column = token.end
                text = "".join(lines[begin[0] - 1:row])
                cut = len(lines[row - 1]) - column
                yield token._replace(
                    type=tokenize.STRING,
                    string=text[begin[1]:len(text) - cut])


def code_of(text):
    """The tokens of a module; a string that is a statement is left out."""
    tokens = [t for t in whole_strings(
        tokenize.generate_tokens(io.StringIO(text).readline),
        text.splitlines(keepends=True)) if t.type not in LEFT_OUT]
    kept = []
    for at, token in enumerate(tokens):
        is_first = at == 0 or tokens[at - 1].type in LAYOUT
        if token.type == tokenize.STRING and is_first \
                and tokens[at + 1].type == tokenize.NEWLINE:
            continue
        kept.append(f"<{token.type}>" if token.type in LAYOUT
                    else token.string)
    return " ".join(kept)


def sources(name, seen):
    """Adds the code of a module and of what it imports to `seen`."""
    path = os.path.join(FOLDER, name + ".py")
    if name in seen or not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    seen[name] = code_of(text)
    for module in re.findall(r"^\s*(?:import|from) (\w+)", text, re.M):
        sources(module, seen)


def main():
    seen = {}
    sources(sys.argv[1], seen)
    assert seen, f"there is no {sys.argv[1]}.py"
    print(hashlib.sha1(repr(sorted(seen.items())).encode()).hexdigest())


if __name__ == "__main__":
    main()
