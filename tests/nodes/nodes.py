#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs on three emulated hosts with two ranks each (rig.py), and failures
of hosts.

usage: nodes.py PENSTOCK BYTEGPT.pt2 DATA [NAME...|all]

bits     the weights equal those of a single process
refused  all missing hosts are named; too few slots are refused
doctor   `doctor --hosts` checks the hosts
flap     a link is down for 1 s, then 4 s: no data are lost, nothing restarts;
         the log names the silent rank and the duration
flap_long  the same for 25 s
lost     a link is down for longer than the watchdog's limit: the job ends on
         all hosts, and recovers when the link is up again
drops    the network loses packets
hostile  garbage is sent to each listening port
gone     a host disappears: the job continues on a spare one
fewer    the same without a spare host: the job continues with fewer ranks
killed   mpirun, or its daemon on a host, is killed: no process is left

Without names: the first three and one of the others, which PST_TEST_SEED
draws. Ends with 77 where there are no namespaces, or with 1 if PST_NEED_RIG is
set.
"""
import datetime
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import rig as rigs

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

HOSTS = ["n1", "n2", "n3"]
STEPS, EVERY, WATCHDOG_S = 40, 5, 3
# Each forward sleeps for 4 ms, so that a fast machine does not finish before
# the test has acted.
SLOWLY = {"PENSTOCK_FAULT": "F:1+:4"}


class Nodes:
    def __init__(self, penstock, model, data, folder, rig):
        self.penstock, self.data, self.folder = penstock, data, folder
        self.rig, self.n = rig, 0
        self.env = dict(os.environ, TMPDIR=folder, **rig.env())
        self.env.pop("XDG_RUNTIME_DIR", None)
        self.run_here("split", model, "--stages", "6", "-o", "six.plan")
        self.run_here(*self.words("want"), "--transport", "self")
        self.want = self.weights("want")

    def run_here(self, *words):
        done = subprocess.run([self.penstock, *words], cwd=self.folder,
                              env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode == 0, (words, done)
        return done.stdout

    def words(self, name, *more):
        return ["run", "six.plan", "-n", "6", "-m", "2", "--data", self.data,
                "--lr", "0.001", "--threads", "1", "--steps", str(STEPS),
                "--checkpoint", name, "--checkpoint-every", str(EVERY),
                "--log-dir", name, "--job", name + str(os.getpid()), "--quiet",
                *more]

    def begin(self, *words, **env):
        return subprocess.Popen(
            self.rig.on("n1", self.penstock, *words), cwd=self.folder,
            env={**self.env, **env}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def call(self, *words, code=0, **env):
        job = self.begin(*words, **env)
        out, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == code, (words, job.returncode, out, err)
        return out + err

    def job(self, *more, hosts="n1,n2,n3", **env):
        """Starts a job. Returns its process and its name."""
        self.n += 1
        name = f"job-{self.n}"
        return self.begin(*self.words(name, "--hosts", hosts, "--interface",
                                      self.rig.network, *more),
                          **SLOWLY, **env), name

    def ends_well(self, job, name):
        out, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == 0, (job.returncode, out, err)
        assert self.weights(name) == self.want, "other bits"
        self.nothing_left()

    def weights(self, name):
        folder = os.path.join(self.folder, name, f"step-{STEPS:08d}")
        out = os.path.join(self.folder, f"{name}.safetensors")
        self.run_here("weights", folder, "-o", out)
        with open(out, "rb") as file:
            return file.read()

    def await_step(self, name, step):
        path = os.path.join(self.folder, name, "rank-0.log")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    if any(f" step={step} " in line for line in file
                           if " event=step " in line):
                        return
            time.sleep(.01)
        raise AssertionError(f"{path} never says step {step}")

    def events(self, name, event):
        with open(os.path.join(self.folder, name, "supervisor.log"),
                  encoding="utf-8") as file:
            return [line for line in file if f" event={event} " in line]

    def ranks(self, host):
        return self.rig.pids(host, "penstockd")

    def nothing_left(self, hosts=tuple(HOSTS)):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            left = {h: self.ranks(h) + self.rig.pids(h, "orted")
                    for h in hosts}
            if not any(left.values()):
                return
            time.sleep(.05)
        raise AssertionError(f"processes {left} after {seconds} s")


def check_bits(b):
    job, name = b.job(hosts="n3:2,n1:2,n2:2")
    b.await_step(name, 2)
    assert [len(b.ranks(h)) for h in HOSTS] == [2, 2, 2]
    b.ends_well(job, name)
    path = os.path.join(b.folder, "hosts")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# ours\nn1 slots=4  # more\n\nn2   slots=2\nn3\n")
    b.n += 1
    name = f"job-{b.n}"
    job = b.begin(*b.words(name, "--hostfile", path), **SLOWLY)
    b.await_step(name, 2)
    assert [len(b.ranks(h)) for h in HOSTS] == [4, 2, 0]
    b.ends_well(job, name)


def check_refused(b):
    b.rig.link("n2", "down")
    said = b.call(*b.words("no", "--hosts", "n1,n2,n3,n9"), code=69)
    b.rig.link("n2", "up")
    b.rig.await_way("n2", "n1")
    assert "2 of 4 hosts" in said and "n3:" not in said, said
    assert "n2: cannot be reached" in said, said
    assert "n9: cannot be reached" in said, said
    for hosts, what in (("n2,n3", "this host is not one of the given"),
                        ("n1:2,n2:2,n3:1", "have 5 slots, the job has 6"),
                        ("n1,localhost,n2", "are names of this one"),
                        ("n1,-oProxyCommand=true", "is not a host"),
                        ("n1,n2:0", "is not a host"), ("n1,,n2", "is not a host")):
        said = b.call(*b.words("no", "--hosts", hosts), code=64)
        assert what in said, (hosts, said)
    said = b.call(*b.words("no", "--hosts", "n1", "--transport", "self"),
                  code=64)
    assert "--transport self" in said, said
    said = b.call(*b.words("no", "--hosts", "n1,n2", "--interface", "eth7"),
                  code=64)
    assert "none of these is up here" in said and "eth0 (" in said, said
    b.rig.at("n1", "ip", "link", "add", "only1", "type", "bridge")
    b.rig.at("n1", "ip", "address", "add", "10.78.0.1/24", "dev", "only1")
    b.rig.at("n1", "ip", "link", "set", "only1", "up")
    said = b.call(*b.words("no", "--hosts", "n1,n2,n3", "--interface", "only1"),
                  code=69)
    b.rig.at("n1", "ip", "link", "del", "only1")
    assert "2 of 3 hosts" in said and "n2: --interface only1: none" in said, said
    path = os.path.join(b.folder, "bad-hosts")
    with open(path, "w", encoding="utf-8") as file:
        file.write("n1\nn2 slot=2\n")
    said = b.call(*b.words("no", "--hostfile", path), code=65)
    assert f"{path}:2: " in said, said
    assert not os.path.exists(os.path.join(b.folder, "no")), "a folder is left"
    b.nothing_left()


def check_doctor(b):
    clock = os.path.join(b.folder, "date")
    with open(clock, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\necho {time.time() + 100}\n")
    os.chmod(clock, 0o755)
    job = b.begin("doctor", "--hosts", "n1,n2,n3,n9", "--json",
                  PST_RIG_SET_n2="PENSTOCK_STEPS=many",
                  PST_RIG_SET_n3=f"PATH={b.folder}:{os.environ['PATH']}")
    out, err = job.communicate(timeout=PATIENCE)
    found = json.loads(out)["findings"]
    assert job.returncode == 1, (out, err)
    texts = [f["text"] for f in found if f["check"] == "hosts"]
    assert any(t.startswith("n9: ") and "No route" in t for t in texts), found
    assert any(t.startswith("n2: environment: ") for t in texts), found
    assert any(t.startswith("n3: its clock is ") and " before " in t
               for t in texts), found
    assert sum("clock" in t for t in texts) == 1, found


def longest_step(b, name):
    """Returns the longest time between two steps of a job, in seconds."""
    with open(os.path.join(b.folder, name, "rank-0.log"),
              encoding="utf-8") as file:
        said = [datetime.datetime.fromisoformat(
            re.match(r"ts=(\S+)Z ", line)[1]) for line in file
            if " event=step " in line]
    return max((after - before).total_seconds()
               for before, after in zip(said, said[1:]))


def read_silences(b, name):
    """Returns (rank, silent rank, seconds of silence, seconds of the step)
    from all logs of a job."""
    found = []
    for path in glob.glob(os.path.join(b.folder, name, "rank-*.log")):
        with open(path, encoding="utf-8") as file:
            found += [(int(m[1]), int(m[2]), float(m[3]), float(m[4])) for m in
                      re.finditer(r" rank=(\d+) .*event=rank_silent .*of_rank="
                                  r"(\d+) seconds=(\S+) step_s=(\S+)",
                                  file.read())]
    return found


def check_link_flap(b, seconds):
    job, name = b.job("--max-restarts", "2", "--watchdog", "90")
    b.await_step(name, 7)
    b.rig.link("n3", "down")
    time.sleep(seconds)
    b.rig.link("n3", "up")
    b.ends_well(job, name)
    assert not b.events(name, "job_restart"), b.events(name, "job_ended")
    # TCP doubles its retransmission delay each time, so the job may lose more
    # time than the link was down.
    lost, said = longest_step(b, name), read_silences(b, name)
    print(f"  out for {seconds} s: {lost:.1f} s between two steps; (rank, did "
          f"not hear rank, for seconds, in a step of seconds): {said}")
    assert lost > seconds - 1
    if seconds > 3:
        pairs = {(rank, of) for rank, of, _, _ in said}
        assert pairs == {(0, 4), (0, 5), (4, 0), (5, 0)}, said
        # A rank may be heard again in the step after the long one.
        assert all(seconds - 1 < silent < lost + 1 and step < lost + 1
                   for _, _, silent, step in said), (lost, said)


def check_flap(b):
    for seconds in (1, 4):
        check_link_flap(b, seconds)


def check_flap_long(b):
    check_link_flap(b, 25)


def runs(pid):
    """Returns whether a process runs. One that has ended but was not yet
    reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_lost(b):
    job, name = b.job("--max-restarts", "8", "--watchdog", str(WATCHDOG_S))
    b.await_step(name, 7)
    b.rig.link("n3", "down")
    begin = time.monotonic()
    while any(runs(pid) for host in HOSTS for pid in b.ranks(host)):
        assert time.monotonic() < begin + PATIENCE, "ranks go on"
        time.sleep(.02)
    stopped = time.monotonic() - begin
    b.nothing_left()
    print(f"  after the cable was out, all ranks have stopped in {stopped:.1f} "
          f"s, and mpirun's daemons in {time.monotonic() - begin:.1f} s")
    deadline = time.monotonic() + PATIENCE
    while not b.events(name, "job_ended") and time.monotonic() < deadline:
        time.sleep(.05)
    b.rig.link("n3", "up")
    b.ends_well(job, name)
    said = b.events(name, "job_ended")
    assert " cause=watchdog " in said[0], said


def check_drops(b):
    assert shutil.which("nft"), "packets are dropped by nft: nftables"
    rules = ("add table inet lossy; add chain inet lossy in { type filter hook "
             "input priority 0; }; add rule inet lossy in meta l4proto tcp "
             "numgen random mod 100 < 3 counter drop")
    for host in HOSTS:
        b.rig.at(host, "nft", rules)
    job, name = b.job("--watchdog", "60")
    b.ends_well(job, name)
    lost = 0
    for host in HOSTS:
        said = b.rig.at(host, "nft", "list table inet lossy")
        lost += int(re.search(r"counter packets (\d+)", said)[1])
        b.rig.at(host, "nft", "delete table inet lossy")
    print(f"  {lost} packets were lost")
    assert lost > 20, lost


def open_noisy(rng, address, port):
    """Connects to a port and sends noise, nothing at all, or the beginning of
    Open MPI's greeting of an unknown process."""
    how = rng.randrange(3)
    data = b"" if how == 0 else rng.randbytes(rng.randrange(1, 65536))
    if how == 2:
        data = rng.randbytes(8) + b"OPAL-TCP-BTL".ljust(16, b"\0") + data
    talker = socket.socket()
    talker.settimeout(1)
    try:
        talker.connect((address, port))
        talker.sendall(data)
    except OSError:
        pass
    return talker


def connect_noise(seed, address, ports):
    """Makes 40 connections to each port, from this process on another host."""
    rng = random.Random(seed)
    open_ones = [open_noisy(rng, address, port)
                 for port in ports for _ in range(40)]
    time.sleep(1)
    for talker in open_ones:
        talker.close()


def check_hostile(b):
    job, name = b.job("--max-restarts", "2", "--watchdog", "20")
    b.await_step(name, 3)
    seed, n = random.randrange(1 << 30), 0
    print(f"  seed {seed}")
    for i, host in enumerate(HOSTS[:2]):
        said = b.rig.at(host, "ss", "-Hltn")
        ports = sorted({line.split()[3].rsplit(":", 1)[1]
                        for line in said.splitlines()})
        # Two ranks and a daemon of mpirun listen.
        assert len(ports) >= 3, said
        n += len(ports)
        done = subprocess.run(
            b.rig.on("n3", sys.executable, os.path.abspath(__file__),
                     "--strangers", str(seed + i), f"{b.rig.net}.{i + 1}",
                     *ports), env=b.env, check=False, timeout=PATIENCE)
        assert done.returncode == 0
    print(f"  {n} ports")
    b.ends_well(job, name)


def check_gone(b):
    job, name = b.job("--max-restarts", "3", "--watchdog", str(WATCHDOG_S),
                      hosts="n1:3,n2:3,n3:3")
    b.await_step(name, 7)
    assert [len(b.ranks(h)) for h in HOSTS] == [3, 3, 0]
    b.rig.link("n2", "down")
    for pid in b.rig.pids("n2"):
        os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    while not b.ranks("n3"):
        assert time.monotonic() < begin + PATIENCE, "n3 has no ranks"
        time.sleep(.05)
    print(f"  ranks on the spare host after {time.monotonic() - begin:.1f} s")
    b.ends_well(job, name)
    b.rig.link("n2", "up")
    b.rig.await_way("n2", "n1")
    assert len(b.events(name, "job_restart")) == 1


def check_fewer(b):
    job, name = b.job("--max-restarts", "3", "--min-ranks", "4", "--watchdog",
                      str(WATCHDOG_S), hosts="n1:2,n2:2,n3:2")
    b.await_step(name, 7)
    b.rig.link("n2", "down")
    for pid in b.rig.pids("n2"):
        os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    b.ends_well(job, name)
    print(f"  the job ended {time.monotonic() - begin:.1f} s later")
    b.rig.link("n2", "up")
    b.rig.await_way("n2", "n1")
    said = b.events(name, "fewer_ranks")
    assert len(said) == 1 and " ranks=4 " in said[0], said


def check_killed(b):
    for who in ("mpirun", "orted", "penstock"):
        job, name = b.job("--max-restarts", "0" if who == "mpirun" else "2")
        b.await_step(name, 3)
        host = "n3" if who == "orted" else "n1"
        for pid in b.rig.pids(host, who):
            os.kill(pid, signal.SIGKILL)
        if who == "orted":
            b.ends_well(job, name)
            assert len(b.events(name, "job_restart")) == 1
        else:
            job.communicate(timeout=PATIENCE)
            assert job.returncode != 0
            b.nothing_left()


CHECKS = {name[6:]: check for name, check in sorted(globals().items())
          if name.startswith("check_")}


def main():
    if sys.argv[1] == "--strangers":
        connect_noise(int(sys.argv[2]), sys.argv[3],
                      [int(p) for p in sys.argv[4:]])
        return 0
    penstock, model, data = (os.path.abspath(p) for p in sys.argv[1:4])
    names = sys.argv[4:]
    why = rigs.why_not()
    if why:
        print(f"no rig: {why}")
        return 1 if os.environ.get("PST_NEED_RIG") else 77
    seed = int(os.environ.get("PST_TEST_SEED", random.randrange(1 << 30)))
    if names == ["all"]:
        names = list(CHECKS)
    elif not names:
        names = ["bits", "refused", "doctor"]
        rest = sorted(set(CHECKS) - set(names))
        names.append(rest[seed % len(rest)])
        print(f"PST_TEST_SEED={seed}: {names[-1]} of {', '.join(rest)}")
    with tempfile.TemporaryDirectory(prefix="pst-nodes-") as folder, \
            rigs.Rig(HOSTS) as rig:
        b = Nodes(penstock, model, data, folder, rig)
        for name in names:
            begin = time.monotonic()
            CHECKS[name](b)
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        left = glob.glob(os.path.join(folder, "penstock-??????"))
        # After a killed supervisor its folder stays, until the next job
        # removes it.
        assert len(left) <= ("killed" in names), left
    return 0


if __name__ == "__main__":
    sys.exit(main())
