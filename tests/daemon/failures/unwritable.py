#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoint folders that can be read but not written: the disk is full,
or mounted read-only.

usage: unwritable.py PENSTOCK TINY.pt2 self|mpi

A folder that a run cannot take is not moved away from, so what it has must not
count if it is another run's, or of steps that the run has gone back from. The
disks are file systems in memory, in a mount namespace; ends with 77 where
there are none.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "training")]
import clients  # noqa: E402
import job  # noqa: E402
import on_spike  # noqa: E402
import restarts  # noqa: E402
from patience import wait_until  # noqa: E402

NAMESPACE = ["unshare", "--map-root-user", "--mount"]
OTHER = "belongs to another run"


class Bench(restarts.Bench):
    """Disks are folders in which a small file system is mounted."""

    def __init__(self, penstock, model, transport, folder):
        job.Bench.__init__(self, penstock, folder)
        self.transport, self.n, self.disks = transport, 0, []
        os.symlink(model, self.path("tiny.pt2"))
        clients.write_data(self.path("data.safetensors"))
        on_spike.write_data(self.path("nan.safetensors"), range(1, 15),
                            {8: float("nan")})
        self.call("split", "tiny.pt2", "-o", "tiny.plan")

    def disk(self):
        """Returns the name of a new disk of 1 MiB."""
        name = f"disk-{len(self.disks)}"
        os.mkdir(self.path(name))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs",
                        self.path(name)], check=True)
        self.disks.append(name)
        return name

    def remount(self, disk, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.path(disk)],
                       check=True)

    def fill(self, disk):
        with open(self.path(disk, "filler"), "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)) > 0:
                    pass
            except OSError:
                pass

    def close(self):
        for disk in self.disks:
            subprocess.run(["umount", "-l", self.path(disk)], check=False)

    def words(self, name, *more, steps=30):
        return ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
                "data.safetensors", "--lr", "0.001", "--transport",
                self.transport, "--threads", "1", "--steps", str(steps),
                "--checkpoint", name, "--checkpoint-every", "5",
                "--checkpoint-sync", "--keep", "9", "--quiet", *more]

    def killed(self, *words, code=0):
        """Runs a job that is killed at step 22 and restarted. Returns the line
        of the restart."""
        log = self.fresh() + "-log"
        self.gate(22)
        run = self.begin(*words, "--max-restarts", "2", "--log-dir", log,
                         PENSTOCK_GATE=self.path("gate"))
        wait_until(lambda: self.place() > 22, "step 22")
        os.kill(self.pids(log)[0], signal.SIGKILL)
        self.gate(10 ** 6)
        self.ended(run, code)
        os.remove(self.path("gate.at"))
        again, = self.events(log, "job_restart")
        return again

    def steps(self, *folder):
        return [int(x[5:]) for x in sorted(os.listdir(self.path(*folder)))
                if x.startswith("step-")]

    def bits(self, step, *folders):
        """Returns the weights of that step, which is in one of the folders."""
        have, = [x for x in folders if step in self.steps(x)]
        name = f"step-{step:08}"
        self.call("weights", f"{have}/{name}", "-o", "bits.safetensors")
        with open(self.path("bits.safetensors"), "rb") as file:
            return file.read()

    def history(self, folder):
        return [x.split(",")[:3]
                for x in self.call("history", folder).splitlines()[1:]]

    def gone_back(self, first):
        """Returns the bits of step 40 of a run that went back from step 30 to
        step 10 undisturbed, and went on with another learning rate."""
        self.call(*self.words(first))
        self.call(*self.words(first, "--resume=10", "--lr", "0.005", steps=40))
        return self.bits(40, first)


def gone_back_full(b):
    """Checks that a run that goes back while its first disk is full continues
    the new course after a restart and in a resume, and sets the old one aside
    once the disk is free."""
    want = b.gone_back("undisturbed-full")
    disk = b.disk()
    first, second = disk + "/ck", b.fresh()
    both = "--checkpoint-fallback", second, "--lr", "0.005"
    b.call(*b.words(first, *both[:2]))
    b.fill(disk)
    again = b.killed(*b.words(first, *both, "--resume=10", steps=40))
    assert job.field(again, "checkpoint_step") == "20", again
    assert b.bits(40, second) == want
    assert b.steps(first) == [5, 10, 15, 20, 25, 30]
    left = "not in the past of the run any more"
    said = b.call("weights", first, "-o", "left.safetensors")
    assert f"step 30 of {first}" in said and left in said, said
    rows = b.call("checkpoints", first).splitlines()[1:]
    assert [left in x for x in rows] == [True] * 4 + [False] * 2, rows
    said = b.call("checkpoints", first, "--remove", 10, code=77)
    assert "is the newest good one" in said, said
    b.call(*b.words(first, *both, "--resume", steps=45))
    assert b.steps(second)[-1] == 45 and b.steps(first)[-1] == 30
    os.remove(b.path(disk, "filler"))
    b.call(*b.words(first, *both, "--resume", steps=50))
    assert b.steps(first, "former-1") == [15, 20, 25, 30]
    assert b.steps(first) == [5, 10, 50]
    # Steps 11 to 30 of the old course are not the run's.
    rows = b.history(first)
    assert rows[:10] == b.history("undisturbed-full")[:10], rows
    assert [int(x[0]) for x in rows[10:]] == [*range(46, 51)], rows
    shutil.rmtree(b.path(second))
    os.mkdir(b.path(second))
    b.call(*b.words(first, *both, "--resume", steps=55))
    assert b.steps(first)[-1] == 55


def gone_back_read_only(b):
    """Checks the same if the old course is in the second folder, which is
    read-only."""
    want = b.gone_back("undisturbed-read-only")
    disk = b.disk()
    first, second = b.fresh(), disk + "/ck"
    both = "--checkpoint-fallback", second, "--lr", "0.005"
    b.call(*b.words(first, *both[:2], steps=10))
    blocks = [b.path(first, f"step-{step:08}") for step in (15, 20, 25, 30)]
    for path in blocks:  # saves of these steps fail
        with open(path, "x", encoding="utf-8"):
            pass
    b.call(*b.words(first, *both[:2], "--resume"))
    for path in blocks:
        os.remove(path)
    assert b.steps(second) == [15, 20, 25, 30] and b.steps(first) == [5, 10]
    b.remount(disk, "ro")
    b.call(*b.words(first, *both, "--resume=10", steps=20))
    said = b.call(*b.words(first, *both, "--resume", steps=40))
    assert "step-00000030: is not in the past of the run" in said, said
    assert b.bits(40, first) == want
    b.remount(disk, "rw")
    b.call(*b.words(first, *both, "--resume", steps=45))
    assert b.steps(second) == []
    assert b.steps(second, "former-1") == [15, 20, 25, 30]


def adopted(b):
    """Checks that a run with --adopt, whose first folder has the checkpoints of
    another run and cannot be written, is restarted and resumed from its own
    ones in the second folder."""
    disk = b.disk()
    first, second = disk + "/ck", b.fresh()
    both = "--checkpoint-fallback", second
    b.call(*b.words(first))
    b.call(*b.words("alone", "--lr", "0.003", steps=45))
    b.remount(disk, "ro")
    again = b.killed(*b.words(first, *both, "--adopt", "--lr", "0.003",
                              steps=40))
    assert job.field(again, "checkpoint_step") == "20", again
    assert not os.path.exists(b.path(second, "former-1"))
    assert b.bits(40, second) == b.bits(40, "alone")
    b.call(*b.words(first, *both, "--resume", "--lr", "0.003", steps=45))
    assert b.bits(45, second) == b.bits(45, "alone")
    b.remount(disk, "rw")
    b.call(*b.words(first, *both, "--resume", "--lr", "0.003", steps=50))
    assert b.steps(first, "former-1") == [5, 10, 15, 20, 25, 30]
    assert b.steps(first) == [50]


def refused(b):
    """Checks that a folder of another run that cannot be written is refused as
    one that can, as first and as second folder."""
    disk = b.disk()
    b.call(*b.words(disk + "/ck"))
    b.remount(disk, "ro")
    first, second = b.fresh(), b.fresh()
    for one, two in (disk + "/ck", second), (first, disk + "/ck"):
        said = b.call(*b.words(one, "--checkpoint-fallback", two), code=78)
        assert OTHER in said and disk in said, said
    assert not os.path.exists(b.path(second))
    assert b.steps(first) == []


def rolled_back(b):
    """Checks that a run goes back to its own checkpoint although the second
    folder, which cannot be written, has later ones of another run."""
    disk = b.disk()
    b.call(*b.words(disk + "/ck"))
    b.remount(disk, "ro")
    first, log = b.fresh(), b.fresh() + "-log"
    b.call(*b.words(first, "--checkpoint-fallback", disk + "/ck", "--adopt",
                    "--data", "nan.safetensors", "--on-nan", "rollback",
                    "--log-dir", log, steps=12))
    back, = b.events(log, "rolled_back", "rank-0")
    assert job.field(back, "to") == "5", back
    assert b.steps(first) == [5, 10, 12]
    again = b.killed(*b.words(first, "--checkpoint-fallback", disk + "/ck",
                              "--resume", steps=25))
    assert job.field(again, "checkpoint_step") == "20", again
    assert b.steps(first) == [5, 10, 12, 15, 20, 25]


def main():
    if "PST_MOUNTS" not in os.environ:
        if subprocess.run([*NAMESPACE, "true"], check=False).returncode != 0:
            print("no mount namespaces here")
            return 77
        os.environ["PST_MOUNTS"] = "1"
        os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, *sys.argv])
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, sys.argv[3], folder) as b:
        try:
            for part in (gone_back_full, gone_back_read_only, adopted, refused,
                         rolled_back):
                print(part.__name__, flush=True)
                part(b)
                b.no_files_left()
        finally:
            b.close()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
