#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests clients and daemons of other versions.

usage: versions.py PENSTOCK PENSTOCKD TINY.pt2

A client that speaks a newer protocol and also ours is served. Unknown fields
are skipped, unknown requests refused by name. A client that does not speak our
protocol gets an error that says so. Our client reports the same of such a
daemon, and works with a newer daemon that still speaks our protocol.
"""
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import hostile_clients
from wire import field

from patience import PATIENCE


def hello(proto, least, more=b""):
    return hostile_clients.frame(field(1, field(1, proto) + field(2, least) + more))


def ask(body, more=b""):
    return hostile_clients.frame(field(2, field(1, 9) + field(body, b"") + more))


def read_frame(s):
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack("<I", data[:4])[0]:
        got = s.recv(1 if len(data) < 4 else
                     4 + struct.unpack("<I", data[:4])[0] - len(data))
        if not got:
            return None
        data += got
    return data[4:]


def replies(daemon, *frames):
    """Returns the answers of the daemon to these frames, without its Hello."""
    with daemon.connect() as s:
        assert read_frame(s)[0] == 1 << 3 | 2
        for frame in frames:
            s.sendall(frame)
        s.shutdown(socket.SHUT_WR)
        found = []
        while (one := read_frame(s)) is not None:
            assert one[0] == 3 << 3 | 2, one
            found.append(one)
        return found


def check_daemon(daemon):
    good, = replies(daemon, hello(2, 1), ask(10))
    assert b"training" in good, good
    good, = replies(daemon, hello(9, 1, field(99, b"more")), ask(
        10, field(98, 7) + field(97, b"what nobody knows")))
    assert b"training" in good, good
    for proto, least in (2, 2), (9, 3), (0, 0):
        bad, = replies(daemon, hello(proto, least))
        assert b"speaks protocol 1, the client " in bad, bad
    bad, good = replies(daemon, hello(1, 1), ask(900), ask(10))
    assert b"training" in good and b"training" not in bad, (bad, good)
    assert b"not" in bad, bad


def check_client(penstock, folder):
    path = os.path.join(folder, "fake")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve():
            for _ in range(2):
                s, _ = server.accept()
                with s:
                    s.sendall(hello(2, 2, field(3, b"9.0.0")))
                    s.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        for words in ("status",), ("stop",):
            done = subprocess.run([penstock, *words, "--socket", path],
                                  capture_output=True, text=True, timeout=PATIENCE,
                                  check=False)
            assert done.returncode not in (0, 1), done
            assert "this penstock speaks protocol 1" in done.stderr, done
            print(f"{words[0]}: exit code {done.returncode}: "
                  f"{done.stderr.strip()}")


def forward(a, b, more):
    """Forwards bytes from socket a to socket b and appends `more` to each
    frame."""
    data = b""
    try:
        while got := a.recv(65536):
            data += got
            while len(data) >= 4:
                size = struct.unpack("<I", data[:4])[0]
                if len(data) < 4 + size:
                    break
                b.sendall(more(data[4:4 + size]))
                data = data[4 + size:]
    except OSError:
        pass
    for s in a, b:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def newer(body):
    """Returns a frame as a daemon of the next version would send it.

    A Hello gets a newer protocol that still includes ours; every frame gets an
    unknown field. Before each answer comes one to another request, for which
    the client does not wait."""
    if body[0] == 1 << 3 | 2:
        length, at = body[1], 2
        if length & 0x80:
            length, at = length & 0x7f | body[2] << 7, 3
        inner = body[at:at + length] + field(1, 2) + field(99, b"more")
        return hostile_clients.frame(field(1, inner))
    frame = hostile_clients.frame(body + field(98, b"what nobody knows"))
    if body[0] == 3 << 3 | 2:
        return hostile_clients.frame(field(3, field(1, 7777))) + frame
    return frame


def check_newer_daemon(daemon, penstock, folder):
    """Runs our client against a daemon of the next version, which a proxy
    imitates."""
    path = os.path.join(folder, "newer")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve():
            while True:
                try:
                    s, _ = server.accept()
                except OSError:
                    return
                d = daemon.connect()
                d.settimeout(None)
                for a, b, more in (s, d, hostile_clients.frame), (d, s, newer):
                    threading.Thread(target=forward, args=(a, b, more),
                                     daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        for words in ("status", "--json"), ("log",), ("checkpoint",), \
                ("pause",), ("resume",):
            done = subprocess.run([penstock, *words, "--socket", path],
                                  capture_output=True, text=True, timeout=PATIENCE,
                                  check=False)
            # The daemon answers that this job has no checkpoint folder.
            assert done.returncode == (78 if words[0] == "checkpoint" else 0), \
                (words, done)
            assert "protocol" not in done.stderr, (words, done)
            print(f"newer daemon, {words[0]}: exit code {done.returncode}")


def main():
    penstock, penstockd, model = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        daemon = hostile_clients.Daemon(penstock, penstockd, model, folder)
        try:
            check_daemon(daemon)
            check_newer_daemon(daemon, penstock, folder)
        finally:
            daemon.stop()
        check_client(penstock, folder)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
