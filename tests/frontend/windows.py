#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares buffers that share memory with PyTorch: their values after a step.

usage: windows.py PENSTOCK GOLDEN

GOLDEN has shared.pt2 and shared.safetensors (make_shared.py).
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

SECONDS = 300  # enumerating all indices or pairs would take far longer


def load(path):
    """Returns {name: (shape, values)} of a file of f32 tensors."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], struct.unpack(
            f"<{(end - begin) // 4}f", data[begin:end]))
    return tensors


def compare(have, want, cut):
    for name, (shape, values) in want.items():
        if name == "x":
            continue
        assert name in have, f"{cut}: {name} is missing"
        assert have[name][0] == shape, (cut, name, have[name][0], shape)
        for a, b in zip(have[name][1], values, strict=True):
            assert abs(a - b) <= 1e-5 * max(1, abs(b)), (cut, name, a, b)
    extra = [n for n in have if n.startswith("buffer.") and n not in want]
    assert not extra, extra  # storages have no names of their own


def rewrite(old, new, change, added=None):
    """Copies the model; `change` edits its tables of weights, `added` is a new
    tensor file."""
    with zipfile.ZipFile(old) as a, zipfile.ZipFile(
            new, "w", zipfile.ZIP_DEFLATED) as b:
        for name in a.namelist():
            data = a.read(name)
            if name.endswith("model_weights_config.json"):
                table = json.loads(data)
                change(table["config"])
                data = json.dumps(table)
            b.writestr(name, data)
        if added:
            b.writestr(name.split("/")[0] + "/data/weights/weight_9", added)


def view(like, record, sizes, strides, offset):
    entry = json.loads(json.dumps(like))
    entry["path_name"] = record
    entry["tensor_meta"].update(
        sizes=[{"as_int": n} for n in sizes],
        strides=[{"as_int": n} for n in strides],
        storage_offset={"as_int": offset})
    return entry


def hostile(penstock, model, folder):
    """Tests small files whose views would take hours to compare index by
    index: more indices than bytes, many views of one tensor file, many
    interleaved views."""
    def indices(config):
        for i in range(2):
            config[f"few{i}"] = view(config["whole"], "weight_4", [1 << 42, 2],
                                     [0, 1], i)

    def many(config):
        for i in range(30000):
            config[f"part{i}"] = view(config["whole"], "weight_9", [1], [1], i)

    def interleaved(config):
        for i in range(3000):
            config[f"part{i}"] = view(config["whole"], "weight_9",
                                      [1999000], [2], i % 1000)

    path = os.path.join(folder, "hostile.pt2")
    for change, added, code in ((indices, None, 0),
                                (many, bytes(4 * 30000), 0),
                                (interleaved, bytes(4 * 4000000), 65)):
        rewrite(model, path, change, added)
        done = subprocess.run([penstock, "show", path, "--json"], text=True,
                              capture_output=True, check=False,
                              timeout=SECONDS)
        assert done.returncode == code, (change, done.stderr)
        assert code == 0 or "too long to compare" in done.stderr, done.stderr


def main():
    penstock = os.path.abspath(sys.argv[1])
    golden = os.path.abspath(sys.argv[2])
    model = os.path.join(golden, "shared.pt2")
    data = os.path.join(golden, "shared.safetensors")
    want = load(data)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        def call(*args, **more):
            return subprocess.run([penstock, *args], cwd=folder, text=True,
                                  capture_output=True, check=True, **more)

        for cut in ([], ["--at", "last"], ["--at", "first:end"]):
            call("split", model, "-o", "plan", *cut)
            call("run", "plan", "--transport", "self", "-m", "2", "--steps",
                 "1", "--lr", "0", "--data", data, "--dump", "dump",
                 "--ranks", "2" if cut else "1")
            compare(load(os.path.join(folder, "dump")), want, cut)
        params = json.loads(call("show", "plan", "--json").stdout)["parameters"]
        for name, lost in (("shared", []), ("lost", ["window"]),
                           ("halves", ["front"])):
            file = os.path.join(golden, name + ".pt2")
            text = call("split", file, "-o", name, "--policy", "flops")
            assert re.findall(
                r'W_ALIAS_LOST: "(\w+)" is a part of the 32 bytes',
                text.stdout) == lost, text
        hostile(penstock, model, folder)
    shared = {p["name"]: p for p in params if p["windows"]}
    assert set(shared) == {"whole", "upper+lower+turned"}, shared
    assert shared["whole"]["named"]
    assert not shared["upper+lower+turned"]["named"]
    assert [(w["name"], w["offset"]) for w in shared["whole"]["windows"]] == [
        ("front", 0), ("front_again", 0), ("odd", 1)], shared
    print("ok")


if __name__ == "__main__":
    main()
