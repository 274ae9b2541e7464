# SPDX-License-Identifier: Apache-2.0
"""Emulates hosts on one machine by network namespaces that a bridge connects.

Each host has a name and an address in 10.77.K.0/24. Each command that runs on
it has its own /dev/shm and host name; files and processes are shared with the
machine. mpirun reaches the hosts through agent.py, as it would through ssh.
Needs root.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def why_not():
    """Returns the reason why this machine cannot emulate hosts, or None."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for name in ("ip", "unshare", "mpirun"):
        if not shutil.which(name):
            return f"there is no {name}"
    name = f"pst-try-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True,
                          text=True, check=False)
    if done.returncode == 0:
        done = subprocess.run(
            ["ip", "netns", "exec", name, "unshare", "--uts", "--ipc",
             "--mount", "--propagation", "private", "true"],
            capture_output=True, text=True, check=False)
        subprocess.run(["ip", "netns", "del", name], check=False)
    return done.stderr.strip() or "no namespaces" if done.returncode else None


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


class Rig:
    def __init__(self, names):
        self.prefix = f"pst{os.getpid()}"
        self.names = names
        self.net = f"10.77.{os.getpid() % 250}"
        self.network = f"{self.net}.0/24"

    def space(self, name):
        return f"{self.prefix}-{name}"

    def __enter__(self):
        switch = self.space("sw")
        try:
            ip("netns", "add", switch)
            ip("-n", switch, "link", "add", "br0", "type", "bridge")
            ip("-n", switch, "link", "set", "br0", "up")
            hosts = "127.0.0.1 localhost\n" + "".join(
                f"{self.net}.{i + 1} {name}\n"
                for i, name in enumerate(self.names))
            for i, name in enumerate(self.names):
                self.add(switch, name, f"{self.net}.{i + 1}/24", hosts)
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, switch, name, address, hosts):
        space, port = self.space(name), f"to-{name}"
        os.makedirs(f"/etc/netns/{space}", exist_ok=True)
        with open(f"/etc/netns/{space}/hosts", "w", encoding="utf-8") as file:
            file.write(hosts)
        ip("netns", "add", space)
        ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name",
           port, "netns", switch)
        ip("-n", switch, "link", "set", port, "master", "br0", "up")
        ip("-n", space, "address", "add", address, "dev", "eth0")
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for name in (*self.names, "sw"):
            for pid in self.pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.space(name)],
                           capture_output=True, check=False)
            shutil.rmtree(f"/etc/netns/{self.space(name)}", ignore_errors=True)

    def env(self):
        return {"PST_RIG": self.prefix,
                "OMPI_MCA_plm_rsh_agent":
                f"{sys.executable} {os.path.join(HERE, 'agent.py')}"}

    def on(self, name, *words):
        """Returns the command line that runs these words on a host."""
        return [sys.executable, os.path.join(HERE, "agent.py"), "--exec", name,
                *words]

    def at(self, name, *words):
        """Returns the output of these words, run in the network of a host."""
        done = subprocess.run(["ip", "netns", "exec", self.space(name), *words],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def pids(self, name, what=None):
        """Returns the process ids on a host, optionally of one program
        only."""
        done = subprocess.run(["ip", "netns", "pids", self.space(name)],
                              capture_output=True, text=True, check=False)
        found = []
        for pid in done.stdout.split():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    if what in (None, file.read().strip()):
                        found.append(int(pid))
        return found

    def link(self, name, state):
        """Sets the link of a host up or down."""
        ip("-n", self.space("sw"), "link", "set", f"to-{name}", state)

    def await_way(self, name, to):
        """Waits until one host can reach another. A link that is set up again
        carries nothing for up to a second, in which mpirun would give up."""
        self.at(name, sys.executable, "-c", f"""
import socket, time
for _ in range(100):
    try:
        socket.create_connection(("{self.net}.{self.names.index(to) + 1}", 9), 1)
    except ConnectionRefusedError:
        break
    except OSError:
        time.sleep(.1)
else:
    raise SystemExit("{name} does not reach {to}")
""")
