#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of modules, and which of them are alike, against the right answers.

usage: calls.py PENSTOCK FOLDER

FOLDER/expected.json lists for each FOLDER/*.pt2 the calls in order of entry:
equal numbers of `identity` mean one module, of `template` one graph.
"""
import json
import os
import re
import subprocess
import sys

WORD = r'("(?:[^"\\]|\\.)*"|[^\s@]+)'
CALL = re.compile(rf"  call {WORD}(?:@(\d+))? in {WORD}(?:@(\d+))?"
                  rf"(?: type {WORD})?(?: key (\S+))?$")
# One file's signatures word by word: nested arguments, one that is not used.
NESTED = ('  signature nested in "0.0" %z in "0.1" %x in "y.key" %y '
          'out "x" %add out "w" %mul')


def unquoted(word):
    return json.loads(word) if word.startswith('"') else word


def numbered(names):
    """0 for the first name and all that are equal to it, 1 for the next."""
    seen = {}
    return [seen.setdefault(name, len(seen)) for name in names]


def calls_of(text):
    found = []
    for line in text.splitlines():
        if not line.startswith("  call ") or line.startswith("  call - "):
            continue
        m = CALL.match(line)
        assert m, line
        found.append((unquoted(m[1]), int(m[2] or 0), m[6], unquoted(m[3])))
    return found


def check(penstock, folder, name, want):
    text = subprocess.run([penstock, "show", os.path.join(folder, name)],
                          check=True, capture_output=True, text=True).stdout
    calls = calls_of(text)
    listed = [(c["path"], c["index"]) for c in want["calls"]]
    assert [c[:2] for c in calls] == listed, (calls, listed)
    keys = numbered(c[2] for c in calls)
    assert keys == numbered(c["identity"] for c in want["calls"]), keys
    for path, _, _, outer in calls:
        assert outer == "-" or path.startswith(outer + "."), (path, outer)
    signed = [line for line in text.splitlines()
              if line.startswith("  signature ")]
    kept = set(want["preserve"] or ())
    assert len(signed) >= sum(p in kept for p, _ in listed), signed
    told = json.loads(subprocess.run(
        [penstock, "modules", os.path.join(folder, name), "--calls", "--json"],
        check=True, capture_output=True, text=True).stdout)
    for call in told["calls"]:
        del call["type"], call["operators"]
    assert told == {k: want[k] for k in told}, (told, want)
    if name == "u18-preserved.pt2":
        assert signed == [NESTED], signed


def main():
    penstock, folder = sys.argv[1:3]
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    failed = 0
    for name, want in sorted(expected.items()):
        try:
            check(penstock, folder, name, want)
        except (AssertionError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{name}: {getattr(error, 'stderr', '') or error}")
    assert len(expected) > 70
    print(f"{len(expected) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
