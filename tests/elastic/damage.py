#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that any damage in a checkpoint is detected and named, and that the
run uses an older checkpoint.

usage: damage.py PENSTOCK TINY.pt2 [N] [SEED]

Of two checkpoints the newer one is damaged: a bit of a file is flipped N
times, a file is truncated N/5 times, the files of two ranks are swapped, and
the manifest is replaced by that of another job. `checkpoints --verify` has to
name the file and report the older checkpoint as good. A sample of the damaged
jobs is resumed: from the older checkpoint, with the same weights at the end.
In between, the undamaged folder is verified N times and must be good.
"""
import json
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import job  # noqa: E402
import clients  # noqa: E402

NEW = "step-00000020"
RESUMED = 20  # one in this number of damaged jobs is resumed


def words(name, steps, *more):
    return ["run", "tiny.plan", "-n", "2", "-m", "6", "--data",
            "data.safetensors", "--lr", "0.001", "--transport", "self",
            "--steps", str(steps), "--checkpoint", name, "--checkpoint-every",
            "10", "--checkpoint-sync", "--quiet", *more]


def verify(b, name):
    """Returns the exit code of --verify and its result for each checkpoint."""
    done = b.done("checkpoints", name, "--verify", "--json", code=None)
    assert done.stdout, done
    found = json.loads(done.stdout)["checkpoints"]
    return done.returncode, {x["step"]: x for x in found}


def is_clean(b, name):
    code, found = verify(b, name)
    assert code == 0 and all(x["state"] == "good" for x in found.values()) \
        and len(found) == 2, (code, found)


def is_named(b, name, file, what):
    code, found = verify(b, name)
    new = found.get(20, {"state": "not listed", "reason": ""})
    assert code == 65, (what, code, found)
    assert new["state"] in ("damaged", "unreadable"), (what, found)
    assert f"{NEW}/{file}" in new["reason"], (what, found)
    assert found[10]["state"] == "good", (what, found)


def is_gone_round(b, name, want, what):
    """Checks that a run resumes from the older checkpoint and ends with the
    right weights."""
    shutil.copytree(b.path(name), b.path("again"))
    done = b.done(*words("again", 20, "--resume", "--json"))
    assert "checkpoint passed over" in done.stderr, (what, done)
    assert '"first_step":10' in done.stdout, (what, done)
    assert b.weights("again") == want, what
    shutil.rmtree(b.path("again"))


class Damage:
    def __init__(self, b, seed):
        self.b, self.random = b, random.Random(seed)
        self.files = sorted(os.listdir(b.path("job", NEW)))
        self.want = b.weights("job")
        self.tried = 0

    def bytes_of(self, file):
        with open(self.b.path("job", NEW, file), "rb") as f:
            return bytearray(f.read())

    def write_file(self, file, data):
        with open(self.b.path("job", NEW, file), "wb") as f:
            f.write(data)

    def check(self, file, what, resumed=False):
        is_named(self.b, "job", file, what)
        self.tried += 1
        if resumed or self.random.randrange(RESUMED) == 0:
            is_gone_round(self.b, "job", self.want, what)

    def flip(self):
        file = self.random.choice(self.files)
        good = self.bytes_of(file)
        bad, bit = bytearray(good), self.random.randrange(8 * len(good))
        bad[bit // 8] ^= 1 << bit % 8
        self.write_file(file, bad)
        self.check(file, f"bit {bit} of {file}")
        self.write_file(file, good)

    def cut(self):
        file = self.random.choice(self.files)
        good = self.bytes_of(file)
        size = self.random.randrange(len(good))
        self.write_file(file, good[:size])
        self.check(file, f"{file} cut to {size} of {len(good)} bytes")
        self.write_file(file, good)

    def swap(self):
        first, second = [x for x in self.files if x.startswith("rank-")]
        a, b = self.bytes_of(first), self.bytes_of(second)
        self.write_file(first, b)
        self.write_file(second, a)
        self.check(first, "files of two ranks swapped", True)
        self.write_file(first, a)
        self.write_file(second, b)

    def replace(self):
        good = self.bytes_of("manifest.json")
        shutil.copy(self.b.path("other", NEW, "manifest.json"),
                    self.b.path("job", NEW, "manifest.json"))
        # The digest of the manifest itself is right, but the first file does
        # not match the manifest.
        self.check("rank-000.safetensors", "manifest of another job", True)
        self.write_file("manifest.json", good)


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    seed = sys.argv[4] if len(sys.argv) > 4 else \
        os.environ.get("PST_TEST_SEED") or str(random.randrange(1 << 30))
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = job.Bench(penstock, folder)
        b.call("split", tiny, "--stages", "2", "-o", "tiny.plan")
        clients.write_data(b.path("data.safetensors"))
        b.call(*words("job", 20))
        b.call(*words("other", 20, "--seed", "7", "--lr", "0.01"))
        damage = Damage(b, seed)
        for i in range(n):
            damage.flip()
            if i % 5 == 0:
                damage.cut()
            is_clean(b, "job")
        damage.swap()
        damage.replace()
        is_clean(b, "job")
    print(f"{damage.tried} damaged and {n} clean loads: all found, none else")


if __name__ == "__main__":
    main()
