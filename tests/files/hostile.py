#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that maliciously crafted files are refused.

usage: hostile.py PENSTOCK TINY.pt2

Archives, documents and tensors with one fault each, one file for each check. A
command that opens such a file must end with exit code 65 within SECONDS, use
at most MIB more memory than with a good file, name the file and the place in
it, and leave no file. No message may contain a control character.
"""
import copy
import io
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

SECONDS, MIB = 2, 64
ROOT = "tiny"
MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


class Archive:
    """Writes zip archives whose headers may contradict their contents."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as file:
            self.entries = [[x.filename, file.read(x)] for x in file.infolist()]

    def get(self, name):
        return next(d for n, d in self.entries if n == f"{ROOT}/{name}")

    def put(self, name, data):
        new = copy.deepcopy(self)
        new.entries = [[n, data if n == f"{ROOT}/{name}" else d]
                       for n, d in new.entries]
        return new

    def without(self, name):
        new = copy.deepcopy(self)
        new.entries = [e for e in new.entries if e[0] != f"{ROOT}/{name}"]
        return new

    def also(self, name, data=b"x"):
        new = copy.deepcopy(self)
        new.entries.append([name, data])
        return new

    def write(self, local=None, central=None, end=None, at=0,
              deflate=None):
        """Returns the archive. local, central, end: values that replace fields
        of entry `at` and of the end record. deflate: entry -> result of
        deflated()."""
        out, directory = io.BytesIO(), []
        for i, (name, data) in enumerate(self.entries):
            raw = name if isinstance(name, bytes) else name.encode()
            f = {"need": 20, "flags": 0, "method": 0, "crc": zlib.crc32(data),
                 "csize": len(data), "size": len(data), "name": raw,
                 "extra": b"", "disk": 0, "offset": out.tell()}
            packed = data
            if name in (deflate or {}):
                packed, f["size"], f["crc"] = deflate[name]
                f.update(method=8, csize=len(packed))
            here, there = dict(f), dict(f)
            if i == at:
                here.update(local or {})
                there.update(central or {})
            out.write(struct.pack("<4s5H3I2H", LOCAL, here["need"],
                                  here["flags"], here["method"], 0, 33,
                                  here["crc"], here["csize"], here["size"],
                                  len(here["name"]), len(here["extra"])))
            out.write(here["name"] + here["extra"] + packed)
            directory.append(struct.pack(
                "<4s6H3I5H2I", CENTRAL, 20, there["need"], there["flags"],
                there["method"], 0, 33, there["crc"], there["csize"],
                there["size"], len(there["name"]), len(there["extra"]), 0,
                there["disk"], 0, 0, there["offset"]) +
                there["name"] + there["extra"])
        begin = out.tell()
        for row in directory:
            out.write(row)
        e = {"disk": 0, "first": 0, "here": len(directory),
             "all": len(directory), "size": out.tell() - begin,
             "offset": begin, "comment": b"", "length": None, **(end or {})}
        length = len(e["comment"]) if e["length"] is None else e["length"]
        out.write(struct.pack("<4s4H2IH", END, e["disk"], e["first"], e["here"],
                              e["all"], e["size"], e["offset"], length))
        out.write(e["comment"])
        return out.getvalue()


def deflated(pieces):
    """Returns compressed bytes, size and checksum of the joined pieces."""
    made, packed, size, crc = zlib.compressobj(9, zlib.DEFLATED, -15), b"", 0, 0
    for piece in pieces:
        packed += made.compress(piece)
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return packed + made.flush(), size, crc


def archives(good):
    """Yields (name, bytes) of files whose archive is wrong."""
    whole = good.write()
    n = len(good.entries)
    model = next(i for i, e in enumerate(good.entries)
                 if e[0] == f"{ROOT}/{MODEL}")
    for k in range(20):
        yield f"cut at {k}/20", whole[:len(whole) * k // 20]
    yield "no end", whole[:-22]
    yield "garbage", b"\0" * 4096
    for name, end in (
            ("many entries", {"here": 65535, "all": 65535}),
            ("one entry more", {"here": n + 1, "all": n + 1}),
            ("one entry less", {"here": n - 1, "all": n - 1}),
            ("counts differ", {"here": 1}), ("another disk", {"disk": 1}),
            ("begins on another disk", {"first": 1}),
            ("directory beyond the file", {"offset": 0xfffffff0}),
            ("directory of no size", {"size": 0}),
            ("directory too large", {"size": 0xfffffff0}),
            ("directory at the begin", {"offset": 0}),
            ("comment beyond the file", {"length": 100}),
            ("zip64 without a record", {"offset": 0xffffffff,
                                        "size": 0xffffffff, "here": 0xffff,
                                        "all": 0xffff})):
        yield name, good.write(end=end)
    for at in (0, model):
        size = len(good.entries[at][1])
        for name, both in (
                ("encrypted", {"flags": 1}), ("method 99", {"method": 99}),
                ("strongly encrypted", {"flags": 0x41}),
                ("deflate of what is stored", {"method": 8}),
                ("wrong checksum", {"crc": 1}),
                ("larger than the file", {"csize": 1 << 30, "size": 1 << 30}),
                ("size wraps", {"csize": 0xfffffffe, "size": 0xfffffffe}),
                ("two sizes", {"size": size + 8}),
                ("zip64 of no bytes", {"csize": 0xffffffff,
                                       "size": 0xffffffff}),
                ("zip64 lies", {"csize": 0xffffffff, "size": 0xffffffff,
                                "extra": struct.pack("<2H2Q", 1, 16, 1 << 62,
                                                     1 << 62)}),
                ("extra beyond the entry", {"extra": struct.pack("<2H", 1,
                                                                 500)})):
            yield f"{name}, entry {at}", good.write(both, both, at=at)
        for name, central in (
                ("central size differs", {"csize": size - 1,
                                          "size": size - 1}),
                ("central name differs", {"name": b"tiny/models/modem.json"}),
                ("offset beyond the file", {"offset": 0x7fffffff}),
                ("offset of the first", {"offset": 0 if at else 600}),
                ("offset within data", {"offset": 70}),
                ("on another disk", {"disk": 3})):
            yield f"{name}, entry {at}", good.write(central=central, at=at)
    for name in ("tiny/../../etc/x", "/tiny/x", "tiny\\..\\x", "tiny/a\0b",
                 "other/x", "tiny/models/model.json", "", "tiny/./x", "tiny//x"):
        yield f"an entry {name!r}", good.also(name).write()
    yield "an entry that is no UTF-8", good.also(b"tiny/\xff\xfe").write()
    name = f"{ROOT}/{MODEL}"
    yield "bomb", good.write(deflate={name: deflated([b" " * 65536] * 3200)})
    packed = deflated([good.get(MODEL)])
    yield "deflated to more than it says", good.write(deflate={
        name: (packed[0], 100, packed[2])})
    yield "deflated to less than it says", good.write(deflate={
        name: (packed[0], packed[1] + 9, packed[2])})
    yield "deflated with another checksum", good.write(deflate={
        name: (packed[0], packed[1], 9)})
    yield "deflated and damaged", good.write(deflate={
        name: (packed[0][:99] + b"xyz" + packed[0][102:], *packed[1:])})
    yield "overlapping", overlapping(good)
    for name in MODEL, WEIGHTS, "data/weights/weight_1", "archive_format":
        yield f"without {name}", good.without(name).write()
    yield "of big endians", good.put("byteorder", b"big").write()
    yield "another archive", good.put("archive_format", b"jar").write()


def overlapping(good):
    """Returns an archive with many entries that share the data of one."""
    new = copy.deepcopy(good)
    data = new.write()
    at = data.index(END)
    row = data[data.index(CENTRAL):][:46 + 32]
    begin = data.index(CENTRAL)
    directory = data[begin:at] + row * 1000
    end = bytearray(data[at:])
    count = len(good.entries) + 1000
    struct.pack_into("<2H2I", end, 8, count, count, len(directory), begin)
    return data[:begin] + directory + bytes(end)


def documents(good):
    """Yields (name, bytes) of files with a document that cannot be parsed."""
    text = good.get(MODEL)
    for name, data in (
            ("empty", b""), ("a number", b"1"), ("null", b"null"),
            ("a list", b"[]"), ("no object's end", text[:-1]),
            ("something behind it", text + b"{}"),
            ("deep lists", b"[" * 100000), ("deep objects", b'{"a":' * 100000),
            ("a key twice", text[:-1] + b', "opset_version": {}}'),
            ("no UTF-8", text.replace(b"emb.weight", b"emb.\xff\xfe", 1)),
            ("half a surrogate", text.replace(b"emb.weight", b"\\ud800", 1)),
            ("a NUL", text.replace(b"emb.weight", b"em\\u0000b", 1)),
            ("a raw tab", text.replace(b"emb.weight", b"em\tb", 1)),
            ("a number that is too large",
             text.replace(b'"as_int": 16', b'"as_int": 99999999999999999999', 1)),
            ("a number with zeros", text.replace(b'"as_int": 16',
                                                 b'"as_int": 016', 1)),
            ("a comment", b"/* */" + text), ("a mark of order",
                                              b"\xef\xbb\xbf" + text)):
        yield f"model: {name}", good.put(MODEL, data).write()
    for name, data in (("empty", b""), ("a list", b"[]"), ("null", b"null"),
                       ("deep", b"[" * 100000)):
        yield f"weights: {name}", good.put(WEIGHTS, data).write()
        yield f"constants: {name}", good.put(CONSTANTS, data).write()


def change(tree, path, value):
    """Returns a copy of the tree with another value at a path; None as the
    value removes the entry."""
    new = copy.deepcopy(tree)
    at = new
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return new


def meanings(good):
    """Yields (name, bytes) of files whose documents have impossible
    contents."""
    model = json.loads(good.get(MODEL))
    module = ("graph_module",)
    graph = (*module, "graph")
    node, spec = (*graph, "nodes", 0), (*module, "signature", "input_specs", 0)
    first = next(iter(model["graph_module"]["graph"]["tensor_values"]))
    meta = (*graph, "tensor_values", first)
    size = {"as_int": 16}
    for path, value in (
            (module, None), (graph, None), (graph, []), (graph, 7),
            ((*graph, "inputs"), None), ((*graph, "inputs"), []),
            ((*graph, "inputs"), {}), ((*graph, "outputs"), []),
            ((*graph, "nodes"), {}), ((*graph, "nodes"), "x"),
            ((*graph, "nodes"), [1]), ((*graph, "tensor_values"), {}),
            ((*graph, "tensor_values"), []),
            (node, {}), (node, []), ((*node, "target"), 5),
            ((*node, "target"), "torch.ops.aten.no_such.default"),
            ((*node, "target"), "os.system"), ((*node, "target"), ""),
            ((*node, "target"), "\x1b[31mred"), ((*node, "inputs"), {}),
            ((*node, "inputs"), []), ((*node, "outputs"), []),
            ((*node, "inputs", 0, "arg"), {}),
            ((*node, "inputs", 0, "arg"), {"as_tensor": {"name": "nobody"}}),
            ((*node, "inputs", 0, "arg"), {"as_what": 1}),
            ((*node, "inputs", 0, "arg"), {"as_int": 1, "as_bool": True}),
            ((*node, "inputs", 0, "arg"), {"as_tensor": {"name": "add_"}}),
            ((*node, "inputs", 1, "arg"), {"as_string": "x"}),
            ((*node, "inputs", 0, "name"), "no_such"),
            ((*node, "outputs", 0), {"as_tensor": {"name": first}}),
            ((*meta, "dtype"), 99), ((*meta, "dtype"), -1),
            ((*meta, "dtype"), "f32"), ((*meta, "layout"), 2),
            ((*meta, "layout"), 99), ((*meta, "sizes"), {}),
            ((*meta, "sizes"), [size] * 1000), ((*meta, "sizes"), [{}]),
            ((*meta, "sizes"), [{"as_int": -1}, size]),
            ((*meta, "sizes"), [{"as_int": 1 << 62}, size]),
            ((*meta, "sizes"), [{"as_int": 17}, {"as_int": 8}]),
            ((*meta, "sizes"), [{"as_expr": {"expr_str": "(" * 10000}}, size]),
            ((*meta, "strides"), [{"as_int": 8}]),
            ((*meta, "strides"), [{"as_int": -8}, {"as_int": 1}]),
            ((*meta, "strides"), [{"as_int": 1 << 62}, {"as_int": 1 << 62}]),
            ((*meta, "storage_offset"), {"as_int": -1}),
            ((*meta, "storage_offset"), {"as_int": 1 << 62}),
            ((*module, "signature"), None), ((*module, "signature"), []),
            ((*module, "signature", "input_specs"), []),
            ((*module, "signature", "output_specs"), []),
            (spec, {}), (spec, {"what": {}}),
            ((*spec, "parameter", "arg", "name"), "nobody"),
            ((*spec, "parameter", "parameter_name"), "no.weight"),
            ((*spec, "parameter", "parameter_name"), 9),
            (("schema_version",), {"major": 99, "minor": 0}),
            (("schema_version",), None), (("range_constraints",), [])):
        made = change(model, path, value)
        yield (f"model: {'.'.join(map(str, path[1:]))} = {str(value)[:60]}",
               good.put(MODEL, json.dumps(made).encode()).write())
    weights = json.loads(good.get(WEIGHTS))
    one = ("config", "fc.weight")
    tensor = (*one, "tensor_meta")
    for path, value in (
            (("config",), None), (("config",), []), (one, None), (one, []),
            ((*one, "path_name"), "../../../etc/passwd"),
            ((*one, "path_name"), "/etc/passwd"),
            ((*one, "path_name"), "weight_999"), ((*one, "path_name"), ""),
            ((*one, "path_name"), "weight_1\u0000"), ((*one, "path_name"), 1),
            ((*one, "use_pickle"), True), (tensor, None), (tensor, 3),
            ((*tensor, "dtype"), 8), ((*tensor, "dtype"), 77),
            ((*tensor, "sizes"), [{"as_int": 1 << 40}, {"as_int": 8}]),
            ((*tensor, "sizes"), [{"as_int": 9}, {"as_int": 8}]),
            ((*tensor, "sizes"), [{"as_int": -8}, {"as_int": -8}]),
            ((*tensor, "strides"), [{"as_int": 1 << 61}, {"as_int": 1}]),
            ((*tensor, "strides"), [{"as_int": 9}, {"as_int": 1}]),
            ((*tensor, "storage_offset"), {"as_int": 1}),
            ((*tensor, "storage_offset"), {"as_int": -1}),
            ((*tensor, "storage_offset"), {"as_int": 1 << 62})):
        made = change(weights, path, value)
        yield (f"weights: {'.'.join(map(str, path[1:]))} = {str(value)[:60]}",
               good.put(WEIGHTS, json.dumps(made).encode()).write())
    yield "weights: too short", good.put("data/weights/weight_1",
                                         b"\0" * 255).write()


def tensors():
    """Yields (name, bytes) of invalid safetensors files."""
    def made(header, data=b"", length=None):
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(raw) if length is None else length) + \
            raw + data

    def one(name="x", dtype="F32", shape=(1,), at=(0, 4)):
        return {name: {"dtype": dtype, "shape": list(shape),
                       "data_offsets": list(at)}}
    zero = b"\0" * 4
    many = ",".join(f'"t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}'
                    for i in range(100000))
    yield from (
        ("empty", b""), ("7 bytes", b"\0" * 7), ("no header", b"\0" * 8),
        ("longer than the file", made(b"{}", length=3)),
        ("length of all ones", made(b"{}", length=(1 << 64) - 1)),
        ("length of 100 MB and one", made(b"{}", length=100000001)),
        ("a list", made(b"[]")), ("a cut object", made(b"{")),
        ("something behind", made(b"{} x")), ("deep", made(b"{" * 100000)),
        ("deeper", made(b'{"a":' + b"[" * 100000)),
        ("data of nobody", made({}, zero)),
        ("no UTF-8", made(b'{"\xff":{"dtype":"F32","shape":[1],'
                          b'"data_offsets":[0,4]}}', zero)),
        ("a NUL", made(b'{"a\\u0000":{"dtype":"F32","shape":[1],'
                       b'"data_offsets":[0,4]}}', zero)),
        ("a name twice", made(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":'
                              b'[0,4]},"a":{"dtype":"F32","shape":[1],'
                              b'"data_offsets":[0,4]}}', zero)),
        ("a number for a tensor", made({"x": 1})), ("no dtype", made({"x": {}})),
        ("no such dtype", made(one(dtype="X9"), zero)),
        ("short of data", made(one(), zero[:3])),
        ("too much data", made(one(), zero + b"x")),
        ("a hole", made(one(at=(4, 8)), zero * 2)),
        ("reversed", made(one(at=(4, 0)), zero)),
        ("negative", made(one(at=(-4, 0)), zero)),
        ("beyond the file", made(one(at=(0, 1 << 62)), zero)),
        ("wraps", made(one(at=(1 << 63, (1 << 64) - 1)), zero)),
        ("broken offsets", made(one(at=(0,)), zero)),
        ("fractions", made(one(at=(0, 4.0)), zero)),
        ("another shape", made(one(shape=(2,)), zero)),
        ("a shape that wraps", made(one(shape=(1 << 32, 1 << 32), at=(0, 0)))),
        ("a shape below zero", made(one(shape=(-1, -1)), zero)),
        ("a shape of many", made(one(shape=(1,) * 100), zero)),
        ("two in one place", made({**one("a"), **one("b")}, zero)),
        ("100 000 in a hole", made(b"{" + many.encode() + b"}")),
        ("metadata of numbers", made({"__metadata__": {"a": 1}})),
        ("metadata of a list", made({"__metadata__": []})),
        ("a name for terminals", made(one(name="\x1b]0;x\x07", dtype="F99"),
                                      zero)))


def measure(words, folder):
    """Runs a command; returns exit code, output, CPU seconds and KiB."""
    job = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = job.stderr.read().decode("utf-8", "backslashreplace")
    _, status, usage = os.wait4(job.pid, 0)
    job.returncode = 0
    return (os.waitstatus_to_exitcode(status), said.strip(),
            usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def check(bench, name, kind, data, words):
    path = os.path.join(bench["folder"], "bad" + kind)
    with open(path, "wb") as file:
        file.write(data)
    before = sorted(os.listdir(bench["folder"]))
    code, said, took, most = measure([bench["penstock"], *words],
                                     bench["folder"])
    os.remove(path)
    faults = []
    if code != 65:
        faults.append(f"exit code {code}")
    if "bad" + kind not in said:
        faults.append("it does not say which file")
    if re.search("[\0-\x08\x0b-\x1f\x7f-\x9f]", said) or len(said) > 4096:
        faults.append("what it says is not fit for a terminal")
    if "No error" in said or "Success" in said:
        faults.append("it does not say what is wrong")
    if took > SECONDS * bench["slow"]:
        faults.append(f"{took:.2f} s")
    if (most - bench["usual"]) >> 10 > MIB * bench["slow"]:
        faults.append(f"{(most - bench['usual']) >> 10} MiB more")
    left = set(os.listdir(bench["folder"])) - set(before)
    if left:
        faults.append(f"left {left}")
    bench["longest"] = max(bench["longest"], took)
    bench["most"] = max(bench["most"], most - bench["usual"])
    bench["n"] += 1
    if faults:
        bench["faults"] += 1
        print(f"{kind}, {name}: {', '.join(faults)}: {said[:300]}")
    elif os.environ.get("PST_VERBOSE"):
        print(f"{kind}, {name}: {said}")


def main():
    penstock, tiny = map(os.path.abspath, sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    good = Archive(tiny)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = {"penstock": penstock, "folder": folder, "n": 0, "faults": 0,
             "longest": 0.0, "most": 0,
             "slow": 4 if "ASAN_OPTIONS" in os.environ else 1}
        # A good file that Archive writes again is accepted: the faults alone
        # are refused.
        with open(os.path.join(folder, "good.pt2"), "wb") as file:
            file.write(good.write())
        code, said, _, b["usual"] = measure([penstock, "split", "good.pt2",
                                             "-o", "good.plan"], folder)
        # The child's peak memory includes the memory that this process had
        # when it started the child.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert own >> 10 < MIB, own
        assert code == 0, said
        for part in archives, documents, meanings:
            for name, data in part(good):
                check(b, name, ".pt2", data,
                      ["split", "bad.pt2", "-o", "bad.plan"])
        for name, data in tensors():
            check(b, name, ".safetensors", data,
                  ["split", "good.pt2", "-o", "bad.plan", "--weights",
                   "bad.safetensors"])
        print(f"{b['n']} files, {b['faults']} faults; at most "
              f"{b['longest']:.2f} s and {b['most'] >> 10} MiB more than with "
              "a good one")
    return 1 if b["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
