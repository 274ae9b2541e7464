# SPDX-License-Identifier: Apache-2.0
"""A part of a document that is made: it stands between two comments."""


def settle(document, name, new, check, command):
    """Writes `new` between "<!-- NAME -->" and "<!-- end of NAME -->", or with
    check says what to run if something else stands there; the exit code."""
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
