#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of tests/fuzz/corpus from small real files.

usage: make_corpus.py PENSTOCK ROOT

Files of other names there (what a fuzzer has found) stay as they are.
"""
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

# Each a form of its own: tags of a program, loops, free sizes, pairs.
MODELS = ["lost", "halves", "resize"]
EXPRESSIONS = [
    "2*s77 + 1", "s0", "-3", "Max(1, s77)", "s77//2", "Mod(s0, 2)",
    "Eq(s0, 4)", "(s0 + 1)*(s0 - 1)", "s0**2", "9223372036854775807",
    "Add(Mul(Integer(2), Symbol('s77', positive=True, integer=True)), "
    "Integer(1))",
    "Min(s0, Max(3, s1))/3", "floor(s0/2)", "0.5*s0", "1e300",
]
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
    for name in MODELS + ["mixed"]:
        with zipfile.ZipFile(f"{golden}/{name}.pt2") as zipped:
            entries = [(x.filename, zipped.read(x)) for x in
                       zipped.infolist() if x.file_size < 100000]
        # The smallest text is the easiest to change.
        entries = [(n, json.dumps(json.loads(d), separators=(",", ":"))
                    if n.endswith("model.json") else d) for n, d in entries]
        if name in MODELS:
            corpus.put("model", name, archive(entries))
        for entry, data in entries:
            if entry.endswith("models/model.json"):
                corpus.put("document", name, data)
            elif entry.endswith("_config.json") and len(data) > 20:
                corpus.put("payloads", f"{name}-{entry.split('/')[-2]}", data)
    small = [("m/archive_format", b"pt2"), ("m/a/b", bytes(100))]
    corpus.put("zip", "stored", archive(small))
    corpus.put("zip", "deflated", archive(small, zipfile.ZIP_DEFLATED))
    corpus.put("zip", "comment", archive(small, comment=b"PK\5\6 no end"))
    corpus.put("zip", "empty", archive([]))
    out = io.BytesIO()  # sizes in 64 bits
    with zipfile.ZipFile(out, "w") as zipped:
        with zipped.open("m/a", "w", force_zip64=True) as entry:
            entry.write(b"text")
    corpus.put("zip", "zip64", out.getvalue())


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
    corpus.put("index", "one", json.dumps(
        {"metadata": {"total_size": 8},
         "weight_map": {"a": "a.safetensors"}}))
    corpus.put("index", "elsewhere", json.dumps(
        {"weight_map": {"a": "../a.safetensors", "b": "b.safetensors"}}))


def plans(corpus, penstock, root, folder):
    golden = f"{root}/tests/golden"

    def ask(*words):
        subprocess.run([penstock, *words], check=True, timeout=60, cwd=folder,
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


# --- protobuf by hand --------------------------------------------------------


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
    """Numbers of fields as in proto/control.proto."""
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


def tensor(name, dtype, size, data):
    return message(1, message(1, name) + message(2, dtype) +
                   message(3, b"".join(map(varint, size))) +
                   message(4, data))


def requests(corpus):
    """For the model of tests/fuzz/targets/texts.c."""
    x = tensor("x", "F32", [3, 3], bytes(36))
    mask = tensor("mask", "BOOL", [2, 6], bytes([1, 0] * 6))
    whole = tensor("whole", "I64", [4], bytes(32))
    for name, body in ("all", x + mask + whole), ("less", mask + x), \
            ("missing", x + whole), ("twice", x + x + mask):
        corpus.put("request", name,
                   message(2, number(1, 7) + message(25, body)))


def rest(corpus, root):
    costs = {"format": "penstock-costs", "version": 1, "plan": "0" * 32,
             "stages": [{"forward": 1e-3, "input": 1e-3, "weight": 2e-3},
                        {"forward": 0.5, "backward": 1, "optimizer": 1e-4,
                         "reduce": 0}],
             "modules": [{"module": "h.0", "forward": 1e-3, "input": 1,
                          "weight": 2}],
             "latency": 1e-6, "bandwidth": 1e9, "overlap": True}
    corpus.put("costs", "all", json.dumps(costs))
    corpus.put("costs", "least", json.dumps(
        {"format": "penstock-costs", "version": 1,
         "stages": [{"forward": 1}]}))
    for i, text in enumerate(EXPRESSIONS):
        corpus.put("expr", f"{i:02}", text)
    corpus.put("graph", "all", GRAPH)
    corpus.put("graph", "empty", "graph next_id=1 {\n}\n")
    with open(f"{root}/tests/contrib/night.log", encoding="utf-8") as file:
        lines = file.read().splitlines()
    for event in "start", "step", "job_ended":
        corpus.put("line", event, next(
            x for x in lines if f" event={event} " in x))
    for name, ranks in ("one", 1), ("four", 4):
        head = struct.pack("<8sIIIIq24s", b"PSTFLT1", 4096, 56, 0, ranks, 77,
                           b"")
        record = struct.pack("<QQddiiiBB10s", 1, 12, 1e9, 0, 1, 3, ranks - 1,
                             4, 1, b"")
        corpus.put("flight", name, head + record)


def main():
    penstock, root = map(os.path.abspath, sys.argv[1:3])
    corpus = Corpus(f"{root}/tests/fuzz/corpus")
    golden = f"{root}/tests/golden"
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        plans(corpus, penstock, root, folder)
    models(corpus, golden)
    weights(corpus)
    frames(corpus)
    requests(corpus)
    rest(corpus, root)
    print(f"{corpus.bytes} bytes")


if __name__ == "__main__":
    main()
