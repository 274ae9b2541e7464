#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `split --weights` reads exactly what `penstock weights` writes.

usage: weights.py PENSTOCK BYTEGPT.pt2 SHARED.pt2 TEXT

Also tests views of shared storage, names that no stage reads, and wrong files,
each of which must be refused by name and leave no plan.
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from tensor_file import load, save  # noqa: E402


def floats(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


def narrow(tensors):
    """Returns the f32 tensors truncated to bf16, and these values as f32
    again."""
    cut, wide = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        if dtype != "F32":
            cut[name] = wide[name] = (dtype, shape, data)
            continue
        half = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
        cut[name] = ("BF16", shape, half)
        wide[name] = ("F32", shape, b"".join(
            b"\0\0" + half[i:i + 2] for i in range(0, len(half), 2)))
    return cut, wide


def shards(folder, tensors, parts, name="model.safetensors.index.json"):
    """Writes tensors in several files with an index, as model hubs do."""
    os.makedirs(folder)
    names, where = sorted(tensors), {}
    for k in range(parts):
        file = "model-%05d-of-%05d.safetensors" % (k + 1, parts)
        mine = names[k::parts]
        save(os.path.join(folder, file), {n: tensors[n] for n in mine},
             {"format": "pt"})
        where.update({n: file for n in mine})
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 0}, "weight_map": where}, file)
    return where


def empty_records(model, to):
    """Writes the model as torch.export.save does for fake tensors."""
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(to, "w") as new:
        for entry in old.infolist():
            name = entry.filename.split("/", 1)[1]
            is_record = name.startswith("data/weights/weight_")
            new.writestr(entry.filename, b"" if is_record else
                         old.read(entry), zipfile.ZIP_STORED)


class Bench(job.Bench):
    def __init__(self, penstock, text, folder):
        super().__init__(penstock, folder)
        self.text, self.n = text, 0

    def new(self):
        self.n += 1
        return self.path("p%d" % self.n)

    def refused(self, code, text, *words):
        done = self.done(*words, code=code)
        assert text in done.stderr, (words, text, done.stderr)
        assert done.stdout == "", (words, done.stdout)

    def split(self, model, *options):
        """Splits the model; returns the plan, its tensors and the output."""
        plan = self.new()
        said = self.done("split", model, "-o", plan, *options).stdout
        return plan, tensors_of(plan), said

    def weights(self, of):
        path = self.new() + ".safetensors"
        self.done("weights", of, "-o", path)
        return path, *load(path)


def check_leftovers(b, plan):
    """A killed command leaves its temporary file, which the next one that
    writes the same file removes; not one of a process that runs, or that was
    changed just now."""
    path = b.new() + ".safetensors"
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"{path}.tmp-{ended.pid}-0", f"{path}.tmp-{os.getpid()}-0",
             f"{path}.tmp-{ended.pid}-1", f"{path}.tmp-{ended.pid}-0.mine"]
    for name in names:
        with open(name, "w", encoding="utf-8"):
            pass
        if name != names[2]:
            os.utime(name, (1, 1))
    b.done("weights", plan, "-o", path)
    assert [os.path.exists(name) for name in names] == [
        False, True, True, True], os.listdir(b.folder)
    for name in names[1:]:
        os.unlink(name)


def tensors_of(plan):
    ret = {}
    for name in sorted(os.listdir(plan)):
        if name.endswith(".safetensors"):
            ret.update(load(os.path.join(plan, name))[0])
    return ret


def check_plan(b, model):
    """Checks that tensors copied from one plan to another keep their bytes, in
    every file format."""
    plan, want, _ = b.split(model, "--stages", 2)
    check_leftovers(b, plan)
    path, got, about = b.weights(plan)
    assert about == {"format": "pt"}, about
    assert set(want) - set(got) == {"positions"}, set(want) ^ set(got)
    assert all(want[n] == got[n] for n in got)
    again = b.split(model, "--stages", 3, "--weights", path)
    assert again[1] == want and "note:" not in again[2], again[2]

    other = {n: (d, s, bytes(x ^ (0x80 if i % 4 == 3 else 0)
                             for i, x in enumerate(data)))
             for n, (d, s, data) in got.items()}
    save(b.path("other.safetensors"), other)
    taken = b.split(model, "--weights", b.path("other.safetensors"))[1]
    assert taken == {**want, **other}
    lone = b.path("lone")
    os.makedirs(lone)
    save(os.path.join(lone, "any.safetensors"), other)
    assert b.split(model, "--weights", lone)[1] == taken
    for name in "model.safetensors.index.json", "b.safetensors.index.json":
        folder = b.new()
        shards(folder, other, 3, name)
        assert b.split(model, "--weights", folder)[1] == taken
        assert b.split(model, "--weights",
                       os.path.join(folder, name))[1] == taken
    # A pattern takes the shards without the index.
    pattern = os.path.join(folder, "model-*.safetensors")
    assert b.split(model, "--weights", pattern)[1] == taken
    os.unlink(os.path.join(folder, name))
    assert b.split(model, "--weights", os.path.join(folder, "*"))[1] == taken
    with open(os.path.join(folder, "model-x.json"), "w", encoding="utf-8"):
        pass
    b.refused(65, "no file *.safetensors matches", "split", model, "-o",
              b.path("none"), "--weights", os.path.join(folder, "*.json"))
    b.refused(65, "no file with tokens or tensors matches", "split", model,
              "-o", b.path("none"), "--weights", os.path.join(folder, "y*"))
    shutil.copy(os.path.join(folder, "model-00001-of-00003.safetensors"),
                os.path.join(folder, "model-x.safetensors"))
    b.refused(65, "model-x.safetensors: \"", "split", model, "-o",
              b.path("none"), "--weights", pattern)
    # model.safetensors takes precedence over an index.
    save(os.path.join(folder, "model.safetensors"), got)
    assert b.split(model, "--weights", folder)[1] == want

    cut, wide = narrow(other)
    save(b.path("cut.safetensors"), cut)
    _, taken, said = b.split(model, "--weights", b.path("cut.safetensors"))
    assert taken == {**want, **wide}
    assert "%d tensors have a narrower dtype" % len(cut) in said, said
    # eval uses the weights of --weights.
    losses = [json.loads(b.done(
        "eval", model, "--data", b.text, "--json", *options).stdout)["loss"]
        for options in ([], ["--weights", path],
                        ["--weights", b.path("other.safetensors")])]
    assert losses[0] == losses[1] != losses[2], losses
    return want, got


def check_windows(b, model):
    """Checks that views of one storage are separate tensors in the file."""
    plan, want, _ = b.split(model)
    path, got, _ = b.weights(plan)
    assert set(got) >= {"whole", "front", "front_again", "odd", "upper",
                        "lower", "turned", "even_columns", "odd_columns"}
    assert not any("+" in name for name in got), sorted(got)
    values = {n: floats(data) for n, (_, _, data) in got.items()}
    assert values["odd"] == values["whole"][1::2]
    assert values["front"] == values["front_again"] == values["whole"][:5]
    lower = values["lower"]
    assert values["turned"] == lower[0::3] + lower[1::3] + lower[2::3]
    assert values["upper"][3:] == lower[:3]
    assert b.split(model, "--weights", path)[1] == want
    shifted = {n: (d, s, struct.pack("<%df" % (len(x) // 4),
                                     *(v + 1 for v in floats(x))))
               for n, (d, s, x) in got.items()}
    save(b.path("shifted.safetensors"), shifted)
    plan = b.split(model, "--weights", b.path("shifted.safetensors"))[0]
    assert b.weights(plan)[1] == shifted
    wrong = dict(shifted, upper=got["upper"])
    save(b.path("wrong.safetensors"), wrong)
    b.refused(65, "shares memory", "split", model, "-o", b.path("none"),
              "--weights", b.path("wrong.safetensors"))


def check_empty(b, model, want, given):
    """Checks that a model that was exported without weights needs
    --weights."""
    bare = b.path("bare.pt2")
    empty_records(model, bare)
    save(b.path("given.safetensors"), given)
    b.refused(65, "give them with --weights", "split", bare, "-o",
              b.path("none"))
    b.refused(65, "give them with --weights", "eval", bare, "--data", b.text)
    assert b.split(bare, "--weights", b.path("given.safetensors"),
                   "--stages", 4)[1] == want
    b.done("plan", bare, "--stages", 2)  # plan needs no values
    save(b.path("less.safetensors"),
         {n: t for n, t in given.items() if n != "wpe.weight"})
    b.refused(65, 'exported without values ("wpe.weight")', "split", bare,
              "-o", b.path("none"), "--weights", b.path("less.safetensors"),
              "--partial")


def moments(tensor):
    """Returns mean, standard deviation and largest absolute value."""
    x = floats(tensor[2])
    mean = sum(x) / len(x)
    return (mean, math.sqrt(sum((v - mean)**2 for v in x) / len(x)),
            max(map(abs, x)))


def check_init(b, model, given):
    """Checks the start values of --init-seed: they do not depend on the cut,
    have the deviations of PyTorch's reset_parameters, or of --init-std, and
    --weights replaces them."""
    bare = b.path("bare.pt2")
    got = b.split(bare, "--init-seed", 7, "--stages", 4)[1]
    assert b.split(bare, "--init-seed", 7, "--stages", 1)[1] == got
    other = b.split(bare, "--init-seed", 8)[1]
    small = b.split(bare, "--init-seed", 7, "--init-std", ".02")[1]
    for name, tensor in got.items():
        if name not in given:
            continue
        mean, deviation, most = moments(tensor)
        shape = tensor[1]
        if ".ln_" in name or name.startswith("ln_"):
            one = name.endswith("weight")
            assert (mean, deviation) == (one, 0) and other[name] == tensor
            assert small[name] == tensor
            continue
        assert other[name] != tensor and small[name] != tensor
        bound, wanted = math.inf, 1 # of an embedding
        if "wte" not in name and "wpe" not in name:
            weight = got[name.removesuffix("bias").removesuffix("weight") +
                         "weight"][1]
            bound = 1 / math.sqrt(weight[1])
            wanted = bound / math.sqrt(3)
        n = math.prod(shape)
        assert most <= bound * (1 + 1e-6), (name, most)
        assert abs(deviation - wanted) < 4 * wanted / math.sqrt(n), name
        assert abs(mean) < 4 * wanted / math.sqrt(n), name
        _, deviation, _ = moments(small[name])
        wanted = .02 if len(shape) > 1 else 0
        assert abs(deviation - wanted) <= 4 * wanted / math.sqrt(n), name
    part = {"h.0.up.weight": given["h.0.up.weight"]}
    save(b.path("one.safetensors"), part)
    mixed = b.split(bare, "--init-seed", 7, "--weights",
                    b.path("one.safetensors"), "--partial")[1]
    assert mixed == {**got, **part}
    plan = b.split(bare, "--init-seed", 7)[0]
    b.done("run", plan, "-n", 1, "--transport", "self", "--data", b.text,
           "--steps", 1, "--quiet")
    b.refused(64, "the model has all of its values", "split", model, "-o",
              b.path("none"), "--init-seed", 7)
    b.refused(64, "no effect without --init-seed", "split", bare, "-o",
              b.path("none"), "--init-std", ".02")


def check_partial(b, model, want, given):
    part = {n: t for n, t in given.items() if not n.startswith("h.1.")}
    part["extra"] = part["h.0.up.bias"]
    part["positions"] = want["positions"]
    part["h.0.up.bias"] = ("F32", part["extra"][1],
                           b"\0\0\xc0\x7f" * (len(part["extra"][2]) // 4))
    save(b.path("part.safetensors"), part)
    options = ["--weights", b.path("part.safetensors"), "--partial"]
    _, taken, said = b.split(model, *options)
    assert taken == {**want, "h.0.up.bias": part["h.0.up.bias"]}
    for text in ('12 tensors of the model are not in it', '"h.1.', ', ...',
                 '1 tensors are none of the model: "extra"',
                 '1 tensors are no part of the model\'s state_dict, which '
                 'keeps its own: "positions"', '"h.0.up.bias" has a NaN'):
        assert text in said, (text, said)
    b.refused(65, "lacks 12 tensors of the model", "split", model, "-o",
              b.path("none"), *options[:2])
    b.refused(64, "--weights", "split", model, "-o", b.path("none"),
              "--partial")
    plan = b.split(model)[0]
    b.refused(64, "--weights needs the .pt2", "verify", plan, *options[:2])


def check_bad(b, model, given):
    name = "h.0.up.bias"

    def changed(*new):
        path = b.new() + ".safetensors"
        save(path, {**given, name: new} if new else given)
        return path

    def index(text, made=None):
        folder = b.new()
        if made is None:
            shards(folder, given, 2)
        else:
            os.makedirs(folder)
        with open(os.path.join(folder, "model.safetensors.index.json"), "w",
                  encoding="utf-8") as file:
            file.write(text)
        return folder

    def renamed(to):
        return index(json.dumps({"weight_map": {name: to}}))

    dtype, shape, data = given[name]
    gone = b.new()
    shards(gone, given, 3)
    os.unlink(os.path.join(gone, "model-00002-of-00003.safetensors"))
    cut = b.new()
    shards(cut, given, 2)
    with open(os.path.join(cut, "model-00001-of-00002.safetensors"),
              "r+b") as file:
        file.truncate(5000)
    two = b.path("two")
    os.makedirs(two)
    shutil.copy(changed(), os.path.join(two, "a.safetensors"))
    shutil.copy(changed(), os.path.join(two, "b.safetensors"))
    os.makedirs(b.path("nothing"))
    for path, code, text in [
            (changed(dtype, [1, *shape], data), 65,
             '"%s" is f32[1, 128], the model has f32[128]' % name),
            (changed("F64", shape, data + data), 65,
             'its values would change'),
            (changed("I64", shape, data + data), 65,
             '"%s" is i64[128]' % name),
            (changed("F32", shape, data[4:]), 65, name),
            (gone, 65, '"model-00002-of-00003.safetensors", which is missing'),
            (cut, 65, "model-00001-of-00002.safetensors"),
            (two, 65, "holds 2 files *.safetensors"),
            (b.path("nothing"), 65, "holds no file"),
            (b.path("not-there"), 74, "no such file"),
            (model, 65, "no safetensors file"),
            (index("{"), 65, "index.json"),
            (index("[]"), 65, "weight_map"),
            (index("[" * 100000, 0), 65, "index.json"),
            (index('{"weight_map": {"a": 1}}'), 65, "no file of this folder"),
            (index('{"weight_map": {"a": "", "a": ""}}'), 65, "duplicate"),
            (index('{"weight_map": {}}', 0), 65, "lacks"),
            (renamed("../p1/stage-000.safetensors"), 65,
             "no file of this folder"),
            (renamed("/etc/passwd"), 65, "no file of this folder"),
            (renamed(".."), 65, "no file of this folder"),
            (renamed("model.safetensors.index.json"), 65, "no safetensors")]:
        b.refused(code, text, "split", model, "-o", b.path("none"),
                  "--weights", path)
        assert not os.path.exists(b.path("none"))
    where = {n: "model-00001-of-00002.safetensors" for n in given}
    b.refused(65, 'is not in "model-00001', "split", model, "-o",
              b.path("none"), "--weights",
              index(json.dumps({"weight_map": where})))


def check_checkpoints(b, model):
    folder = b.path("ck")
    b.done("run", model, "--stages", 2, "--transport", "self", "--data",
           b.text, "--steps", 3, "--checkpoint", folder,
           "--checkpoint-every", 1, "--keep", 0, "--quiet")
    path, newest, _ = b.weights(folder)
    parts = {}
    step = os.path.join(folder, "step-00000003")
    for name in os.listdir(step):
        if name.startswith("rank-"):
            parts.update(load(os.path.join(step, name))[0])
    assert len(newest) > 25 and newest == {
        n.split(".", 1)[1]: t for n, t in parts.items()
        if n.startswith("param.")}
    assert b.weights(step + "/")[1] == newest
    os.symlink(step, b.path("latest"))
    assert b.weights(b.path("latest"))[1] == newest
    first = b.weights(os.path.join(folder, "step-00000001"))[1]
    assert first != newest
    done = b.done("weights", folder, "-o", path, "--json")
    assert json.loads(done.stdout) == {
        "file": path, "tensors": len(newest), "step": 3,
        "bytes": sum(len(t[2]) for t in newest.values())}

    shard = os.path.join(step, "rank-000.safetensors")
    with open(shard, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read()
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    b.refused(65, "is damaged", "weights", step, "-o", b.path("x"))
    second = b.done("weights", folder, "-o", path, "--json")
    assert json.loads(second.stdout)["step"] == 2
    assert "passed over: step-00000003" in second.stderr, second.stderr
    b.refused(65, "no checkpoint", "weights", b.path("nothing"), "-o",
              b.path("x"))
    b.refused(65, "no such", "weights", b.path("nowhere"), "-o", b.path("x"))
    b.refused(64, "is a file", "weights", model, "-o", b.path("x"))
    b.refused(64, "-o FILE", "weights", folder)
    assert not os.path.exists(b.path("x"))
    with open(path, "rb") as file:
        before = file.read()
    b.refused(65, "is damaged", "weights", step, "-o", path)
    with open(path, "rb") as file:
        assert file.read() == before  # the file is unchanged


def main():
    penstock, model, shared, text = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, \
            Bench(penstock, text, folder) as b:
        want, given = check_plan(b, model)
        check_windows(b, shared)
        check_empty(b, model, want, given)
        check_init(b, model, given)
        check_partial(b, model, want, given)
        check_bad(b, model, given)
        check_checkpoints(b, model)
    print("weights in and out")


if __name__ == "__main__":
    main()
