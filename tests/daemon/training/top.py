#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `penstock top` shows what a job does.

usage: top.py PENSTOCK NORM.pt2 self|mpi
"""
import datetime
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402
from patience import PATIENCE  # noqa: E402

COLOUR = re.compile(r"\x1b\[\d+m")
ESCAPE = re.compile(r"\x1b\[\??[\d;]*[A-Za-z]")


class Terminal:
    """Runs `top` in a terminal of this number of columns and rows."""

    def __init__(self, b, columns, rows, *words, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(b.folder)
            os.execve(b.penstock, [b.penstock, "top", *words],
                      {**b.env, "TERM": "xterm", **env})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack("4H", rows, columns, 0, 0))
        self.text = ""

    def read(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not select.select([self.fd], [], [], .05)[0]:
                continue
            try:
                self.text += os.read(self.fd, 65536).decode()
            except OSError:  # top has ended
                return

    def pages(self):
        """Returns the complete pages, each as a list of lines."""
        parts = self.text.split("\x1b[H")[1:]
        return [ESCAPE.sub("", part.split("\x1b[J")[0]).replace("\r", "")
                .split("\n")[:-1] for part in parts if "\x1b[J" in part]

    def await_page(self, wanted):
        until = time.monotonic() + PATIENCE
        while True:
            self.read(.1)
            pages = self.pages()
            if pages and wanted(pages[-1]):
                return pages[-1]
            assert time.monotonic() < until, (pages[-2:], self.text[-500:])

    def end(self):
        os.write(self.fd, b"q")
        self.read(PATIENCE)
        assert os.waitpid(self.pid, 0)[1] == 0
        assert self.text.endswith("\x1b[?25h\x1b[?1049l"), self.text[-50:]
        os.close(self.fd)


def begin(b, name, *more):
    return b.begin(*b.words(name, "--steps", "1000000000", "--job", name,
                            "--checkpoint", f"ck-{name}", "--checkpoint-every",
                            "100", "--eval-data", "other.safetensors",
                            "--eval-every", "50", *more))


def await_step(b, name):
    until = time.monotonic() + PATIENCE
    while True:
        job = b.begin("log", "--job", name, "--lines", "1024", "--json")
        out, _ = job.communicate(timeout=PATIENCE)
        # The job sends at most twenty step events per second.
        if job.returncode == 0 and sum(e["event"] == "step" for e in
                                       json.loads(out)["events"]) > 4:
            return
        assert time.monotonic() < until
        time.sleep(.05)


def shows(b):
    assert "no " in b.call("top", "--job", "none", code=69)
    job = begin(b, "one")
    await_step(b, "one")
    said = json.loads(b.call("top", "--job", "one", "--json"))
    assert said["state"] == "training" and said["step"] > 0, said
    assert [r["stages"] for r in said["ranks"]] == ["0", "1"], said
    there = [r["there"] for r in said["ranks"]]
    assert there == [True, b.transport == "mpi"], said
    for rank in said["ranks"]:
        if rank["there"]:
            parts = sum(rank[k] for k in ("forward_s", "backward_s", "optim_s",
                                          "wait_recv_s", "wait_other_s"))
            assert 0 < parts < 1.5 * rank["step_s"], rank
            assert rank["rss_bytes"] > 1 << 20, rank
        else:
            assert rank["step_s"] is rank["rss_bytes"] is None, rank
    # Without a terminal, top prints one page without escape sequences.
    # The page has the newest events, a checkpoint's and an evaluation's soon.
    until = time.monotonic() + PATIENCE
    text = ""
    while "checkpoint_saved " not in text or "evaluated " not in text:
        assert time.monotonic() < until, text
        text = b.call("top", "--job", "one", COLUMNS="200", LC_ALL="C.UTF-8")
    assert "\x1b" not in text and text.startswith("one  training  step "), text
    assert re.search("[\u2801-\u28ff]", text) and " ETA " in text, text
    assert re.search(r"^   0 0  +\d+% +\d+% +\d+%", text, re.MULTILINE), text
    job.terminate()
    job.communicate(timeout=PATIENCE)


def expects(b):
    """Checks that the expected remaining time extrapolates the mean time per
    step, including the work between steps."""
    job = begin(b, "four")
    await_step(b, "four")
    b.call("pause", "--job", "four")
    until = time.monotonic() + PATIENCE
    while not json.loads(b.call("status", "--job", "four",
                                "--json"))["paused"]:
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
    said = json.loads(b.call("top", "--job", "four", "--json"))
    log = json.loads(b.call("log", "--job", "four", "--lines", "1024", "--json"))
    steps = [e for e in log["events"] if e["event"] == "step"]
    first, last = ((datetime.datetime.fromisoformat(e["ts"][:-1]), e["step"])
                   for e in (steps[0], steps[-1]))
    mean = (last[0] - first[0]).total_seconds() / (last[1] - first[1])
    left = said["steps"] - said["step"]
    assert abs(said["eta_s"] / left / mean - 1) < .01, (said, mean)
    job.terminate()
    job.communicate(timeout=PATIENCE)


def fits(b):
    """Checks that top adapts to width, height, colours and characters of the
    terminal, and ignores unknown keys."""
    job = begin(b, "two")
    await_step(b, "two")
    for columns, rows, env in ((40, 20, {"LC_ALL": "C"}),
                               (120, 50, {"LC_ALL": "en_US.UTF-8"}),
                               (12, 3, {"LC_ALL": "C", "NO_COLOR": "1"}),
                               (40, 20, {"LC_ALL": "C.UTF-8",
                                         "NO_COLOR": "1"})):
        t = Terminal(b, columns, rows, "--job", "two", **env)
        page = t.await_page(lambda page: "two" in page[0])
        for lines in t.pages():
            assert len(lines) < rows, (lines, rows)
            assert all(len(line) <= columns for line in lines), lines
        assert t.text.isascii() == (env["LC_ALL"] == "C"), (env, page)
        assert bool(COLOUR.search(t.text)) == ("NO_COLOR" not in env), env
        if rows == 20 and env["LC_ALL"] == "C":
            assert any("*" in line for line in page), page
            assert any(line.startswith("rank stages") for line in page), page
        os.write(t.fd, b"x")
        n = len(t.pages())
        t.await_page(lambda page: len(t.pages()) > n)
        t.end()
    # A terminal without escape sequences gets one plain page.
    for term in "dumb", "":
        t = Terminal(b, 80, 24, "--job", "two", LC_ALL="C", TERM=term)
        t.read(PATIENCE)
        assert "\x1b" not in t.text and "rank stages" in t.text, t.text
        assert os.waitpid(t.pid, 0)[1] == 0
        os.close(t.fd)
    # Keys do not make top update more than once a second.
    t = Terminal(b, 80, 24, "--job", "two", LC_ALL="C")
    t.await_page(lambda page: True)
    n = len(t.pages())
    t.read(2.5)
    assert len(t.pages()) - n <= 4, len(t.pages()) - n
    t.await_page(lambda page: len(t.pages()) > n)
    t.end()
    job.terminate()
    job.communicate(timeout=PATIENCE)


def restarted(b):
    """Checks that top continues after a restart, and waits when the job has
    ended."""
    job = begin(b, "three", "--max-restarts", "5")
    await_step(b, "three")
    t = Terminal(b, 80, 30, "--job", "three", LC_ALL="C")
    t.await_page(lambda page: page[0].startswith("three  training"))
    before = step_of(t.pages()[-1])
    pid = re.search(rb" event=start .* pid=(\d+) ",
                    b.bytes_of("three/rank-0.log"))[1]
    os.kill(int(pid), 9)
    await_restart(b)
    # A resumed job shows the number of its checkpoint's step before it trains.
    t.await_page(lambda page: page[0].startswith("three  training") and
                 step_of(page) > before + 1000)
    job.terminate()
    job.communicate(timeout=PATIENCE)
    t.await_page(lambda page: "no answer" in page[0])
    t.end()


def step_of(page):
    return int(re.search(r" step (\d+)/", page[0])[1])


def await_restart(b):
    until = time.monotonic() + PATIENCE
    while b.bytes_of("three/rank-0.log").count(b" event=train_begin ") < 2:
        assert time.monotonic() < until
        time.sleep(.02)


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = eval_job.Bench(penstock, norm, None, sys.argv[3], folder)
        with b:
            for part in shows, expects, fits, restarted:
                part(b)
    print("ok")


if __name__ == "__main__":
    main()
