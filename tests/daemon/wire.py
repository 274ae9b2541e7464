# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Protocol Buffers without a library, so that tests are
independent of penstock's code."""


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(key, value):
    """Encodes a field whose value is an integer, a text or bytes (which may be
    a message)."""
    if isinstance(value, int):
        return varint(key << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(key << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    """Returns the number and the offset of the byte after it."""
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return n, at


def fields(data):
    """Yields field numbers and values, which are integers or bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                assert key & 7 == 2, key
                size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value
