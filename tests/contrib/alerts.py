#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each alert of contrib/alerts.yml fires for a job with the fault.

usage: alerts.py PENSTOCK TESTS [all | ALERT...]

A scene is a real job in which the fault is caused. mtail reads its logs with
contrib/penstock.mtail and is scraped ten times per second. promtool replays
the samples with the rules as they are shipped. Each scene has a factor by
which time is stretched: times of the job and all numbers in seconds are
multiplied by it. The alert must not have fired before the fault, and must have
fired within the given time after it. A job without a fault must fire no alert.

Without "all", only the quick scenes run. If mtail or promtool is missing
(Debian: mtail, prometheus), a message says that nothing was tested.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "..", *names) for names in (
    ["daemon"], ["daemon", "training"], ["elastic"])]
import job  # noqa: E402  pylint: disable=wrong-import-position
import chaos  # noqa: E402  pylint: disable=wrong-import-position
import eval_job  # noqa: E402  pylint: disable=wrong-import-position
import on_nan  # noqa: E402  pylint: disable=wrong-import-position
import scrape  # noqa: E402  pylint: disable=wrong-import-position

sys.path.insert(0, os.path.join(HERE, "..", "serve"))
import asking  # noqa: E402  pylint: disable=wrong-import-position
from patience import PATIENCE  # noqa: E402  pylint: disable=wrong-import-position

PERIOD_S = scrape.PERIOD_S
CLOCK = "_timestamp_seconds"
CLOCK_S = 1  # resolution of mtail's clock, in seconds
QUIET = None
ENDLESS = 10 ** 9


def value(series, text, begin, stretch):
    """Returns a number as text for promtool's series, in which time begins at
    0. Times are stretched, too."""
    name = series.partition("{")[0]
    if name.endswith(CLOCK):
        return repr((float(text) - begin) * stretch)
    if name.endswith("_seconds"):
        return repr(float(text) * stretch)
    return text


class Samples:
    """The samples of one scene, on a time grid of PERIOD_S seconds."""

    def __init__(self, seen, name, stretch, begin, end, more=()):
        self.begin, self.stretch = begin, stretch
        self.n = int((end - begin) / PERIOD_S) + 1
        self.series = {}
        seen = [(at, {k: v for k, v in found.items() if f'job="{name}"' in k})
                for at, found in seen]
        self.add(seen)
        self.add(more)

    def add(self, seen):
        found, seen = {}, list(seen)
        for k in range(self.n):
            while seen and seen[0][0] <= self.begin + k * PERIOD_S:
                found = seen.pop(0)[1]
            for series, text in found.items():
                values = self.series.setdefault(series, ["_"] * self.n)
                values[k] = value(series, text, self.begin, self.stretch)

    def step(self):
        return round(PERIOD_S * self.stretch)

    def seconds(self, at):
        """Returns the promtool time of the newest sample at a time of the
        job."""
        k = min(max(int((at - self.begin) / PERIOD_S), 0), self.n - 1)
        return k * self.step()

    def fired(self, name, at):
        """Returns a query that tests whether the alert has fired by this
        time."""
        which = f'alertname="{name}",' if name else ""
        until = self.seconds(at)
        return until, (f"group(last_over_time(ALERTS{{{which}alertstate="
                       f'"firing"}}[{until + 1}s]))')

    def ask(self, folder, questions):
        """Evaluates questions by promtool. A question is (alert, or None for
        any; time; whether it is expected to have fired)."""
        asked = []
        for name, at, wanted in questions:
            until, expr = self.fired(name, at)
            asked.append({"expr": expr, "eval_time": f"{until}s", "exp_samples":
                          [{"labels": "{}", "value": 1}] if wanted else []})
        path = os.path.join(folder, "played.yml")
        step = f"{self.step()}s"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rule_files": [f"{ROOT}/contrib/alerts.yml"],
                       "evaluation_interval": step,
                       "tests": [{"interval": step, "input_series": [
                           {"series": k, "values": " ".join(v)}
                           for k, v in self.series.items()],
                           "promql_expr_test": asked}]}, file)
        done = subprocess.run(["promtool", "test", "rules", path], text=True,
                              capture_output=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, (done.stdout, done.stderr)


class Stage:
    """Starts and ends the jobs of scenes."""

    def __init__(self, penstock, tests, folder):
        self.b = job.Bench(penstock, folder)
        self.golden = os.path.join(tests, "golden")
        self.folder = folder
        self.b.call("split", f"{self.golden}/norm.pt2", "--at", "conv", "-o",
                    "norm.plan")
        eval_job.write_data(self.b.path("norm.safetensors"), 1, x=[96, 4])
        self.jobs, self.mounts, self.more = [], [], []

    def show_logs(self, name):
        """Creates the log files before the job does, since mtail reads a log
        that it finds from its end."""
        os.makedirs(self.b.path(name), exist_ok=True)
        for log in "rank-0", "rank-1", "supervisor":
            with open(self.b.path(name, f"{log}.log"), "a", encoding="utf-8"):
                pass
        time.sleep(.3)

    def begin(self, name, *more, plan="norm.plan", data="norm.safetensors",
              transport="self", steps=ENDLESS, fault="", rank=None):
        """Starts a job and waits for its first step."""
        self.show_logs(name)
        whose = {} if rank is None else {"PENSTOCK_FAULT_RANK": rank}
        self.jobs.append((name, self.b.begin(
            "run", plan, "-n", "2", "-m", "4", "--threads", "1", "--data", data,
            "--transport", transport, "--steps", str(steps), "--job", name,
            "--log-dir", name, "--log-every", "1", "--lr", "1e-6", "--quiet",
            *more, PENSTOCK_FAULT=fault, **whose)))
        self.b.await_event(name, "step", "rank-0")

    def when(self, name, event, n=1, log="rank-0"):
        return chaos.at(self.b.await_event(name, event, log, n))

    def step(self, name, step):
        """Returns the time of the log line of a step, or of the first later
        step that is logged."""
        until = time.monotonic() + job.PATIENCE
        while time.monotonic() < until:
            for line in self.b.events(name, "step", "rank-0"):
                if int(job.field(line, "step")) >= step:
                    return chaos.at(line)
            time.sleep(.02)
        raise AssertionError((name, step))

    def mount(self, name, size):
        """Mounts a file system in memory, which is unmounted when the scene
        ends."""
        os.mkdir(self.b.path(name))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs",
                        self.b.path(name)], check=True)
        self.mounts.append(self.b.path(name))

    def end(self):
        for _, run in self.jobs:
            if run.poll() is None:
                run.terminate()
            run.communicate(timeout=PATIENCE)
        for path in self.mounts:
            subprocess.run(["umount", "-l", path], check=True)
        self.jobs.clear()
        self.mounts.clear()


# --- scenes: each causes a fault and returns its time ----------------------

def clean(s, name):
    s.begin(name, fault="F:1+:2")
    time.sleep(2)
    return time.time()


def stalled(s, name):
    s.begin(name, fault="step@300:5000")
    return s.step(name, 299)


def not_a_number(s, name):
    """Starts a job whose loss is NaN in step 12; returns the time of that
    fault."""
    on_nan.write_data(s.b.path("bad.safetensors"), {12})
    s.begin(name, "-m", "2", plan=f"{s.golden}/tiny.pt2",
            data="bad.safetensors", fault="F:1+:50")
    return s.when(name, "fault")


def skipped(s, name):
    """Returns the time of the fourth skipped step."""
    on_nan.write_data(s.b.path("bad.safetensors"), {12})
    s.begin(name, "-m", "2", "--on-nan", "skip", plan=f"{s.golden}/tiny.pt2",
            data="bad.safetensors", fault="F:1+:8")
    return s.when(name, "step_skipped", 4)


def spikes(s, name):
    """Starts a job in which one batch of 100 contains outliers; returns the
    time of the sixth spike of the loss."""
    path = s.b.path("far.safetensors")
    eval_job.write_data(path, 1, x=[800, 4])
    with open(path, "r+b") as file:
        file.seek(-16 * 4, os.SEEK_END)
        file.write(bytes.fromhex("00007a44") * 16)  # 1000 in f32
    s.begin(name, data="far.safetensors", fault="step:1+:3")
    return s.when(name, "loss_spike", 6)


def restarts(s, name):
    """Starts a job that is killed soon after each start; returns the time of
    the sixth restart."""
    s.begin(name, "--checkpoint", name, "--checkpoint-every", "20",
            "--max-restarts", "3", transport="mpi", fault="updated:400:kill")
    return s.when(name, "job_restart", 6, "supervisor")


def rank_lost(s, name):
    s.begin(name, "--checkpoint", name, "--max-restarts", "3", transport="mpi",
            fault="F:1+:5")
    time.sleep(.5)
    os.kill(s.b.pid(name, 1), signal.SIGKILL)
    return s.when(name, "job_ended", 1, "supervisor")


def cannot_save(s, name):
    """Puts a file at the path of the checkpoint folder; returns the time at
    which a save failed."""
    s.begin(name, "--checkpoint", "saved", "--checkpoint-every", "100",
            fault="step:1+:3")
    s.when(name, "checkpoint_saved")
    time.sleep(.3)
    os.rename(s.b.path("saved"), s.b.path("was-saved"))
    with open(s.b.path("saved"), "w", encoding="utf-8"):
        pass
    line = s.b.await_event(name, "checkpoint_failed", "rank-0")
    status = json.loads(s.b.call("status", "--job", name, "--json"))
    assert status["last_error_id"] == job.field(line, "id"), (line, status)
    return chaos.at(line)


def bad_checkpoint(s, name):
    """Sets a buffer that no step reads to NaN; returns the time of the first
    bad checkpoint."""
    s.begin(name, "--checkpoint", "spoilt", "--checkpoint-every", "100",
            fault="step:1+:3")
    s.when(name, "checkpoint_saved")
    time.sleep(.3)
    s.b.call("attr", "set", "norm.running_mean", "nan", "--job", name)
    return s.when(name, "checkpoint_bad")


def old_checkpoint(s, name):
    s.begin(name, "--checkpoint", "once", fault="step:1+:3")
    s.b.call("checkpoint", "--job", name)
    return s.when(name, "checkpoint_saved") + 6 * 3600 / SCENES[
        "PenstockCheckpointOld"].stretch


def late_messages(s, name):
    s.begin(name, transport="mpi", fault="SEND_F:1600+:20")
    return s.step(name, 400)


def slow_rank(s, name):
    s.begin(name, transport="mpi", fault="compute:3200+:8", rank="1")
    return s.step(name, 400)


def slower(s, name):
    """Gives a job a third of the processor after an hour of stretched time;
    returns the time of that change."""
    s.begin(name, fault="F:1+:2")
    pid = s.b.pid(name, 0)
    time.sleep(1.2 * 3600 / SCENES["PenstockSlower"].stretch)
    fault = time.time()
    while time.time() < fault + SCENES["PenstockSlower"].within_s:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(.04)
        os.kill(pid, signal.SIGCONT)
        time.sleep(.02)
    return fault


def log_lost(s, name):
    """Fills the disk of the log for a while; the log's totals report lost
    lines."""
    s.mount(name, "2m")
    s.begin(name, fault="step:1+:20")
    fill = s.b.path(name, "fill")
    with open(fill, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    time.sleep(2)
    os.unlink(fill)
    line = s.b.await_event(name, "log_lost", "rank-0")
    assert " id=file.disk-full " in line, line
    return s.when(name, "totals", len(s.b.events(name, "totals", "rank-0")) + 1)


def disk_low(s, name):
    """Fills a small disk in memory with checkpoints. The metrics of
    node-exporter are imitated."""
    s.mount("disk", "4m")
    labels = f'{{fstype="ext4",mountpoint="/disk",job="{name}"}}'
    s.begin(name, "--checkpoint", "disk/saved", "--checkpoint-every", "10",
            "--keep", "0", fault="step:1+:3")
    fault = time.time()
    while time.time() < fault + SCENES["PenstockDiskLow"].within_s:
        free = os.statvfs(s.b.path("disk"))
        s.more.append((time.time(), {"node_filesystem_avail_bytes" + labels:
                                     str(free.f_bavail * free.f_bsize)}))
        time.sleep(PERIOD_S)
    return fault


def serve(s, name, queue, delay_ms, model=None):
    """Starts a job that answers slowly; returns twelve clients."""
    s.show_logs(name)
    s.b.call("split", model or f"{s.golden}/rows.pt2", "--stages", "2", "-o",
             f"{name}.plan")
    s.jobs.append((name, s.b.begin(
        "serve", f"{name}.plan", "-n", "2", "-m", "1", "--threads", "1",
        "--transport", "self", "--job", name, "--log-dir", name, "--queue",
        queue, PENSTOCK_FAULT=f"F:1+:{delay_ms}")))
    s.b.await_event(name, "serve_begin", "rank-0")
    path = s.b.path("penstock", name, "rank0.sock")
    return [asking.Asker(path, 100) for _ in range(12)]


def ask_until(s, name, clients, n):
    """Makes each client keep DEPTH requests waiting until the n-th event that
    reports counts of requests."""
    over = threading.Event()

    def go_on(client):
        for _ in range(DEPTH):
            client.send(ROWS)
        while not over.is_set():
            client.answer()
            client.send(ROWS)

    threads = [threading.Thread(target=go_on, args=(c,)) for c in clients]
    for thread in threads:
        thread.start()
    at = s.when(name, "serving", n)
    over.set()
    for thread in threads:
        thread.join()
    return at


DEPTH = 8
ROWS = {"x": asking.floats(random.Random(1), 4, 7)}


def refused(s, name):
    """Sends more requests than the queue holds."""
    clients = serve(s, name, "2", 20)
    return ask_until(s, name, clients, 2)


def failing(s, name):
    """Sends requests with tokens that are out of range, and as many valid
    ones."""
    clients = serve(s, name, "64", 1,
                    f"{ROOT}/examples/bytegpt/bytegpt.pt2")
    with clients[0] as client:
        for wrong in (0, 1) * 5:
            data = (1000 * wrong).to_bytes(8, "little") + bytes(8 * 127)
            client.ask({"x": asking.Tensor("I64", [1, 128], data)})
    return s.when(name, "serving", 2)


def waiting(s, name):
    """Fills the queue, so that each request waits for long in stretched
    time."""
    clients = serve(s, name, "100", 300)
    return ask_until(s, name, clients, 2)


# --- playing a scene
# ----------------------------------------------------------

class Scene:
    def __init__(self, play, stretch, within_s, quick=False, mounts=False):
        self.play, self.stretch = play, stretch
        self.quick, self.mounts = quick, mounts
        self.within_s = within_s  # limit after the fault, in seconds


SCENES = {
    QUIET: Scene(clean, 120, 0, True),
    "PenstockStalled": Scene(stalled, 80, 4),
    "PenstockNumbersGone": Scene(not_a_number, 120, 1, True),
    "PenstockFault": Scene(not_a_number, 120, 1),
    "PenstockStepsSkipped": Scene(skipped, 600, 1),
    "PenstockLossSpikes": Scene(spikes, 300, 1),
    "PenstockRestartLoop": Scene(restarts, 120, 1),
    "PenstockRankLost": Scene(rank_lost, 120, 1),
    "PenstockCheckpointFails": Scene(cannot_save, 120, 1, True),
    "PenstockCheckpointBad": Scene(bad_checkpoint, 120, 1, True),
    "PenstockCheckpointOld": Scene(old_checkpoint, 7200, 1),
    "PenstockBubble": Scene(late_messages, 600, 4),
    "PenstockStraggler": Scene(slow_rank, 600, 6),
    "PenstockSlowRank": Scene(slow_rank, 600, 6),
    "PenstockSlower": Scene(slower, 1200, 3),
    "PenstockLogLost": Scene(log_lost, 30, 1, mounts=True),
    "PenstockDiskLow": Scene(disk_low, 3600, 6, mounts=True),
    "PenstockRequestsRefused": Scene(refused, 30, 1),
    "PenstockRequestsFail": Scene(failing, 30, 1),
    "PenstockQueueLong": Scene(waiting, 30, 12),
    "PenstockAnswersSlow": Scene(waiting, 30, 12),
}


def run_scene(stage, mtail, alert, scene):
    name = (alert or "clean").lower()
    begin = time.time()
    fault = scene.play(stage, name)
    end, until = fault + scene.within_s, time.monotonic() + PATIENCE
    before = fault - CLOCK_S - PERIOD_S
    while True:
        while time.time() < end + 3 * PERIOD_S:
            time.sleep(PERIOD_S)
        samples = Samples(mtail.seen, name, scene.stretch, begin, end,
                          stage.more)
        try:
            samples.ask(stage.folder, [(None, end, False)] if alert is QUIET
                        else [(alert, before, False), (alert, end, True)])
            break
        except AssertionError:
            # A busy machine may have delayed mtail and the job: looks again
            # later.
            if alert is QUIET or time.monotonic() > until:
                raise
            end = time.time()
    stage.end()
    print(f"{alert or 'none'}: {end - begin:.1f} s, {samples.n} samples of "
          f"{len(samples.series)} series", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("tests")
    parser.add_argument("alerts", nargs="*")
    args = parser.parse_args()
    if not shutil.which("mtail") or not shutil.which("promtool"):
        print("mtail or promtool are not installed: no alert was tried")
        return
    with open(f"{ROOT}/contrib/alerts.yml", encoding="utf-8") as file:
        rules = re.findall(r"- alert: (\w+)", file.read())
    assert set(rules) == set(SCENES) - {QUIET}, set(rules) ^ set(SCENES)
    chosen = {alert: scene for alert, scene in SCENES.items()
              if args.alerts == ["all"] or alert in args.alerts or
              (not args.alerts and scene.quick)}
    if any(scene.mounts for scene in chosen.values()) and \
            "PST_MOUNTS" not in os.environ:
        os.environ["PST_MOUNTS"] = "own"
        os.execvp("unshare", ["unshare", "--map-root-user", "--mount",
                              sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        stage = Stage(args.penstock, os.path.abspath(args.tests), folder)
        mtail = scrape.Mtail(ROOT, folder)
        try:
            for alert, scene in chosen.items():
                run_scene(stage, mtail, alert, scene)
        finally:
            stage.end()
            mtail.stop()
    print("ok")


if __name__ == "__main__":
    main()
