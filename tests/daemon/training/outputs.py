# SPDX-License-Identifier: Apache-2.0
"""Checks that no command writes its output over a file of the plan or the
checkpoint that it reads.

usage: outputs.py PENSTOCK TINY.pt2
"""
import glob
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
from job import Bench  # noqa: E402


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(penstock, folder)
        clients.write_data(b.path("data.safetensors"))
        b.call("split", model, "-o", "tiny.plan")
        data = "tiny.plan", "--data", "data.safetensors"
        run = "run", *data, "--transport", "self", "--quiet"
        b.call(*run, "--steps", "2", "--checkpoint", "ck")
        stage = glob.glob(b.path("tiny.plan/*.safetensors"))[0]
        shard = glob.glob(b.path("ck/step-00000002/*.safetensors"))[0]
        os.symlink(shard, b.path("link.safetensors"))
        for path in stage, shard, "link.safetensors":
            with open(b.path(path), "rb") as file:
                before = file.read()
            for words in ((*run, "--steps", "1", "--dump", path),
                          ("infer", *data, "--checkpoint", "ck", "-o", path),
                          ("weights", "ck", "-o", path)):
                said = b.call(*words, code=64)
                assert "would be written over" in said, (words, said)
                with open(b.path(path), "rb") as file:
                    assert file.read() == before, words
        b.call("weights", "ck", "-o", "ck/step-00000002/new.safetensors")
    print("ok")


if __name__ == "__main__":
    main()
