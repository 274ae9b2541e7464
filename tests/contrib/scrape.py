# SPDX-License-Identifier: Apache-2.0
"""Runs mtail with contrib/penstock.mtail while jobs run, for the tests of this
folder."""
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request

# The importing test has added the folder of patience.py to sys.path.
from patience import PATIENCE

PERIOD_S = .1  # seconds between reads of the metrics
SAMPLE = re.compile(r"^(penstock_\w+\{[^}]*\}) (\S+)", re.MULTILINE)


class Mtail:
    """Runs mtail on all logs in the subfolders of a folder, and reads its
    metrics every PERIOD_S seconds."""

    def __init__(self, root, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.mkdir(os.path.join(folder, "said"))
        self.process = subprocess.Popen(
            ["mtail", "--address", "127.0.0.1", "--port", str(port), "--progs",
             f"{root}/contrib/penstock.mtail", "--logs", f"{folder}/*/*.log",
             "--emit_prog_label=false", "--log_dir", f"{folder}/said",
             "--poll_interval", "50ms", "--poll_log_interval", "50ms"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.seen = []  # (time, {series: value})
        until = time.monotonic() + PATIENCE
        while not self.scrape():
            assert time.monotonic() < until and self.process.poll() is None
            time.sleep(.05)
        self.thread = threading.Thread(target=self.go_on, daemon=True)
        self.over = threading.Event()
        self.thread.start()

    def scrape(self):
        try:
            with urllib.request.urlopen(self.url, timeout=PATIENCE) as reply:
                text = reply.read().decode()
        except OSError:
            return False
        self.seen.append((time.time(), dict(SAMPLE.findall(text))))
        return True

    def go_on(self):
        while not self.over.wait(PERIOD_S):
            self.scrape()

    def stop(self):
        self.over.set()
        self.thread.join()
        self.process.terminate()
        self.process.wait()
