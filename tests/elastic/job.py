# SPDX-License-Identifier: Apache-2.0
"""Jobs in a folder of their own, for the tests of this one."""
import glob
import json
import os
import subprocess
import sys
import time

DAEMON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                      "daemon")
sys.path[:0] = [DAEMON, os.path.join(DAEMON, "training")]

PATIENCE = 100


class Bench:
    """penstock, a folder to work in, and what ranks have written there."""

    def __init__(self, penstock, folder):
        self.penstock, self.folder = os.path.abspath(penstock), folder
        asan = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder,
                        ASAN_OPTIONS=asan)
        self.jobs = []

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        """A job that a failed test has left must not go on for ever."""
        for job in self.jobs:
            if job.poll() is None:
                job.terminate()
                job.communicate(timeout=PATIENCE)

    def begin(self, *words, **env):
        return self.begin_as([self.penstock, *words],
                             env={**self.env, **env})

    def begin_as(self, words, **more):
        self.jobs.append(subprocess.Popen(
            words, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more))
        return self.jobs[-1]

    def call(self, *words, code=0, **env):
        job = self.begin(*words, **env)
        out, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == code, (words, env, job.returncode, out, err)
        return out + err

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def weights(self, name):
        """Of the newest checkpoint in a folder, whatever ranks wrote it."""
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

    def pid(self, name, rank):
        line = self.await_event(name, "start", f"rank-{rank}")
        return int(field(line, "pid"))

    def no_files_left(self):
        left = glob.glob(self.path("penstock-??????"))
        left += glob.glob(self.path("penstock", "*"))
        assert not left, left


def field(line, key):
    return line.split(f" {key}=")[1].split()[0]
