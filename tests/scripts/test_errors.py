#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that check-errors.py finds planted faults, and only these.

usage: test_errors.py CHECK-ERRORS.py
"""
import os
import re
import subprocess
import sys
import tempfile

GOOD_ROW = ('PST_ERROR(FILE_MISSING, "file.missing", IO,\n'
            '          "It is not there.",\n'
            '          "Correct "\n          "the path.")\n')
GOOD_CODE = ('int f(void)\n{\n    return pst_diag_set(diag, '
             'PST_E_FILE_MISSING, "%s", "a, b");\n}\n')


def allowed(script):
    """Returns the files that check-errors.py allows to contain texts of
    errno."""
    with open(script, encoding="utf-8") as file:
        return re.findall(r'^    "((?:stages|daemon)/[^"]+)": ', file.read(),
                          re.M)


def check(script, rows, code):
    with tempfile.TemporaryDirectory(prefix="pst-") as root:
        def write(path, text):
            path = os.path.join(root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

        os.makedirs(os.path.join(root, "daemon"))
        for path in allowed(script):
            write(path, "x = strerror(1);\n")
        write("stages/base/errors/a.def", rows)
        write("stages/a/a.c", code)
        done = subprocess.run([sys.executable, script, root], text=True,
                              capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


ROW2 = GOOD_ROW.replace("FILE_MISSING", "FILE_GONE").replace(
    "file.missing", "file.gone")
USE2 = GOOD_CODE + "int g = PST_E_FILE_GONE;\n"
CASES = [  # what, rows, code, words of the message (None: no fault)
    ("all well", GOOD_ROW, GOOD_CODE, None),
    ("unused row", GOOD_ROW + ROW2.replace("Correct", "Mend"), GOOD_CODE,
     "no place reports PST_E_FILE_GONE"),
    ("named in a comment alone", GOOD_ROW + ROW2.replace("Correct", "Mend"),
     GOOD_CODE + "/* PST_E_FILE_GONE */\n", "no place reports"),
    ("the same advice", GOOD_ROW + ROW2, USE2, "is the same row"),
    ("other advice", GOOD_ROW + ROW2.replace("Correct", "Mend"), USE2, None),
    ("bad id", GOOD_ROW.replace("file.missing", "File"), GOOD_CODE,
     "an id is area.slug"),
    ("another name", GOOD_ROW.replace("file.missing", "file.gone"), GOOD_CODE,
     "its row is called FILE_MISSING"),
    ("no advice", GOOD_ROW.replace("path.", "path"), GOOD_CODE, "sentences"),
    ("unreadable row", GOOD_ROW.replace("IO,", "IO"), GOOD_CODE,
     "a row cannot be read"),
    ("bare status", GOOD_ROW, GOOD_CODE +
     "int g = pst_diag_set(diag, PST_ERR_IO, \"x\");\n",
     "stages/a/a.c:5: pst_diag_set wants a row, not PST_ERR_IO"),
    ("a status that is passed on", GOOD_ROW, GOOD_CODE +
     "int g = pst_diag_set(diag,\n status, \"x\");\n", "not status"),
    ("carried", GOOD_ROW, GOOD_CODE +
     "int g = pst_diag_carry(diag, PST_ERR_IO, s, \"x\");\n",
     "pst_diag_carry wants a row"),
    ("strerror", GOOD_ROW, GOOD_CODE + "int g = puts(strerror(errno));\n",
     "stages/a/a.c:5: strerror(...) reaches users"),
    ("assert", GOOD_ROW, GOOD_CODE + "int g = assert(x);\n", "assert(...)"),
    ("static_assert", GOOD_ROW, GOOD_CODE + "static_assert(x);\n", None),
    ("in words", GOOD_ROW, GOOD_CODE + 'char g[] = "assert(x)";\n', None),
    ("no such row", GOOD_ROW, GOOD_CODE + "int g = PST_E_FILE_LOST;\n",
     "PST_E_FILE_LOST is no row"),
]


TWICE = "bad id", "unreadable row"


def main():
    script, = sys.argv[1:]
    for what, rows, code, words in CASES:
        found, text = check(script, rows, code)
        if words is None:
            assert found == 0 and text == "", (what, text)
        else:
            assert found == 1 and words in text, (what, text)
            assert text.count("\n") == 1 or what in TWICE, (what, text)
    print(len(CASES), "plants, each told from what is well")


if __name__ == "__main__":
    main()
