#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that no client takes the result of another run for its own.

usage: other_results.py PENSTOCK TINY.pt2

same_name   a job whose socket folder was removed does not leave its result to
            a later job of its name, which has died; nor does that job's file
            count if it is there
taken       a job that is killed after another one has taken its name is
            reported as killed
restarted   such a later job with --max-restarts is restarted
suspended   a `train` that was suspended reports its own failed run, not a later
            one of another client
event       a `train` whose ranks die at the end of the run reports the run
forged      a file that another user could have put there does not count
"""
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import job  # noqa: E402
from patience import wait_until  # noqa: E402
from restart_job import is_alive  # noqa: E402

OTHER = 64002  # another user


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        self.n = 0
        shutil.copy(model, self.path("tiny.pt2"))
        clients.write_data(self.path("data.safetensors"))
        self.call("split", "tiny.pt2", "-o", "tiny.plan")

    def fresh(self):
        self.n += 1
        return f"job-{self.n}"

    def let(self, name, step):
        with open(self.path("gate.new"), "w", encoding="utf-8") as file:
            file.write(f"{step}\n")
        os.replace(self.path("gate.new"), self.path(name + "-gate"))

    def at(self, name, step):
        def place():
            try:
                with open(self.path(name + "-gate.at"), encoding="utf-8") as file:
                    return int(file.read() or 0)
            except FileNotFoundError:
                return 0
        wait_until(lambda: place() == step, f"step {step}")

    def held(self, name, folder, *more, **env):
        """Starts a job of this name that waits before step 4. `folder` names
        its gate, log and checkpoints."""
        self.let(folder, 3)
        run = self.begin("run", "tiny.plan", "-m", "2", "--data",
                         "data.safetensors", "--lr", "0.001", "--transport",
                         "self", "--steps", "12", "--quiet", "--job", name,
                         "--checkpoint", folder, "--log-dir", folder + "-log",
                         *more, PENSTOCK_GATE=self.path(folder + "-gate"),
                         **env)
        self.at(folder, 4)
        return run

    def kill(self, folder):
        line = self.events(folder + "-log", "start", "rank-0")[-1]
        os.kill(int(job.field(line, "pid")), signal.SIGKILL)

    def two(self, *more):
        """Starts two jobs of one name. Returns the name, both processes and
        folders."""
        name = self.fresh()
        first, second = name + "-a", name + "-b"
        a = self.held(name, first)
        shutil.rmtree(self.path("penstock", name))
        return name, a, first, self.held(name, second, *more), second


def same_name(b):
    name, a, first, c, second = b.two()
    b.let(first, 10 ** 9)
    assert "12 steps, loss " in b.ended(a).stdout
    result = b.path("penstock", name, "rank0.sock.result")
    assert not os.path.exists(result)
    # A file that a third job left there is not the second one's either.
    d = b.held("third", name + "-c")
    os.kill(d.pid, signal.SIGSTOP)
    kept = b.path("penstock", "third", "rank0.sock.result")
    b.let(name + "-c", 10 ** 9)
    wait_until(lambda: os.path.exists(kept), kept)
    shutil.copy(kept, result)
    b.kill(second)
    said = b.ended(c, 1)
    assert "steps, loss" not in said.stdout, said
    assert "killed by signal 9" in said.stderr, said
    os.kill(d.pid, signal.SIGCONT)
    assert "12 steps, loss " in b.ended(d).stdout


def taken(b):
    _, a, first, c, second = b.two()
    b.kill(first)
    said = b.ended(a, 1).stderr
    assert "killed by signal 9" in said, said
    b.let(second, 10 ** 9)
    b.ended(c)


def restarted(b):
    _, a, first, c, second = b.two("--max-restarts", "2")
    b.let(first, 10 ** 9)
    b.ended(a)
    b.kill(second)
    b.let(second, 10 ** 9)
    said = b.ended(c)
    assert "starting the job again" in said.stderr, said
    assert os.path.isdir(b.path(second, "step-00000012"))


def up(b, name, **env):
    b.call("up", "tiny.plan", "--transport", "self", "--job", name,
           "--log-dir", name, "--detach", "--quiet", **env)


def train(name, *more):
    return ["train", "--job", name, "-m", "2", "--data", "data.safetensors",
            "--quiet", *more]


def suspended(b):
    name = b.fresh()
    b.gate(3)
    up(b, name, PENSTOCK_GATE=b.path("gate"))
    run = b.begin(*train(name, "--steps", "200", "--lr", "1e30", "--optimizer",
                         "sgd", "--checkpoint", name + "-a"))
    wait_until(lambda: "event=train_begin" in str(
        b.events(name, "train_begin", "rank-0")), "begin")
    os.kill(run.pid, signal.SIGSTOP)
    b.gate(10 ** 9)
    end = b.await_event(name, "train_end", "rank-0")
    assert job.field(end, "status") == "ERR_RANGE", end
    os.kill(b.pid(name, 0), signal.SIGKILL)
    b.await_event(name, "ready", "rank-0", n=2)
    later = b.call(*train(name, "--steps", "9", "--lr", "0.001",
                          "--checkpoint", name + "-b"))
    assert "9 steps, loss" in later, later
    os.kill(run.pid, signal.SIGCONT)
    said = b.ended(run, 65)
    assert "steps, loss" not in said.stdout, said
    assert "was not applied" in said.stderr, said
    b.call("stop", "--job", name)


def event(b):
    name = b.fresh()
    up(b, name)
    run = b.begin(*train(name, "--steps", "9", "--lr", "0.001"))
    end = b.await_event(name, "train_end", "rank-0")
    assert len(job.field(end, "run_id")) == 32, end
    b.ended(run)
    run = b.begin(*train(name, "--steps", "10000000", "--lr", "0.001"))
    b.await_event(name, "train_begin", "rank-0", n=2)
    os.kill(run.pid, signal.SIGSTOP)
    b.call("stop", "--job", name)
    b.await_unused(name)
    os.kill(run.pid, signal.SIGCONT)
    said = b.ended(run, 130).stderr
    assert "stopped after step" in said, said


def forged(b):
    if os.geteuid() != 0:
        print("only root can be two users")
        return
    os.chmod(b.folder, 0o755)
    name = b.fresh()
    a = b.held(name, name)
    os.kill(a.pid, signal.SIGSTOP)
    path = b.path("penstock", name, "rank0.sock.result")
    b.let(name, 10 ** 9)
    wait_until(lambda: os.path.exists(path), path)
    os.chown(path, OTHER, OTHER)
    pid = b.pid(name + "-log", 0)
    wait_until(lambda: not is_alive(pid), "the end of the ranks")
    os.kill(a.pid, signal.SIGCONT)
    said = b.ended(a).stdout
    # the event has no peak of memory
    assert "12 steps, loss " in said and "peak memory" not in said, said


def main():
    penstock, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, os.path.abspath(model), folder) as b:
        for part in same_name, taken, restarted, suspended, event, forged:
            print(part.__name__, flush=True)
            part(b)
            b.no_files_left()


if __name__ == "__main__":
    main()
