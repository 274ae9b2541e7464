#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that check-layers.py finds planted faults, and only these.

usage: test_layers.py CHECK-LAYERS.py
"""
import os
import subprocess
import sys
import tempfile


def header(path, *includes):
    guard = "PENSTOCK_" + path.upper().replace("/", "_").replace(".", "_")
    return f"#ifndef {guard}\n#define {guard}\n" + "".join(
        f'#include "{x}"\n' for x in includes) + "#endif\n"


def source(*includes):
    return "".join(f'#include "{x}"\n' for x in includes)


WHOLE = "stages/run/rank/whole.h"
INSIDERS = ["stages/run/rank/rank.c", "stages/run/rank/run.c",
            "stages/run/rank/describe.c", "stages/run/rank/probe.c",
            "stages/run/rank/conclude.c",
            "tests/device/test_shadow.c"]
GOOD = {
    WHOLE: header(WHOLE),
    **{path: source(WHOLE) for path in INSIDERS},
    "stages/base/a.h": header("stages/base/a.h"),
    "stages/base/a.c": source("stages/base/a.h"),
    "stages/base/b.h": header("stages/base/b.h", "stages/base/a.h"),
    "stages/base/b.c": source("stages/base/b.h"),
    "stages/graph/c.c": source("stages/base/b.h"),
}
# Name of the fault: (planted files, words of the message).
FAULTS = {
    "two headers": (
        {"stages/base/a.h": header("stages/base/a.h", "stages/base/b.h")},
        "circle of files: stages/base/a, stages/base/b"),
    "a source": (
        {"stages/base/a.c": source("stages/base/a.h", "stages/base/b.h")},
        "circle of files: stages/base/a, stages/base/b"),
    "three units": (
        {"stages/base/d.h": header("stages/base/d.h", "stages/base/b.h"),
         "stages/base/a.c": source("stages/base/a.h", "stages/base/d.h")},
        "circle of files: stages/base/a, stages/base/b, stages/base/d"),
    "upwards": (
        {"stages/base/b.c": source("stages/base/b.h", "stages/graph/e.h"),
         "stages/graph/e.h": header("stages/graph/e.h")},
        "stages/base may not include stages/graph"),
    "guard": ({"stages/base/b.h": header("stages/base/x.h")},
              "the guard is not PENSTOCK_STAGES_BASE_B_H"),
    "a part that sees the whole": (
        {"stages/run/rank/step/sums/reduce.c": source(WHOLE)},
        "step/sums/reduce.c:1: only stages/run/rank/rank.c, "),
    "a header that shows the whole": (
        {"stages/run/engine.h": header("stages/run/engine.h", WHOLE)},
        "may include stages/run/rank/whole.h"),
    "a list that is longer than need be": (
        {INSIDERS[1]: source("stages/base/b.h")},
        "run.c does not include stages/run/rank/whole.h"),
    "order": ({"stages/base/b.c": source("stages/base/a.h",
                                         "stages/base/b.h")},
              "stages/base/b.h does not come first"),
}


def check(script, planted):
    """Runs check-layers.py on a tree with planted files. Returns exit code and
    output."""
    with tempfile.TemporaryDirectory(prefix="pst-") as root:
        for path, text in {**GOOD, **planted}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)),
                        exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, script, root], text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr


def main():
    script = sys.argv[1]
    code, text = check(script, {})
    assert code == 0 and "0 faults" in text, text
    for name, (planted, words) in FAULTS.items():
        code, text = check(script, planted)
        assert code == 1 and words in text, (name, text)
        assert " 1 faults" in text, (name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
