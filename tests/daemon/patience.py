# SPDX-License-Identifier: Apache-2.0
"""How long a test waits for something that is sure to happen before it fails:
the limit of tests/patience.h, in seconds. Nothing else in tests/ has a limit of
its own for that."""
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


def wait_until(holds, what, every=.01):
    """Asks until it holds, and returns what it then says."""
    until = time.monotonic() + PATIENCE
    while True:
        said = holds()
        if said:
            return said
        assert time.monotonic() < until, what
        time.sleep(every)
