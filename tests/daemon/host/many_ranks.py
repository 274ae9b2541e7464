#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a job with 32 ranks on few cores becomes ready soon, with little
memory per rank, and that ranks that wait for long leave the processor to
others.

usage: many_ranks.py PENSTOCK BYTEGPT.pt2 DATA [SECONDS]

SECONDS: limit for becoming ready (default 60, since other tests run meanwhile).
"""
import datetime
import glob
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
from patience import PATIENCE  # noqa: E402

RANKS = 32
# Resident anonymous memory of a rank in MiB, including its part of the model.
OWN_MIB = 30


def at(line):
    text = line.split("ts=", 1)[1].split()[0].replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(text).timestamp()


def found(folder, *texts):
    """Returns, for each log, the first line that contains all of these
    texts."""
    lines = []
    for path in glob.glob(os.path.join(folder, "log", "rank-*.log")):
        with open(path, encoding="utf-8") as file:
            lines += [x for x in file if all(t in x for t in texts)][:1]
    return lines


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        text = file.read()
    return [int(re.search(key + r":\s+(\d+)", text)[1]) >> 10
            for key in ("VmRSS", "RssAnon")]


def leave_the_processor(penstock, model, data, folder, env):
    """Each of two ranks waits for a forward that sleeps for two seconds."""
    def seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = seconds()
    subprocess.run([penstock, "run", model, "--stages", "2", "-n", "2", "-m",
                    "1", "--transport", "mpi", "--data", data, "--threads", "1",
                    "--steps", "1", "--quiet"],
                   cwd=folder, env={**env, "PENSTOCK_FAULT": "F:1+:2000"},
                   check=True, stdout=subprocess.DEVNULL)
    used = seconds() - before
    print(f"{used:.2f} CPU seconds of two ranks that wait for 2 s each")
    assert used < 2.5, used


def main():
    penstock, model, data = map(os.path.abspath, sys.argv[1:4])
    most = float(sys.argv[4]) if len(sys.argv) > 4 else PATIENCE
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder)
        subprocess.run([penstock, "split", model, "-o", "many.plan", "--stages",
                        str(RANKS)], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        begin = time.time()
        job = subprocess.Popen(
            [penstock, "run", "many.plan", "-n", str(RANKS), "-m", "4",
             "--data", data, "--threads", "1", "--steps", "1000000",
             "--log-dir", "log", "--quiet"], cwd=folder, env=env)
        try:
            while len(found(folder, "event=state", "to=ready")) < RANKS:
                assert job.poll() is None and time.time() < begin + PATIENCE
                time.sleep(.05)
            took = max(map(at, found(folder, "event=state", "to=ready"))) - begin
            while not found(folder, "event=step "):
                assert job.poll() is None and time.time() < begin + PATIENCE
                time.sleep(.05)
            sizes = [resident(re.search(r" pid=(\d+)", x)[1])
                     for x in found(folder, "event=start")]
            print(f"{RANKS} ranks were ready after {took:.2f} s; resident "
                  f"{max(s[0] for s in sizes)} MiB at most, of which "
                  f"{max(s[1] for s in sizes)} of its own")
            assert took <= most, took
            assert "ASAN_OPTIONS" in env or max(
                s[1] for s in sizes) <= OWN_MIB, sizes
        finally:
            job.send_signal(signal.SIGTERM)
            assert job.wait(PATIENCE) == 143
        leave_the_processor(penstock, model, data, folder, env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
