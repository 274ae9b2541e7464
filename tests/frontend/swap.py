#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replaces modules by whole models with known outputs.

usage: swap.py PENSTOCK FOLDER

FOLDER has the models of expected.json. The first output of each is a single
number (x + 15 for u01, 4 x + 3 for u05, 8 x for u06).
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

# (model, swaps, expected output for x = 1)
CASES = [
    ("u01", [], 16),
    ("u01", ["n=u01"], 1 + 3 + 15 + 4 + 15 + 5),
    ("u01", ["n@0=u01"], 1 + 3 + 15 + 4 + 2 + 5),
    ("u01", ["n@1=u06"], (1 + 3 + 1 + 4) * 8 + 5),
    ("u03", ["n=u01"], 1 + 3 + 15 + 4 + 15 + 5 + 15 + 6),
    ("u04", ["outer.inner=u05"], 4 * 2 * (4 * 2 + 3 + 10) + 3),
    ("u05", ["n=u05"], (4 * 1 + 3) * 4 + 3),
    ("u05", ["n@0=u06", "n@1=u06"], 64),
    ("u06", ["n@1=u01"], (2 * 1 + 15) * 2),
    ("u06", ["n=u06"], 512),
    # The buffer of u07 changes from call to call: 2, then 3, then 5.
    ("u07", ["n@1=u01"], 1 + 2 + 1 + 15 + 1 + 3 + 1 + 5),
    ("u08", ["n@0=u01", "n@1=u05"], (4 + 15) + (4 * 4 + 3)),
]


def add_views(old, new, record, value, views):
    """Adds a tensor file with one repeated number, and buffers that are views
    of it. views: name -> number of elements."""
    with zipfile.ZipFile(old) as a, zipfile.ZipFile(new, "w") as b:
        for name in a.namelist():
            data = a.read(name)
            if name.endswith("model_weights_config.json"):
                table = json.loads(data)
                for view, n in views.items():
                    table["config"][view] = {
                        "path_name": record, "is_param": False,
                        "use_pickle": False, "tensor_meta": {
                            "dtype": 7, "sizes": [{"as_int": n}],
                            "requires_grad": False,
                            "device": {"type": "cpu", "index": None},
                            "strides": [{"as_int": 0 if n > 1 else 1}],
                            "storage_offset": {"as_int": 0}, "layout": 7}}
                data = json.dumps(table)
            b.writestr(name, data)
        b.writestr(f"{name.split('/')[0]}/data/weights/{record}",
                   struct.pack("<f", value))


def views_stay(call, folder, work):
    """Checks that a tensor that shares memory with a buffer of the replaced
    module keeps its values, even if the new module has a buffer of that
    name."""
    add_views(f"{folder}/u01.pt2", f"{work}/old.pt2", "weight_9", 7,
              {"n.own": 1, "m.part": 2, "m.more": 3})
    add_views(f"{folder}/u01.pt2", f"{work}/new.pt2", "weight_9", 5,
              {"own": 1})
    call("split", "old.pt2", "-o", "views", "--swap", "n=new.pt2")
    call("weights", "views", "-o", "views.safetensors")
    with open(os.path.join(work, "views.safetensors"), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    got = {name: struct.unpack("<%df" % (t["shape"][0]),
                               data[slice(*t["data_offsets"])])
           for name, t in header.items() if name != "__metadata__"}
    assert got["n.own"] == (5,), got
    assert got["m.part"] == (7, 7) and got["m.more"] == (7, 7, 7), got


def main():
    penstock, folder = map(os.path.abspath, sys.argv[1:3])
    header = json.dumps({"x": {"dtype": "F32", "shape": [1],
                               "data_offsets": [0, 4]}}).encode()
    with tempfile.TemporaryDirectory(prefix="pst-") as work:
        def call(*args):
            done = subprocess.run([penstock, *args], cwd=work, text=True,
                                  capture_output=True, check=False)
            assert done.returncode == 0, (args, done.stderr)

        with open(os.path.join(work, "x.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header +
                    struct.pack("<f", 1))
        for model, swaps, want in CASES:
            options = []
            for swap in swaps:
                where, what = swap.split("=")
                options += ["--swap", f"{where}={folder}/{what}.pt2"]
            call("infer", f"{folder}/{model}.pt2", "--data", "x.safetensors",
                 "-o", "out.safetensors", *options)
            with open(os.path.join(work, "out.safetensors"), "rb") as f:
                got, = struct.unpack("<f", f.read()[-4:])
            assert got == want, (model, swaps, got, want)
        views_stay(call, folder, work)
    print("ok")


if __name__ == "__main__":
    main()
