#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the files of --tensorboard with an independent reader.

usage: tensorboard.py PENSTOCK TINY.pt2

Frames, masked CRC32C and messages are read without code of penstock. Curves
must equal those of rank 0's log. A job that is killed and restarted, and one
that rolls back, must leave curves with each step once: a START record removes
earlier points.
"""
import glob
import json
import os
import re
import struct
import sys
import tempfile

import clients
import job
from wire import fields

STEPS = 12
TAGS = {"train/loss": "loss", "train/lr": "lr", "train/grad_norm": "grad_norm",
        "speed/step_s": "step_s", "speed/samples_s": "samples_s",
        "speed/tok_s": "tok_s", "speed/bubble": "bubble"}


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


assert crc32c(b"123456789") == 0xe3069283  # published check value of CRC32C


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 12 <= len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), f"{path}: length at {at}"
        if at + size + 16 > len(data):
            break  # incomplete record at the end
        body = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == \
            masked(body), f"{path}: record at {at}"
        yield body
        at += size + 16


def curves(folder):
    """Returns {tag: {step: value}} of all files in a folder, and the number of
    files."""
    found, paths = {}, sorted(glob.glob(os.path.join(folder, "events.out.*")))
    for path in paths:
        for n, body in enumerate(records(path)):
            event = dict(fields(body))
            step = event.get(2, 0)
            if n == 0:
                assert event[3] == b"brain.Event:2", event
            if 7 in event:
                assert dict(fields(event[7]))[1] == 1
                for tag in found:
                    found[tag] = {s: v for s, v in found[tag].items()
                                  if s < step}
            for number, value in fields(event.get(5, b"")):
                parts = dict(fields(value))
                if parts[1] == b"_hparams_/session_start_info":
                    continue
                points = found.setdefault(parts[1].decode(), {})
                assert number == 1 and step not in points, (path, step)
                points[step] = struct.unpack("<f", parts[2])[0]
    return found, len(paths)


def options(folder):
    """Returns the options in the newest file of a folder, as the page HPARAMS
    reads them."""
    found = None
    for body in records(sorted(glob.glob(os.path.join(folder,
                                                      "events.out.*")))[-1]):
        for _, value in fields(dict(fields(body)).get(5, b"")):
            parts = dict(fields(value))
            if parts[1] != b"_hparams_/session_start_info":
                continue
            plugin = dict(fields(dict(fields(parts[9]))[1]))
            assert plugin[1] == b"hparams", plugin
            start = fields(dict(fields(plugin[2]))[3])
            found = {}
            for number, entry in start:
                if number == 1:
                    named = dict(fields(entry))
                    (kind, content), = fields(named[2])
                    found[named[1].decode()] = {
                        2: lambda x: x if isinstance(x, float) else
                        struct.unpack("<d", x)[0],
                        3: bytes.decode, 4: bool}[kind](content)
    return found


def of_log(path, event="step"):
    """Returns {field: {step: value}} of an event in a log; for a repeated step
    the newest value."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if f" event={event} " in line:
                at = dict(re.findall(r"(\w+)=(\S+)", line))
                for key, value in at.items():
                    found.setdefault(key, {})[int(at["step"])] = value
    return found


def same(curve, logged):
    return curve.keys() == logged.keys() and all(
        abs(value - float(logged[step])) <= 1e-6 * abs(float(logged[step])) or
        value != value and float(logged[step]) != float(logged[step])
        for step, value in curve.items())


class Bench(job.Bench):
    def __init__(self, penstock, model, folder):
        super().__init__(penstock, folder)
        os.symlink(model, os.path.join(folder, "tiny.pt2"))
        clients.write_data(os.path.join(folder, "data.safetensors"))

    def run(self, name, *more, code=0, **env):
        return self.done(
            "run", "tiny.pt2", "--stages", "2", "-n", "2", "-m", "2", "--data",
            "data.safetensors", "--steps", STEPS, "--lr", "0.001",
            "--warmup", "3",  # the learning rate rises from 0
            "--transport", "self", "--log-every", "1", "--log-dir", name,
            "--tensorboard", name + "/board", "--quiet", *more, code=code,
            **env).stderr

    def check(self, name, files, log="rank-0.log"):
        folder = os.path.join(self.folder, name)
        found, n = curves(os.path.join(folder, "board"))
        logged = of_log(os.path.join(folder, log))
        assert n == files, (name, n)
        for tag, field in TAGS.items():
            assert set(found[tag]) == set(range(1, STEPS + 1)), (name, tag)
            assert same(found[tag], logged[field]), (tag, found[tag],
                                                     logged[field])
        return found, folder


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-board-") as folder, \
            Bench(penstock, model, folder) as b:
        b.run("plain", "--eval-data", "data.safetensors", "--eval-every", "4")
        found, path = b.check("plain", 1)
        logged = of_log(os.path.join(path, "rank-0.log"), "evaluated")
        assert same(found["eval/loss"],
                    logged["loss"]) and logged["loss"], found
        given = options(os.path.join(path, "board"))
        assert given["lr"] == .001 and given["steps"] == STEPS, given
        assert given["transport"] == "self", given
        assert given["data"].endswith("/data.safetensors"), given
        line, = b.events("plain", "train_begin", "rank-0")
        assert " lr=0.001 " in line.split(' options="')[1], line
        (file,) = glob.glob(os.path.join(path, "board", "*"))
        assert os.stat(file).st_mode & 0o777 == 0o640

        once = os.path.join(folder, "once")
        with open(once, "w", encoding="utf-8"):
            pass
        b.run("killed", "--checkpoint", "killed/save", "--checkpoint-every",
              "3", "--max-restarts", "2", PENSTOCK_FAULT="step@8:kill",
              PENSTOCK_FAULT_ONCE=once)
        assert not os.path.exists(once), "nothing was killed"
        b.check("killed", 2)

        os.makedirs(os.path.join(folder, "file"))
        with open(os.path.join(folder, "file", "board"), "w",
                  encoding="utf-8"):
            pass
        assert "file/board" in b.run("file", code=74)
    print(json.dumps({"tags": len(TAGS)}))


if __name__ == "__main__":
    main()
