# SPDX-License-Identifier: Apache-2.0
"""Checks that a job is not affected by what happens to its clients.

usage: clients.py PENSTOCK PENSTOCKD TINY.pt2 self|mpi

Clients are killed, stopped and disconnected. The weights at the end of the run
must equal those of an undisturbed run bit by bit.
"""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import tensor_file
from patience import PATIENCE


class Job:
    """A folder with a plan and data, and the commands that run in it."""

    def __init__(self, penstock, penstockd, model, transport, folder):
        self.penstock, self.penstockd = penstock, penstockd
        self.transport, self.folder = transport, folder
        self.env = dict(os.environ, XDG_RUNTIME_DIR=folder)
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        write_data(os.path.join(folder, "data.safetensors"))
        self.check("split", "tiny.pt2", "-o", "tiny.plan")
        # This number of steps takes about a second and a half.
        self.args = ["run", "tiny.plan", "-n", "2", "-m", "2", "--data",
                     "data.safetensors", "--lr", "0.001", "--transport",
                     transport, "--log-every", "1"]
        self.steps = 4000 if transport == "self" else 1500
        self.check(*self.args, "--steps", str(self.steps), "--quiet",
                   "--checkpoint", "undisturbed", "--json")
        self.want = self.weights("undisturbed")

    def call(self, *args):
        return subprocess.run([self.penstock, *args], cwd=self.folder,
                              env=self.env, check=False, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE)

    def check(self, *args, code=0, says=""):
        done = self.call(*args)
        assert done.returncode == code and says in done.stderr + done.stdout, \
            (args, done)
        return done

    def start(self, name, *args, steps=None, **options):
        """Starts a run whose log and checkpoint folders have the given
        name."""
        return subprocess.Popen(
            [self.penstock, *self.args, "--steps", str(steps or self.steps),
             "--checkpoint", name, "--log-dir", "log-" + name, *args],
            cwd=self.folder, env=self.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **options)

    def await_log(self, name, text):
        path = os.path.join(self.folder, "log-" + name, "rank-0.log")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    for line in file:
                        if text in line:
                            return line
            time.sleep(0.01)
        raise AssertionError(f"{path} does not say {text}")

    def weights(self, name):
        """Returns the files of the last checkpoint, without the times in its
        manifest."""
        folder = os.path.join(self.folder, name, f"step-{self.steps:08d}")
        files = {}
        for entry in sorted(os.listdir(folder)):
            with open(os.path.join(folder, entry), "rb") as file:
                if entry.endswith(".safetensors"):
                    files[entry] = file.read()
        assert files, folder
        return files

    def finished(self, name):
        """Waits until the job has finished; checks its weights."""
        self.await_log(name, "event=stopped")
        assert self.weights(name) == self.want, name

    def check_gone(self):
        """Checks that no process and no file of a job remains."""
        until = time.monotonic() + PATIENCE
        while self.call("status").returncode != 69:
            assert time.monotonic() < until
            time.sleep(0.05)


def write_data(path, first_token=0, last_label=12):
    """Writes two microbatches of inputs for tiny.pt2."""
    tensor_file.save(path, {
        "tokens": ("I64", [4, 3],
                   struct.pack("<12q", first_token, *range(1, 12))),
        "labels": ("I64", [4, 3],
                   struct.pack("<12q", *range(1, 12), last_label)),
        "extra.scale": ("F32", [16], struct.pack(
            "<16f", *(1 + 0.05 * i for i in range(16)))),
        "extra.pair.0": ("F32", [32], struct.pack(
            "<32f", *(0.25 + 0.1 * (i % 7) for i in range(32))))})


def check_names(job):
    """Checks that a job's name stays taken until the job has ended, and that a
    client ends only its own job."""
    many = 10 ** 9
    first = job.start("first", "--job", "same", steps=many)
    line = job.await_log("first", "event=step")
    assert "job=same" in line
    for _ in range(2):
        done = job.check(*job.args, "--job", "same", code=75,
                         says="the job same is running already")
        assert f"process {first.pid} of user {os.getuid()}" in done.stderr, done
        assert "--job" in done.stderr
        job.check("status", "--job", "same")
    # If the client is killed, the job keeps its name.
    first.kill()
    first.wait()
    job.check(*job.args, "--job", "same", code=75, says="running already")
    job.check("stop", "--job", "same")
    job.await_log("first", "event=stopped")
    # Of two runs started at once, exactly one gets the name.
    both = [job.start(name, "--job", "race", "--quiet")
            for name in ("race0", "race1")]
    for one in both:
        one.communicate(timeout=PATIENCE)
    assert sorted(one.returncode for one in both) == [0, 75]
    winner = [one.returncode for one in both].index(0)
    job.finished(f"race{winner}")
    # A client must not end a daemon that a user has started.
    with subprocess.Popen(
            [job.penstockd, "tiny.plan", "--transport", "self", "--ranks", "2",
             "--job", "hand", "--log-dir", "log-hand"], cwd=job.folder,
            env=job.env) as daemon:
        job.await_log("hand", "to=ready")
        done = job.check(*job.args, "--job", "hand", code=75)
        assert f"process {daemon.pid} of user" in done.stderr, done
        job.check("status", "--job", "hand")
        # Two requests to stop: the second finds a job that has ended, and that
        # the first keeps for a while.
        with subprocess.Popen([job.penstock, "watch", "--job", "hand"],
                              cwd=job.folder, env=job.env,
                              stdout=subprocess.PIPE, text=True) as watch:
            job.check("stop", "--no-wait", "--job", "hand")
            for line in watch.stdout:
                if " stopped " in line:
                    break
            said = job.call("stop", "--job", "hand")
            assert said.returncode in (0, 69), said
        assert daemon.wait(PATIENCE) == 0


def check_stuck(job):
    """Checks that `stop` says why a job that a user has started fails before
    its last save."""
    env = dict(job.env, PENSTOCK_FAULT="step@3:60000")
    with subprocess.Popen(
            [job.penstockd, "tiny.plan", "--transport", "self", "--ranks", "2",
             "-m", "2", "--job", "stuck", "--log-dir", "log-stuck",
             "--watchdog", "4"], cwd=job.folder, env=env) as daemon:
        job.await_log("stuck", "to=ready")
        job.check("train", "--job", "stuck", "--data", "data.safetensors",
                  "--steps", "9", "--checkpoint", "stuck", "--detach")
        # The request must come in step 3, not before it.
        until = time.monotonic() + PATIENCE
        while json.loads(job.check("status", "--job", "stuck",
                                   "--json").stdout)["step"] < 2:
            assert time.monotonic() < until
            time.sleep(.01)
        time.sleep(.5)
        job.check("stop", "--job", "stuck", code=1, says="is stuck in step 3")
        assert daemon.wait(PATIENCE) == 1


def check_sleep(job):
    """Stops one client for a while in the middle of its job, and another one
    until its job has ended. Both must report the result."""
    client = job.start("nap", "--json")
    job.await_log("nap", "event=step")
    client.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    client.send_signal(signal.SIGCONT)
    out, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0 and json.loads(out)["status"] == "OK", err
    job.finished("nap")

    client = job.start("sleep", "--json", "--svg", "sleep.svg")
    job.await_log("sleep", "event=step")
    client.send_signal(signal.SIGSTOP)
    job.finished("sleep")
    client.send_signal(signal.SIGCONT)
    out, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0, (out, err)
    assert json.loads(out)["steps"] == job.steps
    with open(os.path.join(job.folder, "sleep.svg"), encoding="utf-8") as file:
        assert "<svg" in file.read()


def check_output(job):
    """Checks that the output of the ranks does not fill the disk, whether or
    not it is read."""
    path = os.path.join(job.folder, "penstock", "bound", "rank0.sock.out")
    line, size = b"a library says something again and again\n", 8 << 20
    for _ in range(2):
        with open(path, "ab") as file:
            file.write(line * (size // len(line)))
        until = time.monotonic() + PATIENCE
        while os.stat(path).st_blocks * 512 > size // 2:
            assert time.monotonic() < until, os.stat(path)
            time.sleep(.05)


def check_death(job):
    """Checks that a killed client leaves its job running, unless
    --die-with-client is given."""
    client = job.start("dead", "--job", "dead")
    job.await_log("dead", "event=step")
    client.kill()
    client.wait()
    job.finished("dead")
    output = os.path.join(job.folder, "penstock", "dead", "rank0.sock.out")
    assert os.path.exists(output)
    client = job.start("bound", "--die-with-client", "--job", "bound",
                       steps=10 ** 9)
    job.await_log("bound", "event=step")
    check_output(job)
    client.kill()
    client.wait()
    job.check_gone()
    # Ctrl-C ends the job with a checkpoint.
    client = job.start("int", steps=10 ** 9)
    job.await_log("int", "event=step")
    client.send_signal(signal.SIGINT)
    _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 130 and "--resume goes on" in err, err


def read_until(fd, pattern, seen=b""):
    """Reads from a terminal until the pattern appears."""
    until = time.monotonic() + PATIENCE
    while not re.search(pattern, seen):
        assert time.monotonic() < until, seen
        seen += os.read(fd, 4096)
    return seen


def check_terminal(job):
    """Suspends and resumes the client in a shell, then closes the terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(job.folder)
        os.environ.update(job.env, PS1="$ ", HISTFILE="")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    command = " ".join([job.penstock, *job.args, "--checkpoint", "tty",
                        "--log-dir", "log-tty", "--steps", str(job.steps)])
    os.write(fd, command.encode() + b"\n")
    read_until(fd, rb"step \d+/")
    os.write(fd, b"\x1a")
    read_until(fd, rb"Stopped")
    time.sleep(0.3)
    os.write(fd, b"fg; echo code=$?\n")
    read_until(fd, rb"code=0\r")
    job.finished("tty")

    command = command.replace("tty", "closed")
    os.write(fd, command.encode() + b"\n")
    read_until(fd, rb"step \d+/")
    os.close(fd)
    os.waitpid(pid, 0)
    job.finished("closed")


def saved_at_the_end(job, name, client, code):
    """Checks that the run was stopped in order: its last step has a good
    checkpoint."""
    _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == code and "--resume goes on" in err, (
        name, client.returncode, err)
    step = int(re.search(r"stopped after step (\d+)", err)[1])
    rows = json.loads(job.check("checkpoints", name, "--json").stdout)
    newest = max(rows["checkpoints"], key=lambda row: row["step"])
    assert newest["step"] == step and newest["state"] == "good", (name, newest)


def check_signals(job):
    """Checks that SIGTERM and SIGINT save a last checkpoint, whichever process
    receives them, that SIGUSR1 saves a checkpoint, and that SIGHUP to all
    processes ends nothing."""
    endless = 10 ** 9
    for name, signals, to_all in (
            ("term", [signal.SIGTERM], False), ("int-2", [signal.SIGINT], False),
            ("int-all", [signal.SIGINT], True),
            # Both signals are pending while the client is stopped; SIGHUP is
            # delivered first.
            ("term-hup", [signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP,
                          signal.SIGCONT], None)):
        client = job.start(name, "--quiet", steps=endless)
        job.await_log(name, "event=step")
        child = child_of(client.pid)
        targets = [client.pid] if to_all is None else \
            [client.pid, child] if to_all else [child]
        for number in signals:
            for pid in targets:
                os.kill(pid, number)
        # A client that receives the signal itself ends by that signal.
        saved_at_the_end(job, name, client, 143 if to_all is None else 130)

    client = job.start("usr1", "--quiet", steps=endless)
    job.await_log("usr1", "event=step")
    os.kill(child_of(client.pid), signal.SIGUSR1)
    job.await_log("usr1", "event=checkpoint_saved")
    for pid in child_of(client.pid), client.pid:
        os.kill(pid, signal.SIGHUP)
    _, err = client.communicate(timeout=PATIENCE)
    assert "goes on" in err, err
    # The ranks check once a second that their launcher is alive.
    time.sleep(1.5)
    assert json.loads(job.check("status", "--json").stdout)["state"] == \
        "training"
    job.check("stop")


def has_child(pid):
    try:
        return child_of(pid) > 0
    except AssertionError:
        return False


def child_of(pid):
    """Returns the process id of the launcher or penstockd that a client has
    started."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            return int(entry)
    raise AssertionError(f"process {pid} has no child")


def check_frozen(job):
    """Checks that a daemon that owns the name but does not answer is reported,
    and that a client never reports the result of another run as its own."""
    daemon = subprocess.Popen(
        [job.penstockd, "tiny.plan", "--job", "ice", "-n", "2", "-m", "2",
         "--transport", "self"], cwd=job.folder, env=job.env)
    try:
        while job.call("status", "--job", "ice").returncode != 0:
            time.sleep(0.05)
        os.kill(daemon.pid, signal.SIGSTOP)
        job.check(*job.args, "--steps", "3", "--job", "ice", code=75,
                  says=f"process {daemon.pid} ")
        os.kill(daemon.pid, signal.SIGCONT)

        args = [job.penstock, "train", "--job", "ice", "--data",
                "data.safetensors", "--quiet"]
        while json.loads(job.check("status", "--job", "ice", "--json").stdout)[
                "state"] != "ready":
            time.sleep(0.05)
        first = subprocess.Popen([*args, "--steps", "3000", "--json"],
                                 cwd=job.folder, env=job.env, text=True,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        while json.loads(job.check("status", "--job", "ice", "--json").stdout)[
                "run"] != 1:
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGSTOP)
        while json.loads(job.check("status", "--job", "ice", "--json").stdout)[
                "state"] != "ready":
            time.sleep(0.05)
        job.check(*args[1:], "--steps", "5")
        os.kill(first.pid, signal.SIGCONT)
        out, err = first.communicate(timeout=PATIENCE)
        # The daemon has the result of the second run alone. The event of the
        # first one's end has it in short, unless the client has missed it.
        if first.returncode == 0:
            assert json.loads(out)["steps"] == 3000, out
        else:
            assert "run 1 has ended" in err and out == "", (out, err)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
        job.call("stop", "--job", "ice", "--now")
        daemon.wait(PATIENCE)

    os.mkdir(os.path.join(job.folder, "open"))
    os.chmod(os.path.join(job.folder, "open"), 0o777)
    job.check(*job.args, "--steps", "3", "--socket", "open/s", code=77,
              says="somebody else could answer")


def main():
    penstock, penstockd, model = map(os.path.abspath, sys.argv[1:4])
    transport = sys.argv[4]
    checks = [check_names, check_stuck, check_sleep, check_death,
              check_terminal, check_signals, check_frozen]
    if transport == "mpi":
        checks = [check_sleep, check_death, check_signals]
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        job = Job(penstock, penstockd, model, transport, folder)
        for check in checks:
            begin = time.monotonic()
            check(job)
            job.check_gone()
            print(check.__name__, f"{time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
