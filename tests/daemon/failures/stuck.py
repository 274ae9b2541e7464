#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests hanging ranks and frozen jobs, with two ranks over MPI.

usage: stuck.py [--times N] [--limit SECONDS] [--jobs N] PENSTOCK PENSTOCKD
MODEL.pt2 LARGE.pt2 TEXT [CASE...]

hang     a rank hangs (its exec thread or the whole process) in each phase of a
         job; the error has to name rank and phase within the limit of the
         watchdog plus 3 s
freeze   all processes of a job are stopped for longer than the limit and
         continued one after the other; the weights at the end must equal those
         of an undisturbed run
stop     a signal is sent to one rank, in each state of a job, and before a
         step that fails; the job has to end in order
unlike   ranks with different options, data or programs are refused by name,
         with exit code 78; options that may differ are accepted

Without --times a sample of the cases runs; with it, all of them run so many
times. Prints one line for each fault and the longest times; exit code 1 if
there is a fault.
"""
import argparse
import concurrent.futures
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
from patience import PATIENCE  # noqa: E402

# (PHASE[:N], whether only a run has the phase); the N-th begin of the phase
# counts.
PHASES = [("start", False), ("load", False), ("agree", False),
          ("idle", False), ("load:2", True), ("agree:3", True),
          ("step:3", True), ("save", True), ("gather", True)]
# Seconds beyond the watchdog's limit with --times; otherwise PATIENCE is used,
# since the machine may be busy.
SLACK = 3.0
STEPS = 6


def is_stopped(pid, seconds):
    """Waits until the process is stopped; False if it runs or has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "T":
                    return True
        except FileNotFoundError:
            return False
        time.sleep(.01)
    return False


class Job:
    """A job of two ranks. Keeps the lines of standard error with their
    times."""

    def __init__(self, a, folder, name, faults=("", ""), options=(),
                 second=(), data="data", program=None):
        self.a, self.folder = a, os.path.join(folder, name)
        os.mkdir(self.folder)
        self.socket = os.path.join(self.folder, "s")
        argv = ["mpirun", "--oversubscribe", "--mca", "odls_base_sigkill_timeout",
                "1", "--mca", "mpi_yield_when_idle", "1"]
        for rank in range(2):
            argv += [":"] if rank else []
            argv += ["-n", "1", "env", "PENSTOCK_FAULT=" + faults[rank],
                     rank and program or a.penstockd,
                     os.path.join(folder, "plan"), "-m", "2",
                     "--data", os.path.join(folder, data + ".safetensors"),
                     "--watchdog", str(a.limit), "--socket", self.socket,
                     "--log-dir", os.path.join(self.folder, "log"),
                     "--checkpoint", os.path.join(self.folder, "ck"),
                     *options, *(second if rank else ())]
        self.lines = []
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, text=True,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def await_line(self, text, seconds):
        """Returns time and text of the first line that contains the text, or
        None."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for at, line in list(self.lines):
                if text in line:
                    return at, line
            if self.process.poll() is not None and not self.reader.is_alive():
                return None
            time.sleep(.01)
        return None

    def log(self, rank, text, seconds=PATIENCE):
        """Returns the first line of the log that contains the text; None if
        the job ends without one."""
        until = time.monotonic() + seconds
        ended = False
        while not ended and time.monotonic() < until:
            ended = self.process.poll() is not None
            try:
                with open(f"{self.folder}/log/rank-{rank}.log") as f:
                    for line in f:
                        if text in line:
                            return line
            except OSError:
                pass
            time.sleep(.01)
        return None

    def pids(self):
        return [int(self.log(r, " pid=").split(" pid=")[1].split()[0])
                for r in range(2)]

    def penstock(self, *words):
        return subprocess.run([self.a.penstock, *words, "--socket",
                               self.socket], capture_output=True, text=True)

    def train(self, *words):
        """Starts a run; returns when it was accepted or the job has ended."""
        self.log(0, "to=ready")
        return self.penstock("train", "--detach", *words)

    def begin_train(self):
        """Starts a run without waiting for the answer, since rank 0 may
        hang."""
        self.log(0, "to=ready")
        subprocess.Popen([self.a.penstock, "train", "--detach", "--socket",
                          self.socket], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        for pid in ([self.process.pid] if self.process.poll() is None else []):
            os.killpg(pid, signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            if self.wait(PATIENCE) is None:
                os.killpg(pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join(PATIENCE)

    def weights(self):
        """Returns a digest of all files of the newest checkpoint."""
        ck = os.path.join(self.folder, "ck")
        digest = hashlib.sha256()
        newest = max(n for n in os.listdir(ck) if n.startswith("step-"))
        for name in sorted(os.listdir(os.path.join(ck, newest))):
            if name.endswith(".safetensors"):
                with open(os.path.join(ck, newest, name), "rb") as f:
                    digest.update(f.read())
        return newest + " " + digest.hexdigest()


def hang(a, folder, name, phase, runs, victim, action):
    """Returns the fault (None if there is none) and the seconds until the
    error."""
    faults = ["", ""]
    faults[victim] = f"{phase}:{action}"
    job = Job(a, folder, name, faults,
              ["--checkpoint-every", "2", "--steps", str(STEPS)])
    try:
        if runs:
            job.train()
        begin = job.await_line("PENSTOCK_FAULT", PATIENCE)
        if begin is None:
            return "the fault did not happen", 0
        slack = SLACK if a.times else PATIENCE
        verdict = job.await_line("penstockd: nothing has moved",
                                 a.limit + slack)
        if verdict is None:
            return "no verdict", 0
        took = verdict[0] - begin[0]
        if f"rank {victim} is stuck in {phase.split(':')[0]}" not in verdict[1]:
            return f"a wrong verdict: {verdict[1]}", took
        if took > a.limit + slack:
            return f"the verdict came after {took:.1f} s", took
        if job.wait(PATIENCE) is None:
            return "the job did not end", took
        return None, took
    finally:
        job.end()


def hang_lane(a, folder, name):
    """Lets the second rank of a process hang in its thread. The error must
    name this rank, and the process must end without waiting for it."""
    where = os.path.join(folder, name)
    plan, socket = os.path.join(where, "plan"), os.path.join(where, "s")
    os.mkdir(where)
    subprocess.run([a.penstock, "split", a.large, "-o", plan, "--stages", "2"],
                   check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(
        [a.penstockd, plan, "--transport", "self", "-n", "2", "-m", "4",
         "--data", a.text, "--steps", "1000000", "--watchdog", str(a.limit),
         "--socket", socket, "--log-dir", os.path.join(where, "log")],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env=os.environ | {"PENSTOCK_FAULT": "lane:3:hang"})
    lines, begin = [], None
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if subprocess.run([a.penstock, "train", "--detach", "--socket",
                               socket], capture_output=True).returncode == 0:
                break
            time.sleep(.05)
        for line in process.stderr:
            lines.append(line.rstrip())
            if "PENSTOCK_FAULT" in line:
                begin = time.monotonic()
            elif "nothing has moved" in line:
                break
        took = time.monotonic() - (begin or 0)
        if begin is None or "rank 1 does not come out of" not in lines[-1]:
            return f"a wrong verdict: {lines}", 0
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return "the process waits for the thread", took
        more = [x.rstrip() for x in process.stderr if "penstockd" in x]
        return ("more verdicts: " + "; ".join(more) if more else
                None if code == 1 else f"exit code {code}"), took
    finally:
        process.kill()
        process.wait()


def hang_mpirun(a, folder, name):
    """Checks that a run whose ranks never start reports that, and that a
    signal ends it at once."""
    where = os.path.join(folder, name)
    os.mkdir(where)
    fake = os.path.join(where, "mpirun")
    with open(fake, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexec sleep 300\n")
    os.chmod(fake, 0o755)
    words = [a.penstock, "run", os.path.join(folder, "plan"), "-n", "2", "-m",
             "2", "--data", os.path.join(folder, "data.safetensors")]
    env = os.environ | {"PATH": where + ":" + os.environ["PATH"],
                        "XDG_RUNTIME_DIR": where}
    run = [subprocess.Popen(words + ["--job", limit, "--watchdog", limit],
                            stderr=subprocess.PIPE, env=env, text=True)
           for limit in ("0.5", "0")]
    try:
        until = time.monotonic() + PATIENCE
        while not (os.path.isdir(os.path.join(where, "penstock", "0")) and
                   clients.has_child(run[1].pid)):
            if time.monotonic() > until:
                return "mpirun was not started", 0
            time.sleep(.01)
        time.sleep(.3)  # run now waits for the ranks
        run[1].send_signal(signal.SIGTERM)
        said = run[1].communicate(timeout=PATIENCE)[1]
        if run[1].returncode != 143 or "before the ranks were" not in said:
            return f"exit code {run[1].returncode}: {said}", 0
        said = run[0].communicate(timeout=PATIENCE)[1]
        return (None if run[0].returncode == 1 and "stuck in start" in said
                else f"exit code {run[0].returncode}: {said}"), 0
    finally:
        for process in run:
            process.kill()
            process.wait()


def check_frozen_ranks(a, folder, name, at, first, apart, want):
    """Stops all processes: one rank in a phase, the other where it waits for
    the first."""
    faults = ["", ""]
    faults[first] = f"{at}:stop"
    job = Job(a, folder, name, faults,
              ["--steps", str(a.steps), "--checkpoint-every",
               str(a.steps // 2)])
    try:
        if at != "idle":
            job.begin_train()
        pids = job.pids()
        if not is_stopped(pids[first], PATIENCE):
            return "the fault did not happen: " + "; ".join(
                line for _, line in job.lines)
        time.sleep(.1)
        for pid in [*pids, job.process.pid]:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * a.limit)
        for pid in [job.process.pid, *pids]:
            os.kill(pid, signal.SIGCONT)
            time.sleep(apart)
        if at == "idle":
            job.train()
        if job.log(0, "event=train_end") is None:
            return "the run did not end: " + "; ".join(
                line for _, line in job.lines if "penstockd" in line)
        job.penstock("stop")
        code = job.wait(PATIENCE)
        if code != 0:
            return f"exit code {code}"
        got = job.weights()
        return None if got == want else f"other weights: {got}, not {want}"
    finally:
        job.end()


def stop(a, folder, name, state, rank):
    """Sends a signal to one rank only, as if no other rank were on its
    host."""
    faulty = state == "faulty"
    nap = "load:2:1500" if faulty else ""
    job = Job(a, folder, name, (nap, nap), ["--steps", "1000000000"],
              data="bad" if faulty else "data")
    try:
        job.log(0, "to=ready")
        pids = job.pids()
        if state != "idle":
            job.train()
        if faulty and not job.await_line("PENSTOCK_FAULT", PATIENCE):
            return "the fault did not happen"
        if state in ("step", "paused") and not job.log(0, "event=step"):
            return "no step"
        if state == "paused":
            job.penstock("pause")
            job.log(0, "event=paused")
        os.kill(pids[rank], signal.SIGTERM)
        if job.wait(PATIENCE) is None:
            return "the job goes on"
        if job.process.returncode != 0:
            return f"exit code {job.process.returncode}"
        if faulty and not job.log(0, "event=fault"):
            return "the step was not faulty"
        if state in ("step", "paused") and not os.path.isdir(
                job.folder + "/ck"):
            return "no checkpoint"
        if rank and not job.log(0, " by=rank"):
            return "no word of it in the log of rank 0"
        return None
    finally:
        job.end()


UNLIKE = {
    "every": (["--checkpoint-every", "3"],
              '--checkpoint-every is "0" on rank 0 and "3" on rank 1'),
    "resume": (["--resume"], '--resume is "no" on rank 0 and "yes" on rank 1'),
    "seed": (["--seed", "7"], '--seed is "0" on rank 0 and "7" on rank 1'),
    "dump": (["--dump", "x"], '--dump is "not given" on rank 0 and "given"'),
    "threads": (["--threads", "2"], "--threads"),
    "data": (["--data", "DATA"], "the --data file is"),
    "program": ([], 'the program is "'),
    "folder": (["--checkpoint", "/nowhere"],
               "rank 1 does not see in --checkpoint /nowhere"),
    "local": (["--log-every", "2", "--watchdog", "7"], None),
}


def check_unlike_ranks(a, folder, name, what):
    words, says = UNLIKE[what]
    program = None
    if what == "program":
        program = os.path.join(folder, "other-penstockd")
        with open(a.penstockd, "rb") as f, open(program, "wb") as to:
            to.write(f.read() + b"x")
        os.chmod(program, 0o755)
    other = os.path.join(folder, "other.safetensors")
    job = Job(a, folder, name, options=["--steps", "2"],
              second=[other if w == "DATA" else w for w in words],
              program=program)
    try:
        if what in ("data", "folder", "local"):
            job.train()
            end = job.log(0, "event=train_end")
            job.penstock("stop")
            job.wait(PATIENCE)
            if what == "local":
                return None if " status=OK " in end else end
            return None if says in end and (
                "ERR_MISMATCH" in end or "ERR_CONFIG" in end) else end
        if job.await_line(says, PATIENCE) is None:
            return "it says: " + " ".join(line for _, line in job.lines)
        job.wait(PATIENCE)
        return None if job.process.returncode == 78 else \
            f"exit code {job.process.returncode}"
    finally:
        job.end()


def run_undisturbed(a, folder):
    job = Job(a, folder, "undisturbed", options=["--steps", str(a.steps)])
    try:
        job.train()
        job.log(0, "event=train_end")
        job.penstock("stop")
        job.wait(PATIENCE)
        return job.weights()
    finally:
        job.end()


def cases(a):
    """Yields (name, run), where run(folder, name) runs the case."""
    for phase, runs in PHASES:
        for victim in (0, 1):
            for action in ("hang", "stop"):
                yield (f"hang-{phase}-{victim}-{action}",
                       lambda f, n, p=phase, r=runs, v=victim, x=action:
                       hang(a, f, n, p, r, v, x))
    yield "hang-lane", lambda f, n: hang_lane(a, f, n)
    yield "hang-mpirun", lambda f, n: hang_mpirun(a, f, n)
    for at in ("step:1500", "idle", "load:2", "agree:3", "save", "gather"):
        for first, apart in ((1, 0), (0, a.limit * 1.5)):
            yield (f"freeze-{at.split(':')[0]}-"
                   f"{'apart' if apart else 'together'}",
                   lambda f, n, p=at, r=first, s=apart:
                   (check_frozen_ranks(a, f, n, p, r, s, a.weights), 0))


    for state in ("step", "idle", "paused", "faulty"):
        for rank in (0, 1):
            yield (f"stop-{state}-{rank}",
                   lambda f, n, s=state, r=rank: (stop(a, f, n, s, r), 0))
    for what in UNLIKE:
        yield (f"unlike-{what}",
               lambda f, n, w=what: (check_unlike_ranks(a, f, n, w), 0))


# Covers each phase, rank and action once; all cases would take too long.
SAMPLE = ["hang-start-1-hang", "hang-load-0-stop", "hang-agree-1-stop",
          "hang-idle-1-stop", "hang-step:3-0-hang", "hang-step:3-1-stop",
          "hang-save-1-hang", "hang-gather-0-stop",
          "hang-lane", "hang-mpirun", "freeze-step-apart", "freeze-save-together", "stop-step-1",
          "stop-idle-1", "stop-faulty-0", "stop-faulty-1", "unlike-every",
          "unlike-data", "unlike-folder", "unlike-program",
          "unlike-local"]


def repeat_case(a, folder, name, run):
    """Runs a case. Without --times a failed case is repeated until the time
    limit is over, since other processes on the machine may delay a rank."""
    until, n = time.monotonic() + PATIENCE, 0
    while True:
        fault, took = run(folder, f"{name}-{n}".replace(":", "-"))
        if fault is None or a.times or time.monotonic() > until:
            return fault, took
        print(f"{name}, again: {fault}", flush=True)
        n += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--limit", type=float, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("penstock")
    parser.add_argument("penstockd")
    parser.add_argument("model")
    parser.add_argument("large", help="a model whose ranks get threads")
    parser.add_argument("text", help="what it is trained on")
    parser.add_argument("case", nargs="*")
    a = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OPENBLAS_NUM_THREADS="1", PST_DATA_UNCHECKED="1")
    failed, done, longest = 0, 0, 0.0
    with tempfile.TemporaryDirectory(prefix="pst-stuck-") as folder:
        for name, label in ("data", 12), ("other", 3), ("bad", 99):
            clients.write_data(os.path.join(folder, name + ".safetensors"),
                               last_label=label)
        subprocess.run([a.penstock, "split", a.model, "-o",
                        os.path.join(folder, "plan")], check=True,
                       stdout=subprocess.DEVNULL)
        a.weights = run_undisturbed(a, folder)
        todo = [(name, run, k) for k in range(max(a.times, 1))
                for name, run in cases(a)
                if (any(name.startswith(c) for c in a.case) if a.case
                    else a.times or name in SAMPLE)]
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            found = pool.map(lambda t: (t[0], repeat_case(
                a, folder, f"{t[0]}-{t[2]}", t[1])), todo)
            for name, (fault, took) in found:
                done += 1
                longest = max(longest, took)
                failed += fault is not None
                if fault is not None or a.case or a.times:
                    print(f"{name}: {fault or f'ok {took:.2f} s'}", flush=True)
    print(f"{done - failed} of {done}; the last verdict came after "
          f"{longest:.1f} s, the limit is {a.limit:g} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
