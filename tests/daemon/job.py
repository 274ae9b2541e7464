# SPDX-License-Identifier: Apache-2.0
"""Runs jobs in a folder of their own: the base of all tests that run jobs."""
import fcntl
import glob
import json
import os
import subprocess
import time

from patience import PATIENCE, wait_until


class Bench:
    """Runs penstock in a work folder and reads what the ranks wrote there."""

    def __init__(self, penstock, folder):
        self.penstock, self.folder = os.path.abspath(penstock), folder
        # A crash must end the process by its signal, also with a sanitizer,
        # which would handle the signal.
        asan = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder,
                        ASAN_OPTIONS=asan)
        self.jobs = []

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        """Ends the jobs that a failed test has left running."""
        for job in self.jobs:
            if job.poll() is None:
                job.terminate()
                job.communicate(timeout=PATIENCE)

    def begin(self, *words, **env):
        return self.begin_as([self.penstock, *map(str, words)],
                             env={**self.env, **env})

    def begin_as(self, words, **more):
        self.jobs.append(subprocess.Popen(
            words, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more))
        return self.jobs[-1]

    def ended(self, job, code=0):
        """Returns the output once the process has ended with that code (None:
        any code)."""
        out, err = job.communicate(timeout=PATIENCE)
        assert code in (None, job.returncode), (
            job.args, job.returncode, out, err)
        return subprocess.CompletedProcess(job.args, job.returncode, out, err)

    def done(self, *words, code=0, **env):
        return self.ended(self.begin(*words, **env), code)

    def call(self, *words, code=0, **env):
        """Returns stdout and stderr together; with --json only stdout."""
        done = self.done(*words, code=code, **env)
        as_json = code == 0 and "--json" in words
        return done.stdout if as_json else done.stdout + done.stderr

    def said(self, *words, code=0, **env):
        """Returns stdout; on failure, stderr is shown."""
        done = self.done(*words, code=code, **env)
        return done.stdout if code == 0 else done.stderr

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def weights(self, name):
        """Returns the weights of the newest checkpoint in a folder."""
        out = self.path(name + ".safetensors")
        self.call("weights", name, "-o", out)
        with open(out, "rb") as file:
            return file.read()

    def last_exit(self, name):
        with open(self.path(name, "last_exit.json"), encoding="utf-8") as file:
            return json.load(file)

    def events(self, name, event, log="supervisor"):
        found = []
        path = self.path(name, log + ".log")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = [x for x in file if f" event={event} " in x]
        return found

    def await_event(self, name, event, log="supervisor", n=1):
        until = time.monotonic() + PATIENCE
        while len(self.events(name, event, log)) < n:
            assert time.monotonic() < until, (name, event, log)
            time.sleep(.01)
        return self.events(name, event, log)[n - 1]

    def gate(self, n):
        """Lets jobs that begin with PENSTOCK_GATE=gate make steps up to n
        (stages/base/README.md)."""
        with open(self.path("gate.new"), "w", encoding="utf-8") as file:
            file.write(f"{n}\n")
        os.replace(self.path("gate.new"), self.path("gate"))

    def place(self):
        """Returns the step before which the job waits at the gate; 0: none."""
        try:
            with open(self.path("gate.at"), encoding="utf-8") as file:
                return int(file.read() or 0)
        except FileNotFoundError:
            return 0

    def paused_after(self, n, job):
        """Pauses a job after step n; the gate must be lower than that."""
        self.gate(n - 1)
        wait_until(lambda: self.place() == n, f"step {n}")
        self.call("pause", "--detach", "--job", job)
        self.gate(n)
        said = self.call("pause", "--job", job)
        assert f"after step {n};" in said, said

    def pid(self, name, rank):
        line = self.await_event(name, "start", f"rank-{rank}")
        return int(field(line, "pid"))

    def await_unused(self, name):
        """Waits until the supervisor of this log folder has ended, which
        happens after its ranks have ended."""
        with open(self.path(name, "supervisor.log"), "rb") as file:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    assert time.monotonic() < until, name
                    time.sleep(.01)

    def no_files_left(self):
        """Waits until the folders of the jobs are gone: a job's name is free a
        moment before."""
        def left():
            return (glob.glob(self.path("penstock-??????")) +
                    glob.glob(self.path("penstock", "*")))
        until = time.monotonic() + PATIENCE
        while left():
            assert time.monotonic() < until, left()
            time.sleep(.01)


def field(line, key):
    return line.split(f" {key}=")[1].split()[0]
