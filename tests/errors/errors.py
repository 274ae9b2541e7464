#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Provokes every error of the catalogue that can be provoked, and checks its
message.

usage: errors.py PENSTOCK PENSTOCKD GOLDEN REST [mpi]

A message must end with the error's id and name the place (a file, an option, a
name or a rank). The exit code must be that of the catalogue, and `explain`
must know the id. REST lists the errors that are not provoked here, with
reasons. An error that is in neither list or in both, or that no longer exists,
is a fault.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import bench  # noqa: E402
import commands  # noqa: E402
import jobs  # noqa: E402
import models  # noqa: E402


def rest_of(path):
    """Returns id -> reason. In the file the ids are indented under their
    reason."""
    found, reason = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].rstrip()
            if line.startswith(" "):
                for name in line.split():
                    assert name not in found, f"{name} is listed twice"
                    found[name] = reason
            elif line:
                reason = line
    return found


class Expect:
    def __init__(self, catalogue):
        self.catalogue, self.seen, self.count = catalogue, set(), 0
        self.faults = []

    def __call__(self, name, code, place, done):
        """Checks that an error is reported as the catalogue requires. done:
        the finished process, or None if the caller has checked its output."""
        self.count += 1
        self.seen.add(name)
        if done is not None:
            self.faults += [f"{name}: {fault}: {done}"
                            for fault in self.faults_of(name, code, place, done)]

    def faults_of(self, name, code, place, done):
        if name not in self.catalogue:
            return ["it is not in the catalogue"]
        message = next((line for line in done.stderr.strip().split("\n")
                        if line.endswith(f" [{name}]")), None)
        if message is None:
            return ["no message has it"]
        found = []
        if not done.returncode == code == self.catalogue[name]["exit_code"]:
            found.append("another exit code")
        if place not in message:
            found.append(f"it does not name {place}")
        if len(message[:-len(name) - 2].split(": ", 1)[1].split()) < 3:
            found.append("no sentence")
        return found


def main():
    penstock, penstockd, golden, rest_path = sys.argv[1:5]
    rest = rest_of(rest_path)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = bench.Bench(os.path.abspath(penstock), os.path.abspath(penstockd),
                        golden, folder)
        catalogue = {row["id"]: row for row in json.loads(
            b.good("explain", "--list", "--json").stdout)["errors"]}
        expect = Expect(catalogue)
        for part in models, commands:
            part.make(b)
            for name, code, place, words in part.CASES:
                expect(name, code, place, b.call(*words.split()))
        for part in (jobs.checkpoints, jobs.limits, jobs.check_environment,
                     jobs.job, jobs.killed,
                     jobs.check_foreign_servers):
            part(b, expect)
        if sys.argv[5:] == ["mpi"]:
            jobs.ranks(b, expect)
        for name in sorted(expect.seen & set(catalogue)):
            row = json.loads(b.good("explain", name, "--json").stdout)
            assert row == catalogue[name], row
            text = b.good("explain", f"[{name}]").stdout
            assert row["cause"] in text and row["remedy"] in text, text
    faults = expect.faults
    faults += [f"{name} is provoked: take it out of {rest_path}"
              for name in rest if name in expect.seen]
    faults += [f"{name} of {rest_path} is not in the catalogue"
               for name in rest if name not in catalogue]
    faults += [f"{name} is neither provoked nor in {rest_path}"
               for name in catalogue
               if name not in expect.seen and name not in rest]
    print("\n".join(faults))
    print(f"{expect.count} cases of {len(expect.seen)} errors, "
          f"{len(rest)} others of {len(catalogue)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
