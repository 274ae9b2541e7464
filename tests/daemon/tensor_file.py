# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files: name -> (dtype, shape, bytes)."""
import json
import struct


def save(path, tensors, about=None):
    """Writes a file. about: metadata of the file, a dict of strings."""
    header, body = {}, b""
    if about:
        header["__metadata__"] = about
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def load(path):
    """Returns the tensors and the metadata of the file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), file.read()
    about = header.pop("__metadata__", {})
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])])
            for name, e in header.items()}, about


def contents(path):
    """Returns the bytes of the tensors by name."""
    return {name: data for name, (_, _, data) in load(path)[0].items()}
