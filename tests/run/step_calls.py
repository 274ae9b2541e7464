#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks by callgrind which functions 50 steps call: no lookup, no comparison
of strings, no allocation. Prints calls inside libraries. Counts how often they
read the clock.

usage: step_calls.py PENSTOCK PENSTOCKD TINY.pt2 [--all]

--all prints every function that a step calls. Needs valgrind (77 without
it).
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "../daemon"))
import clients  # noqa: E402

STEPS = 50
LOOKUP = re.compile(
    r"_*(str[a-z]+|bsearch|qsort|getenv|v?s?n?printf)(_.*)?|"
    r"pst_(map|plan|vec|arena|str|node)_.*|pst_.*_(find|lookup|parse)(_.*)?")
ALLOCATION = re.compile(
    r"_*(libc_)?(malloc|calloc|realloc|free|memalign|posix_memalign|"
    r"aligned_alloc|reallocarray|mmap(64)?|munmap|brk|sbrk)|"
    r"pst_(alloc|calloc|realloc|free|strdup)(_.*)?")
LINE = re.compile(r"^\s*[0-9][0-9,]*(?:\s*\([^)]*\))?\s+"
                  r"(?P<file>.*):(?P<name>[^:\[]+?)(?: \[(?P<object>.*)\])?$")


def trace_calls(penstock, penstockd, model, folder, ranks, microbatches):
    """Returns the file to which callgrind has written the calls of all
    steps."""
    plan, out, data = [os.path.join(folder, f"{ranks}-{microbatches}-{name}")
                       for name in ("plan", "calls", "data.safetensors")]
    clients.write_data(data)
    subprocess.run([penstock, "split", model, "-o", plan, "--stages",
                    "2"], check=True, stdout=subprocess.DEVNULL)
    # Symbols are bound at the start, so that the loader resolves none in a
    # step.
    env = dict(os.environ, LD_BIND_NOW="1", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--toggle-collect=pst_engine_step",
         f"--callgrind-out-file={out}", penstockd, plan, "--transport", "self",
         "--ranks", str(ranks), "-m", str(microbatches), "--schedule", "1f1b",
         "--data", data,
         "--socket", os.path.join(folder, "s"), "--threads", "1", "--one-run",
         "x", "--steps", str(STEPS), "--optimizer", "adamw", "--clip-norm",
         "1", "--watchdog", "0"],
        env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def read_calls(out):
    """Returns {object file: set of functions} over all steps."""
    text = subprocess.run(
        ["callgrind_annotate", "--inclusive=yes", "--threshold=100", out],
        capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match["object"]:
            found.setdefault(os.path.basename(match["object"]), set()).add(
                match["name"].split("@")[0].split("'")[0])
    return found


def count_reads(out):
    """Returns how often a step reads the clock."""
    with open(out) as file:
        text = file.read()
    number = re.search(r"^c?fn=(\(\d+\)) pst_now$", text, re.MULTILINE)[1]
    at = re.escape(number)
    return sum(int(n) for n in re.findall(
        rf"^cfn={at}.*\ncalls=(\d+)", text, re.MULTILINE)) / STEPS


def check_reads(*run):
    """A microbatch reads the clock once at the end of each of its six actions
    (two of them copies), where the next one begins, and twice for each of the
    four times that a stage reads an input."""
    few, many = [count_reads(trace_calls(*run, 1, m)) for m in (4, 8)]
    print(f"a step reads the clock {few} times with 4 microbatches, {many} "
          "with 8")
    assert many - few == 4 * (6 + 2 * 4), (few, many)


def faults(found, lookup=LOOKUP):
    """Returns the functions among `found` that a step must not call: lookups
    and allocations, in penstockd and in the C library."""
    names = found.get("penstockd", set()) | {
        n for o, ns in found.items() if o.startswith("libc.") for n in ns}
    return sorted(n for n in names
                  if lookup.fullmatch(n) or ALLOCATION.fullmatch(n))


def main():
    show = "--all" in sys.argv
    penstock, penstockd, model = [
        os.path.abspath(a) for a in sys.argv[1:] if a != "--all"]
    if shutil.which("valgrind") is None:
        return 77
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        run = (penstock, penstockd, model, folder)
        found = read_calls(trace_calls(*run, 2, 4))
        check_reads(*run)
    own = found.get("penstockd", set())
    assert {"pst_engine_step", "pst_rank_advance"} <= own, own
    # The check itself works: it finds functions that every step calls.
    assert "pst_rank_advance" in faults(found, re.compile("pst_rank_.*"))
    for name, functions in sorted(found.items()):
        inside = sorted(functions if show else
                        (f for f in functions if "alloc" in f or "mmap" in f))
        print(f"{name}: {len(functions)} functions"
              + (": " + ", ".join(inside) if inside else ""))
    bad = [f for f in faults(found) if f != "mmap" or not any(
        "alloc" in f for o, fs in found.items() if "blas" in o for f in fs)]
    for name in bad:
        print(f"a step calls {name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
