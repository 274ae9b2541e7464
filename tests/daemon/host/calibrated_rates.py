#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that two ranks over MPI with different calibrated rates both use those
of rank 0, so that they choose the same kernels, and that the first use of bf16
measures a machine with bf16 instructions, once.

usage: calibrated_rates.py PENSTOCK PENSTOCKD MODEL.pt2 DATA

Also tests the reported MFU.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
from patience import PATIENCE  # noqa: E402

penstock, penstockd, model, data = sys.argv[1:]
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def call(*words, **env):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, **env})
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def await_text(path, text):
    """Waits for a log line that contains the text, and returns it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if path.exists():
            for line in path.read_text().splitlines():
                if text in line:
                    return line
        time.sleep(.02)
    raise AssertionError(f"{path} has no {text!r}")


def dtype_of(folder, first, second):
    """Returns how matmuls run (f32 or bf16) in a job whose two ranks have
    these files of rates."""
    folder.mkdir()
    words = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    for rank, cache in enumerate((first, second)):
        words += [":"] if rank else []
        words += ["-n", "1", "env", f"XDG_CACHE_HOME={cache}", penstockd,
                  folder.parent / "plan", "-m", "2", "--data", data, "--dtype",
                  "bf16", "--steps", "2", "--socket", folder / "s",
                  "--log-dir", folder]
    with subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as job:
        try:
            log = folder / "rank-0.log"
            await_text(log, "to=ready")
            call(penstock, "train", "--socket", folder / "s")
            line = await_text(log, "event=train_begin")
            call(penstock, "stop", "--socket", folder / "s")
            assert job.wait(PATIENCE) == 0
        finally:
            job.kill()
    return re.search(r" dtype=(\S+)", line).group(1)


def check_mfu(top, kept):
    """Checks that MFU = FLOP/s of the step / (calibrated rate * cores that
    have threads)."""
    for rate, ranks, threads, transport in (
            (1e9, 1, 1, "self"), (2e9, 2, 1, "mpi"), (2e9, 1, 64, "self"),
            (1e9, 2, 64, "mpi")):
        folder = top / f"mfu-{rate:.0f}-{ranks}-{threads}"
        (folder / "penstock").mkdir(parents=True)
        (folder / "penstock" / "rates").write_text(
            re.sub(r" f32=\S+", f" f32={rate}", kept))
        said = json.loads(call(
            penstock, "run", top / "plan", "-n", ranks, "--transport", transport,
            "-m", "2", "--data", data, "--steps", "4", "--threads", threads,
            "--log-dir", folder, "--json", "--quiet",
            XDG_CACHE_HOME=str(folder)))
        cores = min(ranks * threads, len(os.sched_getaffinity(0)))
        want = said["gflops"] * 1e9 / (rate * cores)
        assert abs(said["mfu"] / want - 1) < 1e-9, (said["mfu"], want)
        assert " mfu=" in await_text(folder / "rank-0.log", "event=step")


def check_first_use(top, has_bf16):
    """Checks that the first job in bf16 measures the machine and stores its
    rates, and so does the first command."""
    words = ["run", top / "plan", "-n", "1", "--transport", "self", "-m", "2",
             "--data", data, "--steps", "1"]
    cache = top / "first"
    kept = cache / "penstock" / "rates"
    texts = []
    for dtype, n_kept in (("f32", 0), ("bf16", 1), ("bf16", 1)):
        folder = top / f"first-{len(texts)}"
        call(penstock, *words, "--dtype", dtype, "--log-dir", folder,
             XDG_CACHE_HOME=str(cache))
        texts.append((folder / "rank-0.log").read_text().count(
            "event=measured"))
        assert kept.exists() == (has_bf16 and n_kept > 0), dtype
    assert texts == [0, int(has_bf16), 0], texts
    cache = top / "command"
    for n in (int(has_bf16), 0):
        done = subprocess.run(
            [penstock, "plan", str(top / "plan"), "--dtype", "bf16"],
            capture_output=True, text=True, timeout=PATIENCE, check=True,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)})
        assert done.stderr.count("measured this machine") == n, done.stderr
    # A folder that cannot be written is no error.
    done = subprocess.run(
        [penstock, "plan", str(top / "plan"), "--dtype", "bf16"],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
        env={**os.environ, "XDG_CACHE_HOME": "/proc/1/none"})
    assert done.stderr.count("measures again") == int(has_bf16), done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="pst-rates-") as name:
        top = Path(name)
        output = call(penstock, "calibrate", XDG_CACHE_HOME=name)
        has_bf16 = ", bf16 " in output
        kept = (top / "penstock" / "rates").read_text()
        for way, rate in (("fast", 1e15), ("slow", 1e7)):
            (top / way / "penstock").mkdir(parents=True)
            (top / way / "penstock" / "rates").write_text(
                re.sub(r" bf16=\S+", f" bf16={rate}", kept))
        call(penstock, "split", model, "-o", top / "plan", "--stages", "2")
        got = [dtype_of(top / "fast-slow", top / "fast", top / "slow"),
               dtype_of(top / "slow-fast", top / "slow", top / "fast")]
        want = ["bf16" if has_bf16 else "bf16-in-f32", "bf16-in-f32"]
        assert got == want, (got, want)
        check_mfu(top, kept)
        check_first_use(top, has_bf16)
    print("both ranks go by what rank 0 knows")


if __name__ == "__main__":
    main()
