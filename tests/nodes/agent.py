#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command on an emulated host (rig.py), in place of ssh.

usage: agent.py [-OPTION...] HOST COMMAND...   joins COMMAND to a line for sh,
                                               as ssh does
       agent.py --exec HOST WORD...            runs the words as a command

A host that does not exist or whose link is down cannot be reached.
PST_RIG_SET_HOST="NAME=VALUE ..." sets the environment of one host only.
"""
import os
import subprocess
import sys

PREFIX = os.environ["PST_RIG"]


def is_reached(host):
    done = subprocess.run(["ip", "-n", f"{PREFIX}-{host}", "link", "show",
                           "eth0"], capture_output=True, text=True, check=False)
    return "LOWER_UP" in done.stdout


def main():
    words = sys.argv[1:]
    as_words = words[:1] == ["--exec"]
    while words and words[0].startswith("-"):
        words.pop(0)
    host = words.pop(0)
    if not as_words and not is_reached(host):
        print(f"connect to host {host}: No route to host", file=sys.stderr)
        return 255
    script = ('hostname "$0"; mount -t tmpfs tmpfs /dev/shm; '
              + ('exec "$@"' if as_words else 'exec sh -c "$*"'))
    for word in os.environ.get(f"PST_RIG_SET_{host}", "").split():
        name, value = word.split("=", 1)
        os.environ[name] = value
    os.execvp("ip", ["ip", "netns", "exec", f"{PREFIX}-{host}", "unshare",
                     "--uts", "--ipc", "--mount", "--propagation", "private",
                     "sh", "-c", script, host, *words])
    return 255


if __name__ == "__main__":
    sys.exit(main())
