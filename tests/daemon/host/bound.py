#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --bind cores: each kernel thread of a job runs on a processor of its
own, the other threads of the ranks on any; the numbers do not change.

usage: bound.py PENSTOCK GPT.pt2 TOKENS self|mpi
"""
import glob
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import wait_until  # noqa: E402


def masks(b):
    """Returns the allowed processors of all threads of the job's ranks."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                words = file.read().split("\0")
            if os.path.basename(words[0]) != "penstockd" or b.job not in words:
                continue
            for status in glob.glob(os.path.dirname(path) + "/task/*/status"):
                with open(status, encoding="utf-8") as file:
                    found += re.findall(r"Cpus_allowed_list:\s*(\S+)",
                                        file.read())
        except OSError:
            continue  # the process or thread has ended meanwhile
    return found


def main():
    penstock, model, data = map(os.path.abspath, sys.argv[1:4])
    transport = sys.argv[4]
    here = os.sched_getaffinity(0)
    ranks = min(2, len(here))
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        b.job = f"bound-{os.getpid()}"
        words = ["run", model, "--stages", ranks, "-n", ranks, "--transport",
                 transport, "-m", "2", "--data", data, "--quiet", "--steps",
                 "8", "--threads", "1"]
        b.done(*words, "--dump", "free")
        b.gate(6)
        run = b.begin(*words, "--dump", "bound", "--bind", "cores", "--job",
                      b.job, "--checkpoint", "saved", "--checkpoint-every", "2",
                      "--log-dir", "log", PENSTOCK_GATE="gate")
        wait_until(lambda: b.place() == 7, "step 7")
        every = masks(b)
        one = sorted(m for m in every if m.isdigit())
        assert len(one) == len(set(one)) == ranks < len(every), every
        b.gate(8)
        b.ended(run)
        said = [re.search(r" processors=(\d+)$", line)[1] for k in range(ranks)
                for line in b.events("log", "bound", f"rank-{k}")]
        assert sorted(said) == one, (said, one)
        with open(b.path("free"), "rb") as x, open(b.path("bound"), "rb") as y:
            assert x.read() == y.read()

        many = len(here) + 1
        assert "[host.bind]" in b.call(
            "run", model, "-n", "1", "--transport", "self", "-m", "2", "--data",
            data, "--steps", "1", "--threads", many, "--bind", "cores", code=65)
    print("ok")


if __name__ == "__main__":
    main()
