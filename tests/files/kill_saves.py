#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that saves which are killed or fail leave a complete checkpoint: the
old or the new one.

  kill_saves.py calls SAVE_ONCE     faults at each system call, by strace
  kill_saves.py full SAVE_ONCE      file systems of several sizes become full
  kill_saves.py jobs PENSTOCK MODEL DATA N [SEED] [TRANSPORT]   kills N jobs

... --hosts LIBRARY: preloads the library (close_to_open.c) in each process.
SAVE_ONCE_SHARED in the environment: two writers write to each file.

Each part prints what it tried and ends with 1 if anything was lost.
"""
import collections
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

CALLS = ("openat read pread64 write pwrite64 lseek close fsync rename renameat2"
         " mkdir rmdir unlink unlinkat access faccessat2 lstat newfstatat fstat"
         " getdents64 mmap munmap flock ftruncate madvise getrandom").split()
FAULTS = ("error=EIO", "error=ENOSPC", "error=EACCES", "signal=SIGKILL")


LIBRARY = None  # set by --hosts
SHARED = "SAVE_ONCE_SHARED" in os.environ


def with_hosts(folder):
    """Returns the environment of a program that writes to this folder."""
    env = dict(os.environ)
    if LIBRARY:
        env.update(LD_PRELOAD=LIBRARY, PST_CLOSE_TO_OPEN=os.path.realpath(folder))
    return env


def run(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True,
                          text=True, **more)


def traced(log, env, *words):
    """Returns a command that runs a program under strace; only the program
    gets the environment."""
    added = [w for x in ("LD_PRELOAD", "PST_CLOSE_TO_OPEN") if LIBRARY
             for w in ("-E", f"{x}={env[x]}")]
    return run("strace", "-f", "-o", log, *added, *words)


def count_calls(log, words, env):
    """Returns how often a program makes each system call."""
    traced(log, env, *words)
    counts = collections.Counter()
    for line in log.read_text().splitlines():
        found = re.match(r"\d+ +(\w+)\(", line)
        if found:
            counts[found.group(1)] += 1
    return counts


class Saves:
    """A folder with the old checkpoint. After each fault the folder must
    contain the old or the new checkpoint, and another save must succeed from
    there."""

    def __init__(self, program):
        self.program = program
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pst-kill-"))
        self.old = self.root / "old"
        for step in (1, 2):
            self.save_without_fault(self.old, step)
        self.seen = collections.Counter()
        self.lost = []

    def save_without_fault(self, folder, step):
        done = run(self.program, folder, step, env=with_hosts(self.root))
        if done.returncode:
            raise SystemExit(f"a save without a fault: {done.stderr}")

    def newest(self, folder):
        done = run(self.program, folder, "check")
        return int(done.stdout) if done.returncode == 0 else done.stderr

    def check_folder(self, folder, what, returncode):
        """Checks the folder after a fault: step 2 existed, step 3 was being
        saved."""
        found = self.newest(folder)
        if found not in (2, 3) or (returncode == 0 and found != 3):
            self.lost.append(f"{what}: {found}")
            return
        self.seen["old" if found == 2 else "new"] += 1
        again = run(self.program, folder, 4, env=with_hosts(self.root))
        if again.returncode or self.newest(folder) != 4:
            self.lost.append(f"{what}: afterwards {again.stderr}")
        rests = [p.name for p in folder.glob("step-*") if p.name != "step-00000004"]
        temps = [p.name for p in folder.rglob("*.tmp-*") if "step-" in str(p)]
        if not again.returncode and (rests or temps):
            self.seen["left something behind"] += 1

    def fresh(self):
        folder = self.root / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.old, folder)
        return folder

    def report(self, tried):
        print(f"{tried} faults: " + ", ".join(
            f"{n} {what}" for what, n in sorted(self.seen.items())) +
            f"; {len(self.lost)} lost")
        for line in self.lost[:20]:
            print("LOST", line)
        shutil.rmtree(self.root, ignore_errors=True)
        return 1 if self.lost else 0


def calls(program):
    saves = Saves(program)
    log = saves.root / "log"
    env = with_hosts(saves.root)
    before = count_calls(log, [program, saves.fresh(), "nothing"], env)
    whole = count_calls(log, [program, saves.fresh(), 3], env)
    tried = 0
    for call in CALLS:
        for k in range(before[call] + 1, whole[call] + 1):
            for fault in FAULTS:
                folder = saves.fresh()
                done = traced("/dev/null", env, "-e", f"trace={call}", "-e",
                              f"inject={call}:{fault}:when={k}", program,
                              folder, 3)
                tried += 1
                saves.check_folder(folder, f"{call} {k} {fault}",
                                   done.returncode)
    return saves.report(tried)


def full(program):
    """Makes the disk full after a given number of bytes, by a small mount or
    by a limit of file sizes."""
    saves = Saves(program)
    mount = saves.root / "mount"
    mount.mkdir()
    tried = 0
    for kib in range(48, 180, 4):
        if run("mount", "-t", "tmpfs", "-o", f"size={kib}k", "none",
               mount).returncode:
            break
        try:
            try:
                shutil.copytree(saves.old, mount / "ck")
            except (OSError, shutil.Error):
                continue
            tried += 1
            done = run(program, mount / "ck", 3, env=with_hosts(mount))
            found = saves.newest(mount / "ck")
            if found not in (2, 3) or (done.returncode == 0) != (found == 3):
                saves.lost.append(f"{kib} KiB: {found} {done.stderr}")
                continue
            saves.seen["old" if found == 2 else "new"] += 1
            if done.returncode not in (0, 74):
                saves.lost.append(f"{kib} KiB: exit code {done.returncode}")
            run("mount", "-o", "remount,size=1m", mount)
            again = run(program, mount / "ck", 4)
            if again.returncode or saves.newest(mount / "ck") != 4:
                saves.lost.append(f"{kib} KiB: afterwards {again.stderr}")
        finally:
            run("umount", mount)
    for limit in range(0, 24000, 500):
        folder = saves.fresh()

        def set_limit(limit=limit):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = run(program, folder, 3, preexec_fn=set_limit,
                   env=with_hosts(saves.root))
        tried += 1
        saves.check_folder(folder, f"at most {limit} bytes", done.returncode)
    return saves.report(tried)


def group_of(pid):
    """Returns a process and all its descendants."""
    below = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            below[int(fields[1])].append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += below[found[-1]]
    return found


def is_saving(folder):
    """Returns True if the folder of some step has no manifest yet."""
    return any(not (p / "manifest.json").exists()
               for p in folder.glob("step-*"))


def last_saved(log):
    steps = re.findall(r"event=checkpoint_saved seq=\d+ step=(\d+)",
                       log.read_text()) if log.exists() else []
    return int(steps[-1]) if steps else 0


def jobs(penstock, model, data, n, seed, transport):
    """Kills jobs that save after each step, with all their processes, at
    random times."""
    print(f"seed {seed}, transport {transport}")
    chance = random.Random(seed)
    root = pathlib.Path(tempfile.mkdtemp(prefix="pst-kill-"))
    ck, log = root / "ck", root / "log"
    env = dict(with_hosts(ck), XDG_RUNTIME_DIR=str(root))
    grid = (["-n", "2x1", "--shard", "zero1"] if SHARED else
            ["-n", "2", "--stages", "2"])
    words = [penstock, "run", model, *grid, "-m", "2", "--transport", transport, "--threads", "1", "--data", data,
             "--steps", "1000000", "--checkpoint", ck, "--checkpoint-every",
             "1", "--log-dir", log, "--quiet", "--job", "kills"]
    saved, lost, unfinished, advanced = 0, [], 0, 0
    for i in range(n):
        shutil.rmtree(log, ignore_errors=True)
        job = subprocess.Popen(
            [str(w) for w in words] + (["--resume"] if saved else []),
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        until = time.time() + PATIENCE
        while (last_saved(log / "rank-0.log") <= saved and
               job.poll() is None and time.time() < until):
            time.sleep(0.005)
        while (not is_saving(ck) and job.poll() is None and
               time.time() < until):
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.2))
        for pid in group_of(job.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        said = job.communicate()[0].decode()
        reported = last_saved(log / "rank-0.log")
        time.sleep(0.02)
        rows = json.loads(run(penstock, "checkpoints", ck, "--verify",
                              "--json").stdout or '{"checkpoints": []}')
        good = [r["step"] for r in rows["checkpoints"] if r["state"] == "good"]
        unfinished += is_saving(ck)
        if reported <= saved:
            lost.append(f"{i}: not resumed after step {saved}: {said[-300:]}")
            break
        advanced += 1
        if not good or good[0] < reported or \
                len(good) != len(rows["checkpoints"]):
            lost.append(f"{i}: told {reported}, there are {rows}")
            break
        saved = good[0]
    print(f"{advanced} of {n} jobs killed, {unfinished} of them within a save, "
          f"newest step {saved}; {len(lost)} lost")
    for line in lost:
        print("LOST", line)
    shutil.rmtree(root, ignore_errors=True)
    return 1 if lost else 0


def main():
    global LIBRARY  # pylint: disable=global-statement
    if "--hosts" in sys.argv:
        at = sys.argv.index("--hosts")
        LIBRARY = os.path.abspath(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    what = sys.argv[1] if len(sys.argv) > 2 else ""
    if what == "calls":
        return calls(sys.argv[2])
    if what == "full":
        return full(sys.argv[2])
    if what == "jobs" and len(sys.argv) > 5:
        return jobs(*sys.argv[2:5], int(sys.argv[5]),
                    int(sys.argv[6]) if len(sys.argv) > 6
                    else random.randrange(10 ** 6),
                    sys.argv[7] if len(sys.argv) > 7 else "self")
    sys.exit(__doc__)


sys.exit(main())
