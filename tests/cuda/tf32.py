#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks --tf32 on the device cuda.

usage: tf32.py PENSTOCK MODEL LIBRARY    PENSTOCK_LIBCUDA: the tests' driver

MODEL is shared.pt2, with shared.safetensors beside it; LIBRARY the tests'
cuBLASLt, which rounds operands to TF32 where it is asked to. Gradients change
as much as TF32 rounds, and have the same bits for every cut and without
recordings. A CPU, and a GPU without the library, are refused.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import tensor_file  # noqa: E402

# TF32 rounds by at most 2^-11 = 4.9e-4, f32 by 6e-8.
MOST, LEAST = 2e-2, 2e-5


def gradients(path):
    """Returns the loss and the gradients of a dump of f32 tensors."""
    return {name: struct.unpack(f"<{len(data) // 4}f", data)
            for name, (dtype, _, data) in tensor_file.load(path)[0].items()
            if dtype == "F32" and (name == "loss" or name.startswith("grad."))}


def distance(a, b):
    """Returns the largest relative distance of a tensor."""
    assert a.keys() == b.keys() and len(a) > 1, (a.keys(), b.keys())
    return max(math.dist(x, b[n]) / (math.hypot(*b[n]) or 1)
               for n, x in a.items())


def main():
    penstock, model, library = map(os.path.abspath, sys.argv[1:4])
    data = model.replace(".pt2", ".safetensors")
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder,
                   PENSTOCK_LIBCUBLASLT=library)

        def call(*words, code=0, **more):
            done = subprocess.run([penstock, *words], cwd=folder, text=True,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, check=False,
                                  env={**env, **more})
            assert done.returncode == code, (words, done)
            return done

        def run(*words, **more):
            return call("run", model, "--data", data, "-m", "4", "--transport",
                        "self", *words, **more)

        def dump(name, *words):
            run("--device", "cuda", "--steps", "4", "--dump", name, *words)
            return f"{folder}/{name}"

        def dtype():
            with open(f"{folder}/log/rank-0.log", encoding="utf-8") as file:
                return re.findall(r" event=train_begin .* dtype=(\S+)",
                                  file.read())[-1]

        f32 = gradients(dump("f32", "--log-dir", "log"))
        assert dtype() == "f32", dtype()
        tf32 = dump("tf32", "--tf32", "--log-dir", "log")
        assert dtype() == "tf32", dtype()
        assert LEAST <= distance(gradients(tf32), f32) <= MOST, (
            distance(gradients(tf32), f32))
        cut = "-n", "2", "--stages", "2", "--policy", "flops"
        for name, words in (("cut", cut), ("eager", ["--no-graphs"])):
            with open(tf32, "rb") as a, \
                    open(dump(name, "--tf32", *words), "rb") as b:
                assert a.read() == b.read(), name

        # A resume reports that numbers change.
        keep = "--device", "cuda", "--checkpoint", "ck"
        run(*keep, "--steps", "1", "--tf32")
        said = run(*keep, "--steps", "2", "--resume", "--tf32").stderr
        assert "--tf32" not in said, said
        said = run(*keep, "--steps", "3", "--resume").stderr
        assert "--tf32 was 1 in the run" in said, said

        # Ranks that do not multiply in TF32 are refused.
        nowhere = {"PENSTOCK_LIBCUDA": "/nowhere/libcuda.so.1"}
        for device, rank in ("cpu", 0), ("cuda,cpu", 1):
            for command in ("plan", {}), ("run", {"PENSTOCK_TF32": "yes"}):
                words = ["--device", device, *cut]
                if command[0] == "plan":
                    done = call("plan", model, "-m", "4", "--tf32", *words,
                                code=64, **nowhere)
                elif rank == 0:
                    done = run("--steps", "1", *words, code=64, **command[1])
                else:
                    continue
                assert (f"rank {rank}: the device cpu does not multiply in "
                        "TF32: --tf32 is for" in done.stderr), done
                assert "[device.tf32]" in done.stderr, done
        for value, text in (("none", "PENSTOCK_LIBCUBLASLT is none"),
                            ("/nowhere", "=/nowhere: there is no")):
            said = run("--device", "cuda", "--steps", "1", "--tf32", code=65,
                       PENSTOCK_LIBCUBLASLT=value).stderr
            assert text in said, said
            assert (value != "none") != ("[device.cublaslt]" in said), said

        # `plan` needs no GPU, and says what --tf32 does.
        words = "plan", model, "-m", "4", "--device", "cuda"
        for more, is_tf32 in ((), False), (("--tf32",), True):
            said = call(*words, *more, **nowhere).stdout
            assert ("rank 0 on cuda: cuBLASLt rounds" in said) == is_tf32, said
            ranks = json.loads(call(*words, *more, "--json",
                                    **nowhere).stdout)["ranks"]
            assert ranks[0]["tf32"] is is_tf32, ranks
    print("ok")


if __name__ == "__main__":
    main()
