#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each program that tests and scripts call is installed.

usage: check-programs.py ROOT [ADMIN]

A program that is installed only on the developer's machine would be missing on
other machines. So each program must be in a package that every Debian system
has, or in one that scripts/ install. The installed packages are the words after
`need_packages` and those of packages_build in scripts/setup.sh, in
scripts/test.sh and in the script that calls the program, and their
dependencies. ADMIN is the database of dpkg (default /var/lib/dpkg).

The programs are the commands of shell scripts; in Python the arguments of
subprocess, of shutil.which and of functions that pass their arguments on to
these; in C the arguments of system, popen and exec. Prints one line per fault;
exit code 1 if there is any.
"""
import ast
import glob
import os
import re
import sys

SCRIPTS = ["scripts/*.sh", "tests/**/*.sh", "examples/**/*.sh", ".ci/run"]
PYTHON = ["scripts/**/*.py", "tests/**/*.py", "examples/**/*.py"]
C = ["tests/**/*.c"]
# Builtins of the shell, and commands whose next word is a program to run.
SHELL = set("""! . : [ [[ alias break builtin case cd command continue declare do
    done echo elif else esac eval exec exit export false fi for function getopts hash if
    in kill let local mapfile printf pwd read readonly return select set shift
    shopt source test then time times trap true type ulimit umask unset until
    wait while""".split())
BEFORE = set("""! builtin chroot command do elif else env exec fakeroot if nice
    nohup setsid sudo then time timeout until while xargs""".split())
SUBPROCESS = {"run", "Popen", "call", "check_call", "check_output"}
OTHER_CALLS = {"which", "execvp", "execlp", "execvpe", "begin_as"}
BINARY = re.compile(r"(?m)^(/s?bin|/usr/s?bin)/([^/\n]+)$")
INSTALLERS = ["scripts/setup.sh", "scripts/test.sh"]
# Files that only one script runs, with that script, which installs the
# programs that they call.
RUN_BY = {"tests/contrib/bare.sh": "scripts/package.sh",
          "tests/contrib/fresh.sh": "scripts/package.sh"}
# Programs that need no package: those built here, those that only users other
# than root need, and those of a machine with a GPU, which scripts/gpu.sh looks
# for before it uses them.
OURS = {"penstock", "penstockd", "sudo", "nvcc", "nvidia-smi",
        "compute-sanitizer"}


def texts(root, patterns):
    for pattern in patterns:
        for path in sorted(glob.glob(pattern, root_dir=root, recursive=True,
                                     include_hidden=True)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield path, file.read()


def closed(text, at):
    """Returns the offset after the parenthesis that closes the one before
    `at`."""
    depth = 1
    while at < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def commands_of_shell(text):
    """Returns the words at positions where a shell expects a command."""
    text = re.sub(r"<<-?\s*'?(\w+)'?(.*)\n(?:.*\n)*?\s*\1\n", r"\2\n", text)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"(?m)(^|\s)#.*$", r"\1", text)
    text = re.sub(r"\\.", "_", text)
    text = re.sub(r"'[^']*'", "Q", text)
    found = set()
    while True:  # the contents of "$(...)" and $(...) are scripts too
        at = text.find("$(")
        if at < 0:
            break
        end = closed(text, at + 2)
        if text[at + 2] != "(":
            found |= commands_of_shell(text[at + 2:end - 1] + "\n")
        text = text[:at] + "Q" + text[end:]
    text = re.sub(r'"[^"]*"', "Q", text)
    text = re.sub(r"\w+\+?=\([^)]*\)", "", text)
    text = re.sub(r"\$\{[^}]*\}", "Q", text)
    # Skips patterns of `case`, names of functions, conditions.
    text = re.sub(r"(?m)^\s*[^()\n]*[^()\s]\)(?=\s|$)", "", text)
    text = re.sub(r"([\w-]+)\s*\(\)", "", text)
    text = re.sub(r"\[\[.*?\]\]", "true", text, flags=re.DOTALL)
    text = re.sub(r"[0-9]*(>>|<<<|>&|<&|&>|[<>])\s*\S+", " ", text)
    for part in re.split(r"&&|\|\||[;&|\n(){}]", text):
        words = part.split()
        while words:
            word = words.pop(0)
            if re.match(r"\w+\+?=", word) or word.startswith("-") or \
                    word.isdigit():
                continue
            found.add(word)
            if word == "for" or word == "case" or word not in BEFORE:
                break
    return {w for w in found if re.fullmatch(r"[a-z][\w.+-]*", w)}


def first_word(node, lists):
    """Returns the program that a list of words begins with, if it is constant."""
    if isinstance(node, ast.BinOp):
        return first_word(node.left, lists)
    if isinstance(node, ast.Name):
        return lists.get(node.id)
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        node = node.elts[0]
    return node.value if isinstance(node, ast.Constant) and \
        isinstance(node.value, str) else None


def called(node):
    """Returns the names of the function and of the object that a call uses."""
    f = node.func
    if isinstance(f, ast.Attribute):
        return f.attr, getattr(f.value, "id", None)
    return getattr(f, "id", None), None


def is_subprocess(node):
    return isinstance(node, ast.Call) and node.args and \
        called(node)[0] in SUBPROCESS and called(node)[1] == "subprocess"


def passes_on(function):
    """Returns whether the function passes its arguments on to a process."""
    words = function.args.vararg
    return words is not None and any(
        is_subprocess(n) and isinstance(
            n.args[0], (ast.Name, ast.ListComp, ast.Call)) and any(
                isinstance(x, ast.Name) and x.id == words.arg
                for x in ast.walk(n.args[0]))
        for n in ast.walk(function))


def commands_of_python(text):
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    lists = {t.id: first_word(n.value, {}) for n in nodes
             if isinstance(n, ast.Assign)
             and isinstance(n.value, (ast.List, ast.Tuple, ast.BinOp))
             for t in n.targets if isinstance(t, ast.Name)}
    own = {n.name for n in nodes
           if isinstance(n, ast.FunctionDef) and passes_on(n)}
    found = set()
    for n in nodes:
        if not isinstance(n, ast.Call) or not n.args:
            continue
        name, of = called(n)
        if is_subprocess(n) or name in OTHER_CALLS or \
                name in own and of is None:
            word = first_word(n.args[0], lists)
            if word and any(k.arg == "shell" for k in n.keywords):
                found |= commands_of_shell(word + "\n")
            elif word and re.fullmatch(r"[\w.+-]+", word):
                found.add(word)
    return found


def commands_of_c(text):
    return set(re.findall(r'\b(?:system|popen|execlp|execvp|posix_spawnp)'
                          r'\(\s*(?:&\w+,\s*)?"([a-z][\w.+-]*)', text))


def packages_of(root, path):
    """Returns the packages that a script installs."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = re.sub(r"(?m)^\s*#.*$", "", re.sub(r"\\\n", " ", file.read()))
    return {w for words in re.findall(r"need_packages ([^\n;|&]*)", text) +
            re.findall(r'^packages_\w+="([^"]*)"', text, re.MULTILINE)
            for w in words.split()
            if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", w)}


class Dpkg:
    """Reads from dpkg's database which packages are installed."""

    def __init__(self, admin):
        self.admin, self.packages, self.given, self.lists = admin, {}, {}, {}
        for path in glob.glob(f"{admin}/info/*.list"):
            name = re.sub(r"(:\w+)?\.list$", "", os.path.basename(path))
            self.lists.setdefault(name, []).append(path)
        with open(f"{admin}/status", encoding="utf-8") as file:
            for text in file.read().split("\n\n"):
                fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.M))
                if fields.get("Status", "").endswith(" installed"):
                    self.packages[fields["Package"]] = fields
                    for name in re.findall(r"[a-z0-9][a-z0-9.+-]+",
                                           re.sub(r"\([^)]*\)", "",
                                                  fields.get("Provides", ""))):
                        self.given.setdefault(name, fields["Package"])

    def is_base(self, name):
        """Returns whether every Debian system has this package."""
        return self.packages[name].get("Essential") == "yes" or \
            self.packages[name].get("Priority") == "required"

    def with_needed(self, names):
        """Returns those of the packages that are installed, and their
        dependencies."""
        todo, found = list(names), set()
        while todo:
            name = todo.pop()
            name = name if name in self.packages else self.given.get(name)
            if name is None or name in found:
                continue
            found.add(name)
            fields = self.packages[name]
            for one in f"{fields.get('Pre-Depends', '')}," \
                       f"{fields.get('Depends', '')}".split(","):
                for choice in one.split("|"):
                    choice = re.sub(r"[\s:(].*", "", choice.strip())
                    if choice in self.packages or choice in self.given:
                        todo.append(choice)
                        break
        return found

    def programs(self, package):
        for path in self.lists.get(package, []):
            with open(path, encoding="utf-8") as file:
                for folder, name in BINARY.findall(file.read()):
                    yield name

    def by_choice(self, name):
        """Returns dpkg's record of the alternatives of a program, such as
        mpirun; "" if there is none."""
        path = f"{self.admin}/alternatives/{name}"
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()


def called_in(root):
    """Returns the programs that each file calls, by the path of the file."""
    used, functions = {}, set()
    for path, text in texts(root, SCRIPTS):
        functions |= set(re.findall(r"(?m)^\s*([\w-]+)\(\) *\{", text))
        used[path] = commands_of_shell(text) - SHELL
    for path in used:
        used[path] -= functions
    for patterns, commands in (PYTHON, commands_of_python), (C, commands_of_c):
        for path, text in texts(root, patterns):
            used[path] = commands(text)
    return used


def main():
    root = sys.argv[1]
    admin = sys.argv[2] if sys.argv[2:] else "/var/lib/dpkg"
    used = called_in(root)
    if not any(used.values()):
        print("no script calls any program: are the patterns right?")
        return 1
    if not os.path.exists(f"{admin}/status"):
        print(f"not looked at: {admin} is no database of dpkg")
        return 0
    dpkg = Dpkg(admin)
    base = [name for name in dpkg.packages if dpkg.is_base(name)]
    owner = {p: name for name in dpkg.packages for p in dpkg.programs(name)}
    faults, absent, known = [], set(), {}
    for path in sorted(used):
        by = {*INSTALLERS, RUN_BY.get(path, path)}
        wanted = frozenset().union(*(packages_of(root, p) for p in by
                                     if p.endswith(".sh")))
        if wanted not in known:
            known[wanted] = {p for name in dpkg.with_needed([*wanted, *base])
                             for p in dpkg.programs(name)}
        missing = {p for p in wanted
                   if p not in dpkg.packages and p not in dpkg.given}
        for word in sorted(used[path] - known[wanted] - OURS):
            choices = re.findall(r"bin/([\w.+-]+)\n", dpkg.by_choice(word))
            if any(p in known[wanted] for p in choices):
                continue
            if word in owner:
                faults.append(f"{path} calls {word} of the package "
                              f"{owner[word]}, which no script installs for it")
            elif missing:
                absent |= missing
            else:
                faults.append(f"{path} calls {word}, which no package has that "
                              "a script installs for it")
    print("\n".join(faults), end="\n" if faults else "")
    if absent:
        print(f"not installed here, so not looked at: {' '.join(sorted(absent))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
