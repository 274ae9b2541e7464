# SPDX-License-Identifier: Apache-2.0
"""Replaces a generated part of a document, which is between two comments."""


def update_part(document, name, new, check, command):
    """Writes `new` between "<!-- NAME -->" and "<!-- end of NAME -->". With
    check, writes nothing, but names the command to run if the part is not
    current. Returns the exit code."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    with open(document, encoding="utf-8") as f:
        before, rest = f.read().split(begin)
    old, after = rest.split(end)
    if check and old != new:
        print(f"{document}: the part \"{name}\" is not current: run {command}")
        return 1
    if not check:
        with open(document, "w", encoding="utf-8") as f:
            f.write(before + begin + new + end + after)
    return 0
