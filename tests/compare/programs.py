# SPDX-License-Identifier: Apache-2.0
"""Checks that two builds compile models to the same programs.

usage: programs.py OLD NEW FILE.pt2...

OLD and NEW are the clients `penstock` of two builds. All that the compiler
prints for a model in one stage is compared: operators, kernels, shapes, strides
and the location of every value and operand (show --after operands). Ends with
"N passed, N failed".
"""
import difflib
import os
import subprocess
import sys


def program(client, path):
    run = subprocess.run([client, "show", path, "--policy", "flops", "--stages",
                          "1", "--after", "operands"], capture_output=True,
                         text=True)
    return run.stdout if run.returncode == 0 else run.stderr


def main():
    old, new, *files = sys.argv[1:]
    passed = failed = 0
    for path in files:
        a, b = program(old, path), program(new, path)
        name = os.path.basename(path)
        if a == b:
            passed += 1
            print(f"{name}: the same, {a.count(chr(10))} lines")
            continue
        failed += 1
        changes = [line for line in difflib.unified_diff(
            a.splitlines(), b.splitlines(), n=0, lineterm="")
            if line[:3] not in ("---", "+++")]
        print(f"{name}: {len(changes)} lines differ")
        print("\n".join("    " + line[:150] for line in changes[:4]))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
