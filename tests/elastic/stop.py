#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops or saves a job with a state of 200 MB.

usage: stop.py PENSTOCK BYTEGPT.pt2 TEXT NUMBER [SEED]

request  `penstock stop`: exit code 130
term     SIGTERM to `penstock run`: 143
ctrl-c   SIGINT to all processes, as a terminal sends it: 130
usr1     SIGUSR1 to all processes, as a batch system sends it before the time
         limit, then SIGTERM: 143

Each way is tested NUMBER times: within the grace period of 30 seconds there
must be a complete checkpoint of the newest step, and the processes must have
ended. After a second Ctrl-C, while a step or a save hangs, they must end
within 3 seconds. The seed draws how many steps the job has made before.
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import chaos  # noqa: E402
import restart_job  # noqa: E402
from patience import PATIENCE  # noqa: E402

# Maximum seconds from the request, and from a second Ctrl-C, until the job has
# ended, on an otherwise idle machine (NUMBER > 1; else PATIENCE).
GRACE_S, SECOND_S = 30, 3
ROWS = 130000  # rows of the position table: 67 MB without AdamW's states
RANKS = 2


def large(model, path):
    """Writes the model with a larger table of positions."""
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("/weights/weight_1"):
                data *= ROWS // 128
            elif info.filename.endswith(".json"):
                data = with_rows(json.loads(data))
            new.writestr(info.filename, data)


def with_rows(document):
    graph = document.get("graph_module", {}).get("graph", {})
    for meta in (graph.get("tensor_values", {}).get("p_wpe_weight"),
                 document.get("config", {}).get("wpe.weight", {})
                 .get("tensor_meta")):
        if meta:
            meta["sizes"][0]["as_int"] = ROWS // 128 * 128
    return json.dumps(document)


class Job:
    """Runs a job in a process group of its own, as a terminal does."""

    def __init__(self, b, name, fault=""):
        self.b, self.name = b, name
        self.process = b.begin_as(
            [b.penstock, "run", "large.plan", "-n", str(RANKS), "-m", "2",
             "--threads", "1", "--data", "text", "--steps", "1000000",
             "--transport", "mpi", "--checkpoint", name, "--job", name,
             "--log-dir", name, "--log-every", "1", "--quiet"],
            env={**b.env, "PENSTOCK_FAULT": fault}, start_new_session=True)

    def signal(self, number):
        self.process.send_signal(number)

    def signal_all(self, number):
        os.killpg(self.process.pid, number)

    def pids(self):
        return [self.b.pid(self.name, rank) for rank in range(RANKS)]

    def ends(self, code, within_s):
        """Waits until all processes have ended; returns the seconds."""
        pids, begin = self.pids(), time.monotonic()
        out, err = self.process.communicate(timeout=within_s)
        assert self.process.returncode == code, (self.process.returncode, out,
                                                 err)
        while any(map(restart_job.is_alive, pids)):
            assert time.monotonic() < begin + within_s, pids
            time.sleep(.01)
        return time.monotonic() - begin

    def saved_all(self):
        """Checks that the newest checkpoint is complete and of the newest
        step."""
        last = self.b.events(self.name, "step", "rank-0")[-1]
        saved = self.b.events(self.name, "checkpoint_saved", "rank-0")[-1]
        assert job.field(saved, "step") == job.field(last, "step"), \
            (saved, last)
        size = len(self.b.weights(self.name))
        assert size > 67e6, size


def by_request(work):
    work.b.call("stop", "--job", work.name, "--no-wait")
    return 130


def by_term(work):
    work.signal(signal.SIGTERM)
    return 143


def by_ctrl_c(work):
    work.signal_all(signal.SIGINT)
    return 130


def by_batch(work):
    """Ends a job as a batch system does: the warning (SIGUSR1) saves a
    checkpoint, and the end (SIGTERM) saves another one. Returns the expected
    exit code."""
    work.signal_all(signal.SIGUSR1)
    work.b.await_event(work.name, "checkpoint_saved", "rank-0")
    work.signal(signal.SIGTERM)
    return 143


WAYS = {"request": by_request, "term": by_term, "ctrl-c": by_ctrl_c,
        "usr1": by_batch}


def graceful(b, way, name, rng, grace_s):
    work = Job(b, name)
    b.await_event(name, "step", "rank-0", rng.randrange(1, 4))
    begin = time.time()
    code = WAYS[way](work)
    work.ends(code, grace_s)
    saved = chaos.at(b.events(name, "checkpoint_saved", "rank-0")[-1]) - begin
    assert saved < grace_s, saved
    work.saved_all()
    subprocess.run(["rm", "-rf", b.path(name)], check=True)
    return saved


def check_second_interrupt(b, name, fault, event, within_s):
    """Checks that the first Ctrl-C waits for the hanging operation and the
    second one does not."""
    work = Job(b, name, fault)
    b.await_event(name, event, "rank-0")
    work.signal_all(signal.SIGINT)
    b.await_event(name, "stop", "rank-0")
    time.sleep(1)
    assert work.process.poll() is None
    work.signal_all(signal.SIGINT)
    return work.ends(130, within_s)


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:4])
    number = int(sys.argv[4])
    rng = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    grace_s, second_s = (GRACE_S, SECOND_S) if number > 1 else (PATIENCE,) * 2
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        large(model, b.path("large.pt2"))
        b.call("split", "large.pt2", "--stages", str(RANKS), "-o",
               "large.plan")
        os.unlink(b.path("large.pt2"))
        os.symlink(text, b.path("text"))
        for way in WAYS:
            took = [graceful(b, way, f"{way}-{i}", rng, grace_s)
                    for i in range(number)]
            print(f"{way}: {len(took)} of {number} saved and ended, after at "
                  f"most {max(took):.2f} s", flush=True)
        b.no_files_left()
        for what, fault in (("step", "step@3:3600000"),
                            ("save", "shard:1:3600000")):
            took = check_second_interrupt(b, what, fault, "step", second_s)
            print(f"two Ctrl-C, a {what} hangs: gone after {took:.2f} s",
                  flush=True)
    print("ok")


if __name__ == "__main__":
    main()
