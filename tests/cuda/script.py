#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that scripts/gpu.sh runs on the tests' driver; parts that need PyTorch
are not run.

usage: script.py ROOT BUILD    PENSTOCK_LIBCUDA: the driver of the tests

The archive is a folder with links to the programs of BUILD.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAMS = ["daemon/penstock", "daemon/penstockd", "tests/cuda/time-kernels",
            "tests/ops/test-ops-kernels"]
PARTS = "doctor,kernels,bytegpt,gpt-25m,graphs,several,ipc,bf16"
ATTENTION = ("input %q: F[1, 2, 16, 8]; %r = "
             "aten.scaled_dot_product_attention.default(%q, %q, %q, None, "
             "0.0, True)")


def make_pack(root, build, folder):
    os.makedirs(f"{folder}/bin")
    for name in PROGRAMS:
        os.symlink(f"{build}/{name}", f"{folder}/bin/{os.path.basename(name)}")
    for name in ("tests/golden", "examples/bytegpt/bytegpt.pt2"):
        os.symlink(f"{root}/{name}", f"{folder}/{os.path.basename(name)}")
    os.symlink(f"{root}/LICENSE", f"{folder}/GPL-3")
    with open(f"{folder}/commit", "w", encoding="utf-8") as file:
        file.write("none\n")


def run(root, folder, python, parts=PARTS):
    """Runs gpu.sh. Returns the exit code and the rows by part."""
    env = dict(os.environ, PENSTOCK_PYTHON=python, TMPDIR=folder,
               XDG_RUNTIME_DIR=folder)
    done = subprocess.run(
        [f"{root}/scripts/gpu.sh", "run", "--only", parts, f"{folder}/pack",
         f"{folder}/out"], env=env, text=True, stdin=subprocess.DEVNULL,
        capture_output=True, check=False)
    print(done.stdout, done.stderr)
    with open(f"{folder}/out/log.txt", encoding="utf-8") as file:
        log = file.read()
    with open(f"{folder}/out/rows.json", encoding="utf-8") as file:
        rows = {}
        for row in json.load(file):
            rows.setdefault(row["part"], []).append(row)
    with open(f"{folder}/out/table.md", encoding="utf-8") as file:
        assert "| what | penstock | PyTorch |" in file.read()
    return done.returncode, rows, log


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        make_pack(root, build, f"{folder}/pack")
        # -S hides the installed packages, so that there is no PyTorch.
        python = f"{folder}/python"
        with open(python, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        os.chmod(python, 0o755)
        code, rows, log = run(root, folder, python)
        assert code == 0, log[-3000:]
        assert set(rows) == set(PARTS.split(",")), rows
        assert "no PyTorch" in rows["gpt-25m"][0]["note"], rows
        assert rows["bytegpt"][1]["penstock"] == "6 of 6", rows
        assert rows["graphs"][1]["penstock"] == "4 of 4", rows
        assert rows["ipc"][0]["note"].startswith(
            "same bits; 2 of 2 ranks"), rows
        assert [x["note"] for x in rows["several"]] == ["same bits"] * 3, rows
        bf16 = rows["bf16"][0]
        assert bf16["penstock"] == (
            "refused" if "[device.fallback]" in bf16["note"] else "yes"), rows
        said = subprocess.run(
            [f"{folder}/pack/bin/time-kernels", "64"], text=True, check=True,
            input=f"3 {ATTENTION}\n", capture_output=True).stdout.split()
        assert said[0] == "cuda_sdpa_f32" and len(said) == 4, said
        assert all(float(x) >= 0 for x in said[1:]), said
        # A part that fails has a row, and the exit code is 1.
        os.unlink(f"{folder}/pack/bin/test-ops-kernels")
        code, rows, _ = run(root, folder, python, "kernels")
        assert code == 1, rows
        assert "FAILED" in rows["kernels"][0]["note"], rows
    print("ok")


if __name__ == "__main__":
    main()
