# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a life in a folder of its own, and writes them down as a
shell script."""
import json
import os
import re
import shlex
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 90  # for an event that must happen; a step takes less than 1 ms
STATUS_S = 10  # --client-timeout
PRELUDE = """#!/bin/bash
# Repeats a life of tests/hunt in an empty folder: {again}
P={penstock}
set -u
mkdir -p "${{1:?usage: $0 EMPTY-FOLDER}}"; cd "$1"
export XDG_RUNTIME_DIR=$PWD TMPDIR=$PWD
ln -s {models} m
gate() {{ echo "$1" > gate.new; mv gate.new gate; }}
at() {{ until [ "$(cat gate.at 2> /dev/null)" = "$1" ]; do sleep .01; done; }}
pid() {{ grep ' event=start ' "log/rank-$1.log" | tail -n 1 |
  sed 's/.* pid=//; s/ .*//'; }}
"""


class Broken(Exception):
    """An invariant does not hold."""


class Gone(Exception):
    """The job has ended where the life expected it to go on."""


def fields(line):
    """Returns the fields of a line of a log."""
    return {k: v.strip('"') for k, v in re.findall(
        r"(\w+)=(\"(?:[^\"\\]|\\.)*\"|\S*)", line)}


class Ground(job.Bench):
    def __init__(self, penstock, models, folder, again):
        super().__init__(penstock, folder)
        os.symlink(models, self.path("m"))
        self.script = [PRELUDE.format(
            again=again, penstock=shlex.quote(self.penstock),
            models=shlex.quote(models))]
        self.dirty = []  # texts that no command may print

    # --- the script ---------------------------------------------------------

    def note(self, text):
        self.script.append(text.replace(self.folder, "$PWD"))

    def shell(self, words, env=None):
        given = [f"{k}={shlex.quote(str(v))}" for k, v in (env or {}).items()]
        return " ".join([*given, "$P", *(shlex.quote(str(w)) for w in words)])

    # --- commands -----------------------------------------------------------

    def start(self, *words, **env):
        """Begins a command in the background."""
        self.note(self.shell(words, env) + " &")
        return self.begin(*words, **env)

    def wait(self, process, what, limit=LIMIT_S):
        """Returns the finished process, with its output."""
        if hasattr(process, "out"):
            return process
        try:
            out, err = process.communicate(timeout=limit)
        except Exception as late:
            raise Broken(f"hang: {what} has not ended after {limit} s: "
                         f"{process.args}\n" + stacks(self.folder)) from late
        for bad in ("internal.bug", "runtime error:", "Sanitizer"):
            if bad in out + err:
                raise Broken(f"{bad}: {process.args}\n{out}{err}")
        process.out, process.err = out, err
        if "[job.missed]" in err and what != "run":
            raise Gone(f"{what} was answered")
        return process

    def do(self, *words, codes=(0,), limit=LIMIT_S, **env):
        """Runs a command, which must end with one of the codes."""
        self.note(self.shell(words, env))
        done = self.wait(self.begin(*words, **env), words[0], limit)
        if codes is not None and done.returncode not in codes:
            raise Broken(f"code: {' '.join(map(str, words))} ended with "
                         f"{done.returncode}, not {codes}:\n"
                         f"{done.out}{done.err}")
        return done

    def until(self, holds, what, run=None):
        """Waits until a condition holds. Raises Gone if the process `run`
        ends before."""
        end = time.monotonic() + LIMIT_S
        while True:
            gone = run is not None and run.poll() is not None
            said = holds()
            if said:
                return said
            if gone:
                raise Gone(what)
            if time.monotonic() > end:
                raise Broken(f"hang: {what}\n" + stacks(self.folder))
            time.sleep(.003)

    # --- the gate (stages/base/README.md) -----------------------------------

    def gate(self, n):
        self.note(f"gate {n}")
        super().gate(n)

    def forget_place(self):
        if os.path.exists(self.path("gate.at")):
            os.remove(self.path("gate.at"))
        self.note("rm -f gate.at")

    # --- what the job says --------------------------------------------------

    def lines(self, log="log", name="rank-0"):
        path = self.path(log, name + ".log")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [fields(line) for line in file]

    def pid_of(self, rank, log="log"):
        found = [x for x in self.lines(log, f"rank-{rank}")
                 if x.get("event") == "start"]
        return int(found[-1]["pid"]) if found else 0

    def json_of(self, *words, **more):
        return json.loads(self.do(*words, "--json", **more).out)


def processes(folder):
    """Returns the ids of processes that were started for the life."""
    found = []
    wanted = f"XDG_RUNTIME_DIR={folder}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    ours = wanted in file.read().split(b"\0")
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    dead = file.read().rsplit(")", 1)[1].split()[0] in "ZX"
            except OSError:
                continue
            if ours and not dead:
                found.append(int(name))
    return found


def stacks(folder):
    """Returns what the processes of a life are doing."""
    texts = []
    for pid in processes(folder):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        text = os.popen(f"timeout 20 gdb -p {pid} -batch -ex 'thread apply all "
                        "bt 12' 2>&1 | grep -E '^(#|Thread)'").read()
        texts.append(f"--- {pid}: {words[:300]}\n{text}")
    return "\n".join(texts)


def kill_all(folder):
    for pid in processes(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
