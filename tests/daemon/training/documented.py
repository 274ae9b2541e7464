#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures documented properties of a job of two ranks over MPI.

usage: documented.py PENSTOCK MODEL.pt2 DATA [NAME...]

resident   no rank has more memory than the process without a model, the
           planned memory and 24 MiB together
predicted  a step takes the time that `penstock plan` predicts, within a factor
           of 20 (the machine may be busy); both are printed
killed     SIGKILL to mpirun or to a rank, while steps run and are saved: all
           processes end, and all checkpoints are complete

Prints a line for each; exit code 1 if a property does not hold.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
from patience import PATIENCE  # noqa: E402

RESIDENT_MIB, FACTOR = 24.0, 20.0
TRAIN = ["-m", "4", "--optimizer", "adamw", "--threads", "1"]


class Wrong(Exception):
    pass


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(str(w) for w in words)}: exit code "
                    f"{done.returncode}\n{done.stderr.strip()[-600:]}")
    return done.stdout


class Job:
    def __init__(self, penstock, model, data, folder):
        self.penstock, self.data = penstock, data
        self.folder, self.plan = folder, folder / "plan"
        call(penstock, "split", model, "-o", self.plan, "--stages", "2")

    def words(self, steps, *more):
        return [str(w) for w in (
            self.penstock, "run", self.plan, "-n", "2", "--data", self.data,
            *TRAIN, "--steps", steps, "--quiet", "--json", *more)]

    def run(self, steps, *more):
        return json.loads(call(*self.words(steps, *more)).splitlines()[-1])


def resident(job):
    result = job.run(4)
    over = {r["rank"]: r["peak_rss_mib"] - r["base_rss_mib"] - r["planned_mib"]
            for r in result["ranks"]}
    if not all(0 < o <= RESIDENT_MIB for o in over.values()) or len(over) != 2:
        raise Wrong(f"MiB over process and plan, by rank: {over}")
    return "MiB over process and plan: " + ", ".join(
        f"{o:.1f}" for o in over.values())


def predicted(job):
    plan = json.loads(call(job.penstock, "plan", job.plan, "--schedule",
                           "1f1b", "--json", *TRAIN))["step_s"]
    real = job.run(8)["step_s"]
    if not plan / FACTOR <= real <= plan * FACTOR:
        raise Wrong(f"a step takes {real:.3f} s, not {plan:.3f} s")
    return f"a step takes {real:.3f} s, predicted {plan:.3f} s"


def processes(pid):
    """Returns the process and all its descendants, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            fields = stat[stat.rindex(")") + 2:].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, grew = {pid}, True
    while grew:
        more = {p for p, parent in parents.items() if parent in found}
        grew = not more <= found
        found |= more
    return found & parents.keys()


def named(pids, name):
    ret = []
    for pid in sorted(pids):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                ret.append(pid)
        except OSError:
            pass
    return ret


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def saved(folder):
    return sorted(p.name for p in folder.glob("step-*"))


def kill(job, name):
    """Kills a process of this name while the job saves. Returns the seconds
    until all processes of the job have ended."""
    kept = job.folder / f"kept-{name}"
    log = open(job.folder / f"{name}.txt", "w", encoding="utf-8")
    client = subprocess.Popen(
        job.words(100000, "--checkpoint", kept, "--checkpoint-every", "2"),
        stdout=subprocess.DEVNULL, stderr=log)
    until = time.monotonic() + PATIENCE
    while len(saved(kept)) < 2:
        if client.poll() is not None or time.monotonic() > until:
            client.kill()
            raise Wrong(f"{name}: the job saves nothing: "
                        + Path(log.name).read_text()[-600:])
        time.sleep(0.02)
    all_of_it = processes(client.pid)
    victims = named(all_of_it, name)
    if not victims or len(named(all_of_it, "penstockd")) != 2:
        raise Wrong(f"no {name} among {len(all_of_it)} processes")
    begin = time.monotonic()
    os.kill(victims[-1], signal.SIGKILL)
    left = all_of_it
    while left and time.monotonic() < begin + PATIENCE:
        client.poll()
        left = {p for p in left if is_alive(p)}
        time.sleep(0.02)
    took = time.monotonic() - begin
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    client.wait()
    log.close()
    if left:
        raise Wrong(f"{name}: {len(left)} of {len(all_of_it)} processes are "
                    f"there after {PATIENCE:.0f} s")
    check_files(job, kept, name)
    return took


def check_files(job, kept, name):
    listed = json.loads(call(job.penstock, "checkpoints", kept, "--verify",
                             "--json"))["checkpoints"]
    if len(listed) < 1 or any(c["state"] != "good" for c in listed):
        raise Wrong(f"{name}: checkpoints are {listed}")
    last = max(c["step"] for c in listed)
    if job.run(last + 2, "--checkpoint", kept,
               "--resume")["first_step"] != last:
        raise Wrong(f"{name}: step {last} is not resumed from")


def killed(job):
    return ", ".join(f"{name} killed, all gone after {kill(job, name):.1f} s"
                     for name in ("mpirun", "penstockd"))


def main():
    penstock, model, data, *names = sys.argv[1:]
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")
    failed = 0
    for check in (resident, predicted, killed):
        if names and check.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="pst-claims-") as folder:
            try:
                job = Job(penstock, model, data, Path(folder))
                print(f"ok      {check.__name__}: {check(job)}", flush=True)
            except Wrong as e:
                failed += 1
                print(f"FAILED  {check.__name__}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
