# SPDX-License-Identifier: Apache-2.0
"""A job removes the checkpoint that `penstock serve` has found before its plan
is opened: the next one is served.

usage: pruned.py PENSTOCK ROWS.pt2
"""
import os
import shutil
import signal
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import tensor_file  # noqa: E402
from job import Bench, field  # noqa: E402
from patience import wait_until  # noqa: E402


def stopped_child(parent):
    """Returns the pid of a child process that has stopped; None: there is
    none yet."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                state, ppid = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "T" and int(ppid) == parent:
            return int(pid)
    return None


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        tensor_file.save(b.path("rows.safetensors"), {
            "x": ("F32", [16, 7], struct.pack("<112f", *(
                (k * k % 17 - 8) / 17 for k in range(112)))),
            "target": ("I64", [16], struct.pack("<16q", *(
                k * k % 5 for k in range(16))))})
        one = "--transport", "self", "-n", "1", "--quiet"
        b.gate(0)
        run = b.begin("run", model, *one, "--data", "rows.safetensors",
                      "--checkpoint", "ck", "--checkpoint-every", "2",
                      "--keep", "0", "--steps", "6", "--job", "train",
                      PENSTOCK_GATE="gate")
        b.paused_after(2, "train")
        b.call("freeze", "up.bias", "--job", "train")
        b.gate(9)
        b.call("resume", "--job", "train")
        b.ended(run)
        serve = b.begin("serve", model, *one, "--checkpoint", "ck", "--job",
                        "asked", "--log-dir", "log",
                        PENSTOCK_FAULT="carried:stop")
        wait_until(lambda: stopped_child(serve.pid), "serve at the checkpoint")
        shutil.rmtree(b.path("ck", "step-00000006"))
        os.kill(stopped_child(serve.pid), signal.SIGCONT)
        wait_until(lambda: serve.poll() is not None or b.events(
            "log", "serve_begin", "rank-0"), "the begin")
        assert serve.poll() is None, b.ended(serve)
        line = b.await_event("log", "serve_begin", "rank-0")
        assert field(line, "step") == "4", line
        b.call("stop", "--job", "asked")
        b.ended(serve, None)
    print("ok")


main()
