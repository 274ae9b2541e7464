#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that check-programs.py finds planted faults, and only these.

usage: test_programs.py CHECK-PROGRAMS.py

Each case adds files to a small tree whose scripts install `kit` and `tools`. A
dpkg database has the packages base, kit, library (which kit needs), tools and
procps.
"""
import os
import subprocess
import sys
import tempfile

PACKAGES = [  # name, fields, programs
    ("base", "Essential: yes", ["cat", "sed"]),
    ("kit", "Depends: library (>= 2), absent | tools", ["cc", "ld.one"]),
    ("library", "Priority: optional", ["ask-library"]),
    ("tools", "Priority: optional", ["strace"]),
    ("procps", "Priority: optional", ["pgrep", "top"])]
SETUP = 'packages_build="kit\n  tools"\nneed_packages() {\n  cat "$1"\n}\n'
CASES = [  # what, path, text, words of the message (None: no fault)
    ("all well", "tests/a.py", "import subprocess\n"
     "subprocess.run(['strace', 'x'])\nsubprocess.run('cat')\n", None),
    ("a package that another one needs", "tests/a.py",
     "import shutil\nshutil.which('ask-library')\n", None),
    ("another's program", "tests/a.py", "import subprocess\n"
     "subprocess.run(['pgrep', '-f', f'x'], text=True)\n",
     "tests/a.py calls pgrep of the package procps"),
    ("nobody's program", "tests/a.py",
     "import subprocess\nsubprocess.run(['frobnicate'])\n",
     "calls frobnicate, which no package has"),
    ("words that have a name", "tests/a.py", "import subprocess\n"
     "words = ['pgrep', 'x']\nsubprocess.Popen(words + ['y'])\n", "pgrep"),
    ("words that are passed on", "tests/a.py", "import subprocess\n"
     "def ask(*words):\n    return subprocess.run([str(w) for w in words])\n"
     "ask('pgrep', 1)\n", "pgrep"),
    ("words that are another's", "tests/a.py", "import subprocess\n"
     "def ask(*words):\n    return subprocess.run([p, *words])\n"
     "ask('top', 1)\nlist(['top'])\n", None),
    ("looked for", "tests/a/b.py", "import shutil\nshutil.which('pgrep')\n",
     "tests/a/b.py calls pgrep"),
    ("a shell's words", "tests/a.py", "import subprocess\n"
     "subprocess.run('cat x | pgrep', shell=True)\n", "pgrep"),
    ("a script", "scripts/a.sh", "cat x |\n  sed s/pgrep/x/ # pgrep\n"
     "f() { echo 'x; pgrep y'; }\nf\n", None),
    ("in a pipe", "scripts/a.sh", "cat x | pgrep y\n", "scripts/a.sh calls"),
    ("in a string", "scripts/a.sh", 'x="a $(pgrep y) b"\n', "pgrep"),
    ("after env", "tests/a.sh", "env A=1 pgrep\n", "pgrep"),
    ("after if", "scripts/a.sh", "if ! pgrep x; then\n  :\nfi\n", "pgrep"),
    ("on a second line", "scripts/a.sh", "cat x &&\\\n  pgrep y\n", "pgrep"),
    ("a document", "scripts/a.sh", "cat <<END\npgrep x\nEND\n", None),
    ("a pattern", "scripts/a.sh",
     "case $x in\n  pgrep | top) cat ;;\n  *) sed ;;\nesac\n", None),
    ("installed for itself alone", "scripts/a.sh",
     "need_packages procps\npgrep x\n", None),
    ("C", "tests/a.c", 'int f(void)\n{\n    return system("pgrep x");\n}\n',
     "tests/a.c calls pgrep"),
]


def write(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check(script, path, text):
    with tempfile.TemporaryDirectory(prefix="pst-") as root:
        write(root, "dpkg/status", "\n".join(
            f"Package: {name}\nStatus: install ok installed\n{fields}\n"
            for name, fields, _ in PACKAGES))
        for name, _, programs in PACKAGES:
            write(root, f"dpkg/info/{name}.list",
                  "".join(f"/usr/bin/{p}\n" for p in programs))
        write(root, "scripts/setup.sh", SETUP)
        write(root, "scripts/test.sh", "need_packages\n")
        write(root, path, text)
        done = subprocess.run(
            [sys.executable, script, root, os.path.join(root, "dpkg")],
            text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    wrong = 0
    for what, path, text, words in CASES:
        code, said = check(sys.argv[1], path, text)
        good = words in said and code == 1 if words else code == 0
        if not good:
            wrong += 1
            print(f"{what}: exit code {code}, it said: {said!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
