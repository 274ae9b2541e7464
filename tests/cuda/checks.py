# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of gpu.py that need no models: the tests of the kernels, with
and without compute-sanitizer."""
import glob
import os
import re
import shutil
import subprocess
import time

KERNELS = "test-ops-kernels"
TESTS = [KERNELS, "test-cuda-matmul", "test-cuda-faults", "test-cuda-grad",
         "test-cuda-runs", "test-updates"]
TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
PATIENCE = 100  # time limit of all tests together, in seconds


def doctor(job):
    """Adds a row with the GPU that `penstock doctor` finds. Other faults that
    doctor reports do not fail this row: the rows of jobs with mpirun show
    them."""
    lines = job.penstock("doctor", code=None).splitlines()
    found = [line.split(": ", 1)[1] for line in lines if "GPU" in line]
    job.row("doctor", found[0] if found else "finds no GPU",
            note="; ".join(line for line in lines if line.startswith("fault")
                           or "cuBLASLt" in line),
            failed=not found)


def begin(job, name, *before, parts=1):
    """Starts a test on the GPU. Returns the process and the file of its
    output."""
    env = dict(job.env, PENSTOCK_DEVICE="cuda", PST_TEST_PARTS=str(parts))
    if job.tiny:
        env["PENSTOCK_TEST_CUDA_OPEN"] = "1"
    log = os.path.join(job.work, "-".join(
        [os.path.basename(word) for word in (*before[-1:], name)]) + ".out")
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [*before, os.path.join(job.bin, name)], env=env, cwd=job.work,
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    return process, log


def end(process, log, limit):
    """Waits for a test. Returns its exit code (None if it was ended after the
    limit) and its output."""
    try:
        code = process.wait(max(limit, 0.1))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = None
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    print(log, code, text[-200000:], sep="\n", flush=True)
    return code, text


def first_failure(text):
    found = re.findall(r"^(?:\[  ERROR   \] --- |\[  FAILED  \] )(.*)$", text,
                       re.M)
    return f"{len(found)} lines, first: {found[0]}" if found else \
        text.strip()[-120:]


def kernels(job):
    """Runs all tests at the same time, since most of their time is spent on
    the CPU."""
    # On the emulated driver, all samples would take minutes, and so would the
    # sums in double that test-cuda-matmul compares with.
    names = [KERNELS] if job.tiny else TESTS
    since = time.monotonic()
    running = [(name, *begin(job, name, parts=200 if job.tiny else 1))
               for name in names]
    for name, process, log in running:
        code, text = end(process, log, PATIENCE - (time.monotonic() - since))
        passed = re.findall(r"\[  PASSED  \] (\d+) test", text)
        job.row(name, f"{passed[-1] if passed else 0} passed"
                if code == 0 else f"FAILED ({code})",
                note="" if code == 0 else first_failure(text),
                failed=code != 0)


# --- compute-sanitizer ------------------------------------------------------


def find_sanitizer():
    return shutil.which("compute-sanitizer") or next(iter(sorted(
        glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))), None)


def sanitize(job, tools, parts, limit):
    program = find_sanitizer()
    if program is None:
        job.row("compute-sanitizer", note="left out: it is not installed")
        return
    names = [KERNELS] if job.tiny else [KERNELS, "test-cuda-matmul"]
    since = time.monotonic()
    # The library looks for each kernel in several modules: cuModuleGetFunction
    # fails as it should in all but one.
    more = {"memcheck": ["--report-api-errors", "no"]}
    running = [(tool, name, *begin(job, name, program, "--error-exitcode",
                                   "9", "--tool", tool, *more.get(tool, ()),
                                   parts=parts))
               for tool in tools for name in names]
    for tool, name, process, log in running:
        code, text = end(process, log, limit - (time.monotonic() - since))
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text)
        word = f"not done after {limit} s" if code is None else \
            "clean" if code == 0 else f"FAILED ({code})"
        if name == KERNELS and parts > 1:
            name += f", 1 of {parts} samples"
        job.row(f"{tool}: {name}", word, wanted="clean",
                note=found[-1] if found else "" if code == 0 else
                first_failure(text), failed=code not in (0, None))


def sanitizer(job):
    sanitize(job, TOOLS[:2], 400 if job.tiny else 60, 55)


def sanitizer_all(job):
    sanitize(job, TOOLS, 400 if job.tiny else 12, 110)
