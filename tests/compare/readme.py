#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the section "Your own model in five minutes" of README.md.

usage: readme.py PENSTOCK FOLDER

The Python code is run with only the imports that PyTorch's documents begin
with. The commands are run unchanged, block by block, by a shell that finds
`penstock`; the commands for the example of text are skipped. Each must end
with 0, all together within five minutes of CPU time, and the loss must
fall.
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
IMPORTS = """import safetensors.torch
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
"""
MINUTES = 5


def blocks():
    """Returns language and text of each code block of the section."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    text = text.split("## Your own model in five minutes")[1].split("\n## ")[0]
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.M | re.S)
    return [(language, textwrap.dedent(body)) for _, language, body in found]


def main():
    penstock, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    # Socket paths must be short, and the clone's path may be long.
    sockets = tempfile.TemporaryDirectory(prefix="pst-readme-")
    env = dict(os.environ, PATH=os.path.dirname(penstock) + ":" +
               os.environ["PATH"], XDG_RUNTIME_DIR=sockets.name)
    losses, commands = [], 0
    for language, text in blocks():
        # Examples for longer jobs and for another model are skipped.
        if "penstock status" in text or "bytegpt" in text:
            continue
        if language == "python":
            words = [sys.executable, "-c", IMPORTS + text]
        else:
            words = ["bash", "-ec", text]
            commands += len(re.findall(r"^penstock ", text, re.M))
        done = subprocess.run(words, cwd=folder, env=env, text=True, check=False,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL,
                              capture_output=True)
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        print(done.stdout, end="")
        losses += [float(x) for x in
                   re.findall(r"^step \d+/\d+ +loss ([\d.]+)", done.stdout, re.M)]
    # CPU time is checked, since other programs may delay the commands.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = used.ru_utime + used.ru_stime
    assert commands >= 8, commands
    assert len(losses) > 2 and losses[-1] < .7 * losses[0], losses
    assert took < 60 * MINUTES, took
    print(f"{commands} commands in {took:.0f} s of work; the loss fell from "
          f"{losses[0]} to {losses[-1]}")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
