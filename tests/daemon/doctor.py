#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `penstock doctor` finds planted problems and prints the remedies.

usage: doctor.py PENSTOCK PLANTED.so
"""
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

from patience import PATIENCE

BIG = 1 << 46  # bytes of address space, enough for any sanitizer
# Findings that the machine that runs the test may cause itself.
OWN = {"root", "products", "cores", "copies", "mpirun", "host-name"}


class Machine:
    """A folder with the /proc, /sys and /dev/shm of a healthy machine."""

    def __init__(self, penstock, shim, folder):
        self.penstock, self.folder, self.n = penstock, folder, 0
        self.env = dict(os.environ, PST_DOCTOR_ROOT=self.at("root"),
                        XDG_RUNTIME_DIR=self.at("run"), TMPDIR=self.at("tmp"),
                        LD_PRELOAD=shim, ASAN_OPTIONS=os.environ.get(
                            "ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        for name in [x for x in self.env if x.startswith("PENSTOCK_")]:
            del self.env[name]
        for name in "run", "tmp", "root/dev/shm":
            os.makedirs(self.at(name), mode=0o700)
        self.write("proc/meminfo", "MemTotal: 16000000 kB\n"
                   "MemAvailable: 9000000 kB\nSwapTotal: 4000000 kB\n"
                   "SwapFree: 4000000 kB\n")
        self.write("proc/sys/vm/overcommit_memory", "0\n")
        self.write("sys/kernel/mm/transparent_hugepage/enabled",
                   "always [madvise] never\n")
        self.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                   "performance\n")
        self.write("sys/fs/cgroup/cpu.max", "max 100000\n")

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        path = self.at(f"root/{name}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def ask(self, *words, before=None, program=None, **env):
        done = subprocess.run(
            [program or self.penstock, "doctor", "--json", *words],
            env={k: v for k, v in {**self.env, **env}.items() if v is not None},
            text=True, check=False, timeout=PATIENCE, cwd=self.folder,
            capture_output=True, preexec_fn=before)
        said = json.loads(done.stdout)
        assert done.returncode == (1 if said["faults"] else 0), done
        found = said["findings"]
        assert len(found) >= said["faults"] + said["warnings"]
        for one in found:
            assert one["text"] and one["remedy"], one
        return {(x["check"], x["level"]): x["text"] for x in found
                if x["check"] not in self.own}

    own = ()

    def finds(self, check, level, *texts, **options):
        """Checks that doctor reports this problem and no other one."""
        words = options.pop("words", ())
        found = self.ask(*words, **options)
        assert set(found) == {(check, level)}, (check, level, found)
        for text in texts:
            assert text in found[check, level], (text, found)
        self.n += 1

    def planted(self, name, text, check, level, *texts):
        """Writes a text to a file of the machine, checks the finding, and
        restores the file."""
        path = self.at(f"root/{name}")
        before = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                before = file.read()
        self.write(name, text)
        self.finds(check, level, *texts)
        if before is None:
            os.remove(path)
        else:
            self.write(name, before)


def programs(m):
    os.mkdir(m.at("bin"))
    m.own = OWN - {"mpirun"}
    m.finds("mpirun", "fault", "no mpirun", PATH=m.at("bin"))
    with open(m.at("bin/mpirun"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexit 213\n")
    os.chmod(m.at("bin/mpirun"), 0o755)
    m.finds("mpirun", "fault", "exit code 213",
            PATH=m.at("bin") + ":" + os.environ["PATH"])
    with open(m.at("bin/mpirun"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexec sleep 100\n")
    m.finds("mpirun", "fault", "does not answer within",
            PATH=m.at("bin") + ":" + os.environ["PATH"])
    # A shell without PATH uses a default that its child processes do not see.
    if shutil.which("mpirun", path=os.confstr("CS_PATH")):
        assert ("mpirun", "fault") not in m.ask(PATH=None)
    m.own = OWN
    shutil.copy(m.penstock, m.at("bin/penstock"))
    m.finds("penstockd", "fault", program=m.at("bin/penstock"))
    m.finds("environment", "note", "PENSTOCK_SEED", PENSTOCK_SEED="3")
    m.finds("environment", "warning", "PENSTOCK_LOGDIR",
            PENSTOCK_LOGDIR="/tmp")
    m.finds("environment", "warning", "for tests", PENSTOCK_FAULT="none:1:kill")
    m.own = OWN - {"products"}
    m.finds("products", "warning", "instruction set", PST_ISA="any",
            OPENBLAS_CORETYPE="")
    m.own = OWN - {"root"}
    if os.geteuid() == 0:
        m.finds("root", "note", OMPI_ALLOW_RUN_AS_ROOT="")
        assert not m.ask(OMPI_ALLOW_RUN_AS_ROOT="1",
                         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    m.own = OWN


def wrong_kernels(m):
    """Requests OpenBLAS kernels for an old processor (Prescott). doctor must
    warn of the kernels that OpenBLAS reports, which may differ from those
    requested."""
    m.own = OWN - {"products"}
    found = m.ask(OPENBLAS_CORETYPE="Prescott")
    m.own = OWN
    if "avx2" in open("/proc/cpuinfo", encoding="utf-8").read():
        assert "Prescott" in found["products", "warning"], found
        m.n += 1


def sockets(m):
    long = m.at("x" * 90)
    os.mkdir(long)
    m.finds("sockets", "fault", "longer than", XDG_RUNTIME_DIR=long)
    m.own = OWN | {"stale"}  # doctor reports the folder in /tmp instead
    m.finds("sockets", "fault", "not a folder", XDG_RUNTIME_DIR=m.at("none"))
    m.own = OWN
    for name in "run/penstock", "run/penstock/old":
        os.mkdir(m.at(name), mode=0o700)
    server = socket.socket(socket.AF_UNIX)
    server.bind(m.at("run/penstock/old/rank0.sock"))
    server.listen()
    assert not m.ask()
    server.close()
    m.finds("stale", "warning", "run/penstock/old")
    shutil.rmtree(m.at("run/penstock/old"))
    os.chmod(m.at("run/penstock"), 0o755)
    m.finds("sockets", "fault", "accessed by others")
    os.chmod(m.at("run/penstock"), 0o700)


def machine(m):
    m.planted("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 90000 kB\n",
              "memory", "warning", "88 MiB")
    m.planted("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB"
              "\nSwapTotal: 4000000 kB\nSwapFree: 1000000 kB\n", "swap",
              "warning", "2930 MiB")
    m.planted("proc/sys/vm/overcommit_memory", "2\n", "overcommit", "warning")
    m.planted("sys/kernel/mm/transparent_hugepage/enabled",
              "always madvise [never]\n", "huge-pages", "warning")
    m.planted("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
              "powersave\n", "governor", "warning")
    m.planted("sys/fs/cgroup/cpu.max", "50000 100000\n", "cpu-limit", "warning",
              "0.50 of")
    m.planted("dev/shm/vader_segment.host.0.1.2", "", "segments", "warning")
    m.write("proc/self/cgroup", "0::/job\n")
    m.write("sys/fs/cgroup/job/memory.max", "1073741824\n")
    m.planted("sys/fs/cgroup/job/memory.current", "1048576\n", "memory-limit",
              "warning", "leaves 1023 MiB")
    os.remove(m.at("root/sys/fs/cgroup/job/memory.max"))
    m.own = OWN - {"copies"}
    m.finds("copies", "warning", PLANT="copies")
    m.own = OWN - {"host-name"}
    m.finds("host-name", "warning", PLANT="host")
    m.own = OWN
    if os.cpu_count() > 1:
        m.own = OWN - {"cores"}
        one = min(os.sched_getaffinity(0))
        m.finds("cores", "warning", "may use 1 of",
                before=lambda: os.sched_setaffinity(0, {one}))
        m.own = OWN


def limits(m):
    for number, value, level, option in (
            (resource.RLIMIT_NOFILE, 64, "fault", "-n"),
            (resource.RLIMIT_AS, BIG, "warning", "-v"),
            (resource.RLIMIT_DATA, BIG, "warning", "-d"),
            (resource.RLIMIT_FSIZE, 1 << 30, "fault", "-f"),
            (resource.RLIMIT_STACK, 1 << 20, "fault", "-s"),
            (resource.RLIMIT_CPU, 36000, "warning", "-t")):
        hard = resource.getrlimit(number)[1]
        m.finds("limits", level, f"(ulimit {option})",
                before=lambda number=number, value=value, hard=hard:
                resource.setrlimit(number, (value, hard)))


def folders(m):
    with open(m.at("file"), "w", encoding="utf-8"):
        pass
    assert not m.ask(m.at("tmp"), m.at("run"))
    m.finds("folders", "fault", "No such file", words=["none"])
    m.finds("folders", "fault", "is not a folder", words=["file"])
    m.finds("folders", "fault", "cannot be made", words=["/proc/self"])
    m.finds("temporary", "fault", "No such file", TMPDIR=m.at("none"))
    m.finds("temporary", "fault", "cannot be synced", PLANT="sync")
    m.finds("temporary", "warning", "cannot be locked", PLANT="locks")
    m.finds("temporary", "warning", "differs from this host's by",
            PLANT="clock")
    m.finds("temporary", "fault", "space for 3 files", PLANT="files")
    found = m.ask(PLANT="space")
    assert set(found) == {("temporary", "fault"), ("shm", "fault")}, found
    m.n += 2
    shutil.move(m.at("root/dev/shm"), m.at("away"))
    m.finds("shm", "fault")
    shutil.move(m.at("away"), m.at("root/dev/shm"))
    assert not os.listdir(m.at("tmp"))  # doctor has removed its test files


def main():
    penstock, shim = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        m = Machine(penstock, shim, folder)
        everything = m.ask()
        print("this machine:", everything or "nothing found")
        m.own = OWN | {check for check, _ in everything}
        assert not m.own & {"memory", "shm", "limits", "temporary", "stale"}, \
            everything
        m.own = OWN
        for part in (programs, wrong_kernels, sockets, machine, limits,
                     folders):
            part(m)
        assert not m.ask(), m.ask()
        print(f"{m.n} planted faults found")


if __name__ == "__main__":
    main()
