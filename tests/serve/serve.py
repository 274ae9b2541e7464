#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a job that answers requests for outputs (`penstock serve`).

usage: serve.py PENSTOCK ROWS.pt2 BYTEGPT.pt2 NORM.pt2 TINY.pt2 TARGET.pt2
                BROAD.pt2 self|mpi [--full] [--seed N] [--only PART]

answers   all kinds of files, more samples than fit in a request: the output of
          `ask` equals that of `infer` for the same rows, bit by bit
models    a model with batch norm exported in training mode; a model whose
          answers would depend on earlier requests is refused
away      the folder of checkpoints is missing while ranks are started again
targets   inputs that only the loss reads may be omitted
refused   wrong names, sizes, dtypes, numbers; a token out of range beside
          valid requests in the same step: only the faulty request gets an
          error
clients   64 clients at once send random requests: no error, every answer is
          right
large     the same with answers of 128 to 512 KiB, and 64 MiB of answers that
          are read late
gone      clients that are killed while they wait do not affect others
full      requests beyond --queue get an error that says to retry
drain     on a stop or signal accepted requests are answered, new ones refused
killed    a rank is killed: waiting clients get an error that says to retry
          within a second, and are served again within ten

--full: clients and gone run for ten minutes, killed ten times.
"""
import argparse
import json
import math
import os
import random
import signal
import statistics
import struct
import sys
import tempfile
import threading
import time

from asking import (BUSY, Asker, Lost, Tensor, floats, integers, read_file,
                    write_file)
from job import Bench, field  # asking has added the folder to sys.path
from patience import PATIENCE

ROWS = 36
CLIENTS = 64
RANGE, SHAPE, NOT_FOUND, INPUT, USAGE = -6, -5, -7, -3, -2
REJECTED_S, BACK_S = 1.0, 10.0
SLOW = "F:1+:40"  # each stage takes 40 ms per microbatch


class Job:
    """Runs `penstock serve`, whose ranks always end together with it."""

    all = []

    def __init__(self, bench, plan, transport, name, *words, logs=True, **env):
        self.bench, self.name = bench, name
        self.process = bench.begin(
            "serve", plan, "-n", "2", "-m", "2", "--threads", "1",
            "--transport", transport, "--job", name,
            *(["--log-dir", name] if logs else []), *words, **env)
        self.all.append(self.process)
        if logs:
            bench.await_event(name, "serve_begin", "rank-0")
        else:
            while ": serving," not in bench.call("status", "--job", name,
                                                 code=None):
                time.sleep(.05)
        self.path = bench.path("penstock", name, "rank0.sock")

    def ask(self, timeout=PATIENCE):
        return Asker(self.path, timeout)

    def status(self):
        return json.loads(self.bench.call("status", "--job", self.name,
                                          "--json"))

    def end(self, code=0):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code, (code, self.process.returncode,
                                                 out, err)
        return out + err

    def stop(self, *words):
        self.bench.call("stop", "--job", self.name, "--no-wait", *words)
        return self.end()


class Model:
    """A plan, rows, and the outputs of `infer` for these rows.

    limit: allowed difference, relative to the largest number. Matmuls of a
    library may round a row differently at another position of a microbatch, or
    with another number of threads: with AVX2, but not with AVX-512."""

    def __init__(self, bench, model, name, inputs, outputs, limit=0):
        self.limit = limit
        self.plan = name + ".plan"
        self.inputs = inputs
        bench.call("split", os.path.abspath(model), "--stages", "2", "-o",
                   self.plan)
        data, out = name + ".safetensors", name + ".want.safetensors"
        write_file(bench.path(data), inputs)
        bench.call("infer", self.plan, "-m", "2", "--data", data, "-o", out)
        self.want = {k: v for k, v in read_file(bench.path(out)).items()
                     if k in outputs}
        assert self.want, outputs

    def part(self, begin, end, *names):
        return {k: v.rows(begin, end) for k, v in self.inputs.items()
                if not names or k in names}

    def check(self, answer, begin, end):
        assert answer.status == 0, (answer.status, answer.text)
        assert set(answer.outputs) == set(self.want), answer.outputs
        for name, t in self.want.items():
            got, want = answer.outputs[name], t.rows(begin, end)
            assert got.size == want.size, (name, got.size, want.size)
            if self.limit == 0:
                assert got.data == want.data, (name, begin, end)
                continue
            numbers = [struct.unpack(f"<{len(t.data) // 4}f", t.data)
                       for t in (got, want)]
            assert max(abs(a - b) for a, b in zip(*numbers)) <= \
                self.limit * max(map(abs, numbers[1])), (name, begin, end)


def write_text(bench, model):
    """Writes the rows as JSON and CSV. f32 numbers have enough digits to be
    read back exactly. CSV begins with a byte order mark, as Excel writes it."""
    numbers = memoryview(model.inputs["x"].data).cast("f").tolist()
    lines = [numbers[7 * i:7 * i + 7] for i in range(ROWS)]
    with open(bench.path("x.json"), "w", encoding="utf-8") as file:
        json.dump({"x": lines}, file)
    with open(bench.path("x.csv"), "w", encoding="utf-8-sig") as file:
        file.write(",".join(["x"] * 7) + "\n" + "".join(
            ",".join(map(repr, line)) + "\n" for line in lines))


# --- parts -------------------------------------------------------------------

def answers(bench, model, transport):
    """Checks that answers equal the outputs of `infer`, in the format of the
    input file."""
    job = Job(bench, model.plan, transport, "answers")
    bench.call("ask", "rows.safetensors", "-o", "got.safetensors", "--job",
               job.name)
    got = read_file(bench.path("got.safetensors"))
    for name, want in model.want.items():
        assert (got[name].size, got[name].data) == (want.size, want.data), name
    for kind in "json", "csv":
        bench.call("ask", "x." + kind, "-o", "got.safetensors", "--job",
                   job.name)
        got = read_file(bench.path("got.safetensors"))
        for name, want in model.want.items():
            assert got[name].data == want.data, (kind, name)
    said = json.loads(bench.call("ask", "x.csv", "--job", job.name))
    for name, want in model.want.items():
        flat = [n for line in said[name] for n in line]
        assert flat == memoryview(want.data).cast("f").tolist(), name
    bench.call("ask", "x.csv", "-o", "out.json", "--job", job.name)
    with open(bench.path("out.json"), encoding="utf-8") as file:
        assert json.load(file) == said
    not_finite(bench, job)
    bad_files(bench, job)
    for words in (["ask", "rows.safetensors", "--job", job.name],
                  ["infer", model.plan, "--data", "rows.safetensors"]):
        said = bench.call(*words, "-o", "rows.safetensors", code=64)
        assert "would be written over" in said, said
    now = job.status()
    assert now["state"] == "serving" and now["answered"] >= 25, now
    job.stop()
    bench.call("ask", "x.csv", "--job", job.name, code=69)
    print(f"answers: {ROWS} rows by safetensors, JSON and CSV equal infer's")


def not_finite(bench, job):
    """Checks that answers with NaN and infinities are JSON that keeps them."""
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")
    with open(bench.path("odd.json"), "w", encoding="utf-8") as file:
        json.dump({"x": [[x] * 7 for x in ("NaN", "Infinity", 1)]}, file)
    said = json.loads(bench.call("ask", "odd.json", "--job", job.name),
                      parse_constant=refuse)
    bench.call("ask", "odd.json", "-o", "odd.safetensors", "--job", job.name)
    got = read_file(bench.path("odd.safetensors"))
    kept = set()
    for name, t in got.items():
        flat = [n for line in said[name] for n in line]
        numbers = memoryview(t.data).cast("f").tolist()
        assert [str(float(n)) for n in flat] == list(map(str, numbers)), name
        kept.update(n for n in flat if isinstance(n, str))
    assert "NaN" in kept, kept
    assert kept <= {"NaN", "Infinity", "-Infinity"}, kept


def bad_files(bench, job):
    cases = [('{"y": [[1]]}', 65, "no input 'y'; it has: x"),
             ('{"x": [[1, 2], [3]]}', 65, "element"),
             ('{"x": [1, 2]}', 65, "f32[n, 7]"),
             ('{"x": [[1, 2, 3, 4, 5, 6, true]]}', 65, "element 6"),
             ('{"x": [[1, 2, 3, 4, 5, 6, 1e39]]}', 65, "out of range"),
             ('{"x": [[1, 2, 3, 4, 5, 6, "a"]]}', 65, "element 6"),
             ('{"x": [[1, 2, 3, 4, 5, 6, null]]}', 65, "element 6"),
             ('[1]', 65, "no object"), ('{', 65, "x.json:1"),
             ('{"x": []}', 65, "model takes")]
    for text, code, says in cases:
        with open(bench.path("bad.json"), "w", encoding="utf-8") as file:
            file.write(text)
        said = bench.call("ask", "bad.json", "--job", job.name, code=code)
        assert says.replace("x.json", "bad.json") in said, (text, said)
    cases = [("x,x\n1,2\n", "7 numbers, there are 2 columns"),
             ("x,x,x,x,x,x,x\n1,2,3,4,5,6\n", "sample 1, column 6"),
             ("x,x,x,x,x,x,x\n1,2,3,4,5,6,7,8\n", "column 7"),
             ("x,x,x,x,x,x,x\n1,2,3,4,5,6,1e39\n", "column 7"),
             ("x,x,x,x,x,x,x\n1,2,3,4,5,6,1e400\n", "column 7"),
             ("x,x,x,x,x,x,z\n", "no input 'z'"),
             ("x,x,x,x,x,x,x\n", "no sample"),
             ("x,x,target,x,x,x,x,x\n1,2,3,4,5,6,7,8\n", "not adjacent")]
    for text, says in cases:
        with open(bench.path("bad.csv"), "w", encoding="utf-8") as file:
            file.write(text)
        said = bench.call("ask", "bad.csv", "--job", job.name, code=65)
        assert says in said, (text, said)


def models(bench, norm, tiny, transport):
    job = Job(bench, norm.plan, transport, "models")
    with job.ask() as client:
        for begin, end in (0, 8), (8, 9), (9, 13), (20, 27), (0, 8):
            norm.check(client.ask(norm.part(begin, end)), begin, end)
    job.stop()
    said = bench.call("serve", os.path.abspath(tiny), "--transport", transport,
                      "--job", "refuses", code=65)
    assert "each step changes the buffer steps" in said, said
    print("models: batch norm equals infer's; a counter among the outputs is "
          "refused")


def second(bench, model, transport):
    """Checks that a served checkpoint is reported if the run's second folder
    has a later one."""
    for steps, words in ((1, ["--checkpoint-fallback", "other"]),
                         (2, ["--resume"])):
        bench.call("run", model.plan, "-n", "2", "--transport", transport, "-m",
                   "2", "--data", "rows.safetensors", "--steps", str(steps),
                   "--checkpoint", "first", "--quiet", *words)
    os.rename(bench.path("first", "step-00000002"),
              bench.path("other", "step-00000002"))
    job = Job(bench, model.plan, transport, "second", "--checkpoint", "first")
    said = job.stop()
    for part in ("passed over: this is step 1 of ", "; the second folder of ",
                 " has a later save"):
        assert part in said, said
    bench.await_event("second", "checkpoint_skipped", "rank-0")
    print("second: a later checkpoint in the second folder is reported")


def away(bench, model, transport):
    """The folder of checkpoints is missing at restarts of ranks: each one is a
    failed start, and the next one finds it again; or there is no next one."""
    bench.call("run", model.plan, "-n", "2", "--transport", transport, "-m",
               "2", "--data", "rows.safetensors", "--steps", "1",
               "--checkpoint", "disk", "--quiet")
    for name, tries in ("away", 9), ("gone-for-good", 2):
        job = Job(bench, model.plan, transport, name, "--checkpoint", "disk",
                  "--max-restarts", str(tries))
        os.rename(bench.path("disk"), bench.path("unmounted"))
        starts = bench.events(name, "start", "rank-0")
        os.kill(int(field(starts[-1], "pid")), signal.SIGKILL)
        line = bench.await_event(name, "job_ended", n=2)
        assert field(line, "id") == "checkpoint.none", line
        if name != "away":
            said = job.process.communicate(timeout=PATIENCE)[1]
            assert job.process.returncode == 65, said
            assert "no checkpoint in " in said and "2 times" in said, said
            ends = bench.events(name, "job_restart")
            assert len(ends) == tries, ends
            continue
        os.rename(bench.path("unmounted"), bench.path("disk"))
        bench.await_event(name, "serve_begin", "rank-0", n=2)
        bench.call("ask", "rows.safetensors", "-o", "again.safetensors",
                   "--job", name)
        job.stop()
    print("away: a folder that is missing at a restart is looked for again")


def targets(bench, model, mse, transport):
    """Checks that inputs that only the loss reads may be omitted, for any
    number of rows."""
    one = ["--microbatch-size", "1"]
    for k, (m, words) in enumerate(((model, one), (mse, []), (mse, one))):
        want = m.plan + ".want"
        bench.call("infer", m.plan, "-m", "2", *words, "--data",
                   m.plan.replace("plan", "safetensors"), "-o", want)
        want = read_file(bench.path(want))["1"]
        job = Job(bench, m.plan, transport, f"targets-{k}", *words)
        with job.ask() as client:
            for begin, end in (0, 2), (5, 6), (20, 22):
                answer = client.ask(m.part(begin, end, "x"))
                assert answer.status == 0, (answer.status, answer.text)
                assert set(answer.outputs) == {"1"}, answer.outputs
                assert answer.outputs["1"].data == want.rows(begin, end).data
        job.stop()
    print("targets: may be left out of requests")


def refused(bench, model, gpt, transport):
    """Checks that wrong requests get an error that names the fault, and that
    they do not affect others."""
    job = Job(bench, model.plan, transport, "refused")
    x, target = model.inputs["x"].rows(0, 2), model.inputs["target"].rows(0, 2)
    cases = [
        ("name", [("x", x), ("y", x)], NOT_FOUND, "no input 'y'"),
        ("missing", [("target", target)], NOT_FOUND, "no input 'x'"),
        ("twice", [("x", x), ("x", x)], INPUT, "2 times"),
        ("dtype", [("x", Tensor("F64", [2, 7], bytes(112)))], SHAPE, "F64"),
        ("no dtype", [("x", Tensor("", [2, 7], x.data))], SHAPE, "f32[n, 7]"),
        ("rank", [("x", Tensor("F32", [14], x.data))], SHAPE, "f32[n, 7]"),
        ("shape", [("x", Tensor("F32", [7, 2], x.data))], SHAPE, "f32[n, 7]"),
        ("bytes", [("x", Tensor("F32", [2, 7], x.data[:-4]))], SHAPE, "bytes"),
        ("none", [("x", Tensor("F32", [0, 7], b""))], SHAPE, "f32[n, 7]"),
        ("many", [("x", model.inputs["x"].rows(0, 9))], SHAPE, "at most 8"),
        ("huge", [("x", Tensor("F32", [1 << 62, 7], x.data))], SHAPE, "most"),
        ("ranks", [("x", Tensor("F32", [1] * 3000, x.data))], SHAPE, "..."),
        ("differ", [("x", x), ("target", target.rows(0, 1))], SHAPE,
         "an input before it"),
    ]
    with job.ask() as client:
        for name, inputs, status, says in cases:
            answer = client.ask(inputs)
            assert answer.status == status and says in answer.text, \
                (name, answer.status, answer.text)
        model.check(client.ask(model.part(3, 5)), 3, 5)
        model.check(client.ask(model.part(3, 5, "x")), 3, 5)
    if transport == "mpi":
        with Asker(job.path.replace("rank0", "rank1")) as client:
            answer = client.ask([("x", x)])
            assert answer.status == USAGE and "rank 0" in answer.text, \
                answer.text
    job.stop()
    job = Job(bench, gpt.plan, transport, "ids", "--batch-wait", "300")
    wrong = {"x": Tensor("I64", [1, 128], bytes(8 * 127) +
                         (10 ** 6).to_bytes(8, "little"))}
    askers = [job.ask() for _ in range(4)]
    asked = [gpt.part(0, 2, "x"), wrong, gpt.part(2, 3, "x"),
             gpt.part(3, 5, "x")]
    for client, inputs in zip(askers, asked):
        client.send(inputs)
    got = [client.answer() for client in askers]
    for client in askers:
        client.close()
    gpt.check(got[0], 0, 2)
    gpt.check(got[2], 2, 3)
    gpt.check(got[3], 3, 5)
    assert got[1].status == RANGE and "1000000" in got[1].text, got[1].text
    now = job.status()
    assert now["failed"] == 1 and now["answered"] == 3, now
    said = job.stop()
    steps = int(field(bench.events("ids", "serving", "rank-0")[-1], "steps"))
    # The four requests shared one step, which failed; then each ran in a step
    # of its own.
    assert steps == 1 + 4, steps
    print(f"refused: {len(cases)} wrong requests by name; beside an id out of "
          "range the other three requests of the step were answered")
    return said


class Crowd:
    """Clients that send requests, each in a thread, until stop() is called."""

    def __init__(self, job, model, seed, names, n=CLIENTS):
        self.job, self.model, self.names = job, model, names
        self.until, self.errors, self.times = False, [], []
        self.samples = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(seed, i))
                        for i in range(n)]
        self.begin = time.monotonic()
        for thread in self.threads:
            thread.start()

    def run(self, seed, number):
        rng = random.Random(f"{seed} {number}")
        try:
            with self.job.ask() as client:
                while not self.until:
                    self.one(rng, client)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(repr(error))

    def one(self, rng, client):
        n = rng.randint(1, 4)
        first = rng.randint(0, self.model.inputs["x"].size[0] - n)
        begin = time.monotonic()
        answer = client.ask(self.model.part(first, first + n, *self.names))
        seconds = time.monotonic() - begin
        self.model.check(answer, first, first + n)
        with self.lock:
            self.times.append(seconds)
            self.samples += n

    def end(self):
        self.until = True
        for thread in self.threads:
            thread.join(PATIENCE)
        seconds = time.monotonic() - self.begin
        assert not self.errors, (len(self.errors), self.errors[:3])
        times = sorted(self.times)
        return (f"{len(times)} requests of {len(self.threads)} clients in "
                f"{seconds:.1f} s, {len(times) / seconds:.0f} a second, "
                f"{self.samples / seconds:.0f} samples a second; seconds to "
                f"the answer: median {statistics.median(times):.4f}, 99 % "
                f"{times[int(.99 * len(times))]:.4f}, longest {times[-1]:.4f}")


def clients(bench, model, transport, seed, seconds, enough, name="clients"):
    """Ends after `seconds`, or when there are `enough` answers."""
    job = Job(bench, model.plan, transport, name)
    crowd = Crowd(job, model, seed, ["x"])
    until = time.monotonic() + seconds
    while time.monotonic() < until and len(crowd.times) < enough:
        time.sleep(.05)
    said = crowd.end()
    now = job.status()
    assert now["answered"] == len(crowd.times), now
    assert now["failed"] == now["refused"] == now["waiting"] == 0, now
    job.stop()
    print(f"{name}: {said}; 0 errors")


def large(bench, broad, transport, seed, seconds, enough):
    """Checks that answers that a client does not read do not delay those of
    other clients."""
    job = Job(bench, broad.plan, transport, "unread", "--queue", "200",
              "--client-timeout", "3000")
    with open(f"/proc/{bench.pid('unread', 0)}/cmdline", "rb") as file:
        assert b"--client-timeout=3000" in file.read().split(b"\0")
    askers = [job.ask() for _ in range(CLIENTS)]
    for client in askers:
        for _ in range(2):
            client.send(broad.part(0, 4, "x"))
    while job.status()["answered"] < 2 * CLIENTS:
        time.sleep(.05)
    with job.ask() as client:
        broad.check(client.ask(broad.part(3, 4, "x")), 3, 4)
    for client in askers:
        for _ in range(2):
            broad.check(client.answer(), 0, 4)
        client.close()
    job.stop()
    clients(bench, broad, transport, seed, seconds, enough, "large")


def check_killed_clients(bench, model, transport, seed, seconds):
    """Kills some clients while they wait and checks that the others get right
    answers."""
    job = Job(bench, model.plan, transport, "gone", PENSTOCK_FAULT=SLOW)
    crowd = Crowd(job, model, seed, ["x"], n=8)
    rng = random.Random(seed)
    killed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if killed % 4 == 0:  # kills a client at a random time
            asks = bench.begin("ask", "rows.safetensors", "-o", "gone.json",
                               "--job", job.name)
            time.sleep(rng.uniform(.01, .1))
            asks.kill()
            asks.communicate()
        else:  # closes a connection after a request or within one
            client = job.ask()
            for _ in range(rng.randint(0, 5)):
                client.send(model.part(0, 4))
            client.socket.sendall(b"\x40\0\0\0\x12")
            client.close()
        killed += 1
        time.sleep(.02)
    said = crowd.end()
    now = job.status()
    assert now["failed"] == now["refused"] == 0, now
    job.stop()
    dropped = int(field(bench.events("gone", "serving", "rank-0")[-1], "gone"))
    assert dropped > 0, "no request waited when its client went"
    print(f"gone: {killed} clients killed, {dropped} of their requests "
          f"dropped; beside them {said}")


def full(bench, model, transport):
    job = Job(bench, model.plan, transport, "full", "--queue", "4",
              PENSTOCK_FAULT=SLOW)
    askers = [job.ask() for _ in range(20)]
    for client in askers:
        client.send(model.part(0, 4, "x"))
    good = rejected = 0
    for client in askers:
        answer = client.answer()
        if answer.status == BUSY:
            assert "--queue" in answer.text and "4 requests" in answer.text, \
                answer.text
            rejected += 1
        else:
            model.check(answer, 0, 4)
            good += 1
        client.close()
    assert good >= 4 and rejected, (good, rejected)
    now = job.status()
    assert now["refused"] == rejected and now["answered"] == good, now
    # The queue may accept a request of `ask` at first.
    codes = [ask_while_full(bench, job, model)]
    while codes[-1] != 75:
        assert len(codes) < 20, codes
        codes.append(ask_while_full(bench, job, model))
    job.stop()
    print(f"full: {rejected} of 20 told to ask again, {good} answered; ask "
          f"ends with {codes[-1]}")


def ask_while_full(bench, job, model):
    """Returns the exit code of `ask` while the queue is full."""
    askers = [job.ask() for _ in range(12)]
    for client in askers:
        client.send(model.part(0, 4, "x"))
    said = bench.begin("ask", "x.csv", "--job", job.name)
    said.communicate(timeout=PATIENCE)
    for client in askers:
        client.answer()
        client.close()
    assert said.returncode in (0, 75), said.returncode
    return said.returncode


def check_drain(bench, model, transport):
    """Stops a job by a request, or by a signal to the client or to a rank.
    Accepted requests must be answered."""
    ways = ["stop", "signal"] + ["rank 1"] * (transport == "mpi")
    for how in ways:
        name = "drain-" + how.replace(" ", "-")
        job = Job(bench, model.plan, transport, name, PENSTOCK_FAULT=SLOW)
        askers = [job.ask() for _ in range(10)]
        late = job.ask()
        attached = bench.begin("attach", name)
        for client in askers:
            for k in range(3):
                client.send(model.part(k, k + 4, "x"))
        while job.status()["waiting"] + job.status()["answered"] < 20:
            time.sleep(.01)
        accepted = job.status()
        begin = time.monotonic()
        if how == "stop":
            bench.call("stop", "--job", name, "--no-wait")
        elif how == "signal":
            job.process.send_signal(signal.SIGTERM)
        else:
            os.kill(bench.pid(name, 1), signal.SIGTERM)
        bench.await_event(name, "stop", "rank-0")
        assert late.ask(model.part(0, 1, "x")).status == BUSY
        n = 0
        for client in askers:
            for _ in range(3):
                answer = client.answer()
                k = answer.id - 1
                model.check(answer, k, k + 4)
                n += 1
            client.close()
        late.close()
        job.end()
        stops = bench.events(name, "stop", "rank-0")
        assert len(stops) == 1, stops
        said = attached.communicate(timeout=PATIENCE)
        assert attached.returncode == 0, said
        seconds = time.monotonic() - begin
        print(f"drain by {how}: {n} accepted requests, {n} answered in "
              f"{seconds:.1f} s; {accepted['waiting']} waited")
    job = Job(bench, model.plan, transport, "at-once", PENSTOCK_FAULT=SLOW)
    client = job.ask()
    for k in range(12):
        client.send(model.part(0, 4, "x"))
    bench.await_event("at-once", "state", "rank-0")
    job.stop("--now")
    counts = {"answered": 0, "told": 0}
    try:
        for _ in range(12):
            answer = client.answer()
            assert answer.status in (0, BUSY), answer.status
            counts["told" if answer.status else "answered"] += 1
    except Lost:
        pass
    client.close()
    assert counts["told"] > 0, counts
    print(f"drain --now: {counts}")


def killed(bench, model, transport, times, strict):
    """Kills a rank while requests wait. strict: the machine is otherwise idle,
    so the time limits apply."""
    job = Job(bench, model.plan, transport, "killed", "--max-restarts", "20",
              PENSTOCK_FAULT=SLOW)
    rejections, back = [], []
    for i in range(times):
        askers = [job.ask() for _ in range(6)]
        for client in askers:
            client.send(model.part(0, 4, "x"))
        rank = i % 2 if transport == "mpi" else 0
        starts = bench.events("killed", "start", f"rank-{rank}")
        os.kill(int(field(starts[-1], "pid")), signal.SIGKILL)
        begin = time.monotonic()
        lost = 0
        for client in askers:
            try:
                lost += client.answer().status == BUSY
            except Lost:
                lost += 1
            client.close()
        rejections.append(time.monotonic() - begin)
        assert lost, "all were answered"
        if i == 0:
            bench_ask(bench, job)
        while True:
            try:
                with job.ask() as client:
                    answer = client.ask(model.part(0, 4, "x"))
                if answer.status != BUSY:
                    break
            except Lost:
                pass
            assert time.monotonic() - begin < PATIENCE, "it never came back"
            time.sleep(.01)
        model.check(answer, 0, 4)
        back.append(time.monotonic() - begin)
        check_restarts(job, i + 1)
    job.stop()
    ends = bench.events("killed", "job_restart")
    assert len(ends) == times, ends
    print(f"killed: {times} ranks; who waited was told within "
          f"{max(rejections):.3f} s, served again within {max(back):.2f} s "
          f"(each: {', '.join(f'{x:.2f}' for x in back)})")
    if strict:
        assert max(rejections) <= REJECTED_S, rejections
        assert max(back) <= BACK_S, back


def check_restarts(job, times):
    """Checks that `status` tells of restarts, when the last one was, and why."""
    end = job.status()["last_exit"]
    assert end["restarts"] + 1 == times and end["cause"] == "signal", end
    when = time.strftime("%Y-%m-%dT%H:%M:%S",
                         time.gmtime(end["time_us"] // 10 ** 6))
    said = job.bench.call("status", "--job", job.name)
    line, = (x for x in said.splitlines() if x.startswith("started again"))
    assert f" {times} time" in line and f"last end at {when}" in line, line
    assert "cause signal" in line and " step " not in line, line


def find_rank(job):
    """Returns the process of a rank of a job without a log."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it has ended
            continue
        if words[0].endswith(b"penstockd") and job.encode() in words:
            return int(pid)
    raise AssertionError(f"no rank of {job}")


def unlogged(bench, model, transport):
    """Kills a rank of a job without a folder for logs or checkpoints."""
    job = Job(bench, model.plan, transport, "unlogged", logs=False)
    os.kill(find_rank("unlogged"), signal.SIGKILL)
    while bench_ask(bench, job) != 0:
        time.sleep(.01)
    check_restarts(job, 1)
    job.stop()
    print("unlogged: its restart is known")


def bench_ask(bench, job):
    """Checks that `ask` succeeds or reports an error that says to retry."""
    said = bench.begin("ask", "x.csv", "--job", job.name)
    said.communicate(timeout=PATIENCE)
    assert said.returncode in (0, 75), said.returncode
    return said.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("rows")
    parser.add_argument("gpt")
    parser.add_argument("norm")
    parser.add_argument("tiny")
    parser.add_argument("mse")
    parser.add_argument("broad")
    parser.add_argument("transport")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one of the parts")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.penstock, folder)
        model = Model(bench, args.rows, "rows",
                      {"x": floats(rng, ROWS, 7),
                       "target": integers(rng, 5, ROWS)}, ["1"])
        gpt = Model(bench, args.gpt, "gpt",
                    {"x": integers(rng, 256, 16, 128),
                     "y": integers(rng, 256, 16, 128)}, ["1"], 2e-6)
        norm = Model(bench, args.norm, "norm", {"x": floats(rng, ROWS, 4)},
                     ["1"])
        mse = Model(bench, args.mse, "mse", {"x": floats(rng, ROWS, 3),
                                             "target": floats(rng, ROWS, 2)},
                    ["1"])
        broad = Model(bench, args.broad, "broad", {"x": floats(rng, 16, 8)},
                      ["1"])
        write_text(bench, model)
        long = 600 if args.full else 0
        transport = args.transport
        parts = {
            "answers": lambda: answers(bench, model, transport),
            "models": lambda: models(bench, norm, args.tiny, transport),
            "second": lambda: second(bench, model, transport),
            "away": lambda: away(bench, model, transport),
            "targets": lambda: targets(bench, model, mse, transport),
            "refused": lambda: refused(bench, model, gpt, transport),
            "clients": lambda: clients(bench, model, transport, args.seed,
                                       long or 4, math.inf if long else 8000),
            "large": lambda: large(bench, broad, transport, args.seed,
                                   long / 10 or 3, math.inf if long else 400),
            "gone": lambda: check_killed_clients(
                bench, model, transport, args.seed, long or 3),
            "full": lambda: full(bench, model, transport),
            "drain": lambda: check_drain(bench, model, transport),
            "unlogged": lambda: unlogged(bench, model, transport),
            "killed": lambda: killed(bench, model, transport,
                                     10 if args.full else 3, args.full),
        }
        try:
            for name, part in parts.items():
                if args.only in (None, name):
                    part()
            bench.no_files_left()
        finally:
            for process in Job.all:
                process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
