# SPDX-License-Identifier: Apache-2.0
"""Checks the value of a parameter that no operator reads, in checkpoints and
dumps of a run that has loaded another value than its plan has.

usage: unread.py PENSTOCK UNREAD.pt2
"""
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import tensor_file  # noqa: E402
from job import Bench  # noqa: E402

GIVEN = struct.pack("<9f", *range(1, 10))


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(penstock, folder)
        tensor_file.save(b.path("data.safetensors"), {
            name: ("F32", shape, struct.pack(f"<{n}f", *[.5] * n))
            for name, shape, n in (("x", [2, 3], 6), ("y", [2, 3], 6),
                                   ("mask", [2], 2))})
        tensor_file.save(b.path("given.safetensors"),
                         {"first": ("F32", [3, 3], GIVEN)})
        run = ["--transport", "self", "--data", "data.safetensors",
               "--checkpoint", "ck", "--quiet"]
        b.call("run", model, "--weights", "given.safetensors", "--partial",
               "--steps", "1", *run)
        b.call("run", model, "--steps", "2", "--resume", "--dump",
               "dump.safetensors", *run)
        b.call("weights", "ck", "-o", "weights.safetensors")
        dump = tensor_file.load(b.path("dump.safetensors"))[0]
        weights = tensor_file.load(b.path("weights.safetensors"))[0]
        assert weights["first"][2] == GIVEN, weights
        assert dump["param.first"][2] == GIVEN, dump["param.first"]
    print("ok")


if __name__ == "__main__":
    main()
