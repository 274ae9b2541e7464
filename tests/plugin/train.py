#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains models with operators of a plugin (ours.c).

usage: train.py PENSTOCK OURS.so OTHER.so GOLDEN self|mpi|more

Loss and gradients equal PyTorch's, in f32 and bf16; bits are those of one stage
with every cut, schedule, recomputation and number of threads; a resumed run has
the bits of one that did not stop. The batch is a free size. With "more":
operators with lists, and a random one. With "mpi": the same bits on ranks of
MPI, which end by name if one of them has another plugin.
"""
import json
import os
import shutil
import sys
import tempfile

from bench import Bench, compare, flat, known_of, numbers, same

# Loss and gradients. Measured: at most 4e-7 in f32; in bf16, where each result
# is rounded to 8 bits, all are equal.
LIMITS = {"plugin": (2e-6, 2e-5), "plugin-bf16": (1e-3, 4e-3),
          "plugin-lists": (2e-6, 2e-5)}


def against_torch(b, golden, name):
    known, (loss, gradients) = known_of(golden, name), LIMITS[name]
    model = os.path.join(golden, name + ".pt2")
    data = b.data(name + ".data.safetensors", known, repeat=4)
    dump = b.run(b.split(model, 1), data)
    worst = compare(f"{name}: loss", numbers(dump["loss"]), [known["loss"]],
                    loss)
    print(f"{name}: loss {worst:.3g}")
    for key, want in known["gradients"].items():
        worst = compare(f"{name}: {key}", numbers(dump["grad." + key]),
                        flat(want), gradients)
        print(f"{name}: {key} {worst:.3g}")
    return model, data


def compare_ways(b, model, data, each=1):
    """Compares ways to run two steps of four microbatches; each: 2 leaves
    every second one out."""
    step = ["-m", "4", "--threads", "2"]
    want = b.run(b.split(model, 1), data, *step, steps=2)
    for stages, ranks, more in (
            (2, 2, []), (3, 3, ["--schedule", "gpipe"]),
            (4, 2, ["--schedule", "interleaved-1f1b"]),
            (4, 4, ["--schedule", "zb-h1"]), (4, 1, []),
            (2, 2, ["--recompute", "full"]), (2, 2, ["--threads", "1"]),
            (3, 3, ["--check-plugins"]), (2, 2, ["--device", "shadow"]), (2, 2, ["--stash", "ram"]),
            (2, 2, ["--verify"]))[::each]:
        got = b.run(b.split(model, stages), data, *step, *more, ranks=ranks,
                    steps=2)
        same(f"{stages} stages, {ranks} ranks, {more}", got, want)
    same("MODEL.pt2", b.run(model, data, *step, steps=2), want)
    rounded = [b.run(b.split(model, stages), data, *step, "--dtype", "bf16",
                    ranks=stages, steps=2) for stages in (1, 3)]
    same("--dtype bf16", rounded[1], rounded[0])
    replicas = [b.run(b.split(model, stages), data, *step, "--shard", shard,
                      ranks=f"2x{stages}", steps=2)
                for stages, shard in ((1, "none"), (2, "none"), (2, "zero1"))]
    same("replicas", replicas[1], replicas[0])
    same("zero1", replicas[2], replicas[0])


def rows_of(values, n):
    return [values[i:i + n] for i in range(0, len(values), n)]


def near(what, got, want):
    for a, b in zip(got, want, strict=True):
        if abs(a - b) > 1e-5 * max(1.0, abs(b)):
            raise SystemExit(f"{what}: {a}, not {b}")


def draws(b, golden):
    """A random operator: PyTorch draws other numbers, so the outputs show which
    elements were dropped, and the gradients are those of that choice."""
    known, p, m = known_of(golden, "plugin-random"), .25, 4
    model = os.path.join(golden, "plugin-random.pt2")
    data = b.data("random.data.safetensors", known, repeat=m)
    dump = b.run(b.split(model, 1), data, "-m", str(m))
    h, kept = (rows_of(numbers(dump[f"output.{i}"]), 32) for i in (1, 2))
    weight, bias = (known["parameters"][f"head.{name}"]
                    for name in ("weight", "bias"))
    chosen, n = [], len(kept)
    of_head, of_bias, of_fc = [0.0] * 4, [[0.0] * 32 for _ in range(4)], \
        [0.0] * 32
    for r in range(n):
        choice = [int(k != 0.0) for k in kept[r]]
        near("kept", kept[r], [c * v / (1 - p) for c, v in zip(choice, h[r])])
        chosen.append(choice)
        for j in range(4):
            out = bias[j] + sum(a * b for a, b in zip(weight[j], kept[r]))
            g = 2 * (out - known["y"][r % 8][j]) / (n * 4)
            of_head[j] += g
            for k in range(32):
                of_bias[j][k] += g * kept[r][k]
                of_fc[k] += g * weight[j][k] * choice[k] / (1 - p)
    near("head.bias", numbers(dump["grad.head.bias"]), of_head)
    near("head.weight", numbers(dump["grad.head.weight"]), flat(of_bias))
    near("fc.bias", numbers(dump["grad.fc.bias"]), of_fc)
    share = sum(flat(chosen)) / (n * 32)
    if n != 8 * m or abs(share - (1 - p)) > .06:
        raise SystemExit(f"{share} of the elements are kept")
    parts = [chosen[i:i + 8] for i in range(0, n, 8)]
    if any(parts.count(part) != 1 for part in parts):
        raise SystemExit("two microbatches drop the same elements")
    other = b.run(b.split(model, 1), data, "-m", str(m), "--seed", "4")
    if other["output.2"] == dump["output.2"]:
        raise SystemExit("another seed drops the same elements")
    return model, data


def resumes(b, model, data):
    plan, step = b.split(model, 2), ["-m", "2"]
    want = b.run(plan, data, *step, ranks=2, steps=4)
    saved = ["--checkpoint", b.at("saved-" + os.path.basename(model))]
    b.run(plan, data, *step, *saved, ranks=2, steps=2)
    got = b.run(plan, data, *step, *saved, "--resume", ranks=2, steps=4)
    if {k: v for k, v in got.items() if k.startswith("param.")} != {
            k: v for k, v in want.items() if k.startswith("param.")}:
        raise SystemExit("a resumed run has other parameters")


def sizes(b, model, data):
    """Other numbers of rows: the plugin's sizes follow."""
    rows = ["--microbatch-size", "4", "-m", "2"]
    want = b.run(b.split(model, 1), data, *rows, steps=2)
    same("4 rows", b.run(b.split(model, 3), data, *rows, ranks=3, steps=2),
         want)
    whole = b.run(b.split(model, 1), data, "-m", "1", steps=2)
    compare("4 + 4 rows", numbers(want["loss"]), numbers(whole["loss"]), 1e-6)
    for name in whole:
        if name.startswith("grad."):
            compare(f"4 + 4 rows: {name}", numbers(want[name]),
                    numbers(whole[name]), 1e-5)


def commands(b, model, data):
    """Commands that read plans and models."""
    plan = b.split(model, 2)
    print(b.call("eval", plan, "--data", data))
    b.call("infer", plan, "--data", data, "-o", b.at("out.safetensors"))
    b.call("verify", plan, "--data", data, "--check-plugins")
    b.call("plan", plan, "-n", "2")
    b.call("weights", plan, "-o", b.at("weights.safetensors"))
    text = b.call("show", plan, "--kernels")
    if "ours.gate.default f32,f64" not in text:
        raise SystemExit("show names no kernel of the plugin:\n" + text)
    if "ours.gate" not in b.call("ops", "ours"):
        raise SystemExit("ops does not list the plugin")
    listed = json.loads(b.call("modules", plan, "--json"))
    if not listed:
        raise SystemExit("modules lists none")


def ranks_of_mpi(b, model, data, other):
    plan = b.split(model, 2)
    want = b.run(plan, data, "-m", "4", steps=2)
    same("mpi", b.run(plan, data, "-m", "4", ranks=2, steps=2,
                      transport="mpi"), want)
    # Rank 1 has another file: penstock starts the penstockd beside itself.
    os.mkdir(b.at("bin"))
    shutil.copy(b.penstock, b.at("bin", "penstock"))
    with open(b.at("bin", "penstockd"), "w") as script:
        script.write(f"""#!/bin/sh
file={b.plugin}
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && file={other}
for word; do
  case $word in --plugin=*) ;; *) set -- "$@" "$word" ;; esac
  shift
done
exec {os.path.dirname(b.penstock)}/penstockd "$@" --plugin=$file
""")
    os.chmod(b.at("bin", "penstockd"), 0o755)
    b.penstock = b.at("bin", "penstock")
    text = b.call("run", plan, "--data", data, "-n", "2", "--transport", "mpi",
                  "--steps", "1", "--optimizer", "none", "--log-dir",
                  b.at("logs"), good=False)
    for word in ("the plugins", "ours 1.0", "ours 1.1"):
        if word not in text:
            raise SystemExit(f"ranks: {word} is not in\n{text}")


def main():
    *files, way = sys.argv[1:]
    penstock, plugin, other, golden = map(os.path.abspath, files)
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(penstock, folder, plugin)
        if way == "more":
            compare_ways(b, *against_torch(b, golden, "plugin-lists"), each=3)
            random = draws(b, golden)
            compare_ways(b, *random, each=2)
            resumes(b, *random)
            b.call("verify", random[0], "--data", random[1], "--check-plugins")
            return
        model, data = against_torch(b, golden, "plugin")
        if way == "mpi":
            ranks_of_mpi(b, model, data, other)
            return
        against_torch(b, golden, "plugin-bf16")
        compare_ways(b, model, data)
        resumes(b, model, data)
        sizes(b, model, data)
        commands(b, model, data)


if __name__ == "__main__":
    main()
