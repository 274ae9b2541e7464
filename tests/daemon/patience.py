# SPDX-License-Identifier: Apache-2.0
"""Defines the time limit of tests for an event that is certain to happen.

The value, in seconds, is read from tests/patience.h. No other file in tests/
may define a time limit.
"""
import os
import re
import time

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                      "patience.h")


def limit():
    with open(HEADER, encoding="utf-8") as file:
        seconds = re.search(r"define PST_PATIENCE_S (\d+)", file.read())[1]
    return int(seconds) * float(os.environ.get("PST_TEST_SLOW", 1))


PATIENCE = limit()
# --watchdog of jobs in which a rank hangs. On a loaded machine the start of the
# ranks, to which it applies as well, takes some seconds.
WATCHDOG = "7"


def wait_until(holds, what, every=.01):
    """Calls `holds` until its result is true, and returns that result. what:
    the event, for the message after PATIENCE seconds."""
    until = time.monotonic() + PATIENCE
    while True:
        said = holds()
        if said:
            return said
        assert time.monotonic() < until, what
        time.sleep(every)
