#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no data are lost if the folder of --stash disk:FOLDER is full.

usage: full_disk.py PENSTOCK MODEL.pt2 TOKENS

A job resumes from a checkpoint with its stash in a file system of 256 KiB,
made in a mount namespace. It must end with an error that names the step that
was not applied and the full folder, and leave no files there. Resuming with
another folder must give the bits of an undisturbed job. Ends with 77 where
mount namespaces are not available.

Also tests data files that are truncated while they are read, and temporary
folders without the space that mpirun needs.
"""
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from patience import PATIENCE  # noqa: E402
from tensor_file import contents  # noqa: E402

SMALL = "mount -t tmpfs -o size=256k tmpfs small && "


def within(*words):
    """Runs a command in a mount namespace with a small file system in the
    folder `small`."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c",
            SMALL + '"$@"; code=$?; ls -A small >left; exit $code', "sh",
            *words]


class Bench(job.Bench):
    def __init__(self, penstock, model, tokens, folder):
        super().__init__(penstock, folder)
        self.words = ["run", model, "-n", "1", "-m", "6", "--schedule",
                      "gpipe", "--data", tokens, "--optimizer", "sgd", "--lr",
                      "0.1", "--threads", "1", "--transport", "self", "--quiet"]

    def begin_mpi(self, disk):
        """Starts mpirun with a TMPDIR in a small file system."""
        script = f'mount -t tmpfs -o {disk} tmpfs small && exec "$@"'
        words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script,
                 "sh", self.penstock, *self.words, "--transport", "mpi",
                 "--steps", "1"]
        env = dict(self.env, TMPDIR=self.path("small"))
        return self.ended(self.begin_as(words, env=env), code=74).stderr

    def run(self, *more, small=False):
        words = [self.penstock, *self.words, *more]
        if small:
            words = within(*words, "--stash", "disk:small", "--stash-keep", "2")
        return self.ended(self.begin_as(words, env=self.env), code=None)

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def params(self, name):
        ret = {k: v for k, v in contents(self.path(name)).items()
               if k.startswith("param.")}
        assert ret
        return ret


def wait_for_event(b, log, job, name):
    until = time.monotonic() + PATIENCE
    while not os.path.exists(b.path(log)) or \
            f" event={name} ".encode() not in b.bytes_of(log):
        assert time.monotonic() < until and job.poll() is None, name
        time.sleep(.01)


def cut(b, tokens):
    """Appends to a data file while it is read, which is a warning, and truncates
    it. The error must name the step and the file, not the wrong number that an
    operator found."""
    with open(tokens, "rb") as file, open(b.path("cut"), "wb") as copy:
        copy.write(file.read())
    for at in "all", "first":
        job = b.begin(*b.words, "--data", "cut", "--data-at", at, "--shuffle",
                      "--steps", "1000000000", "--checkpoint", f"cut-{at}",
                      "--log-dir", f"log-{at}")
        wait_for_event(b, f"log-{at}/rank-0.log", job, "train_begin")
        with open(b.path("cut"), "ab") as copy:
            copy.write(bytes(8))
        wait_for_event(b, f"log-{at}/rank-0.log", job, "data_written")
        os.truncate(b.path("cut"), 300)
        said = b.ended(job, code=74).stderr
        assert said.count(f"a program has written to {b.path('cut')}") == 1, said
        assert "cut has become shorter" in said and "[file.changed]" in said, said
        assert " event=fault " in b.bytes_of(f"log-{at}/rank-0.log").decode()
        os.truncate(b.path("cut"), os.path.getsize(tokens))


def main():
    penstock, model, tokens = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, model, tokens, folder) as b:
        cut(b, tokens)
        os.mkdir(b.path("small"))
        if b.begin_as(within("true")).wait() != 0:
            print("no mount namespaces here")
            return 77
        for disk, words in (("size=1m", r"has [01]\.\d MiB left, and mpirun "
                             r"needs 8\.1:"),
                            ("size=64m,nr_inodes=9", r"has space for \d more "
                             r"files, and mpirun needs about 21:")):
            said = b.begin_mpi(disk)
            assert re.search(words, said) and b.path("small") in said and \
                "[file.disk-full]" in said, said
        whole = b.run("--steps", "4", "--dump", "whole")
        assert whole.returncode == 0, whole
        saved = ["--checkpoint", "saved", "--checkpoint-every", "1"]
        begun = b.run("--steps", "2", *saved)
        assert begun.returncode == 0, begun
        full = b.run("--steps", "4", *saved, "--resume", small=True)
        for words in ("step 3 was not applied", "[file.disk-full]",
                      "cannot write the stash in " + b.path("small") +
                      ": No space left on device"):
            assert full.returncode == 74 and words in full.stderr, full
        with open(b.path("left"), encoding="utf-8") as f:
            assert f.read() == ""
        done = b.run("--steps", "4", *saved, "--resume", "--dump", "again")
        assert done.returncode == 0, done
        assert b.params("whole") == b.params("again")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
