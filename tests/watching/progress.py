#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the progress line of `run`: contents, and output to various terminals.

usage: progress.py PENSTOCK TINY.pt2 [STEPS]

eta      from a tenth of the run on, the estimated end is right within 10 %,
         also after a pause
pipe     plain lines, at most two per second
narrow   40 columns: the line fits and still ends with the estimated end
resize   the line fits the new width after SIGWINCH, at once
plain    TERM=dumb, NO_COLOR, a locale without UTF-8: no unsupported escapes,
         no bytes above 0x7f
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import clients  # noqa: E402
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402

STEP_MS = 50
STEADY = .05  # relative change of the speed up to which it counts as kept
LINE = re.compile(r"step (\d+)/(\d+)(.*)")
ETA = re.compile(r"ETA (\S+)(?: (s|ms|us))?")
CLEAR = "\r\x1b[K"


def seconds(text):
    number, unit = ETA.search(text).groups()
    if unit is not None:
        return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]
    parts = [int(x) for x in number.split(":")]
    return sum(x * 60 ** i for i, x in enumerate(reversed(parts)))


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        for name in "NO_COLOR", "LANG", "LC_CTYPE":
            self.env.pop(name, None)
        self.env.update(TERM="xterm", LC_ALL="C.UTF-8")
        clients.write_data(self.path("data.safetensors"))
        self.call("split", model, "-o", "tiny.plan")

    def words(self, steps, *more):
        return [self.penstock, "run", "tiny.plan", "-n", "2", "-m", "2",
                "--data", "data.safetensors", "--transport", "self", "--steps",
                str(steps), "--job", "line", *more]

    def slow(self, **env):
        return {**self.env, "PENSTOCK_FAULT": f"step:1+:{STEP_MS}", **env}


class Terminal:
    """Runs a job in a terminal of this number of columns."""

    def __init__(self, b, columns, steps, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ,
                        struct.pack("4H", 24, columns, 0, 0))
            os.chdir(b.folder)
            os.execve(b.penstock, b.words(steps), b.slow(**env))
        self.text = b""

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack("4H", 24, columns, 0, 0))

    def read(self, wanted=None):
        """Reads until the run ends, or until `wanted` returns true for the
        lines."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if wanted is not None and wanted(self.lines()):
                return
            if not select.select([self.fd], [], [], .05)[0]:
                continue
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                got = b""
            if not got:
                _, status = os.waitpid(self.pid, 0)
                assert status == 0, (status, self.text)
                os.close(self.fd)
                return
            self.text += got
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(self.text)

    def lines(self):
        """Returns the contents that the progress line had, one after the
        other."""
        text = self.text.decode("utf-8")
        return [x.split("\n")[0].rstrip("\r") for x in text.split(CLEAR)[1:]
                if x.startswith("step ")]


def pipe(b, steps, env, meanwhile=lambda step: 0.0):
    """Runs a job with a pipe as its output. Returns (arrival time, seconds
    that the run was held up before, line) of each line."""
    run = b.begin_as(b.words(steps), env=env)
    lines, held = [], 0.0
    for line in run.stdout:
        lines.append((time.monotonic(), held, line.rstrip("\n")))
        found = LINE.match(line)
        if found:
            held += meanwhile(int(found[1]))
    assert run.wait(PATIENCE) == 0, run.stderr.read()
    said = run.stderr.read()
    assert "\x1b" not in said and "\r" not in said, said
    return lines


def relative_error(lines, steps, what):
    """Returns the relative error of each estimated end. Only lines after which
    the run kept its speed, judged by arrival times, are counted: other
    processes and pauses cannot be predicted."""
    known = [(at - held, int(LINE.match(line)[1]), line)
             for at, held, line in lines if LINE.match(line)]
    (begin, first, _), (end, last, _) = known[0], known[-1]
    assert last == steps, (what, known[-1])
    offs = []
    for at, step, line in known[1:-1]:
        left = end - at
        if step < steps / 10 or left < .1 * (end - begin):
            continue  # lines may arrive late, so short times are not compared
        before, after = (at - begin) / (step - first), left / (last - step)
        if abs(before / after - 1) > STEADY:
            continue
        offs.append(abs(seconds(line) - left) / left)
        assert offs[-1] < .1, (what, line, left, offs[-1])
    return offs


def eta(b, steps):
    def pause_once(step):
        if paused or step < steps / 3:
            return 0.0
        begin = time.monotonic()
        paused.append(step)
        b.call("pause", "--job", "line")
        time.sleep(2)
        b.call("resume", "--job", "line")
        return time.monotonic() - begin

    for what, meanwhile in (("steady", lambda step: 0.0),
                            ("paused", pause_once)):
        offs, runs, until = [], 0, time.monotonic() + PATIENCE
        while len(offs) < 5:
            assert time.monotonic() < until, f"{what}: none of {runs} was steady"
            paused = []
            offs += relative_error(pipe(b, steps, b.slow(), meanwhile), steps,
                                   what)
            runs += 1
        print(f"ETA, {what}: off by {100 * max(offs):.1f} % at most in "
              f"{len(offs)} lines of {runs} runs", flush=True)


def plain_pipe(b, steps):
    lines = pipe(b, steps, b.slow())
    text = "\n".join(line for _, _, line in lines)
    assert text.isascii() and "\x1b" not in text and "\r" not in text, text
    at = [when for when, _, line in lines if LINE.match(line)]
    gaps = [b - a for a, b in zip(at, at[1:-1])]
    assert len(at) > 3 and min(gaps) > .3, gaps


def narrow(b, steps):
    for columns in 40, 30, 200:
        t = Terminal(b, columns, steps)
        t.read()
        lines = t.lines()
        assert len(lines) > 3, t.text
        assert max(map(len, lines)) < columns, lines
        for line in lines[1:-1]:
            assert "ETA " in line, (columns, line)
            assert ("/step" in line) == (columns > 60), (columns, line)


def resize(b, steps):
    t = Terminal(b, 100, 3 * steps)
    t.read(lambda lines: len(lines) > 2)
    assert max(map(len, t.lines())) > 40, t.lines()
    t.resize(40)
    before = len(t.lines())
    t.read(lambda lines: len(lines) > before + 3)
    # Lines that were sent before the resize may arrive first.
    assert max(map(len, t.lines()[before + 1:before + 3])) < 40, t.lines()
    t.resize(100)
    before = len(t.lines())
    t.read(lambda lines: len(lines) > before + 3)
    assert max(map(len, t.lines()[before + 1:])) > 40, t.lines()
    t.read()


def plain(b, steps):
    t = Terminal(b, 80, steps, TERM="dumb")
    t.read()
    assert b"\x1b" not in t.text, t.text
    assert t.text.count(b"\nstep ") > 2, t.text
    for env in ({"NO_COLOR": "1"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {}):
        t = Terminal(b, 80, steps, **env)
        t.read()
        assert not re.search(rb"\x1b\[[\d;]*m", t.text), t.text
        assert t.text.isascii() and len(t.lines()) > 2, t.text


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, folder) as b:
        eta(b, steps)
        for part in plain_pipe, narrow, resize, plain:
            part(b, steps // 2)
    print("ok")


if __name__ == "__main__":
    main()
