#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a job is protected from another user of the machine.

usage: other_users.py PENSTOCK PENSTOCKD TINY.pt2

Another user cannot reach the socket. If folder and socket are open to all, the
daemon itself refuses the connection. The daemon refuses to make its socket at
the path of a link, in folders of others, and at the path of a running job's
socket. A socket option of a rank other than 0 has no effect. The test needs
root (to act as two users) and otherwise ends with 77.
"""
import os
import shutil
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402

OWNER, OTHER = 64001, 64002


class Bench(job.Bench):
    def __init__(self, penstock, penstockd, model, folder):
        # Both users can read these copies, unlike files in the builder's
        # folder.
        super().__init__(shutil.copy(penstock, folder), folder)
        self.penstockd = shutil.copy(penstockd, folder)
        os.chmod(folder, 0o755)
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        self.home = os.path.join(folder, "owner")
        os.mkdir(self.home, 0o700)
        clients.write_data(os.path.join(folder, "data.safetensors"))
        self.call(0, "split", shutil.copy(model, folder + "/copy.pt2"), "-o",
                  folder + "/tiny.plan")
        for root, _, names in os.walk(folder + "/tiny.plan"):
            os.chmod(root, 0o755)
            for name in names:
                os.chmod(os.path.join(root, name), 0o644)
        os.chmod(folder + "/data.safetensors", 0o644)
        os.chown(self.home, OWNER, OWNER)

    def begin(self, uid, *words):
        return self.begin_of(uid, self.penstock, *words)

    def begin_of(self, uid, *words):
        return self.begin_as(
            words, user=uid, group=uid, extra_groups=[],
            env={"PATH": os.environ["PATH"], "HOME": self.home,
                 "XDG_RUNTIME_DIR": self.home})

    def daemon(self, uid, path, *more):
        return self.begin_of(uid, self.penstockd, "tiny.plan", "--transport",
                             "self", "--ranks", "2", "--socket", path, "--data",
                             "data.safetensors", *more)

    def refused(self, uid, path, *says):
        done = self.ended(self.daemon(uid, path), code=None)
        assert done.returncode in (75, 77, 78), done
        assert any(s in done.stderr for s in says), done.stderr
        return done.stderr


def talk(uid, path):
    """Connects to a socket as this user; returns all that the daemon sends."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            while data := s.recv(4096):
                os.write(into, data)
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        said = file.read().decode("latin-1")
    assert os.waitpid(child, 0)[1] == 0
    return said


def await_ready(b, path):
    until = time.monotonic() + PATIENCE
    while b.begin(OWNER, "status", "--socket", path).wait() != 0:
        assert time.monotonic() < until
        time.sleep(.05)


def check_output(b, folder):
    """Checks that the ranks' output file is not written if another user has
    put a pipe or a file at its path."""
    shared = folder + "/shared"
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    for make in os.mkfifo, lambda path: open(path, "w").close():
        make(shared + "/s.out")
        os.chmod(shared + "/s.out", 0o666)
        os.chown(shared + "/s.out", OTHER, OTHER)
        job = b.begin(OWNER, "run", "tiny.plan", "-n", "2", "--transport",
                      "self", "--data", "data.safetensors", "--socket",
                      shared + "/s")
        try:
            said = b.ended(job, 78).stderr
        finally:
            job.kill()
        assert shared + "/s.out exists" in said, said
        os.remove(shared + "/s.out")


def main():
    if os.geteuid() != 0:
        print("only root can be two users")
        return 77
    penstock, penstockd, model = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, penstockd, model, folder) as b:
        path = b.home + "/s"
        job = b.daemon(OWNER, path)
        try:
            await_ready(b, path)
            assert os.stat(path).st_mode & 0o777 == 0o600
            # Access is prevented first by the mode of the folder, then by that
            # of the socket.
            for folder_mode, socket_mode in (0o700, 0o600), (0o755, 0o600):
                os.chmod(b.home, folder_mode)
                os.chmod(path, socket_mode)
                for words in ("status",), ("stop",), ("watch",):
                    b.call(OTHER, *words, "--socket", path, code=77)
            # Both modes allow access; the daemon itself checks the user id.
            os.chmod(path, 0o666)
            said = talk(OTHER, path)
            assert f"this job is user {OWNER}'s, you are user {OTHER}" in said, \
                said
            assert "tiny" not in said, said
            os.chmod(path, 0o600)
            os.chmod(b.home, 0o700)
            b.call(OWNER, "status", "--socket", path)
            # A running job uses the path, so its own user is refused, too.
            b.refused(OWNER, path, "listens", "running", "in use")
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()
        # A stale socket is replaced; links and folders of others are refused.
        job = b.daemon(OWNER, path)
        await_ready(b, path)
        job.terminate()
        assert job.wait(PATIENCE) == 0, job.communicate()
        os.mkdir(folder + "/foreign", 0o777)
        os.chmod(folder + "/foreign", 0o777)
        b.refused(OWNER, folder + "/foreign/s", "folder", "others", "writ")
        os.symlink(b.home, folder + "/link")
        os.symlink("/etc/passwd", b.home + "/l")
        b.refused(OWNER, b.home + "/l", "link", "socket")
        assert os.path.getsize("/etc/passwd") > 0
        check_output(b, folder)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
