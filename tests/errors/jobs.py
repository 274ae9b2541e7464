# SPDX-License-Identifier: Apache-2.0
"""Provokes errors of checkpoints, limits, jobs and their sockets.

Each function gets a Bench and expect(id, code, place, done), and makes the
files that it needs.
"""
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading
import time

import hostile_clients
import versions
from bench import PATIENCE, rows, safetensors, zeros

RUN = ["run", "tiny.plan", "-m", "2", "--data", "data.safetensors"]
SELF = [*RUN, "--transport", "self", "-n", "1"]


def check_options(b, command, name, done):
    """Checks that message and remedy name no option that the command lacks,
    unless their sentence says that it is one of a run."""
    has = b.good(command, "--help").stdout.split()
    texts = done.stderr, json.loads(
        b.good("explain", name, "--json").stdout)["remedy"]
    for sentence in re.split("[;.:] ", " ; ".join(texts)):
        for option in re.findall("--[a-z-]+", sentence):
            assert option in has or "a run " in sentence.lower(), sentence


def checkpoints(b, expect):
    def run(*words):
        return b.call(*SELF, "--steps", "4", "--checkpoint", *words)

    done = run("ck", "--checkpoint-every", "2", "--quiet", "--json")
    assert json.loads(done.stdout)["error_id"] == "", done
    expect("checkpoint.other-options", 78, "--seed 0",
           run("ck", "--resume", "--seed", "3"))
    expect("checkpoint.no-step", 65, "step 3", run("ck", "--resume=3"))
    expect("checkpoint.other-run", 78, "ck", run("ck"))
    expect("checkpoint.none", 65, "none", run("none", "--resume"))
    expect("checkpoint.kept", 77, "step 4",
           b.call("checkpoints", "ck", "--remove", "4"))
    safetensors(b.at("wide.safetensors"), {
        "tokens": zeros("I64", [4, 5]), "scale": zeros("F32", [4, 1, 1]),
        "target": zeros("I64", [4, 5])})
    expect("checkpoint.other-model", 78, "step 4", b.call(
        "eval", "dynamic.plan", "--data", "wide.safetensors", "--checkpoint",
        "ck"))
    for step in "00000002", "00000004":
        name = next(n for n in os.listdir(b.at("ck", "step-" + step))
                    if n.endswith(".safetensors"))
        b.damage(f"ck/step-{step}/{name}", -2, b"\x7f\x7f")
    expect("checkpoint.damaged", 65, "ck",
           b.call("checkpoints", "ck", "--verify"))
    listed = json.loads(b.call("checkpoints", "ck", "--verify", "--json").stdout)
    assert [row["error_id"] for row in listed["checkpoints"]] == \
        ["checkpoint.damaged"] * 2, listed
    expect("checkpoint.damaged", 65, "step-00000002", run("ck", "--resume=2"))
    expect("checkpoint.all-bad", 65, "ck", run("ck", "--resume"))
    for folder, name in ("ck", "checkpoint.all-bad"), ("no", "checkpoint.none"):
        done = b.call("eval", "tiny.plan", "--data", "data.safetensors",
                      "--checkpoint", folder)
        expect(name, 65, folder, done)
        check_options(b, "eval", name, done)
    b.write("taken", "a file")
    expect("file.wrong-kind", 74, "taken", run("taken/ck"))


def limits(b, expect):
    def limit(which, value):
        return lambda: resource.setrlimit(which, (value, value))

    expect("file.size-limit", 74, "lim.plan", b.call(
        "split", "tiny.pt2", "-o", "lim.plan",
        preexec_fn=limit(resource.RLIMIT_FSIZE, 0)))
    expect("file.size-limit", 74, "mpirun needs", b.call(
        *RUN, "-n", "2", "--steps", "1", "--transport", "mpi",
        preexec_fn=limit(resource.RLIMIT_FSIZE, (4 << 20) - 1)))

    def remove_current():
        for do in os.mkdir, os.chdir, os.rmdir:
            do(b.at("gone"))

    expect("file.missing", 74, "the current folder was removed", b.call(
        "run", b.at("tiny.plan"), "-n", "2", "-m", "2", "--steps", "1",
        "--transport", "mpi", "--data", b.at("data.safetensors"),
        preexec_fn=remove_current))
    # LeakSanitizer opens files, so it is switched off.
    env = b.env
    b.env = dict(env, ASAN_OPTIONS="detect_leaks=0")
    for files in 4, 5:  # number of open files, including the standard streams
        expect("host.open-files", 74, "Too many open files", b.call(
            "split", "tiny.pt2", "-o", "lim.plan",
            preexec_fn=limit(resource.RLIMIT_NOFILE, files)))
    b.env = env
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in "ops", "--help", "--version", "help run", "run --help":
            expect("file.output", 74, "standard output",
                   b.call(*words.split(), stdout=full))
    with open(b.at("big.json"), "wb") as file:
        file.truncate(1 << 40)
    expect("file.too-large", 65, "big.json", b.call(
        "split", "norm.pt2", "-o", "x.plan", "--policy", "file:big.json"))


def check_environment(b, expect):
    env = b.env
    b.env = {key: value for key, value in env.items()
             if key not in ("HOME", "XDG_CACHE_HOME")}
    expect("host.cache", 78, "HOME", b.call("calibrate"))
    b.env = dict(env, PATH=b.at("empty"))
    expect("job.program", 78, "mpirun", b.call(
        *RUN, "-n", "2", "--steps", "1", "--transport", "mpi"))
    b.env = env


def wait_for(b, what, *words):
    until = time.monotonic() + PATIENCE
    while True:
        done = b.call(*words)
        if done.returncode == 0 and what in done.stdout:
            return done
        assert time.monotonic() < until, (words, done)
        time.sleep(0.05)


def begin(b, name, *more):
    job = subprocess.Popen(
        [b.penstock, *SELF, "--steps", "1000000000", "--job", name, "--quiet",
         "--log-dir", "log-" + name, *more], cwd=b.folder, env=b.env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    wait_for(b, '"training"', "status", "--job", name, "--json")
    return job


def end(b, job, name, number):
    """Sends the signal to the client. Returns its exit code and output."""
    job.send_signal(number)
    out, err = job.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(name, job.returncode, out, err)


def control(b, expect, name):
    """Provokes errors that the daemon reports only to a client that speaks the
    protocol itself."""
    path = os.path.join(b.folder, "penstock", name, "rank0.sock")

    class Daemon:
        @staticmethod
        def connect():
            found = socket.socket(socket.AF_UNIX)
            found.connect(path)
            return found

    good = versions.hello(1, 1)
    for error, frames in (
            ("control.version", [versions.hello(9, 8)]),
            ("control.unknown", [good, versions.ask(900)]),
            ("control.request", [good, versions.ask(20)]),
            ("control.request", [versions.ask(10)]),
            ("control.frame", [hostile_clients.frame(b"\xff\xff\xff")])):
        reply = versions.replies(Daemon, *frames)[-1]
        assert error.encode() in reply, (error, reply)
        expect(error, None, "", None)


def refused_events(b, name):
    with open(b.at("log-" + name, "rank-0.log"), encoding="utf-8") as file:
        return [line.split(" id=")[1].split(" ")[0] for line in file
                if "_refused " in line]


def job(b, expect):
    one = begin(b, "one")
    expect("checkpoint.folder", 78, "--checkpoint",
           b.call("checkpoint", "--job", "one"))
    expect("job.state", 75, "", b.call("resume", "--job", "one"))
    expect("socket.in-use", 75, "one", b.call(*SELF, "--steps", "1", "--job",
                                              "one"))
    expect("parameter.unknown", 65, "nobody",
           b.call("freeze", "nobody", "--job", "one"))
    expect("module.unknown", 65, "nobody",
           b.call("attr", "get", "nobody", "--job", "one"))
    expect("attr.name", 65, "f99",
           b.call("attr", "cast", "fc.weight", "f99", "--job", "one"))
    expect("module.unknown", 65, "nobody",
           b.call("swap", "nobody", "norm.pt2", "--job", "one"))
    expect("swap.interface", 65, "fc",
           b.call("swap", "fc", "norm.pt2", "--job", "one"))
    expect("file.missing", 74, "none.pt2",
           b.call("swap", "fc", "none.pt2", "--job", "one"))
    expect("job.state", 75, "train", b.call("train", "--job", "one"))
    events = refused_events(b, "one")
    assert "parameter.unknown" in events and "attr.name" in events, events
    control(b, expect, "one")
    two = begin(b, "two", "--checkpoint", "ck2")
    expect("checkpoint.in-use", 78, "ck2", b.call(
        *SELF, "--steps", "1", "--checkpoint", "ck2", "--job", "three"))
    held = flight(b, "log-two"), listing(b, "log-two")
    expect("job.log-in-use", 78, "two", b.call(
        *SELF, "--steps", "1", "--checkpoint", "ck3", "--max-restarts", "1",
        "--log-dir", "log-two", "--job", "four"))
    b.call(*SELF, "--steps", "1", "--checkpoint", "ck2", "--max-restarts", "1",
           "--job", "four")
    assert not os.path.exists(b.at("ck2", "last_exit.json"))
    assert held[1] == listing(b, "log-two") and flight(b, "log-two") == 0
    expect("socket.choose", 64, "two", b.call("status"))
    expect("run.stopped", 130, "step", end(b, two, "two", signal.SIGINT))
    expect("run.terminated", 143, "step", end(b, one, "one", signal.SIGTERM))


def flight(b, name):
    return b.call("flight", name).returncode


def listing(b, name):
    return sorted(os.listdir(b.at(name)))


def kill_rank(b, name):
    with open(b.at("log-" + name, "rank-0.log"), encoding="utf-8") as file:
        start = next(line for line in file if "event=start " in line)
    os.kill(int(start.split(" pid=")[1].split()[0]), signal.SIGKILL)


def killed(b, expect):
    found = begin(b, "three")
    kill_rank(b, "three")
    out, err = found.communicate(timeout=PATIENCE)
    expect("run.killed", 1, "signal 9", subprocess.CompletedProcess(
        "killed", found.returncode, out, err))
    b.good(*SELF, "--steps", "1000000000", "--job", "four", "--detach",
           "--log-dir", "log-four")
    kill_rank(b, "four")
    path, until = b.at("log-four", "last_exit.json"), time.monotonic() + PATIENCE
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.05)
    with open(path, encoding="utf-8") as file:
        assert json.load(file)["error_id"] == "run.killed"


def check_foreign_servers(b, expect):
    """Connects clients to listening sockets that are not penstockd's."""
    def connect_to_server(name, *data):
        path = b.at(name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)

        def serve():
            while True:
                try:
                    found = listener.accept()[0]
                except OSError:
                    return
                with found:
                    found.recv(4096)
                    for part in data:
                        found.sendall(part)

        threading.Thread(target=serve, daemon=True).start()
        done = b.call("status", "--socket", path)
        listener.close()
        return done

    expect("job.went-away", 69, "gone.sock", connect_to_server("gone.sock"))
    expect("control.version", 65, "protocol",
           connect_to_server("later.sock", versions.hello(9, 8)))
    expect("control.frame", 65, "frame", connect_to_server(
        "noise.sock", struct.pack("<I", 3) + b"\xff\xff\xff"))
    os.mkdir(b.at("open"))
    os.chmod(b.at("open"), 0o777)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(b.at("open/x.sock"))
    expect("socket.folder", 77, "open",
           b.call("status", "--socket", "open/x.sock"))
    b.write("plain", "no socket")
    expect("socket.path", 78, "plain", b.call(
        "penstockd", "tiny.plan", "--transport", "self", "-n", "1", "--socket",
        "plain"))


def ranks(b, expect):
    """Checks that over MPI an error of one rank ends all ranks and the client
    with that error."""
    data = rows(4)
    data["labels"] = ("I64", [4, 3], struct.pack("<12q", *(99,) * 12))
    safetensors(b.at("labels.safetensors"), data)
    env = b.env
    b.env = dict(env, PST_DATA_UNCHECKED="1")  # so that a step finds the error
    done = b.call(*RUN[:4], "--data", "labels.safetensors", "-n", "2", "--steps",
                  "1", "--transport", "mpi", "--log-dir", "log-ranks")
    expect("op.data", 65, "rank 1", done)
    for rank in "01":
        with open(b.at("log-ranks", f"rank-{rank}.log"),
                  encoding="utf-8") as file:
            end_line = [line for line in file if "event=train_end " in line]
        assert end_line and " id=op.data " in end_line[0], end_line
    b.env = dict(env, OMPI_MCA_plm_rsh_agent="/bin/false")
    expect("hosts.unusable", 69, "x.invalid", b.call(
        *RUN, "-n", "2", "--steps", "1", "--hosts", "x.invalid,localhost"))
    b.env = env
