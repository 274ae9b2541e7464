#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of scripts/gpu.sh and writes the table.

usage: gpu.py [--more] [--only PART,...] PACK WORK OUT

PACK is the unpacked archive; models are kept in WORK. Each part is a process of
its own with a time limit, and adds rows to the table. A part that fails or
takes too long adds a row that says so; then the exit code is 1. With the tests'
driver (PENSTOCK_LIBCUDA) all sizes are tiny.
"""
import argparse
import collections
import glob
import importlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback

LIMIT = 400  # seconds; parts that would begin later are left out
PRINTED = 8000  # number of last characters of a part's output that are printed
CELL = 150  # maximum number of characters of a cell of the table
COLUMNS = ["what", "penstock", "PyTorch", "ratio", "wanted", "note"]

# run: module.function; torch: whether the part needs PyTorch; after: names of
# preparations that must have ended before.
Part = collections.namedtuple("Part", "name limit run torch after")
PREPARE = [
    Part("models", 150, "accuracy.prepare_nets", True, ()),
    Part("llama-model", 150, "accuracy.prepare_llama", True, ()),
    Part("zoo-models", 150, "accuracy.prepare_zoo", True, ()),
]
MAIN = [
    Part("doctor", 30, "checks.doctor", False, ()),
    Part("kernels", 110, "checks.kernels", False, ()),
    Part("bytegpt", 60, "accuracy.bytegpt", False, ()),
    Part("zoo", 90, "accuracy.zoo", True, ("zoo-models",)),
    # Times are measured when nothing else runs.
    Part("gpt-25m", 60, "speed.small", True, ("models", "llama-model")),
    Part("gpt2-124m", 110, "speed.gpt2", True, ("models",)),
    Part("graphs", 70, "graphs.graphs", False, ("models",)),
    Part("chains", 60, "graphs.chains", True, ()),
    Part("ipc", 60, "graphs.ipc", False, ("models",)),
    Part("several", 60, "graphs.several", False, ("models",)),
    Part("products", 60, "speed.products", True, ()),
    Part("attention", 30, "speed.attention", True, ()),
    Part("bf16", 200, "speed.bf16", False, ("models", "llama-model")),
    Part("ranks", 100, "speed.ranks", True, ("models",)),
    Part("memory", 60, "speed.memory", True, ("models",)),
    Part("llama-374m", 110, "speed.llama", True, ("llama-model",)),
    Part("sanitizer", 60, "checks.sanitizer", False, ()),
]
MORE = [
    Part("compiled", 240, "more.compiled", True, ("models", "llama-model")),
    Part("sanitizer-all", 120, "checks.sanitizer_all", False, ()),
    Part("tf32", 60, "speed.tf32", True, ("models",)),
    Part("pipelining", 60, "more.pipelining", True, ()),
    Part("cpu", 150, "more.cpu", True, ("models",)),
]


def site_with_library():
    """Returns the folder of Python's packages that has PyTorch's cuBLASLt, so
    that both use the same one; None if there is none."""
    for path in sys.path:
        if glob.glob(f"{path}/nvidia/*/lib/libcublasLt.so.1[23]"):
            return path
    return None


class Job:
    """The state that all parts share. Parts are processes, so they append
    their rows to a file."""

    def __init__(self, pack, work, out):
        self.pack, self.work, self.out = pack, work, out
        self.tiny = "PENSTOCK_LIBCUDA" in os.environ
        self.bin = os.path.join(pack, "bin")
        self.rows = os.path.join(work, "rows.jsonl")
        # This environment is only for programs of the archive: other programs
        # need newer libraries.
        self.env = dict(os.environ, OPENBLAS_NUM_THREADS="1",
                        PST_GOLDEN=os.path.join(pack, "golden"),
                        PATH=f"{self.bin}:{os.environ['PATH']}")
        site = site_with_library()
        if site and not self.tiny and "PENSTOCK_LIBCUBLASLT" not in os.environ:
            self.env["PENSTOCK_LIBCUBLASLT"] = site
        if os.path.isdir(f"{pack}/share/openmpi"):
            old = os.environ.get("LD_LIBRARY_PATH")
            self.env.update(
                LD_LIBRARY_PATH=f"{pack}/lib" + (f":{old}" if old else ""),
                OPAL_PREFIX=pack, OPAL_SYSCONFDIR=f"{pack}/etc",
                PMIX_PKGLIBDIR=f"{pack}/pmix/lib/pmix",
                OMPI_MCA_plm="isolated")  # local ranks need no ssh
        self.part = self.heading = ""

    def row(self, what, penstock="", torch="", ratio="", wanted="", note="",
            failed=False):
        row = dict(zip(COLUMNS, (what, penstock, torch, ratio, wanted, note)),
                   part=self.part, failed=failed)
        with open(self.rows, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print("row:", row, flush=True)

    def penstock(self, *words, code=0):
        """Runs penstock. Returns its output, or its messages if it is expected
        to fail. code: the expected exit code; None: any."""
        begin = time.monotonic()
        done = subprocess.run(
            [os.path.join(self.bin, "penstock"), *map(str, words)], text=True,
            stdin=subprocess.DEVNULL, capture_output=True, cwd=self.work,
            env=self.env, check=False)
        print(f"[{time.monotonic() - begin:.1f} s]", "penstock", *words,
              done.stdout[-400:], done.stderr[-1500:], sep="\n", flush=True)
        if code is not None and done.returncode != code:
            said = (done.stderr or done.stdout).strip()[-300:]
            raise RuntimeError(f"penstock {' '.join(map(str, words[:2]))}: "
                               f"exit code {done.returncode}: {said}")
        return done.stderr if code else done.stdout

    def run(self, model, data, device, ranks, m, steps, *more,
            transport="self"):
        """Returns the JSON object of `penstock run`. The job ends with its
        client, so that no job is left when a part is killed."""
        said = self.penstock(
            "run", model, "--data", data, "-n", ranks, "--transport",
            transport, "-m", m, "--steps", steps, "--device", device,
            "--die-with-client", "--json", *more)
        return json.loads(said.splitlines()[-1])

    def torch_device(self):
        import torch
        return "cuda" if torch.cuda.is_available() else "cpu"

    def read_rows(self):
        try:
            with open(self.rows, encoding="utf-8") as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            return []


# --- parts as processes -----------------------------------------------------


def log_of(job, part):
    return os.path.join(job.work, f"{part.name}.log")


def start(job, part):
    """Starts a part; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        job.part = part.name
        log = os.open(log_of(job, part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        module, function = part.run.split(".")
        getattr(importlib.import_module(module), function)(job)
        code = 0
    except BaseException as error:  # pylint: disable=broad-except
        traceback.print_exc()
        first = str(error).strip() or type(error).__name__
        job.row(part.name, note=f"FAILED: {first}", failed=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # skips atexit, whose functions are those of the parent


def finish(job, part, pid, limit):
    """Waits for the end of a part, and kills it after its time limit. Returns
    whether it has succeeded."""
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            job.part = part.name
            job.row(part.name, note=f"FAILED: not done after {limit:.0f} s",
                    failed=True)
            break
        time.sleep(0.05)
    if status not in (0, 256) and not os.WIFSIGNALED(status):
        status = 256
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        job.part = part.name
        job.row(part.name, note=f"FAILED: signal {os.WTERMSIG(status)}",
                failed=True)
    return status == 0


class Preparations:
    """The parts that prepare models, while the first other parts run."""

    def __init__(self, job, wanted):
        self.job, self.running = job, {}
        for part in PREPARE:
            if part.name in wanted:
                self.running[part.name] = (part, start(job, part),
                                           time.monotonic())

    def wait(self, names):
        for name in names:
            if name in self.running:
                part, pid, begin = self.running.pop(name)
                finish(self.job, part, pid,
                       part.limit - (time.monotonic() - begin))


def versions():
    """Imports PyTorch, once for the processes of all parts. Returns the
    versions of its packages, or "" if there is no PyTorch. Another process
    asks for cuDNN's: that opens the GPU, after which no part could use it."""
    if importlib.util.find_spec("torch") is None:
        return ""
    import torch
    cudnn = said_by(sys.executable, "-c",
                    "import torch; print(torch.backends.cudnn.version())")
    return (f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN "
            f"{cudnn}")


def run_parts(job, parts, limit):
    begin = time.monotonic()
    has_torch = heading(job, versions())
    wanted = {a for p in parts for a in p.after} if has_torch else set()
    preparations = Preparations(job, wanted)
    for part in parts:
        job.part = part.name
        if part.torch and not has_torch:
            job.row(part.name, note="left out: there is no PyTorch")
            continue
        preparations.wait(part.after)
        left = limit - (time.monotonic() - begin)
        if left < 5:
            job.row(part.name, note="left out for want of time")
            continue
        since = time.monotonic()
        # The emulated driver is slow while other processes run.
        most = part.limit * (4 if job.tiny else 1)
        good = finish(job, part, start(job, part), min(most, left + 15))
        print(f"{part.name}: {'done' if good else 'FAILED'}, "
              f"{time.monotonic() - since:.1f} s", flush=True)
        write_out(job, parts)
    preparations.wait([p.name for p in PREPARE])


# --- the table --------------------------------------------------------------


def said_by(*words):
    """Returns the last line that a program prints, or ""."""
    try:
        done = subprocess.run(words, text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=20, check=False)
        return done.stdout.strip().splitlines()[-1]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""


def heading(job, torch):
    """Sets the lines above the table. Returns whether there is PyTorch."""
    card = said_by("nvidia-smi", "--format=csv,noheader",
                   "--query-gpu=name,driver_version,memory.total")
    compiler = said_by("nvcc", "--version")
    with open(f"{job.pack}/commit", encoding="utf-8") as file:
        commit = file.read().strip()
    lines = [time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
             f"card, driver, memory: {card or 'no nvidia-smi'}",
             f"{torch or 'no PyTorch'}; Python {platform.python_version()}; "
             f"nvcc: {compiler or 'none'}",
             f"penstock {commit}; {os.cpu_count()} processors"]
    if job.tiny:
        lines.append("NO GPU: the tests' driver, tiny sizes; no time means "
                     "anything")
    job.heading = "\n".join(f"- {line}" for line in lines)
    return bool(torch)


def cut(text, most):
    text = " ".join(str(text).replace("|", "/").split())
    return text if len(text) <= most else text[:most - 3] + "..."


def table_of(job, rows, most=CELL):
    lines = [job.heading, "", "| " + " | ".join(COLUMNS) + " |",
             "| " + " | ".join("---" for _ in COLUMNS) + " |"]
    for row in rows:
        lines.append("| " + " | ".join(cut(row[c], most) for c in COLUMNS) +
                     " |")
    return "\n".join(lines) + "\n"


def write_out(job, parts):
    """Writes the results so far, since the process may be ended early."""
    rows = job.read_rows()
    with open(f"{job.out}/table.md", "w", encoding="utf-8") as file:
        file.write(table_of(job, rows))
    with open(f"{job.out}/rows.json", "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    with open(f"{job.out}/log.txt", "w", encoding="utf-8") as file:
        for part in [*PREPARE, *parts]:
            if os.path.exists(log_of(job, part)):
                with open(log_of(job, part), encoding="utf-8",
                          errors="replace") as log:
                    file.write(f"=== {part.name}\n{log.read()[-500000:]}\n")
    return rows


def print_table(job, rows):
    most = CELL
    text = table_of(job, rows)
    while len(text) > PRINTED and most > 20:
        most = most * 4 // 5
        text = table_of(job, rows, most)
    print(text[:PRINTED])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--more", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("pack")
    p.add_argument("work")
    p.add_argument("out")
    a = p.parse_args()
    job = Job(*map(os.path.abspath, (a.pack, a.work, a.out)))
    os.makedirs(job.out, exist_ok=True)
    # Keeps torch.compile and others from writing to the user's folder.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{job.work}/inductor")
    sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                    "..", "compare"))
    parts = MORE if a.more else MAIN
    rows = job.read_rows() if a.more else []
    if a.more:  # also runs parts that were left out for want of time
        late = {r["part"] for r in rows if "want of time" in r["note"]}
        rows = [r for r in rows if "want of time" not in r["note"]]
        parts = [x for x in MAIN if x.name in late] + parts
    if a.only:
        parts = [x for x in MAIN + MORE if x.name in a.only.split(",")]
    with open(job.rows, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    run_parts(job, parts, LIMIT)
    rows = write_out(job, parts)
    print_table(job, rows)
    return any(row["failed"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
