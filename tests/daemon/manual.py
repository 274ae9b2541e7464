#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that manual pages and completion contain all commands and options.

usage: manual.py PENSTOCK PENSTOCKD FOLDER    FOLDER has the built pages
"""
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from patience import PATIENCE

OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)", re.MULTILINE)


def ask(*words, **options):
    done = subprocess.run(words, text=True, check=False, timeout=PATIENCE,
                          capture_output=True, **options)
    assert done.returncode == 0 and not done.stderr, (words, done)
    return done.stdout


def check_page(name, page, options):
    lines = page.splitlines()
    assert lines[0].startswith(f'.TH {name.upper()} 1 ""'), lines[0]
    assert [x[4:] for x in lines if x.startswith(".SH ")][:2] == \
        ["NAME", "SYNOPSIS"]
    # Each line that begins with a dot must be one of these requests of roff.
    for line in lines:
        assert line[:1] != "'" and (line[:1] != "." or line[:3] in
                                    (".TH", ".SH", ".SS", ".TP", ".B ")), line
    found = re.findall(r"^(?:\\fB\\-\w\\fR, )?\\fB\\-\\-(\S+?)\\fR", page,
                       re.MULTILINE)
    found = ["--" + x.replace("\\-", "-") for x in found]
    assert found == options, (name, set(found) ^ set(options))
    if shutil.which("groff"):
        text = ask("groff", "-man", "-Tascii", "-ww", "-P-cbou",
                   input=page)
        assert all(x in text.replace("\n", " ") for x in options), name
    assert page.isascii()


def complete(script, words, **env):
    """Returns the completions that bash offers for the last word."""
    quoted = " ".join(f"'{x}'" for x in words)
    said = ask("bash", "-c", f"source '{script}'\nCOMP_WORDS=({quoted})\n"
               f"COMP_CWORD={len(words) - 1}\n_penstock\n"
               'printf "%s\\n" "${COMPREPLY[@]}"', env={**os.environ, **env})
    return [x for x in said.splitlines() if x]


def check_jobs(script):
    """Checks that completion offers the jobs whose rank 0 listens, and no
    others."""
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        sockets = []
        for job in "night", "dead":
            os.makedirs(f"{folder}/penstock/{job}")
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(f"{folder}/penstock/{job}/rank0.sock")
        os.makedirs(f"{folder}/penstock/empty")
        sockets.pop().close()
        words = ["penstock", "status", "--job", ""]
        found = complete(script, words, XDG_RUNTIME_DIR=folder)
        assert found == ["night"], found
        sockets.pop().close()
        assert complete(script, words, XDG_RUNTIME_DIR=folder) == []
        check_foreign(script, words, folder)


def check_foreign(script, words, folder):
    """Checks that a file name that is no valid job name is neither offered nor
    executed."""
    ran = folder + "/ran"
    names = "$(>$RAN)", "`>$RAN`", "$(>$RAN", "good"
    sockets = [socket.socket(socket.AF_UNIX) for _ in names]
    for name, each in zip(names, sockets):
        os.mkdir(f"{folder}/penstock/{name}")
        each.bind(f"{folder}/penstock/{name}/rank0.sock")
    env = {"XDG_RUNTIME_DIR": folder, "RAN": ran}
    assert complete(script, words, **env) == ["good"]
    assert not os.path.exists(ran)
    if os.geteuid() == 0:  # gives the folder to another user
        os.chown(folder + "/penstock", 64001, 64001)
        assert complete(script, words, **env) == []
    for each in sockets:
        each.close()


def main():
    penstock, penstockd, folder = map(os.path.abspath, sys.argv[1:4])
    usage = ask(penstock, "--help")
    names = re.findall(r"^  ([a-z]+) +\S", usage.split("commands:")[1],
                       re.MULTILINE)
    assert len(names) > 25
    pages = {os.path.basename(x)[:-2] for x in glob.glob(folder + "/*.1")}
    want = {"penstock", "penstockd", *(f"penstock-{x}" for x in names)}
    assert pages == want, ("a command and its name in daemon/ctl/commands.def "
                           f"differ, or a page is an old one: {pages ^ want}")
    page = ask(penstock, "manual")
    assert all(f"\n\\fB{name}\\fR\n" in page for name in names)
    check_page("penstock", page, [])
    script = f"{folder}/penstock.bash"
    assert set(complete(script, ["penstock", ""])) == \
        {"--help", "--version", *names}
    assert complete(script, ["penstock", "checkpoi"]) == ["checkpoint",
                                                          "checkpoints"]
    total = n_many = 0
    outputs = {}
    for name in names:
        text = ask(penstock, name, "--help")
        options = OPTION.findall(text)
        found = re.search(r"^  -o, --output \S+ +(.*(?:\n {20,}.*)*)", text,
                          re.MULTILINE)
        # The page must describe the output file of this command, too.
        if found:
            outputs[name] = " ".join(found[1].split())
            with open(f"{folder}/penstock-{name}.1", encoding="utf-8") as file:
                assert outputs[name] in file.read().replace("\\", ""), name
        with open(f"{folder}/penstock-{name}.1", encoding="utf-8") as file:
            check_page(f"penstock-{name}", file.read(), options)
        assert sorted(complete(script, ["penstock", name, "--"])) == \
            sorted(options), name
        # Commands with many options begin with those that most runs need.
        themes = re.findall(r"^[A-Z].*:$", text, re.MULTILINE)
        many = len(options) >= 40
        assert themes[:1] == (["Most used:"] if many else []), (name, themes)
        assert (len(themes) > 5) == many, (name, themes)
        n_many += many
        total += len(options)
    with open(f"{folder}/penstockd.1", encoding="utf-8") as file:
        check_page("penstockd", file.read(),
                   [x for x in OPTION.findall(ask(penstockd, "--help"))
                    if x != "--version"])
    assert n_many > 5
    assert len(outputs) > 4 and \
        len(set(outputs.values())) == len(outputs), outputs
    # Completion of values: from a list, after `=`, file names, and none.
    assert complete(script, ["penstock", "run", "--dtype", "b"]) == ["bf16"]
    assert complete(script, ["penstock", "run", "--dtype", "=", ""]) == \
        ["f32", "bf16"]
    assert "/etc/passwd" in complete(script, ["penstock", "run", "--data",
                                              "/etc/passw"])
    assert complete(script, ["penstock", "run", "--steps", ""]) == []
    assert "/etc/passwd" in complete(script, ["penstock", "run",
                                              "/etc/passw"])
    check_jobs(script)
    said = subprocess.run([penstock, "manual", "none"], check=False,
                          capture_output=True)
    assert said.returncode == 64, said
    print(f"{len(pages)} pages, {total} options",
          "" if shutil.which("groff") else "(groff is not installed)")


if __name__ == "__main__":
    main()
