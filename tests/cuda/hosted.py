#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that operators without a kernel on the GPU run on the host, and are
reported, and that the library of matmuls is named.

usage: hosted.py PENSTOCK MODEL [LIBRARY]

PENSTOCK_LIBCUDA is the driver of the tests, LIBRARY their cuBLASLt.

MODEL is cube.pt2, which has such operators. `plan` lists them without a GPU,
`run` warns of them and logs the same numbers, and --no-fallback refuses them.
Beside it are shared.pt2 and mask.pt2: a driver that fails, and data with a NaN.
"""
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402

TEXT = "has no kernel for"


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    library = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        env = dict(os.environ, XDG_RUNTIME_DIR=folder, TMPDIR=folder)

        def call(*words, code=0, **more):
            done = subprocess.run([penstock, *words], cwd=folder, text=True,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, check=False,
                                  env={**env, **more})
            assert done.returncode == code, (words, done)
            return done

        def run_saved(n):
            shutil.rmtree(f"{folder}/saved", ignore_errors=True)
            golden = os.path.join(os.path.dirname(model), "shared")
            return subprocess.run(
                [penstock, "run", f"{golden}.pt2", "--data",
                 f"{golden}.safetensors", "-m", "2", "--transport", "self",
                 "--device", "cuda", "--steps", "3", "--checkpoint", "saved",
                 "--checkpoint-every", "0", "--quiet"], cwd=folder, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, check=False,
                env={**env, "PENSTOCK_TEST_CUDA": f"1:{n}" if n else "1"})

        nowhere = {"PENSTOCK_LIBCUDA": "/nowhere/libcuda.so.1"}
        call("split", model, "-o", "plan")
        planned = json.loads(call("plan", "plan", "--device", "cuda", "--json",
                                  **nowhere).stdout)["ranks"][0]
        assert planned["device"] == "cuda", planned
        assert planned["hosted_calls"] > 0, planned
        assert 0 < planned["replayed_kernels"] < planned["kernels"], planned
        eager = json.loads(call("plan", "plan", "--device", "cuda", "--json",
                                "--no-graphs", **nowhere).stdout)["ranks"][0]
        assert eager["replayed_kernels"] == 0, eager
        assert eager["kernels"] == planned["kernels"], eager
        op = re.search(r"[a-z]+\.\w+", planned["hosted_ops"])[0]
        said = call("plan", "plan", "--device", "cuda", **nowhere).stdout
        assert "rank 0 on cuda: on the host" in said and op in said, said
        assert "rates of cuda are not known" in said, said
        on_cpu = json.loads(call("plan", "plan", "--json").stdout)["ranks"][0]
        assert on_cpu["device"] == "cpu", on_cpu
        assert on_cpu["hosted_calls"] == 0, on_cpu
        refused = ["--device", "cuda", "--no-fallback"]
        said = call("plan", "plan", *refused, code=65, **nowhere).stderr
        assert TEXT in said and op in said, said

        tensor_file.save(f"{folder}/x.safetensors",
                         {"x": ("F32", [4, 4], bytes(64))})
        words = ["run", "plan", "--transport", "self", "--data",
                 "x.safetensors", "--steps", "1"]
        said = call(*words, *refused, code=65).stderr
        assert TEXT in said and op in said, said
        said = call(*words, "--device", "cuda", "--log-dir", "log").stderr
        assert f"warning: rank 0: the device cuda {TEXT}" in said, said
        with open(f"{folder}/log/rank-0.log", encoding="utf-8") as file:
            lines = [x for x in file if " event=hosted " in x]
        assert len(lines) == 1 and op in lines[0], lines
        for field in "calls", "bytes":
            assert f" {field}={planned['hosted_' + field]} " in lines[0], (
                lines, planned)
        # The log has what is replayed; a run of one step has no recording.
        for more, least in ((), 1), (("--no-graphs",), 0):
            call("run", "plan", "--transport", "self", "--data",
                 "x.safetensors", "--steps", "4", "--device", "cuda",
                 "--log-dir", "log3", *more)
            with open(f"{folder}/log3/rank-0.log", encoding="utf-8") as file:
                line = [x for x in file if " event=graphs " in x][-1]
            kernels = int(re.search(r" kernels=(\d+)", line)[1])
            assert kernels >= 1 if least else kernels == 0, line
        # Only a device without enough memory is said to have too little.
        for fails, code, text in (
                ({"PENSTOCK_TEST_CUDA_MIB": "0"}, 1, "0.0 MiB free, of 0.0"),
                ({"PENSTOCK_TEST_CUDA_LOST": "cuMemAlloc_v2"}, 65,
                 "the GPU number 0 cannot be used: CUDA_ERROR_ILLEGAL")):
            said = call(*words, "--device", "cuda", code=code, **fails).stderr
            assert text in said, (fails, said)
        # A call of the driver that fails ends the run of two ranks by its name,
        # while kernels are launched, recorded and replayed.
        golden = os.path.join(os.path.dirname(model), "shared")
        for n in range(500, 2100, 200):
            said = call("run", f"{golden}.pt2", "--data",
                        f"{golden}.safetensors", "-m", "4", "--transport",
                        "self", "-n", "2", "--stages", "2", "--policy",
                        "flops", "--device", "cuda", "--steps", "4", code=1,
                        PENSTOCK_TEST_CUDA=f"{n}:{n}").stderr
            assert re.search(r"\bcu[A-Z]\w+: CUDA_ERROR_", said), (n, said)
        # A device that fails in or after the last update, which no step reports,
        # ends the run, and leaves no checkpoint of other values.
        good, late = None, 0
        for n in 0, *range(400, 1000, 60):
            done = run_saved(n)
            late += re.search(r"the device cuda has failed (in the update|before "
                              r"its parameters were saved): cu", done.stderr) \
                is not None
            if done.returncode == 0:
                call("weights", "saved", "-o", "w.safetensors")
                with open(f"{folder}/w.safetensors", "rb") as file:
                    values = file.read()
                good = good or values
                assert values == good, n
        assert late > 0
        # The search for the first NaN leaves the operands of calls on the host
        # where they were: the run says what it says on the CPU, and goes on.
        rows = [1.0] * 12
        rows[5] = math.nan
        tensor_file.save(f"{folder}/nan.safetensors", {
            "x": ("F32", [4, 3], struct.pack("<12f", *rows)),
            "mask": ("BOOL", [4, 3], bytes([1] * 12)),
            "y": ("F32", [4], bytes(16))})
        words_nan = ["run", os.path.join(os.path.dirname(model), "mask.pt2"),
                     "--transport", "self", "--data", "nan.safetensors",
                     "--on-nan", "skip", "--steps", "4", "--quiet"]
        said = [call(*words_nan, "--device", device).stderr.splitlines()
                for device in ("cpu", "cuda")]
        assert TEXT in said[1][0], said
        assert len(said[0]) == 2 and said[1][1:] == said[0], said
        # What the device cannot do is refused in a live run as at its start.
        call("up", "plan", "--detach", "--transport", "self", "--device",
             "cuda", "--job", "live")
        train = subprocess.Popen(
            [penstock, "train", "--job", "live", "--data", "x.safetensors",
             "--steps", "1000000000", "--quiet"], cwd=folder, env=env)
        while json.loads(call("status", "--json", "--job",
                              "live").stdout)["state"] != "training":
            assert train.poll() is None
            time.sleep(.05)
        said = call("set", "clip-value=1", "--job", "live", code=65).stderr
        assert "leave out --clip-value" in said, said
        call("set", "clip-norm=1", "--job", "live")
        call("stop", "--now", "--job", "live")
        train.wait(timeout=PATIENCE)
        # The log and the errors name the library of matmuls.
        lines = [x for x in open(f"{folder}/log/rank-0.log", encoding="utf-8")
                 if " event=plan_loaded " in x]
        assert "cuBLASLt is not used" in lines[0], lines
        if library:
            said = call(*words, "--device", "cuda", "--log-dir", "log2",
                        PENSTOCK_LIBCUBLASLT=library)
            lines = [x for x in open(f"{folder}/log2/rank-0.log",
                                     encoding="utf-8")
                     if " event=plan_loaded " in x]
            assert f"cuBLASLt 13.1.2 ({library})" in lines[0], lines
            for value, text in (
                    ("/nowhere", "PENSTOCK_LIBCUBLASLT=/nowhere: there is no"),
                    (folder, f"PENSTOCK_LIBCUBLASLT={folder}: there is no")):
                said = call(*words, "--device", "cuda", code=65,
                            PENSTOCK_LIBCUBLASLT=value)
                assert text in said.stderr, said
            said = call(*words, "--device", "cuda", code=65,
                        PENSTOCK_LIBCUBLASLT=library,
                        PENSTOCK_TEST_CUBLASLT="cublasLtCreate:14")
            assert "cublasLtCreate: CUBLAS_STATUS_INTERNAL" in said.stderr, said
            # In Python's site-packages, and with a matmul that fails.
            os.makedirs(f"{folder}/site/nvidia/cu13/lib")
            os.symlink(library, f"{folder}/site/nvidia/cu13/lib/"
                                "libcublasLt.so.13")
            call(*words, "--device", "cuda",
                 PENSTOCK_LIBCUBLASLT=f"{folder}/site")
        said = call(*words, "--device", "cpu", "--no-fallback")
        assert TEXT not in said.stderr, said
    print("ok")


if __name__ == "__main__":
    main()
