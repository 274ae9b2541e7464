#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints on a file system like NFS, with each rank on a host of its
own.

usage: close_to_open.py PENSTOCK LIBRARY BYTEGPT.pt2 TEXT

LIBRARY (tests/files/close_to_open.c) emulates close-to-open consistency: a
process sees what another one has written only after the writer has synced or
closed the file and the reader has opened it again; whole pages are written
back. First the library itself is tested. Then jobs save with and without
--shard, resume, dump and save again. All checkpoints must be complete and have
the bits of a job without the library.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402
from tensor_file import contents  # noqa: E402

# A program, one per emulated host, that executes file operations which it
# reads from its input.
HOST = r"""
import os, sys
fd = None
for line in sys.stdin:
    word, *more = line.split()
    said = "ok"
    if word == "open":
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    elif word == "write":
        os.pwrite(fd, more[1].encode(), int(more[0]))
    elif word == "read":
        said = os.pread(fd, 40, 0).replace(b"\0", b".").decode()
    elif word == "size":
        said = os.fstat(fd).st_size
    else:
        {"sync": os.fsync, "close": os.close}[word](fd)
    print(said, flush=True)
"""
WAYS = {
    "none": ("2x1",), "zero1": ("2x1", "--shard", "zero1"),
    "zero3": ("2x2", "--stages", "2", "--shard", "zero3"),
    "rows": ("2x1", "--shard", "zero3", "--shard-layout", "rows"),
    "direct": ("2x1", "--shard", "zero1", "--checkpoint-sync"),
}


class Host:
    def __init__(self, path, env):
        self.run = subprocess.Popen(
            [sys.executable, "-c", HOST, path], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, words):
        self.run.stdin.write(words + "\n")
        self.run.stdin.flush()
        return self.run.stdout.readline().strip()


def library(env, path):
    """Tests the library: data that were not synced are not seen, data that a
    process has read stay the same, and two writers of one page overwrite each
    other."""
    a, b = Host(path, env), Host(path, env)
    for words in "open", "write 0 hello":
        assert a(words) == "ok"
    assert b("open") == "ok" and b("read") == "" and b("size") == "0"
    assert a("read") == "hello" and a("size") == "5" and a("sync") == "ok"
    assert b("read") == ""
    assert b("close") == b("open") == "ok" and b("read") == "hello"
    for words in "write 6 AAA", "sync":
        assert a(words) == "ok"
    for words in "write 10 BBB", "sync", "close", "open":
        assert b(words) == "ok"
    assert b("read") == "hello.....BBB", b("read")
    for host in a, b:
        host.run.stdin.close()
        host.run.wait(timeout=PATIENCE)


class Bench(job.Bench):
    def __init__(self, penstock, so, model, text, folder):
        super().__init__(penstock, folder)
        self.model = model
        self.there = self.path("there")
        os.mkdir(self.there)
        self.env["OMP_NUM_THREADS"] = "1"
        self.hosts = {"LD_PRELOAD": so, "PST_CLOSE_TO_OPEN": self.there}
        with open(text, "rb") as file, open(self.path("text"), "wb") as copy:
            copy.write(file.read(40000))

    def train(self, name, *more, transport="mpi", shim=True, grid="2x1"):
        return self.done(
            "run", self.model, "-n", grid, "-m", "4", "--transport", transport,
            "--threads", "1", "--data", "text", "--lr", "1e-3", "--quiet",
            "--log-dir", f"log-{name}", "--job", name, *more,
            **(self.hosts if shim else {}))

    def check_all_good(self, folder, n):
        rows = json.loads(self.call("checkpoints", folder, "--verify",
                                    "--json"))["checkpoints"]
        assert len(rows) == n and all(x["state"] == "good" for x in rows), rows

    def params(self, dump):
        return {name: data for name, data in contents(self.path(dump)).items()
                if name.startswith("param.")}


def saved(b):
    """Saves after each step, resumes, and saves after further steps. All
    checkpoints must be complete."""
    weights = {}
    for way, (grid, *words) in WAYS.items():
        ck, dump = f"{b.there}/{way}", f"{b.there}/{way}.dump"
        more = ["--checkpoint", ck, "--checkpoint-every", "1", "--keep", "0",
                *words]
        b.train(way, "--steps", "3", *more, grid=grid)
        b.check_all_good(ck, 3)
        b.train(f"{way}-on", "--steps", "5", "--resume", "--dump", dump, *more,
                grid=grid)
        b.check_all_good(ck, 5)
        for rank in range(2):
            log = f"log-{way}-on"
            assert not b.events(log, "checkpoint_failed", f"rank-{rank}")
        weights[way] = b.weights(ck), b.params(dump)
    for mode in "none", "zero3":  # zero3 adds in another order
        b.train(f"self-{mode}", "--steps", "5", "--checkpoint", mode, "--shard",
                mode, "--dump", f"{mode}.dump", transport="self", shim=False)
        want = b.weights(mode), b.params(f"{mode}.dump")
        assert want[1]
        for way, (_, *words) in WAYS.items():
            if ("zero3" in words) == (mode == "zero3"):
                assert weights[way] == want, way


def fallen_back(b):
    """Checks that the second checkpoint folder is used if the first one is not
    writable."""
    os.symlink("/proc/self", f"{b.there}/first")
    b.train("back", "--steps", "2", "--shard", "zero1", "--checkpoint",
            f"{b.there}/first", "--checkpoint-fallback", f"{b.there}/second",
            "--checkpoint-every", "1", "--keep", "0")
    b.check_all_good(f"{b.there}/second", 2)


def main():
    penstock, so, model, text = map(os.path.abspath, sys.argv[1:5])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, so, model, text, folder) as b:
        library({**b.env, **b.hosts}, f"{b.there}/file")
        for part in saved, fallen_back:
            part(b)
    print("ok")


if __name__ == "__main__":
    main()
