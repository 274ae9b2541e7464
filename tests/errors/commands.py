# SPDX-License-Identifier: Apache-2.0
"""Lists errors of command lines, plans, weights and data, in the format of
models.py."""
import json
import os
import shutil
import struct

from bench import rows, safetensors, zeros

RUN = "run tiny.plan --transport self -n 1 --steps 1 -m 2 "
WITH = RUN + "--data data.safetensors "
SPLIT = "split dynamic.pt2 -o x.plan "
NORM = "split norm.pt2 -o x.plan "
A300 = "a" * 300


def make(b):
    os.mkdir(b.at("empty"))
    b.write("full/other.txt", "mine\n")
    b.write("file", "a file\n")
    b.write("empty.bytes", "")
    b.write("cuts.json", '{"no": "list"}')
    b.write("bad.csv", "0F0,0B0\n0F1,nothing\n")
    b.write("stuck.csv", "0B0,0F0,1F0,1B0\n")
    b.write("costs.json", '{"version": 1, "stages": "no"}')
    b.write("costs-9.json", '{"format": "penstock-costs", "version": 9}')
    b.write("hosts.txt", "# nobody\n")
    safetensors(b.at("few.safetensors"), {"tokens": zeros("I64", [4, 3])})
    safetensors(b.at("shape.safetensors"), {
        **rows(4), "tokens": zeros("I64", [4, 5])})
    safetensors(b.at("far.safetensors"), rows(4, first_token=99))
    safetensors(b.at("bad.safetensors"), {}, '{"a": {"dtype": "F32"}}')
    safetensors(b.at("kind.safetensors"), {"a": zeros("F8_E4M3", [2])}, json.dumps(
        {"a": {"dtype": "X7", "shape": [2], "data_offsets": [0, 2]}}))
    b.write("no.safetensors", "short")
    b.write("several/a.safetensors", "")
    b.write("several/b.safetensors", "")
    b.write("index/model.safetensors.index.json", '{"weight_map": 3}')
    for name in "twice/a.safetensors", "twice/b.safetensors":
        os.makedirs(b.at("twice"), exist_ok=True)
        safetensors(b.at(name), {"x": zeros("F32", [2])})
    b.write("int32.bin", struct.pack("<64i", *range(64)))
    b.write("llmc.bin", struct.pack("<256i64H", 20240520, 1, 64, *(0,) * 253,
                                    *range(64)))
    safetensors(b.at("xy.safetensors"), {
        name: zeros("F32", [2, 3]) for name in "xy"})
    safetensors(b.at("other.safetensors"), {"x": zeros("F32", [2])})
    safetensors(b.at("wide.safetensors"), {
        "fc.weight": zeros("F32", [8, 9])})
    shutil.copytree(b.at("tiny.plan"), b.at("damaged.plan"))
    b.damage("damaged.plan/" + plan_file(b), -9, b"\xff\xff\xff")
    shutil.copytree(b.at("tiny.plan"), b.at("torn.plan"))
    weights = next(n for n in os.listdir(b.at("torn.plan"))
                   if n.endswith(".safetensors"))
    b.damage("torn.plan/" + weights, -4, b"\1\2\3\4")
    b.write("ended/last_exit.json", "{}")
    nan = rows(4)
    nan["extra.scale"] = ("F32", [16], b"\0\0\xc0\x7f" * 16)
    safetensors(b.at("nan.safetensors"), nan)
    spike = rows(12)
    spike["extra.scale"] = ("F32", [48], struct.pack("<48f", *[1.] * 32,
                                                     *[300.] * 16))
    safetensors(b.at("spike.safetensors"), spike)
    b.write("zero/rank-0.flight", "no record")


def plan_file(b):
    return next(n for n in os.listdir(b.at("tiny.plan"))
                if not n.endswith(".safetensors"))


CASES = [
    ("command.unknown", 64, "splitt", "splitt"),
    ("command.arguments", 64, "penstock split", "split"),
    ("command.arguments", 64, "PLAN", "penstockd"),
    ("command.no-such-error", 64, "no.such", "explain no.such"),
    ("command.no-such-pass", 64, "magic", "show tiny.pt2 --after magic"),
    ("command.no-such-file", 65, "nobody", "weights nobody -o x.safetensors"),
    ("option.unknown", 64, "--polizy", SPLIT + "--polizy flops"),
    ("option.value", 64, "--stages", SPLIT + "--stages -1"),
    ("option.value", 64, "--stages", SPLIT + "--stages"),
    *(("option.value", 64, name, f"{words} -o {name}") for words, name in (
        ("ask data.safetensors", "o.csv"), ("ask data.safetensors", "o.JSON"),
        ("weights tiny.plan", "w.pt"), ("attr get up.bias", "up.txt"),
        ("infer tiny.plan --data data.safetensors", "inf.json"))),
    ("option.value", 64, "x.txt", WITH + "--prom x.txt"),
    *(("option.value", 64, "--job", f"{words} --job {name}") for words, name in (
        (WITH, "../x"), (WITH, "a:b"), ("status", ".."), ("status", "a/b"),
        ("penstockd tiny.plan --transport self", ".x"))),
    ("option.value", 64, "--job", "attach a/b"),
    ("run.plan", 64, "tiny.plan", "split tiny.plan -o x.plan"),
    ("run.plan", 64, "tiny.pt2", "penstockd tiny.pt2 --transport self"),
    ("run.options", 64, "--keep-best", WITH + "--keep-best"),
    ("device.name", 64, "gpu:0", WITH + "--device gpu:0"),
    ("host.bind", 65, "--bind cores", WITH + "--threads 1024 --bind cores"),
    ("device.none", 65, "CUDA driver", WITH + "--device cuda"),
    ("device.tf32", 64, "rank 0: the device cpu", WITH + "--tf32"),
    ("run.options", 64, "--min-ranks", WITH + "--min-ranks 1"),
    *(("run.options", 64, text, WITH + words) for text, words in (
        ("--checkpoint DIR", "--checkpoint-every 2"),
        ("--checkpoint DIR", "--checkpoint-sync"),
        ("--checkpoint DIR", "--checkpoint-retry 3"),
        ("--checkpoint DIR", "--keep 3"), ("--on-nan", "--nan-limit 3"),
        ("--stash ram", "--stash-keep 3"), ("--lr-schedule", "--lr-min 1e-5"),
        ("--lr-schedule", "--lr-steps 9 --lr-schedule constant"))),
    *(("command.arguments", 64, words.split()[0], "show tiny.pt2 " + words)
      for words in ("--aliases", "--modules --format svg",
                    "--kernels --format dot", "--stage 0 --format svg",
                    "--passes --format svg", "--json --format svg")),
    *(("option.unknown", 64, option, f"serve tiny.plan {option} 1")
      for option in ("--min-ranks", "--tensorboard")),
    ("file.missing", 74, "nobody.pt2", "show nobody.pt2"),
    ("file.name-too-long", 74, A300, f"show {A300}.pt2"),
    ("file.wrong-kind", 74, "file/x.pt2", "show file/x.pt2"),
    ("plan.exists", 64, "file", "split tiny.pt2 -o file"),
    ("plan.folder", 65, "full", "split tiny.pt2 -o full"),
    ("plan.damaged", 65, "plan", "show damaged.plan"),
    ("plan.damaged", 65, "torn.plan",
     "run torn.plan --transport self -n 1 --steps 1 --data data.safetensors"),
    ("module.unknown", 65, "wteh", NORM + "--at wteh"),
    ("module.call-number", 65, "fc@9", NORM + "--at fc@9"),
    ("module.not-called", 65, "spare", "show tiny.pt2 --module spare"),
    ("parameter.unknown", 65, "no.weight", SPLIT + "--freeze no.weight"),
    ("cut.unknown-policy", 64, "magic", SPLIT + "--policy magic"),
    ("cut.options", 64, "fc:mid", NORM + "--at fc:mid"),
    ("cut.too-many", 65, "4000", SPLIT + "--policy flops --stages 4000"),
    ("cut.no-layers", 65, "layers", SPLIT + "--policy layers --stages 2"),
    ("cut.file", 65, "cuts.json", SPLIT + "--policy file:cuts.json"),
    ("owner.form", 64, "--owner", NORM + "--owner norm.running_mean"),
    ("loss.unknown", 64, "magic", SPLIT + "--loss-fn magic"),
    ("loss.output", 65, "9", SPLIT + "--loss 9"),
    ("loss.missing", 78, "--loss-fn",
     WITH.replace("tiny.plan", "tiny.pt2 --loss none")),
    ("batch.divide", 65, "5", "plan tiny.plan -n 1 -m 2 --batch 5"),
    ("batch.twice", 64, "microbatch",
     "plan dynamic.plan -n 1 -m 2 --batch 4 --microbatch-size 2"),
    ("batch.fixed", 65, "tokens", "plan tiny.plan -n 1 --microbatch-size 3"),
    ("size.option", 64, "--size", "plan dynamic.plan -n 1 --size tokens"),
    ("size.option", 64, "nobody", "plan dynamic.plan -n 1 --chunk nobody=0"),
    ("size.range", 65, "", "plan dynamic.plan -n 1 --microbatch-size 100000"),
    ("schedule.unknown", 64, "magic", "plan tiny.plan -n 1 --schedule magic"),
    ("schedule.counts", 64, "ranks", "plan tiny.plan -n 9"),
    ("schedule.place", 64, "--place", "plan tiny.plan -n 1 --place 0=7"),
    ("schedule.csv", 65, "bad.csv", "plan tiny.plan -n 1 --schedule csv:bad.csv"),
    ("schedule.stuck", 65, "stuck.csv",
     "plan tiny.plan -n 1 -m 1 --schedule csv:stuck.csv"),
    ("schedule.memory", 64, "MiB",
     "plan tiny.plan -n 1 --schedule auto --memory-limit 0.001"),
    ("costs.file", 65, "costs.json", "plan tiny.plan -n 1 --costs costs.json"),
    ("costs.version", 65, "costs-9.json",
     "plan tiny.plan -n 1 --costs costs-9.json"),
    ("recompute.words", 64, "nobody", "plan tiny.plan -n 1 --recompute nobody"),
    ("shard.words", 64, "zero9", "plan tiny.plan -n 1 --shard zero9"),
    ("shard.unequal", 64, "--gather-dtype",
     "plan tiny.plan -n 1 --gather-dtype bf16"),
    ("stash.words", 64, "magic", "plan tiny.plan -n 1 --stash magic"),
    ("optimizer.unknown", 64, "magic", "plan tiny.plan -n 1 --optimizer magic"),
    ("option.unknown", 64, "here that is --lr X",
     RUN + "--learning_rate 1e-3"),
    ("run.set", 64, "cannot change while a run goes on", "set batch=4"),
    ("run.ramp", 64, "from step 0 on, not from step 1", WITH + "-m 2:1"),
    ("run.ramp", 64, "is not COUNT:STEP", "set microbatches=4:"),
    ("run.ramp", 64, "steps of one size", "verify tiny.plan -m 1:0,2:1"),
    ("optimizer.group", 64, "has no ':'", WITH + "--group head"),
    ("optimizer.option", 64, "nesterov", WITH + "--optimizer sgd --nesterov"),
    ("optimizer.option", 64, "--lr", WITH + "--optimizer none --lr 3"),
    ("optimizer.option", 64, "--warmup",
     WITH + "--optimizer none --warmup 3"),
    ("optimizer.option", 64, "--weight-decay",
     WITH + "--optimizer none --weight-decay 0"),
    ("optimizer.option", 64, "--lr-min 0.2 is more than --lr 0.1",
     WITH + "--lr 0.1 --lr-min 0.2 --lr-schedule cosine"),
    ("optimizer.option", 64, "--steps 1 is not more than --warmup 3",
     WITH + "--lr-schedule linear --warmup 3"),
    ("optimizer.option", 64, "--lr-decay-steps 2 is more than the 1 updates",
     WITH + "--lr-schedule wsd --lr-decay-steps 2"),
    ("data.missing", 64, "--data", RUN),
    ("data.no-tensor", 65, "few.safetensors", RUN + "--data few.safetensors"),
    ("data.shape", 65, "tokens", RUN + "--data shape.safetensors"),
    ("data.pack", 65, "number of the token", RUN + "--data tokens.bin "
     "--pack EOS"),
    ("data.list", 65, "give each file a weight",
     RUN + "--data a.bin:0.5,b.bin"),
    ("data.format", 65, "safetensors", RUN + "--data data.st"),
    ("data.format", 65, "NumPy", RUN + "--data tokens.npy"),
    ("data.token-dtype", 64, "--seq-len", WITH + "--seq-len 3"),
    ("data.vocabulary", 65, "far.safetensors", RUN + "--data far.safetensors"),
    ("data.width", 65, "uint32",
     RUN + "--data int32.bin --token-dtype uint16"),
    ("data.format", 65, "--token-dtype uint16", RUN + "--data llmc.bin"),
    ("run.lost-backward", 78, "module \"parts.0\" at make_unread.py:44",
     "run functions.pt2 --transport self -n 1 --steps 1 --data xy.safetensors"),
    ("safetensors.damaged", 65, "bad.safetensors",
     RUN + "--data bad.safetensors"),
    ("safetensors.kind", 65, "kind.safetensors",
     RUN + "--data kind.safetensors"),
    ("safetensors.not", 65, "no.safetensors", RUN + "--data no.safetensors"),
    ("weights.several-files", 65, "several", SPLIT + "--weights several"),
    ("weights.none", 65, "empty", SPLIT + "--weights empty"),
    ("weights.index", 65, "index", SPLIT + "--weights index"),
    ("weights.twice", 65, "a.safetensors", SPLIT + "--weights twice/*"),
    ("weights.missing", 65, "other.safetensors",
     SPLIT + "--weights other.safetensors"),
    ("weights.shape", 65, "fc.weight",
     "split tiny.pt2 -o x.plan --weights wide.safetensors --partial"),
    ("lora.pattern", 65, "nobody", SPLIT + "--lora nobody:rank=2"),
    ("lora.rank", 65, "up", SPLIT + "--lora up:rank=99"),
    ("lora.not-linear", 65, "emb", SPLIT + "--lora emb:rank=2"),
    ("lora.none", 65, "adapters",
     "weights tiny.plan --merge -o x.safetensors"),
    ("swap.file", 64, "--swap", SPLIT + "--swap head"),
    ("swap.interface", 65, "head", SPLIT + "--swap head=norm.pt2"),
    ("infer.model", 65, "", "infer norm.pt2 --prompt x"),
    ("infer.model", 65, "'scale'", "infer dynamic.pt2 --prompt x"),
    ("eval.model", 65, "norm.", WITH + "--eval-data data.safetensors "
     "--eval-model norm.pt2"),
    ("loss.missing-mean", 65, "--loss",
     "eval tiny.pt2 --data data.safetensors --loss none"),
    ("random.keep", 64, "head",
     "eval tiny.plan --data data.safetensors --keep-random head"),
    ("hosts.words", 64, ":0", WITH.replace("--transport self ", "") +
     "--hosts localhost:0"),
    ("hosts.file", 65, "hosts.txt", WITH.replace("--transport self ", "") +
     "--hostfile hosts.txt"),
    ("infer.prompt", 65, "token 260", "infer loss.pt2 --prompt 260"),
    ("command.arguments", 64, "--batch",
     "infer dynamic.pt2 --prompt x -m 2 --batch 5"),
    ("command.arguments", 64, "--seq-len",
     "infer loss.pt2 --prompt 1 --seq-len 2"),
    ("job.none", 69, "", "status"),
    ("job.none", 69, "nobody.sock", "status --socket nobody.sock"),
    ("socket.path", 78, A300, f"status --socket {A300}"),
    ("record.none", 65, "empty", "flight empty"),
    ("history.none", 65, "empty", "history empty"),
    ("history.damaged", 65, "rank-0.flight", "history zero/rank-0.flight"),
    ("record.none", 65, "empty", "report empty -o x.html"),
    ("checkpoint.none", 65, "nobody", "checkpoints nobody"),
    ("doctor.unfit", 1, "jobs", "doctor nobody"),
    ("job.end-file", 65, "ended/last_exit.json", "status ended"),
    ("run.not-finite", 65, "step 1", RUN + "--data nan.safetensors"),
    ("run.spike", 65, "step 3 was not applied: the ", RUN + "--steps 3 --data "
     "spike.safetensors --on-spike stop --spike-window 2"),
    ("data.token-bytes", 65, "--token-bytes empty.bytes", "eval tiny.plan "
     "--data data.safetensors --token-bytes empty.bytes"),
    ("job.result-gone", 65, "empty", "status empty"),
]
