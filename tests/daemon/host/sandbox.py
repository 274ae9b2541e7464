# SPDX-License-Identifier: Apache-2.0
"""Tests which files commands that read untrusted files can open, and the
permissions of the files that a job writes.

usage: sandbox.py PENSTOCK NORM.pt2 ESCAPE.so

If the kernel has no Landlock, all opens must succeed instead, with a debug
line that says so.
"""
import ctypes
import errno
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402
from patience import PATIENCE  # noqa: E402

SYS_LANDLOCK = 444  # landlock_create_ruleset, on every architecture


def has_landlock():
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(SYS_LANDLOCK, None, 0, 1) > 0


def tried(b, shim, names, *words):
    """Runs a command that tries to open each of the names at its end. Returns
    the errno values."""
    done = subprocess.run(
        [b.penstock, *words], cwd=b.folder, text=True, check=False, timeout=PATIENCE,
        capture_output=True, env=dict(
            b.env, LD_PRELOAD=shim, ESCAPE=":".join(names),
            ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") +
            ":verify_asan_link_order=0:detect_leaks=0"))
    assert done.returncode == 0, (words, done)
    found = dict(re.findall(r"^(\S+) (\d+)$", done.stderr, re.MULTILINE))
    assert set(found) == set(names), (names, done.stderr)
    return [int(found[name]) for name in names]


def commands_see_what_they_are_given(b, norm, shim):
    os.mkdir(b.path("home"))
    for name in "home/key", "other.txt":
        with open(b.path(name), "w", encoding="utf-8") as file:
            file.write("secret")
    outside = ["home/key", "other.txt", "/etc/passwd", "/proc/1/status",
               "norm.plan/../other.txt"]
    denied = errno.EACCES if has_landlock() else 0
    b.call("run", "norm.plan", "-n", "2", "-m", "2", "--transport", "self",
           "--data", "train.safetensors", "--steps", "1", "--log-dir", "log",
           "--checkpoint", "ck", "--quiet")
    for words in (
            ("show", norm), ("show", "norm.plan"), ("modules", norm),
            ("flight", "log"), ("plan", "norm.plan", "--svg", "out/a.svg"),
            ("weights", "ck", "-o", "out/w.safetensors"),
            ("weights", "ck/step-00000001", "-o", "out/w2.safetensors"),
            ("split", norm, "-o", "out/plan", "--at", "conv"),
            ("split", norm, "-o", "out/plan", "--at", "conv",
             "--weights", "out/w.safetensors")):
        os.makedirs(b.path("out"), exist_ok=True)
        given = [x for x in words[1:] if x == norm or os.path.exists(b.path(x))]
        found = tried(b, shim, outside + given[:1], *words)
        assert found == [denied] * len(outside) + [0], (words, found)
    # Model hubs store weights as a folder of symbolic links with an index.
    os.makedirs(b.path("hub/snap"))
    os.rename(b.path("out/w.safetensors"), b.path("hub/blob"))
    os.symlink("../blob", b.path("hub/snap/model.safetensors"))
    b.call("split", norm, "-o", "out/plan", "--at", "conv",
           "--weights", "hub/snap")
    with open(b.path("hub/list"), "w", encoding="utf-8") as file:
        file.write('["conv"]')
    b.call("split", norm, "-o", "out/plan", "--policy", "file:hub/list")
    b.call("plan", "out/plan", "-n", "2", "--csv", "out/lists.csv")
    b.call("plan", "out/plan", "-n", "2", "--schedule", "csv:out/lists.csv",
           "--trace", "out/trace.json")
    assert sorted(x for x in os.listdir(b.path("out")) if x != "plan") == \
        ["a.svg", "lists.csv", "trace.json", "w2.safetensors"]


def leaves_nothing_open(b):
    """Checks that no core files are written, and that other users cannot read
    what a job writes."""
    resource.setrlimit(resource.RLIMIT_CORE, (
        resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    os.umask(0)
    job = b.begin("run", "norm.plan", "-n", "2", "-m", "2", "--transport",
                  "self", "--data", "train.safetensors", "--steps", "1000000000",
                  "--log-dir", "closed/log", "--checkpoint", "closed/ck",
                  "--prom", "job.prom", "--job", "closed")
    path, said = b.path("closed/log/rank-0.log"), ""
    until = time.monotonic() + PATIENCE
    while " event=step " not in said:
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                said = file.read()
    pid = re.search(r" event=start .* pid=(\d+) ", said)[1]
    with open(f"/proc/{pid}/limits", encoding="utf-8") as file:
        limit = re.search(r"Max core file size +(\S+)", file.read())[1]
    assert limit == "0", limit
    b.call("checkpoint", "--job", "closed")
    modes = dict(modes_of(b.folder + "/closed"))
    modes.update(modes_of(b.folder + "/penstock"))
    b.call("stop", "--job", "closed")
    job.communicate(timeout=PATIENCE)
    assert any(x.endswith("manifest.json") for x in modes), modes
    assert any(x.endswith(".sock") for x in modes), modes
    for path, mode in modes.items():
        assert mode & 0o027 == 0, (path, oct(mode))
        if "/penstock/" in path:
            assert mode & 0o077 == 0, (path, oct(mode))
    # The program that collects metrics runs as another user, so it can read
    # this file.
    assert stat.S_IMODE(os.stat(b.path("job.prom")).st_mode) == 0o644
    os.umask(0o022)


def modes_of(folder):
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            yield path, stat.S_IMODE(os.lstat(path).st_mode)


def main():
    penstock, norm, shim = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with eval_job.Bench(penstock, norm, None, "self", folder) as b:
            commands_see_what_they_are_given(b, norm, shim)
            leaves_nothing_open(b)
    if not has_landlock():
        print("this kernel has no Landlock")


if __name__ == "__main__":
    main()
