# SPDX-License-Identifier: Apache-2.0
"""Checks that names in a model are escaped before they reach a terminal, a log
or a picture.

usage: escaped_names.py PENSTOCK TINY.pt2 SOURCES

The module names of tiny.pt2 are extended by every character up to U+00FF and
by those that change the direction of text. No output may contain one of these
characters unescaped. JSON must still contain the exact names.
"""
import glob
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import zipfile

import clients
from patience import PATIENCE

# The separators `.`, `,` and `;` of module stacks cannot occur in names.
NASTY = "".join(chr(c) for c in range(1, 256) if chr(c) not in ".,;")
NASTY += "\u061c\u200e\u200f\u2028\u2029\u202e\u2066\u2069\ufeff"
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f"
                    "\u2028-\u202e\u2066-\u2069\ufeff]")
ESCAPED = re.compile(r"\\(x|u00)1[bB](.|\n)*\\u009b")
MODULES = "emb", "fc", "head"


def rename(source, target):
    """Writes a copy of the model with NASTY appended to the names of its
    modules."""
    nasty = json.dumps(NASTY)[1:-1]
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith(".json"):
                text = data.decode()
                for name in MODULES:
                    text = text.replace(f"{name},{name},",
                                        f"{name}{nasty},{name}{nasty},")
                    for end in ".weight", ".bias", "":
                        text = text.replace(f'"{name}{end}"',
                                            f'"{name}{nasty}{end}"')
                json.loads(text)
                data = text.encode()
            new.writestr(info, data)


def check_text(what, data, lines=True):
    """Checks output that people may see: it contains the names, escaped."""
    text = data.decode("utf-8")  # fails unless it is valid UTF-8
    found = HIDDEN.search(text if lines else text.rstrip("\n"))
    assert found is None, (what, found, text[:found.end()][-80:])
    return text


def check_json(what, data):
    text = check_text(what, data)
    return json.loads(text), text


def check_sources(root):
    """Checks that only daemon/ctl/out.c and its queue write to standard output
    or error."""
    writes = re.compile(r"(?<![\w])(printf|fprintf|puts|fputs|putchar|putc|"
                        r"fputc|fwrite|vprintf|vfprintf|perror)\(")
    paths = glob.glob(os.path.join(root, "daemon", "ctl", "**", "*.c"),
                      recursive=True)
    for path in sorted(paths):
        if os.path.basename(path) in ("out.c", "out_queue.c"):
            continue
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                assert not writes.search(line), (path, number, line)


class Ways:
    """Runs commands in a folder with the model and its plan, with each kind of
    output."""

    def __init__(self, penstock, folder):
        self.penstock, self.folder = penstock, folder
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder, TERM="xterm",
                        PST_DATA_UNCHECKED="1")

    def call(self, *args, codes=(0,)):
        done = subprocess.run([self.penstock, *args], cwd=self.folder,
                              env=self.env, check=False, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE)
        assert done.returncode in codes, (args, done)
        return done

    def text(self, *args, codes=(0,), names=True):
        done = self.call(*args, codes=codes)
        text = check_text(args, done.stdout + done.stderr)
        assert not names or ESCAPED.search(text), (args, text)
        return text

    def json(self, *args, names=True, codes=(0,)):
        done = self.call(*args, "--json", codes=codes)
        value, text = check_json(args, done.stdout)
        check_text(args, done.stderr)
        assert not names or ESCAPED.search(text), (args, text)
        return value

    def terminal(self, *args):
        """Runs the command with a terminal as its output."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.environ.update(self.env)
            os.execv(self.penstock, [self.penstock, *args])
        data = b""
        while True:
            try:
                part = os.read(fd, 65536)
            except OSError:
                part = b""
            if not part:
                break
            data += part
        os.waitpid(pid, 0)
        os.close(fd)
        assert b"\\x0d\\x1b[K" not in data, data
        # Removes the control characters that penstock itself writes for the
        # live line.
        return check_text(args, data.replace(b"\r\x1b[K", b"")
                          .replace(b"\r\n", b"\n"))

    def file(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()


def check_pictures(ways):
    for form in "dot", "svg":
        ways.text("show", "m.plan", "--format", form, names=form == "dot")
    ways.text("plan", "m.plan", "-m", "2", "--svg", "p.svg", "--trace",
              "p.json", "--csv", "p.csv", names=False)
    check_text("svg", ways.file("p.svg"))
    check_text("csv", ways.file("p.csv"))
    check_json("trace", ways.file("p.json"))


def check_models(ways):
    ways.text("split", "m.pt2", "-o", "m.plan", "--stages", "2")
    ways.terminal("show", "m.pt2")
    ways.text("show", "m.pt2")
    ways.json("show", "m.pt2")
    ways.text("show", "m.plan")
    value = ways.json("show", "m.plan")
    assert any(f"head{NASTY}.weight" in str(part)
               for part in walk(value)), "the name is lost"
    for stage in "0", "1":
        ways.text("show", "m.plan", "--stage", stage)
        ways.json("show", "m.plan", "--stage", stage, names=False)
    ways.text("show", "m.plan", "--modules")
    modules = ways.json("show", "m.plan", "--modules")["modules"]
    assert f"head{NASTY}" in [m["module"] for m in modules]
    ways.text("show", "m.plan", "--kernels", names=False)
    ways.text("verify", "m.plan", "-m", "2", codes=(0, 2), names=False)
    ways.json("verify", "m.plan", "-m", "2", codes=(0, 2), names=False)
    ways.text("plan", "m.plan", names=False)
    ways.json("plan", "m.plan", names=False)
    # Error messages contain the argument of the user and the names that exist.
    ways.text("split", "m.pt2", "-o", "x.plan", "--stages", "2",
              "--replicate", "\x1b[31m\u009b", codes=(64, 65))
    ways.text("show", "no\x1b[31m\u009bfile", codes=(64, 65, 74))
    ways.text("split\x1b\u009b", codes=(64,))
    ways.text("show", "--form\x1b\u009bat", codes=(64,))


def walk(value):
    if isinstance(value, dict):
        for part in value.values():
            yield from walk(part)
    elif isinstance(value, list):
        for part in value:
            yield from walk(part)
    else:
        yield value


def check_runs(ways):
    run = ["run", "m.plan", "--transport", "self", "-n", "2", "-m", "2",
           "--steps", "3", "--log-dir", "log\x1b\u009b"]
    ways.text(*run, "--data", "data.safetensors", "--checkpoint",
              "ck\x1b\u009b", names=False)
    ways.terminal(*run, "--data", "data.safetensors", "--write-costs",
                  "c.json")
    check_json("costs", ways.file("c.json"))
    ways.json(*run, "--data", "data.safetensors", names=False)
    ways.text(*run, "--data", "data.safetensors", "--checkpoint",
              "ck\x1b\u009b", "--steps", "1", codes=(78,))
    # A token is out of range: the error message names the module.
    text = ways.text(*run, "--data", "bad.safetensors", codes=(65,),
                     names=False)
    assert "of emb\\x01" in text and "99" in text, text
    log = check_text("log", ways.file("log\x1b\u009b/rank-0.log"))
    assert "event=fault" in log and "\\u001b" in log and "\\u009b" in log, log
    assert all(line.startswith("ts=") for line in log.splitlines())


def check_help(penstock):
    """Checks that line breaks that penstock writes itself are not escaped."""
    def help_of(*words):
        return subprocess.run([penstock, *words, "--help"], text=True,
                              capture_output=True, check=True).stdout
    names = [line.split()[0] for line in help_of().splitlines()
             if line.startswith("  ")]
    assert len(names) > 15, names
    for name in names:
        text = help_of(name)
        assert text.startswith(f"usage: penstock {name} "), text
        assert "\\n" not in text, text


def main():
    penstock, model, root = map(os.path.abspath, sys.argv[1:])
    check_sources(root)
    check_help(penstock)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        rename(model, os.path.join(folder, "m.pt2"))
        clients.write_data(os.path.join(folder, "data.safetensors"))
        clients.write_data(os.path.join(folder, "bad.safetensors"), 99)
        ways = Ways(penstock, folder)
        check_models(ways)
        check_pictures(ways)
        check_runs(ways)
    return 0


if __name__ == "__main__":
    sys.exit(main())
