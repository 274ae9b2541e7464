# SPDX-License-Identifier: Apache-2.0
"""Runs jobs that are killed and restarted: the base of tests of restarts."""
import glob
import os
import random
import signal
import subprocess
import time

import clients
import job
from patience import PATIENCE

POINTS = {"start": 1, "load": 2, "agree": 3, "step": 40, "save": 3, "gather": 1,
          "end": 1, "F": 80, "B": 60, "SEND_F": 50, "RECV_F": 50, "SEND_B": 50,
          "RECV_B": 50, "report": 30, "update": 40, "updated": 40, "shard": 2,
          "sharded": 3, "rename": 4, "manifest": 3, "saved": 2}
# Points that only one rank's thread, or only one process, can reach.
RANK_0 = {"manifest", "saved", "SEND_F", "RECV_B"}
RANK_1 = {"RECV_F", "SEND_B"}
STEPS, EVERY = 60, 10


class Bench(job.Bench):
    def __init__(self, penstock, model, transport, folder):
        super().__init__(penstock, folder)
        self.transport, self.n = transport, 0
        self.lanes = 2 if transport == "self" else 1  # ranks per process
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        clients.write_data(os.path.join(folder, "data.safetensors"))
        self.call("split", "tiny.pt2", "-o", "tiny.plan")
        self.call(*self.words("undisturbed"))
        self.want = self.weights("undisturbed")

    def words(self, name, *more, steps=STEPS):
        return ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
                "data.safetensors", "--lr", "0.001", "--transport",
                self.transport, "--steps", str(steps), "--checkpoint", name,
                "--checkpoint-every", str(EVERY), "--quiet", *more]

    def weights(self, name):
        """Returns the weights and optimizer states of the last step, by
        file."""
        folder = os.path.join(self.folder, name, f"step-{STEPS:08d}")
        files = {}
        for path in glob.glob(folder + "/*.safetensors"):
            with open(path, "rb") as file:
                files[os.path.basename(path)] = file.read()
        assert files, (folder, os.listdir(os.path.join(self.folder, name)))
        return files

    def fresh(self):
        self.n += 1
        return f"job-{self.n}"

    def into_file(self, name, *words):
        with open(self.path(name), "w", encoding="utf-8") as file:
            self.jobs.append(subprocess.Popen(
                [self.penstock, *words], cwd=self.folder, env=self.env,
                stdout=file))
        return self.jobs[-1]

    def lines(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read().splitlines()

    def once(self, point, rank=None, action="kill"):
        """Returns the environment that injects a fault once."""
        flag = os.path.join(self.folder, f"flag-{self.n}")
        with open(flag, "w", encoding="utf-8"):
            pass
        env = {"PENSTOCK_FAULT": f"{point}:{action}",
               "PENSTOCK_FAULT_ONCE": flag}
        if rank is not None:
            env["PENSTOCK_FAULT_RANK"] = str(rank)
        return env, flag

    def pids(self, name):
        """Returns the process ids of the ranks, from their logs."""
        found = []
        for path in sorted(glob.glob(os.path.join(self.folder, name,
                                                  "rank-*.log"))):
            with open(path, encoding="utf-8") as file:
                lines = [x for x in file if " event=start " in x]
            if lines:  # a rank that was killed early has logged no id
                found.append(int(lines[-1].split(" pid=")[1].split()[0]))
        return found

    def await_step(self, name, step):
        path = os.path.join(self.folder, name, "rank-0.log")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    for line in file:
                        if (" event=step " in line and
                                int(line.split(" step=")[1].split()[0]) >= step):
                            return
            time.sleep(.005)
        raise AssertionError(f"{path} never says step {step}")

    def nothing_left(self, pids):
        until = time.monotonic() + PATIENCE
        left = pids
        while left and time.monotonic() < until:
            left = [p for p in left if is_alive(p)]
            time.sleep(.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes {left} after {PATIENCE} s"


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def shared_memory(mpirun):
    with open(f"/proc/{mpirun}/cmdline", encoding="utf-8") as file:
        words = file.read().split("\0")
    return words[words.index("btl_vader_backing_directory") + 1]


def run_parts(b, parts, number, seed):
    """Runs all parts, or with mpi and few kills four of them."""
    if b.transport == "mpi" and number < len(POINTS):
        drawn = random.Random(seed).sample(parts, 4)
        parts = [p for p in parts if p in drawn]
    for part in parts:
        print(part.__name__)
        part(b)
        b.no_files_left()
