#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs whose processes copy messages from each other's GPU memory.

usage: ipc.py PENSTOCK GOLDEN MODULES PART

PENSTOCK_LIBCUDA is the driver of the tests, GOLDEN the folder of models,
MODULES that of u06.pt2. PART is one of:

bits     golden models in 2 and 4 processes have the bits of one process, from
         GPU to GPU and through the host
changes  another number of microbatches, and another module, while a job runs
lost     a driver that fails, from any call on, and a killed rank end the job
"""
import glob
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
from tensor_file import contents, load, save  # noqa: E402

# Models with the number of stages into which they are cut.
MODELS = ("shared", 2), ("shared", 4), ("tiny", 2), ("ties", 4)
FUNCTIONS = "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"


class Bench(job.Bench):
    def __init__(self, penstock, golden, modules, folder):
        super().__init__(penstock, folder)
        self.golden, self.modules = golden, modules
        self.job = f"ipc-{os.getpid()}"

    def words(self, model, data, ranks, transport, *more):
        return ("run", model, "--data", data, "-n", ranks, "--transport",
                transport, "--device", "cuda", "--dump", "dump", "--log-dir",
                "log", "--optimizer", "adamw", "--lr", "1e-2", "--quiet",
                "--job", self.job, *more)

    def inputs(self, name):
        """Returns a model of the goldens, and a file of its inputs."""
        tensors, _ = load(f"{self.golden}/{name}.safetensors")
        save(self.path("inputs.safetensors"),
             {k.removeprefix("in."): v for k, v in tensors.items()})
        return f"{self.golden}/{name}.pt2", "inputs.safetensors"

    def result(self):
        with open(self.path("dump"), "rb") as file:
            return file.read()

    def run(self, *words, **env):
        """Runs a job; returns its dump and how many ranks each one reaches."""
        shutil.rmtree(self.path("log"), ignore_errors=True)
        self.call(*self.words(*words), **env)
        return self.result(), self.reached()

    def reached(self):
        lines = []
        for name in sorted(glob.glob(self.path("log", "rank-*.log"))):
            with open(name, encoding="utf-8") as file:
                lines += [x for x in file if " event=peers " in x]
        return [int(job.field(x, "direct")) for x in lines]

    def messages(self, said):
        """Returns the messages of a job, with those in the logs of ranks."""
        text = said.stderr
        for name in glob.glob(self.path("log", "rank-*.log")):
            with open(name, encoding="utf-8") as file:
                text += "".join(x for x in file if " event=failed " in x or
                                " event=train_end " in x)
        return text

    def why(self, rank):
        return self.events("log", "peers", f"rank-{rank}")[0].split(
            " why=")[1]


def bits(b):
    for name, stages in MODELS:
        model, data = b.inputs(name)
        more = ["-m", 4, "--steps", 4, "--stages", stages]
        if name == "shared":
            more += ["--policy", "flops"]
        want, direct = b.run(model, data, 2, "self", *more)
        assert direct == [1, 1], direct
        got, direct = b.run(model, data, 2, "mpi", *more)
        assert got == want and direct == [1, 1], (model, direct)
        got, direct = b.run(model, data, 2, "mpi", *more,
                            PENSTOCK_CUDA_IPC="0")
        assert got == want and direct == [0, 0], (model, direct)
        assert "PENSTOCK_CUDA_IPC=0" in b.why(1), b.why(1)
        if stages == 4:
            got, direct = b.run(model, data, 4, "mpi", *more,
                                "--verify-messages")
            assert got == want and direct == [3] * 4, (model, direct)


def ramps(b):
    model, data = b.inputs("shared")
    more = ["-m", "2:0,4:2", "--steps", 5, "--stages", 2]
    want, _ = b.run(model, data, 2, "self", *more)
    got, direct = b.run(model, data, 2, "mpi", *more)
    assert got == want and direct == [1, 1], direct


def swaps(b):
    """Another engine, with other memory, replaces the first one."""
    save(b.path("x.safetensors"), {"x": ("F32", [4], bytes(16))})
    b.call("split", f"{b.modules}/u06.pt2", "-o", "plan", "--loss-fn",
           "mse:target=x")
    results = []
    for transport in "self", "mpi":
        shutil.rmtree(b.path("log"), ignore_errors=True)
        run = b.begin(*b.words("plan", "x.safetensors", 3, transport, "-m", 2,
                               "--steps", 8), PENSTOCK_GATE=b.path("gate"))
        for step in 2, 5:
            b.paused_after(step, b.job)
            b.call("swap", "n", f"{b.modules}/u06.pt2", "--job", b.job)
            b.call("resume", "--job", b.job)
        b.gate(100)
        b.ended(run)
        results.append(contents(b.path("dump")))
        os.remove(b.path("gate"))
    assert results[0] == results[1], results


def changes(b):
    ramps(b)
    swaps(b)


def lost(b):
    model, data = b.inputs("shared")
    # The engine of evaluations, too, has memory that the other rank has opened.
    words = b.words(model, data, 2, "mpi", "-m", 2, "--steps", 3, "--stages",
                    2, "--eval-data", data, "--eval-every", 1)
    b.call(*words, PENSTOCK_TEST_CUDA_COUNT=b.path("count"))
    with open(b.path("count"), encoding="utf-8") as file:
        n = sum(int(x.split()[0]) for x in file)
    want = b.result()
    for function in FUNCTIONS:
        for rank in "", ":0", ":1":
            said = b.done(*words, code=None,
                          PENSTOCK_TEST_CUDA_LOST=function + rank)
            assert "nothing has moved" not in said.stderr, said
            if function == FUNCTIONS[2]:  # at the end
                assert said.returncode == 0, said
                assert b.result() == want
            else:
                assert said.returncode != 0, said
                assert re.search("CUDA_ERROR|GPU", b.messages(said)), b.messages(said)
    ended = 0
    for call in range(1, n + 40, max(1, n // 12)):
        said = b.done(*words, code=None, PENSTOCK_TEST_CUDA=f"3:{call}")
        ended += said.returncode == 0
        assert "nothing has moved" not in said.stderr, (call, said)
        assert said.returncode == 0 or re.search(
            "CUDA_ERROR|GPU", b.messages(said)), (call, b.messages(said))
    assert 0 < ended < 12, ended
    for rank, points in enumerate((("F:3", "SEND_F:1", "RECV_B:2"),
                                   ("F:3", "RECV_F:2", "SEND_B:1"))):
        for point in points:
            said = b.done(*words, code=None, PENSTOCK_FAULT=point + ":kill",
                          PENSTOCK_FAULT_RANK=str(rank))
            assert said.returncode != 0, (point, rank, said)
            assert "nothing has moved" not in said.stderr, said
    b.call(*words)
    assert b.result() == want


def main():
    penstock, golden, modules, part = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, *map(os.path.abspath, (golden, modules)),
                  folder) as b:
        {"bits": bits, "changes": changes, "lost": lost}[part](b)
        b.no_files_left()


if __name__ == "__main__":
    main()
