# SPDX-License-Identifier: Apache-2.0
"""Implements a client for served models, for the tests of this folder: the
protocol (proto/control.proto) and safetensors files, without penstock code."""
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "daemon"))
import tensor_file  # noqa: E402
from wire import field, fields, read_varint, varint  # noqa: E402
from patience import PATIENCE  # noqa: E402

BUSY = -14  # the retriable status of stages/base/status.h
SIZES = {"F32": 4, "I64": 8}


class Lost(Exception):
    """Raised if the connection ended before the answer arrived."""


def signed(n):
    return n >> 1 ^ -(n & 1)


class Tensor:
    """Dtype, sizes and bytes of a tensor, as in a file and in a message."""

    def __init__(self, dtype, size, data):
        self.dtype, self.size, self.data = dtype, list(size), bytes(data)

    def rows(self, begin, end):
        """Returns rows begin to end of dimension 0."""
        each = len(self.data) // self.size[0]
        return Tensor(self.dtype, [end - begin] + self.size[1:],
                      self.data[begin * each:end * each])

    def pack(self, name):
        size = b"".join(varint(n) for n in self.size)
        return field(1, name) + field(2, self.dtype) + field(3, size) + \
            field(4, self.data)


def unpack(data):
    """Decodes a Tensor message; returns its name and the tensor."""
    name, dtype, size, content = "", "", [], b""
    for key, value in fields(data):
        if key == 1:
            name = value.decode()
        elif key == 2:
            dtype = value.decode()
        elif key == 3:
            at = 0
            while at < len(value):
                n, at = read_varint(value, at)
                size.append(n)
        else:
            content = value
    return name, Tensor(dtype, size, content)


def infer(number, inputs):
    """Returns the bytes of a request. inputs: a dict, or a list of pairs."""
    pairs = inputs.items() if isinstance(inputs, dict) else inputs
    body = b"".join(field(1, t.pack(name)) for name, t in pairs)
    data = field(2, field(1, number) + field(25, body))
    return struct.pack("<I", len(data)) + data


class Answer:
    def __init__(self, data):
        self.id = self.status = 0
        self.text, self.outputs = "", {}
        for key, value in fields(data):
            if key == 1:
                self.id = value
            elif key == 2:
                self.status = signed(value)
            elif key == 3:
                self.text = value.decode()
            elif key == 16:
                self.outputs = dict(unpack(v) for k, v in fields(value)
                                    if k == 1)


class Asker:
    """A connection to the daemon that sends requests and reads answers."""

    def __init__(self, path, timeout=PATIENCE):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
            self.socket.sendall(b"\x06\0\0\0\x0a\x04\x08\x01\x10\x01")
            assert self.read()[0] == 1 << 3 | 2
        except (ConnectionError, FileNotFoundError, Lost) as error:
            self.socket.close()
            raise Lost(str(error)) from error
        self.number = 0

    def read_bytes(self, n):
        data = b""
        while len(data) < n:
            got = self.socket.recv(min(n - len(data), 1 << 20))
            if not got:
                raise Lost("closed")
            data += got
        return data

    def read(self):
        try:
            return self.read_bytes(struct.unpack("<I", self.read_bytes(4))[0])
        except ConnectionError as error:
            raise Lost(str(error)) from error

    def send(self, inputs):
        self.number += 1
        try:
            self.socket.sendall(infer(self.number, inputs))
        except ConnectionError as error:
            raise Lost(str(error)) from error
        return self.number

    def answer(self):
        """Returns the next answer, whichever request it belongs to."""
        while True:
            for key, value in fields(self.read()):
                if key == 3:
                    return Answer(value)

    def ask(self, inputs):
        number = self.send(inputs)
        answer = self.answer()
        assert answer.id in (0, number), (answer.id, number)
        return answer

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_file(path):
    return {name: Tensor(*tensor)
            for name, tensor in tensor_file.load(path)[0].items()}


def write_file(path, tensors):
    tensor_file.save(path, {
        name: (t.dtype, t.size, t.data) for name, t in sorted(
            tensors.items(), key=lambda x: -SIZES[x[1].dtype])})


def floats(rng, *size):
    n = 1
    for one in size:
        n *= one
    return Tensor("F32", size, struct.pack(
        f"<{n}f", *(rng.uniform(-2, 2) for _ in range(n))))


def integers(rng, below, *size):
    n = 1
    for one in size:
        n *= one
    return Tensor("I64", size, struct.pack(
        f"<{n}q", *(rng.randrange(below) for _ in range(n))))
