# SPDX-License-Identifier: Apache-2.0
"""Makes a folder with models, plans and data, intact and broken in known
ways."""
import json
import os
import shutil
import struct
import subprocess
import zipfile

from patience import PATIENCE  # errors.py has added the folder to sys.path


def safetensors(path, tensors, header=None):
    """Writes a file. tensors: name -> (dtype, shape, bytes). header: replaces
    the JSON header."""
    entries, data = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape,
                         "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = (header or json.dumps(entries)).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def zeros(dtype, shape):
    size = {"I64": 8, "F32": 4, "F64": 8, "F8_E4M3": 1}[dtype]
    n = 1
    for length in shape:
        n *= length
    return dtype, shape, bytes(size * n)


def rows(n, first_token=0):
    """Returns n rows for tiny.pt2, whose microbatches have two rows."""
    return {"tokens": ("I64", [n, 3], struct.pack(
                "<%dq" % (3 * n), first_token, *(1,) * (3 * n - 1))),
            "labels": zeros("I64", [n, 3]),
            "extra.scale": zeros("F32", [4 * n]),
            "extra.pair.0": zeros("F32", [8 * n])}


class Bench:
    def __init__(self, penstock, penstockd, golden, folder):
        self.penstock, self.penstockd = penstock, penstockd
        self.folder = folder
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}
        self.env.update(XDG_RUNTIME_DIR=folder, LC_ALL="C", HOME=folder,
                        PENSTOCK_LIBCUDA="/nowhere/libcuda.so.1")
        for name in "tiny", "norm", "dynamic", "functions", "roles/loss":
            shutil.copy(os.path.join(golden, name + ".pt2"), folder)
        safetensors(self.at("data.safetensors"), rows(4))
        shutil.copy(self.at("data.safetensors"), self.at("data.st"))
        self.write("tokens.npy", b"\x93NUMPY\1\0" + bytes(120))
        self.good("split", "tiny.pt2", "-o", "tiny.plan")
        self.good("split", "dynamic.pt2", "-o", "dynamic.plan")

    def at(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, path, text):
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        with open(self.at(path), "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def call(self, *words, **more):
        words = [self.penstock if words[0] != "penstockd" else self.penstockd,
                 *words[words[0] == "penstockd":]]
        more.setdefault("stdout", subprocess.PIPE)
        return subprocess.run(words, cwd=self.folder, env=self.env, text=True,
                              stdin=subprocess.DEVNULL, check=False,
                              stderr=subprocess.PIPE, timeout=PATIENCE, **more)

    def good(self, *words):
        done = self.call(*words)
        assert done.returncode == 0, (words, done)
        return done

    def archive(self, name, change, of="tiny"):
        """Copies a model; change(names -> bytes) edits the files in the
        copy."""
        with zipfile.ZipFile(self.at(of + ".pt2")) as old:
            files = {e.filename: old.read(e) for e in old.infolist()}
        change(files)
        with zipfile.ZipFile(self.at(name), "w") as new:
            for path, data in files.items():
                new.writestr(path, data)

    def model(self, name, change, of="tiny"):
        """Copies a model; change(document) edits the JSON document of the
        copy."""
        def edit(files):
            path = of + "/models/model.json"
            document = json.loads(files[path])
            change(document)
            files[path] = json.dumps(document).encode()
        self.archive(name, edit, of)

    def damage(self, path, at, data):
        with open(self.at(path), "r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            file.write(data)
