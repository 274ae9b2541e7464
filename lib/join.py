#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one source file of several, for languages whose users take one.

usage: join.py PART...

Writes the parts to stdout, in their order; the line with the license remains
in the first one alone.
"""
import sys


def main():
    texts = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    first, rest = texts[0], (text.partition("\n")[2] for text in texts[1:])
    print(first, *rest, sep="\n", end="")


main()
