#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of tests/fuzz/corpus from small real files.

usage: make_corpus.py PENSTOCK ROOT

Files of other names in that folder (found by fuzzers) are kept.
"""
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

# Small models that are stored uncompressed, so that mutations change their
# contents: a buffer and views of it (lost, halves), a parameter without memory
# (resize).
MODELS = ["lost", "halves", "resize"]
DOCUMENTS = MODELS + ["mixed"]
# These models stay compressed: uncompressed they would be too large, and
# mutation of their contents gains little.
PACKED = ["mixed", "square", "cube", "rows", "regions", "empty", "odd",
          "shared", "gathers", "gathers-2", "norm", "sizes", "tiny", "drops",
          "dynamic", "asserts"]
EXPRESSIONS = [
    "2*s77 + 1", "s0", "-3", "Max(1, s77)", "s77//2", "Mod(s0, 2)",
    "Eq(s0, 4)", "(s0 + 1)*(s0 - 1)", "s0**2", "9223372036854775807",
    "Add(Mul(Integer(2), Symbol('s77', positive=True, integer=True)), "
    "Integer(1))",
    "Min(s0, Max(3, s1))/3", "floor(s0/2)", "0.5*s0", "1e300",
    "FloatPow(ToFloat(s0), Float('-0.5', precision=53))",
    "Where(And(s0 - 1, Not(Ne(s0, 2))), Abs(-s0), Sub(s0, 3))",
    "Or(LessThan(s0, 3), StrictLessThan(s0, 3), GreaterThan(s0, 3), "
    "StrictGreaterThan(s0, 0.5), True)",
    "CeilDiv(s0, 2) + ModularIndexing(s0, 2, 3) + PythonMod(-s0, 3)",
    "LShift(s0, 2) + RShift(64, s0) + Identity(s0)",
    "RoundToInt(OpaqueUnaryFn_sqrt(s0)) + TruncToInt(OpaqueUnaryFn_log(s0))",
    "CeilToInt(IntTrueDiv(s0, 3)) + TruncToFloat(Rational(7, 2))",
    "CleanDiv(6*s0, 3) + PowByNatural(s0, 3)", "Symbol('true')",
]
# Seeds for the parser of command lines.
OPTIONS = [
    "-m 4 --steps=100 --quiet -n 2x4 --resume model.pt2 -- --steps",
    "--checkpoint-memory 1.5GiB --lr 1e-3 --schedule 1f1b --resume=7",
    "--schedule csv:lists.csv --data a --data b --log-dir logs",
]
# Every field of a checkpoint's manifest; the digest is filled in later.
MANIFEST = {
    "version": 1, "step": 3, "data_position": 3, "seed": "18446744073709551615",
    "model": "0" * 32, "optimizer": "adamw", "time": 77, "bad": True,
    "reason": "a loss", "name": "net", "identity": "1" * 32, "changes": 2,
    "shards": [{"file": "rank-000.safetensors", "bytes": 8,
                "xxh3_128": "2" * 32}],
    "tensors": {"param.a": 0, "param.down": 0, "param.up": 0},
    "state_dict": {
        "a": "param.a", "b": {"tensor": "param.a", "complex": True},
        "c": {"tensor": "param.a", "offset": 1, "size": [2, 1],
              "stride": [1, 2]}},
    "adapters": [{"module": "net", "weight": "param.a", "down": "param.down",
                  "up": "param.up", "alpha": 8.0, "transposed": False,
                  "shared": True}],
    "changed": ["param.a"], "digest": "",
    "options": {"--lr": "0.1", "--chunk": "x=0,\"y\"=1", "--none": "",
                "a=b": "1", "--two": "1\n2", "-" * 64: "long"},
}
GRAPH = """graph next_id=20 {
  call - type __main__.Net key L__self__
  call layers.0@3 in - type "odd, type" key 140147541240528
  input %x: f32[4, 24]
  param %p_out_weight "out.weight" grad: f32[5, 24]
  buffer %b "running" persistent: f32[24]
  %add: f32[4, 24] = aten.add.Tensor(%x, %x, alpha=2)  # layers.0@3 a.py:1 F id=12 stage=1 no_grad
  %t: f32[24, 4]:(1, 24) view of %add + 0 = aten.t.default(%add)  # "a b" "-" W id=4
  %any: i64[2] = aten.full.default([2{s//2}], 7{s + 3}, dtype=i64)  # - - F id=7
  signature layers.0@3 in "x" %x in "flag" True in "gone" _ out "0" %add
  output user %t "0"
  output user 3{s - 1} "a.b"
}
"""


class Corpus:
    def __init__(self, folder):
        self.folder, self.bytes = folder, 0

    def put(self, target, name, data):
        data = data if isinstance(data, bytes) else data.encode()
        path = os.path.join(self.folder, target)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, name), "wb") as file:
            file.write(data)
        self.bytes += len(data)


def archive(entries, method=zipfile.ZIP_STORED, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as zipped:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            zipped.writestr(info, data)
        zipped.comment = comment
    return out.getvalue()


def models(corpus, golden):
    for name in MODELS + PACKED:
        with zipfile.ZipFile(f"{golden}/{name}.pt2") as zipped:
            entries = [(x.filename, zipped.read(x)) for x in
                       zipped.infolist() if x.file_size < 100000]
        # A short text has fewer bytes that mutate without effect.
        entries = [(n, json.dumps(json.loads(d), separators=(",", ":"))
                    if n.endswith("model.json") else d) for n, d in entries]
        if name in MODELS:
            corpus.put("model", name, archive(entries))
        else:
            corpus.put("model", name,
                       archive(entries, zipfile.ZIP_DEFLATED))
        for entry, data in entries if name in DOCUMENTS else ():
            if entry.endswith("models/model.json"):
                corpus.put("document", name, data)
            elif entry.endswith("_config.json") and len(data) > 20:
                corpus.put("payloads", f"{name}-{entry.split('/')[-2]}", data)
    small = [("m/archive_format", b"pt2"), ("m/a/b", bytes(100))]
    corpus.put("zip", "stored", archive(small))
    corpus.put("zip", "deflated", archive(small, zipfile.ZIP_DEFLATED))
    corpus.put("zip", "comment", archive(small, comment=b"PK\5\6 no end"))
    corpus.put("zip", "empty", archive([]))
    out = io.BytesIO()  # becomes an archive with sizes of 64 bits
    with zipfile.ZipFile(out, "w") as zipped:
        with zipped.open("m/a", "w", force_zip64=True) as entry:
            entry.write(b"text")
    corpus.put("zip", "zip64", out.getvalue())


def zip64(name, text):
    """Returns an archive of one entry whose sizes and offsets use zip64
    fields."""
    data = archive([(name, text)])
    n, at = struct.unpack("<II", data[-10:-2])
    central, files = bytearray(data[at:at + n]), data[:at]
    extra = struct.pack("<HHQQQ", 1, 24, len(text), len(text), 0)
    struct.pack_into("<II", central, 20, 0xffffffff, 0xffffffff)
    struct.pack_into("<H", central, 30, len(extra))
    struct.pack_into("<I", central, 42, 0xffffffff)
    central += extra
    end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1,
                      len(central), at)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, at + len(central), 1)
    return files + central + end + struct.pack(
        "<4sHHHHIIH", b"PK\5\6", 0, 0, 0xffff, 0xffff, 0xffffffff,
        0xffffffff, 0)


def odd_archives(corpus):
    corpus.put("zip", "end64", zip64("m/a", b"text"))
    plain = archive([("m/archive_format", b"pt2"), ("m/axb", b"")])
    for name, to in ("zero", b"m/a\0b"), ("utf8", b"m/a\xffb"), \
            ("backslash", b"m/a\\b"), ("dots", b"m/../"), ("root", b"n/axb"):
        corpus.put("zip", f"name-{name}", plain.replace(b"m/axb", to))
    corpus.put("zip", "no-root", archive([("archive_format", b"pt2")]))
    corpus.put("zip", "large", archive([("m/a", bytes(5 << 20))],
                                       zipfile.ZIP_DEFLATED))
    corpus.put("zip", "bomb", archive([("m/a", bytes(2 << 20))],
                                      zipfile.ZIP_DEFLATED))
    marks = {"m/archive_format": "pt2", "m/archive_version": "0",
             "m/byteorder": "little", "m/.data/version": "1"}
    for name, change in {
            "no-model": {}, "old": {"m/archive_version": "1"},
            "big-endian": {"m/byteorder": "big"},
            "container": {"m/.data/version": "11"},
            "long-mark": {"m/byteorder": "big" * 99},
            "long-name": {f"m/models/{'a' * 300}.json": "{}"},
            "two": {"m/models/a.json": "{}", "m/models/b.json": "{}"},
            "torch-2.7": {"m/archive_format": "",
                          "m/serialized_exported_program.json": "{}"},
            "torchscript": {"m/archive_format": "", "m/constants.pkl": ""},
            "pickle": {"m/archive_format": "", "m/data.pkl": ""},
            "no-mark": {"m/archive_format": ""}}.items():
        corpus.put("model", name, archive({**marks, **change}.items()))


def tensors(header, data=b""):
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def weights(corpus):
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    corpus.put("safetensors", "one", tensors(
        {"__metadata__": {"format": "pt"}, "a": one}, bytes(8)))
    corpus.put("safetensors", "kinds", tensors({
        "half": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
        "none": {"dtype": "I64", "shape": [0, 3], "data_offsets": [4, 4]},
        "point": {"dtype": "C64", "shape": [], "data_offsets": [4, 12]},
        "yes": {"dtype": "BOOL", "shape": [3], "data_offsets": [12, 15]},
    }, bytes(15)))
    corpus.put("safetensors", "empty", tensors({}))
    for name, second in ("hole", [9, 17]), ("overlap", [4, 12]):
        corpus.put("safetensors", name, tensors(
            {"a": one, "b": {**one, "data_offsets": second}}, bytes(20)))
    for name, dtype, shape in ("deep", "F32", [1] * 40), \
            ("deep-pairs", "C64", [1] * 8), ("vast", "F32", [1 << 40] * 2):
        corpus.put("safetensors", name, tensors(
            {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, 8]}},
            bytes(8)))
    corpus.put("index", "none", json.dumps({"weight_map": {}}))
    corpus.put("index", "same", json.dumps(
        {"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}))
    corpus.put("index", "one", json.dumps(
        {"metadata": {"total_size": 8},
         "weight_map": {"a": "a.safetensors"}}))
    corpus.put("index", "elsewhere", json.dumps(
        {"weight_map": {"a": "../a.safetensors", "b": "b.safetensors"}}))


def tokens(corpus):
    """The first byte has the width (0: by the index, 1 to 3), packing (4),
    shuffling (8) and comparison (16); see targets/data.c."""
    ids = struct.pack("<14H", *range(14))

    def put(name, flags, data, index=b""):
        corpus.put("tokens", name, struct.pack("<BH", flags, len(index)) +
                   index + data)

    def megatron(code, *lengths, version=1):
        return b"MMIDIDX\0\0" + struct.pack(
            "<QBQQ", version, code, len(lengths), len(lengths) + 1) + \
            struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(
                f"<{2 * len(lengths) + 1}q", *[0] * (2 * len(lengths) + 1))

    put("bytes", 0, bytes(range(30)))
    put("words", 2 + 8 + 16, ids)
    put("long", 3 + 16, struct.pack("<14I", *range(14)))
    put("beyond", 2 + 16, struct.pack("<14H", *[2000] * 14))
    put("packed", 2 + 4, struct.pack("<14H", 1, 0, 2, 3, 4, 0, *range(1, 9)))
    put("odd", 2, ids + b"1")
    put("few", 1, b"123")
    put("four", 1, b"1234")
    put("wide", 1, struct.pack("<14I", *range(14)))
    put("llm.c", 2, struct.pack("<256i", 20240520, 1, 14, *[0] * 253) + ids)
    put("llm.c-cut", 2, struct.pack("<256i", 20240520, 1, 15, *[0] * 253) + ids)
    put("numpy", 1, b"\x93NUMPY\x01\0" + bytes(60))
    put("indexed", 0, ids, megatron(8, 4, 10))
    put("indexed-4", 0, struct.pack("<14i", *range(14)), megatron(4, 14))
    put("indexed-other", 1, ids, megatron(8, 14))
    put("indexed-less", 0, ids, megatron(8, 3, 10))
    put("indexed-more", 0, ids, megatron(8, 5, 10))
    put("indexed-negative", 0, ids, megatron(8, -1, 15))
    put("indexed-float", 0, ids, megatron(7, 14))
    put("indexed-new", 0, ids, megatron(8, 14, version=2))
    put("indexed-cut", 0, ids, megatron(8, 4, 10)[:40])
    put("indexed-short", 1, ids, b"MMIDIDX")


def plans(corpus, penstock, root, folder):
    golden = f"{root}/tests/golden"

    def ask(*words):
        subprocess.run([penstock, *words], check=True, timeout=PATIENCE, cwd=folder,
                       stdout=subprocess.DEVNULL)

    ask("split", f"{golden}/norm.pt2", "--at", "conv", "-o", "norm")
    for name, stages in ("lost", 1), ("halves", 1), ("mixed", 2):
        ask("split", f"{golden}/{name}.pt2", "--stages", str(stages),
            "-o", name)
        with open(f"{folder}/{name}/plan.pb", "rb") as file:
            corpus.put("plan", name, file.read())
    with open(f"{folder}/x.safetensors", "wb") as file:
        file.write(tensors({"x": {"dtype": "F32", "shape": [8, 4],
                                  "data_offsets": [0, 128]}}, bytes(128)))
    ask("run", "norm", "--ranks", "2", "--transport",
        "self", "--data", "x.safetensors", "-m", "2", "--steps", "1",
        "--checkpoint", "ck", "--log-dir", "log", "--quiet")
    with open(f"{folder}/ck/step-00000001/manifest.json",
              encoding="utf-8") as file:
        corpus.put("manifest", "norm", json.dumps(json.load(file),
                                                  separators=(",", ":")))
    ask("split", f"{root}/examples/bytegpt/bytegpt.pt2", "--policy",
        "layers", "--stages", "4", "-o", "four")
    for schedule in "1f1b", "interleaved-1f1b", "zb-v":
        ask("plan", "four", "--schedule", schedule, "--ranks", "2",
            "--microbatches", "4", "--csv", "lists.csv")
        with open(f"{folder}/lists.csv", "rb") as file:
            corpus.put("csv", schedule, file.read())


# --- hand-written protobuf messages
# ----------------------------------------------


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def message(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def framed(body):
    return struct.pack("<I", len(body)) + body


def frames(corpus):
    """Writes frames of the control protocol. Field numbers are those of
    proto/control.proto."""
    hello = message(1, number(1, 1) + number(2, 1) +
                    message(3, "0.1.0") + message(4, "night") + number(6, 2))
    option = message(1, message(1, "steps") + message(2, "100"))
    train = message(2, number(1, 7) + message(2, "key") +
                    message(15, option))
    status = message(2, number(1, 8) + message(10, b""))
    corpus.put("frame", "hello-train", framed(hello) + framed(train))
    corpus.put("frame", "status", framed(hello) + framed(status) * 3)
    event = message(4, number(1, 5) + message(4, "step") +
                    message(5, message(1, "loss") + b"\x19" +
                            struct.pack("<d", 1.5)))
    corpus.put("frame", "event", framed(event))


PLAN_GRAPHS = """graph next_id=2 {
  input %x: f32[2{n}, 4]
  input %z: f32[4]
  param %w "w" grad: f32[4, 4]
  param %down "down" grad: f32[2, 4]
  param %up "up" grad: f32[4, 2]
  %y: f32[2{n}, 4] = aten.add.Tensor(%x, %z)  # - - F id=1
  output user %y "0"
}
""", """graph next_id=3 {
  input %y: f32[2{n}, 4]
  buffer %b "b" persistent: f32[4]
  %z: f32[4] = aten.mul.Scalar(%b, 0.5)  # - - F id=2
  output user %y "0"
  output user %z "1"
  output buffer %z -> %b ""
}
"""


def meta(field, *size):
    """Returns the metadata of a contiguous f32 tensor."""
    strides = [1]
    for n in size[:0:-1]:
        strides.insert(0, strides[0] * n)
    return message(field, number(1, 7) + message(2, bytes(size)) +
                   message(3, bytes(strides)))


def whole_plan(corpus):
    """Writes a plan with every field of proto/plan.proto. No golden model has
    a buffer that is passed back, adapters and literals at once."""
    edge, model = number(1, 1), b""
    stages = [message(2, model) + message(2, edge + number(2, 1)),
              message(2, edge)]
    body = message(1, "net") + message(9, "a note") + message(12, "fixed")
    for i, (graph, inputs) in enumerate(zip(PLAN_GRAPHS, stages)):
        body += message(3, message(1, graph) + inputs +
                        message(3, f"stage-{i:03}.safetensors") +
                        number(4, 8) + message(5, "0" * 32))
    body += message(4, number(3, 1) + message(5, "y") + meta(6, 2, 4) +
                    number(7, 1))
    body += message(4, number(1, 1) + number(2, 1) + number(4, 1) +
                    message(5, "z") + meta(6, 4) + message(8, "b"))
    body += message(5, message(1, "x") + meta(2, 2, 4) + message(3, "n") +
                    message(3, ""))
    for literal in (number(2, 2) + meta(4, 2, 4), number(2, 1) + meta(4, 2, 4),
                    number(5, 1), number(6, 4) + message(10, "n"),
                    varint(7 << 3 | 1) + struct.pack("<d", 0.5), number(8, 1),
                    message(9, "text")):
        body += message(6, message(1, "0") + literal)
    for name, *size in ("w", 4, 4), ("down", 2, 4), ("up", 4, 2):
        body += message(7, message(1, name) + meta(4, *size) + number(5, 1) +
                        message(7, b"\0") + message(10, b"\1") +
                        number(15, 13) + message(2, name + "2"))
    body += message(7, message(1, "b") + number(3, 1) + meta(4, 4) + number(6, 1) +
                    message(7, b"\0\1") + message(10, b"\0\0") + number(8, 1) +
                    message(11, message(1, "part") + meta(2, 2) + number(3, 1)))
    body += message(7, message(1, "c") + number(3, 2) + meta(4, 2, 2) +
                    message(11, message(1, "d") + meta(2, 1, 2)) +
                    number(12, 1) + number(13, 1))
    body += number(8, 1) + message(10, message(1, "n") + number(2, 2))
    body += message(11, message(1, "n") + number(2, 1) + number(3, 100))
    body += message(20, message(1, "net") + message(2, "w") +
                    message(3, "down") + message(4, "up") +
                    varint(5 << 3 | 1) + struct.pack("<d", 8))
    corpus.put("plan", "all", number(1, 1) + message(2, "0" * 32) +
               message(3, body))


def tensor(name, dtype, size, data):
    return message(1, message(1, name) + message(2, dtype) +
                   message(3, b"".join(map(varint, size))) +
                   message(4, data))


def requests(corpus):
    """Writes requests for the model of tests/fuzz/targets/texts.c."""
    x = tensor("x", "F32", [3, 3], bytes(36))
    mask = tensor("mask", "BOOL", [2, 6], bytes([1, 0] * 6))
    whole = tensor("whole", "I64", [4], bytes(32))
    for name, body in ("all", x + mask + whole), ("less", mask + x), \
            ("missing", x + whole), ("twice", x + x + mask):
        corpus.put("request", name,
                   message(2, number(1, 7) + message(25, body)))


# Programs on operands that share memory: the cases of the tests' file with
# different features.
PROGRAMS = ["a01", "a03", "a09", "a10", "a15", "a19a", "a19b", "a20", "a25e",
            "a26a", "a27a", "v-as_strided", "v-split", "v-unbind"]
PARTS = ["tensors", "before", "args", "ops", "returns", "backward"]
ALL_OF_A_PROGRAM = {
    "tensors": {"a": {"dtype": "float32", "requires_grad": True},
                "b": {"storage": "s", "offset": 0, "sizes": [2],
                      "strides": [1]}},
    "before": [{"op": "aten.alias", "args": ["%a"], "out": ["c"]}],
    "args": ["c", "b", "b"],
    "ops": [{"op": "aten.cat", "args": [["%0", "%1", "%2"], 0], "out": ["d"]},
            {"op": "aten.clamp", "args": ["%b", None, "Infinity"],
             "out": ["e"], "stage": 1, "no_grad": False},
            {"op": "aten.sum.dim_IntList", "args": ["%d", [0, 1]],
             "kwargs": {"keepdim": True, "dtype": "float64"}, "out": ["f"]},
            {"op": "aten.native_layer_norm_backward",
             "args": ["%c", "%b", [3], "%d", "%e", None, None,
                      [True, False, False]], "out": ["g", None, None]},
            {"op": "aten.upsample_nearest2d.vec",
             "args": ["%b", None, [2.0, 1]], "out": ["h"]},
            {"op": "aten.mul.Tensor", "args": ["%b", 2], "out": ["i"]},
            {"op": "aten.gelu", "args": ["%b"],
             "kwargs": {"approximate": "tanh"}, "out": ["j"]}],
    "returns": ["f", "i"], "backward": False}
BAD_PROGRAMS = {
    "array": [], "empty": {}, "no-object": {**ALL_OF_A_PROGRAM, "tensors": 1},
    "tensor": {**ALL_OF_A_PROGRAM, "tensors": {"a": 1, "b": {}}},
    "dtype": {**ALL_OF_A_PROGRAM, "tensors": {"b": {"dtype": "x"}}},
    "member": {**ALL_OF_A_PROGRAM, "tensors": {"b": {"x": 1}}},
    "name": {**ALL_OF_A_PROGRAM, "args": ["%b"]},
    "control": {**ALL_OF_A_PROGRAM, "args": ["a\n"]},
    "made": {**ALL_OF_A_PROGRAM, "args": ["z"]},
    "mixed": {**ALL_OF_A_PROGRAM,
              "ops": [{"op": "aten.neg", "args": [[1, "x"]]}]},
    "object": {**ALL_OF_A_PROGRAM, "ops": [{"op": "aten.neg", "args": [{}]}]},
    "stage": {**ALL_OF_A_PROGRAM, "ops": [{"op": "aten.neg", "stage": -1}]},
    "long": {**ALL_OF_A_PROGRAM, "ops": [{"op": "a" * 300}]},
    "number": {**ALL_OF_A_PROGRAM, "ops": [1]},
    "return": {**ALL_OF_A_PROGRAM, "returns": [1]},
    "loss": {**ALL_OF_A_PROGRAM, "returns": [], "backward": True},
}


def programs(corpus, root):
    with open(f"{root}/tests/golden/aliasing.json", encoding="utf-8") as file:
        cases = {c["name"]: c for c in json.load(file)}
    for name in PROGRAMS:
        corpus.put("program", name, json.dumps(
            {k: cases[name][k] for k in PARTS if k in cases[name]},
            separators=(",", ":")))
    corpus.put("program", "all", json.dumps(ALL_OF_A_PROGRAM))
    for name, program in BAD_PROGRAMS.items():
        corpus.put("program", f"bad-{name}", json.dumps(program))
    corpus.put("program", "bad-nul", b"{}\0")
    corpus.put("program", "bad-deep", "[" * 100)


def add_records(corpus, root):
    costs = {"format": "penstock-costs", "version": 1, "plan": "0" * 32,
             "stages": [{"forward": 1e-3, "input": 1e-3, "weight": 2e-3},
                        {"forward": 0.5, "backward": 1, "optimizer": 1e-4,
                         "reduce": 0}],
             "modules": [{"module": "h.0", "forward": 1e-3, "input": 1,
                          "weight": 2}],
             "latency": 1e-6, "bandwidth": 1e9, "overlap": True}
    programs(corpus, root)
    corpus.put("costs", "all", json.dumps(costs))
    corpus.put("costs", "least", json.dumps(
        {"format": "penstock-costs", "version": 1,
         "stages": [{"forward": 1}]}))
    corpus.put("manifest", "all", json.dumps(MANIFEST, separators=(",", ":")))
    corpus.put("csv", "sent", "0UNSHARD,0F0,0SEND_F0>1,0RECV_B0<1,0B0,"
               "0REDUCE_GRAD#0,0RESHARD,.\n1RECV_F0<0,(1F0;1B0)OVERLAP_F_B,"
               "1SEND_B0,1COPY_F0>2\n")
    for name, text in ("no-microbatch", "0F"), ("no-peer", "0RECV_B0<"), \
            ("far-peer", "0SEND_F0>99999"), ("no-parameter", "0REDUCE_GRAD#"), \
            ("no-pair", "(0F0,0B0)OVERLAP_F_B"):
        corpus.put("csv", name, text)
    for i, text in enumerate(OPTIONS):
        corpus.put("options", f"{i:02}", text.replace(" ", "\n"))
    for i, text in enumerate(EXPRESSIONS):
        corpus.put("expr", f"{i:02}", text)
    corpus.put("graph", "all", GRAPH)
    corpus.put("graph", "empty", "graph next_id=1 {\n}\n")
    with open(f"{root}/tests/contrib/night.log", encoding="utf-8") as file:
        lines = file.read().splitlines()
    for event in "start", "step", "job_ended":
        corpus.put("line", event, next(
            x for x in lines if f" event={event} " in x))
    corpus.put("line", "quoted", lines[0].split(" event=")[0] +
               ' event=error text="a \\"b\\" \\\\ \\n\\t \\u001b[1m \\u00e9 \\u202e"')
    for name, ranks in ("one", 1), ("four", 4):
        head = struct.pack("<8sIIIIq24s", b"PSTFLT1", 4096, 56, 0, ranks, 77,
                           b"")
        record = struct.pack("<QQddiiiBB10s", 1, 12, 1e9, 0, 1, 3, ranks - 1,
                             4, 1, b"")
        corpus.put("flight", name, head + record)
    records = b"".join(
        struct.pack("<QQddiiiBBxxd", i + 1, 3, when, end, 1, 2, peer, 3, 0, when)
        for i, (when, end, peer) in enumerate(
            ((5e8, 0, 1), (1e9, 0, 0), (2e9, 2e9, 0), (1e9, 0, 2))))
    corpus.put("flight", "still", head + records)


def main():
    penstock, root = map(os.path.abspath, sys.argv[1:3])
    corpus = Corpus(f"{root}/tests/fuzz/corpus")
    golden = f"{root}/tests/golden"
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        plans(corpus, penstock, root, folder)
    models(corpus, golden)
    odd_archives(corpus)
    weights(corpus)
    tokens(corpus)
    whole_plan(corpus)
    frames(corpus)
    requests(corpus)
    add_records(corpus, root)
    print(f"{corpus.bytes} bytes")


if __name__ == "__main__":
    main()
