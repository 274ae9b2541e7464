# SPDX-License-Identifier: Apache-2.0
"""Reads logs with a parser that was written from docs/log.md alone.

usage: logs.py FOLDER...

Prints all lines of every *.log in the folders, or the first fault.
"""
import glob
import json
import re
import sys

VALUE = r'[\x21\x23-\x3C\x3E-\x5B\x5D-\x7E]+|"(?:[^"\\\x00-\x1f\x7f]|\\.)*"'
HEAD = re.compile(
    r"ts=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})Z level=(debug|info|warn|error) "
    rf"rank=(\d+|-) stage=({VALUE}) job=({VALUE}) event=([a-z_]+) seq=(\d+)")
FIELD = re.compile(rf" ([a-z][a-z0-9_]*)=({VALUE})")
MOST = 4096


class Fault(Exception):
    pass


def plain(value):
    return json.loads(value) if value[0] == '"' else value


def parse(line):
    """Parses a line. Returns the parts that every line has, and the fields of
    this line."""
    if line[-1:] != "\n" or len(line.encode()) > MOST:
        raise Fault(f"no line of at most {MOST} bytes: {line!r}")
    head = HEAD.match(line)
    if not head:
        raise Fault(f"no head: {line!r}")
    at, fields = head.end(), {}
    while at < len(line) - 1:
        field = FIELD.match(line, at)
        if not field or field.group(1) in fields:
            raise Fault(f"no field, or one twice, at {at}: {line!r}")
        fields[field.group(1)] = plain(field.group(2))
        at = field.end()
    time, level, rank, stage, job, event, seq = head.groups()
    return {"ts": time, "level": level, "rank": rank, "stage": plain(stage),
            "job": plain(job), "event": event, "seq": int(seq)}, fields


def read(folder):
    """Yields (head, fields) of each line. Sequence numbers rise by one within
    one start of a rank and begin with 1 at the next start."""
    for path in sorted(glob.glob(f"{folder}/*.log")):
        seq, rank = 0, None
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                head, fields = parse(line)
                if head["seq"] != seq + 1 and head["seq"] != 1:
                    raise Fault(f"{path}: {head['seq']} follows {seq}")
                if rank not in (None, head["rank"]):
                    raise Fault(f"{path}: ranks {rank} and {head['rank']}")
                seq, rank = head["seq"], head["rank"]
                yield head, fields


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {sum(1 for _ in read(name))} lines")
