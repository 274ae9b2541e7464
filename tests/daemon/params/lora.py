#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `split --lora`: trained parameters in every cut, checkpoints, the
output of `weights --merge` and `--adapter`, and refusals.

usage: lora.py PENSTOCK BYTEGPT.pt2 TEXT
"""
import json
import os
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402
from patience import wait_until  # noqa: E402

LORAS = ["--lora", "h.*.attn.*:rank=4", "--lora", "h.?.up:rank=2,alpha=6"]
RANKS = {"attn.qkv": (4, 2.0), "attn.proj": (4, 2.0), "up": (2, 3.0)}
STEPS = 6


def load(path):
    """Returns {name: (shape, bytes)} of a file."""
    return {name: (shape, data)
            for name, (_, shape, data) in tensor_file.load(path)[0].items()}


def save(path, tensors):
    tensor_file.save(path, {name: ("F32", *t) for name, t in tensors.items()})


def rows(tensor):
    (n, m), data = tensor
    return [struct.unpack_from("<%df" % m, data, 4 * m * i) for i in range(n)]


class Bench(job.Bench):
    def __init__(self, penstock, model, text, folder):
        super().__init__(penstock, folder)
        self.model, self.text = model, text

    def weights(self, of, *options):
        self.said("weights", of, "-o", "w.safetensors", *options)
        return load(f"{self.folder}/w.safetensors")

    def split(self, plan, *options):
        return self.said("split", self.model, "-o", plan, *options)

    def run(self, plan, dump, *options, steps=STEPS):
        # One thread: by default the number of threads per rank depends on the
        # number of ranks, and libraries may then sum rows in another order.
        self.said("run", plan, "--transport", "self", "--threads", 1, "-m", 2,
                  "--steps", steps, "--lr", "1e-2", "--data", self.text, "--dump", dump,
                  "--quiet", *options)
        return load(f"{self.folder}/{dump}")


def check_split(b):
    """Checks that all tensors of the model are unchanged, A is within its
    bounds, B is zero, and that a layer of shape (in, out) has rank * (in +
    out) additional parameters."""
    b.split("base")
    said = b.split("plan", "--stages", 3, *LORAS)
    assert "12 linear layers have an adapter, with 17408 parameters" in said, (
        said)
    base, plan = b.weights("base"), b.weights("plan")
    assert all(plan.pop(name) == tensor for name, tensor in base.items())
    assert len(plan) == 2 * 12, sorted(plan)
    for name, (shape, data) in plan.items():
        layer, rank = next((k, r) for k, (r, _) in RANKS.items() if k in name)
        want = base[name.split(".lora_")[0] + ".weight"][0]
        if name.endswith(".lora_B.default.weight"):
            assert shape == [want[0], rank] and not any(data), name
            continue
        assert name.endswith(".lora_A.default.weight"), name
        assert shape == [rank, want[1]], (name, layer, shape)
        values = struct.unpack("<%df" % (len(data) // 4), data)
        assert .9 * want[1] ** -.5 < max(map(abs, values)) <= (
            want[1] ** -.5), name
    b.split("plan7", *LORAS, "--seed", 7)
    other = b.weights("plan7")
    assert all((other[n] == t) == ("lora_B" in n) for n, t in plan.items())
    return base


def check_training(b, base):
    """Checks that every cut gives the same bits, and that frozen parameters
    have no gradient and do not change."""
    whole = b.run("plan", "whole", "--ranks", 1)
    cut = b.run("plan", "cut", "--ranks", 3, "--schedule", "gpipe",
                "--checkpoint", "saved", "--checkpoint-every", 2, "--keep", 0)
    assert whole == cut
    assert {n for n in whole if n.startswith("grad.")} == {
        "grad." + n for n in b.weights("plan") if ".lora_" in n}
    for name, tensor in base.items():
        assert whole["param." + name] == tensor, name
    first = whole["grad.h.0.up.lora_A.default.weight"][1]
    assert not any(first), "B is zero at first"
    shutil.rmtree(f"{b.folder}/saved/step-00000006")
    shutil.rmtree(f"{b.folder}/saved/step-00000004")
    resumed = b.run("plan", "resumed", "--ranks", 2, "--checkpoint", "saved",
                    "--resume")
    assert all(resumed[n] == t for n, t in whole.items()
               if n.startswith("param."))
    loss = [json.loads(b.said("eval", "plan", "--data", b.text, "--json",
                              "--batches", 4, *options))["loss"]
            for options in ([], ["--checkpoint", "saved"])]
    assert loss[1] < loss[0] - .01, loss
    return whole, loss[1]


def check_others(b, loss):
    """Checks that a checkpoint whose adapters differ from those of the plan is
    refused."""
    up = ["h.?.up:rank=2,alpha=6"]
    for name, options, words in (
            ("bare", [], "this model has none: give --lora h.0.attn"),
            ("alpha", ["h.*.attn.*:rank=4", "h.?.up:rank=2,alpha=7"],
             'the adapter of "h.0.up" has rank=2,alpha=6 in the checkpoint of '
             "step 6, rank=2,alpha=7 in this model: give --lora h.0.up:rank=2,"
             "alpha=6"),
            ("rank", ["h.*.attn.*:rank=3"] + up, "has rank=4,alpha=8 in the"),
            ("fewer", up, 'has an adapter on "h.0.attn'),
            ("more", ["h.*.attn.*:rank=4", "h.?.down:rank=2"] + up,
             'no adapter on "h.0.down"')):
        b.split(name, *(o for w in options for o in ("--lora", w)))
        for other in [[], ["--other-model"]][:1 + (name == "alpha")]:
            said = b.said("eval", name, "--data", b.text, "--checkpoint",
                          "saved", *other, code=78)
            assert words in said, (name, said)
    b.split("worded", "--lora", "h.*.attn.*:rank=4", "--lora",
            "*.up:rank=2,alpha=6.0", "--freeze", "h.0", "--stages", 3)
    same = json.loads(b.said("eval", "worded", "--data", b.text, "--json",
                             "--batches", 4, "--checkpoint", "saved"))["loss"]
    assert same == loss


def check_memory(b):
    """Checks that AdamW stores two states per parameter, for adapters only."""
    said = json.loads(b.said("plan", "plan", "--json", "-n", 1))
    assert said["ranks"][0]["optim_bytes"] == 2 * 4 * 17408, said
    assert said["ranks"][0]["grads_bytes"] == 4 * 17408, said


def check_merged(b, base, trained, loss):
    """Checks that the merged file has the model's own keys and the weights W +
    alpha / rank * B A, and gives the same loss."""
    merged = b.weights("saved", "--merge")
    assert merged.keys() == base.keys(), merged.keys() ^ base.keys()
    changed = {n for n, t in base.items() if merged[n] != t}
    assert changed == {n.split(".lora_")[0][6:] + ".weight" for n in trained
                       if n.startswith("param.") and ".lora_" in n}
    for name in "h.0.attn.qkv", "h.3.up":
        _, scale = next(r for k, r in RANKS.items() if k in name)
        a = rows(trained[f"param.{name}.lora_A.default.weight"])
        up = rows(trained[f"param.{name}.lora_B.default.weight"])
        old, new = rows(base[name + ".weight"]), rows(merged[name + ".weight"])
        for o in range(0, len(old), 17):
            for i, w in enumerate(old[o]):
                want = w + scale * sum(
                    up[o][k] * a[k][i] for k in range(len(a)))
                assert abs(new[o][i] - want) < 1e-6, (name, o, i)
    b.split("merged", "--weights", "w.safetensors")
    again = json.loads(b.said("eval", "merged", "--data", b.text, "--json",
                              "--batches", 4))["loss"]
    assert abs(again - loss) < 1e-5, (again, loss)
    everything = b.weights("saved")
    assert all(everything[n[6:]] == t for n, t in trained.items()
               if n.startswith("param."))


def check_adapter(b, trained):
    """Checks that --adapter writes the names of peft, as a folder or a
    file."""
    b.said("weights", "saved", "-o", "adapter", "--adapter")
    b.said("weights", "saved", "-o", "lone.safetensors", "--adapter")
    with open(f"{b.folder}/adapter/adapter_config.json",
              encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{b.folder}/adapter_config.json", encoding="utf-8") as file:
        assert json.load(file) == config
    have = load(f"{b.folder}/adapter/adapter_model.safetensors")
    assert load(f"{b.folder}/lone.safetensors") == have
    assert have == {
        "base_model.model." + n[6:].replace(".default", ""): t
        for n, t in trained.items()
        if n.startswith("param.") and ".lora_" in n}
    assert config["peft_type"] == "LORA" and config["bias"] == "none", config
    assert not config["fan_in_fan_out"], config
    assert (config["r"], config["lora_alpha"]) == (4, 8), config
    assert sorted(config["target_modules"]) == sorted(
        f"h.{i}.{layer}" for i in range(4) for layer in RANKS), config
    assert config["rank_pattern"] == {
        f"^h\\.{i}\\.up": 2 for i in range(4)}, config
    assert config["alpha_pattern"] == {
        f"^h\\.{i}\\.up": 6 for i in range(4)}, config


def check_given(b):
    """Checks that --weights accepts the model's weights, adapters or both,
    under penstock's names and peft's."""
    want = b.weights("saved")
    inits = b.weights("plan")
    for given, expected in (
            ("saved", want),
            ("base", inits),
            ("adapter", {**inits, **{n: t for n, t in want.items()
                                     if ".lora_" in n}})):
        if given != "adapter":
            b.said("weights", given, "-o", "given.safetensors")
        b.split("taken", *LORAS, "--weights", given
                if given == "adapter" else "given.safetensors")
        assert b.weights("taken") == expected, given
    part = load(f"{b.folder}/adapter/adapter_model.safetensors")
    gone = "h.2.up.lora_A"
    del part[f"base_model.model.{gone}.weight"]
    save(f"{b.folder}/part.safetensors", part)
    save(f"{b.folder}/less.safetensors",
         {n: t for n, t in want.items() if n != "ln_f.bias"})
    save(f"{b.folder}/more.safetensors",
         {**part, "base_model.model.h.9.up.lora_A.weight": next(
             iter(part.values()))})
    for file, text in (
            ("part", f'lacks 1 tensors of adapters ("{gone}.default.weight")'),
            ("less", 'lacks 1 tensors of the model ("ln_f.bias")'),
            ("more", '1 of its tensors are none of the model ("base_model')):
        said = b.said("split", b.model, "-o", "none", *LORAS, "--weights",
                      f"{file}.safetensors", code=65)
        assert text in said, (file, said)
    said = b.said("split", b.model, "-o", "none", "--weights", "adapter",
                  code=65)
    assert "24 of its tensors are none of the model" in said, said


def check_alphas(b):
    """Checks that the alpha of the given adapters must equal that of the plan.
    The given alpha is in peft's configuration or in the metadata of a file of
    all tensors."""
    folder = f"{b.folder}/others"
    shutil.copytree(f"{b.folder}/adapter", folder)
    with open(f"{folder}/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    tensors = load(f"{folder}/adapter_model.safetensors")
    # This file has no metadata.
    save(f"{folder}/adapter_model.safetensors", tensors)

    def given(weights, loras=LORAS, code=65, **changed):
        with open(f"{folder}/adapter_config.json", "w",
                  encoding="utf-8") as file:
            json.dump({**config, **changed}, file)
        return b.said("split", b.model, "-o", "none" if code else "given",
                      *loras, "--weights", weights, code=code)

    assert config["lora_alpha"] == 8 and config["alpha_pattern"], config
    given("others", code=0)
    other = ["--lora", "h.*.attn.*:rank=4,alpha=32", *LORAS[2:]]
    words = ('of alpha 8, the model has alpha 32: give --lora h.0.attn.',
             ":rank=4,alpha=8")
    b.said("weights", "saved", "-o", "all.safetensors")
    for weights in "others", "all.safetensors", "adapter":
        said = given(weights, other)
        assert all(w in said for w in words), said
    ups = {f"h.{i}.up": 6 for i in range(4)}
    for pattern in ups, {"up": 6}, {"^h\\.0\\.up$": 6, "h.1.up": 6.0,
                                    "2.up": 6, "3\\.up": 6}:
        given("others", code=0, alpha_pattern=pattern)
    given("others", code=0, use_rslora=True, lora_alpha=4,
          alpha_pattern={"up": 4.242640687119285})
    for changed, words in (
            ({"lora_alpha": 9}, "one of alpha 9, the model has alpha 8"),
            ({"alpha_pattern": {"^up": 6}}, "of alpha 8, the model has alpha 6"),
            ({"alpha_pattern": {"h.*": 6}}, 'the expression "h.*"'),
            ({"alpha_pattern": {"h.*": 8, "[hk].*": 6}},
             'the expression "[hk].*"'),
            ({"use_rslora": True, "lora_alpha": 8}, "one of alpha 16,"),
            ({"use_dora": True}, "use_dora"),
            ({"peft_type": "IA3"}, "of type"),
            ({"lora_alpha": "8"}, '"lora_alpha" is wrong'),
            ({"alpha_pattern": {"up": "6"}}, '"up" is wrong'),
            ({"alpha_pattern": [6]}, '"alpha_pattern" is wrong')):
        said = given("others", **changed)
        assert words in said, (changed, said)
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as file:
        file.write("[1")
    assert "adapter_config.json: byte" in b.said(
        "split", b.model, "-o", "none", *LORAS, "--weights", "others", code=65)


def check_changes(b):
    """Checks gradients by finite differences with a nonzero B, and
    --unfreeze."""
    start = b.weights("plan")
    for name, (shape, data) in start.items():
        if ".lora_B" in name:
            n = len(data) // 4
            start[name] = shape, struct.pack("<%df" % n, *(
                (i * 37 % 19 - 9) * .02 for i in range(n)))
    save(f"{b.folder}/start.safetensors", start)
    b.split("started", "--stages", 2, *LORAS, "--weights",
            "start.safetensors", "--unfreeze", "ln_f")
    b.said("verify", "started", "-n", 2, "--data", b.text)
    dump = b.run("started", "dump", "--ranks", 2, "--checkpoint", "open",
                 steps=1)
    grads = {n for n in dump if n.startswith("grad.")}
    assert len(grads) == 2 * 12 + 2 and "grad.ln_f.bias" in grads, grads
    saved_whole(b, "open", "ln_f", "weight", "bias")
    left_out(b, "open")
    left_out(b, "saved")


def saved_whole(b, checkpoint, module, *names):
    """Checks that --adapter has a module that was trained whole, by the names
    that peft gives to modules_to_save, and that split takes it back."""
    b.said("weights", checkpoint, "-o", "whole.d", "--adapter")
    found = load(f"{b.folder}/whole.d/adapter_model.safetensors")
    everything = b.weights(checkpoint)
    for name in names:
        key = f"{module}.{name}"
        assert found["base_model.model." + key] == everything[key], key
    assert len(found) == 2 * 12 + len(names), sorted(found)
    with open(f"{b.folder}/whole.d/adapter_config.json",
              encoding="utf-8") as file:
        assert json.load(file)["modules_to_save"] == [module]
    b.split("taken", "--stages", 2, *LORAS, "--weights", "whole.d")
    taken = b.weights("taken")
    assert all(taken[f"{module}.{name}"] == everything[f"{module}.{name}"]
               for name in names)


def left_out(b, checkpoint, *names):
    """Checks that --adapter leaves out and reports what was changed of layers
    that have adapters: peft cannot save these whole."""
    done = b.done("weights", checkpoint, "-o", "left", "--adapter", "--json")
    assert json.loads(done.stdout).get("left_out", 0) == len(names), done
    assert all(f'"{n}"' in done.stderr for n in names), done
    assert ("warning" in done.stderr) == (len(names) > 0), done


def check_job(b):
    """Checks that changes of a running job do not affect the list of
    adapters."""
    run = b.begin("run", "plan", "--transport", "self", "--ranks", 2, "--steps",
                  5000, "--data", b.text, "--checkpoint", "changed", "--job",
                  "lora", "--quiet")
    wait_until(lambda: run.poll() is not None or b.done(
        "freeze", "h.0", "--job", "lora", code=None).returncode == 0,
               "nothing is frozen")
    assert run.poll() is None, run.communicate()
    b.said("attr", "set", "h.1.up.bias", "0", "--job", "lora")
    for module in "h.1.up", "h.1":
        said = b.said("swap", module, b.model, "--job", "lora", code=65)
        assert '"h.1.' in said and "has a low-rank adapter" in said, said
    b.said("stop", "--job", "lora")
    b.ended(run, code=None)
    left_out(b, "changed", "h.1.up.bias")
    merged, base = b.weights("changed", "--merge"), b.weights("base")
    assert merged.keys() == base.keys()
    changed = {n for n in base if merged[n] != base[n]} - {"h.1.up.bias"}
    assert changed and changed <= {
        f"h.{i}.{layer}.weight" for i in range(4) for layer in RANKS}, changed


def check_served(b):
    """Checks that `serve` accepts the checkpoints that eval and infer accept,
    with or without a plan in them."""
    rows = {"x": [[k % 97 for k in range(128)]] * 4, "y": [[3] * 128] * 4}
    with open(f"{b.folder}/rows.json", "w", encoding="utf-8") as file:
        json.dump(rows, file)
    answers = []
    for ranks, checkpoint in (1, "saved"), (3, "saved"), (3, "changed"):
        served = b.begin("serve", "plan", "--transport", "self", "--ranks",
                         ranks, "--checkpoint", checkpoint, "--threads", 1,
                         "--job", "served")
        while "serving with" not in (line := served.stdout.readline()):
            assert line, served.communicate()
        answers.append(b.said("ask", "rows.json", "--job", "served"))
        b.said("stop", "--job", "served")
        b.ended(served, code=None)
    assert answers[0] == answers[1] != answers[2]


def check_refused(b):
    for spec, code, text in (
            ("wte:rank=2", 65, '"wte" (Embedding) is not a linear layer'),
            ("h.0:rank=2", 65, '"h.0" (Block) is not a linear layer'),
            ("*:rank=2", 65, "is not a linear layer"),
            ("h.0.attn.qkw:rank=2", 65, 'nearest name is "h.0.attn.qkv"'),
            ("h.0.attn.qkv:rank=129", 65, "the rank is 1 to 128, not 129"),
            ("h.0.attn.qkv:rank=0", 64, "a rank of 1 or more"),
            ("h.0.attn.qkv:rank=-3", 64, "a rank of 1 or more"),
            ("h.0.attn.qkv:rank=x", 64, "a rank of 1 or more"),
            ("h.0.attn.qkv:rank=2,alpha=0", 64, "an alpha above 0"),
            ("h.0.attn.qkv:rank=2,alpha=inf", 64, "an alpha above 0"),
            ("h.0.attn.qkv:alpha=2", 64, "PATTERN:rank=R"),
            ("h.0.attn.qkv:rank=2,", 64, "PATTERN:rank=R"),
            ("h.0.attn.qkv:rank=2,dropout=1", 64, "from 0 to less than 1"),
            ("h.0.attn.qkv:rank=2,dropout=nan", 64, "from 0 to less than 1"),
            (":rank=2", 64, "PATTERN:rank=R"), ("", 64, "PATTERN:rank=R"),
            ("h.0.attn.qkv", 64, "PATTERN:rank=R")):
        said = b.said("split", b.model, "-o", "none", "--lora", spec,
                      code=code)
        assert text in said, (spec, said)
        assert not os.path.exists(f"{b.folder}/none")
    for words, code, text in (
            (["split", b.model, "-o", "none", "--seed", 3], 64, "--lora"),
            (["verify", "plan", *LORAS], 64, "--lora needs the .pt2"),
            (["weights", "base", "-o", "none", "--merge"], 65, "no adapters"),
            (["weights", "base", "-o", "none", "--adapter"], 65,
             "no adapters"),
            (["weights", "plan", "-o", "none", "--adapter", "--merge"], 64,
             "use one of them")):
        said = b.said(*words, code=code)
        assert text in said, (words, said)
        assert not os.path.exists(f"{b.folder}/none")


def check_manifest(b):
    """Checks that damage in a checkpoint's list of adapters is detected."""
    path = f"{b.folder}/saved/step-00000006/manifest.json"
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    assert len(manifest["adapters"]) == 12
    manifest["adapters"][0]["alpha"] = 1e9
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    said = b.said("weights", "saved/step-00000006", "-o", "none", "--merge",
                  code=65)
    assert "is damaged" in said, said


def main():
    penstock, model, text = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, \
            Bench(penstock, model, text, folder) as b:
        base = check_split(b)
        trained, loss = check_training(b, base)
        check_memory(b)
        check_others(b, loss)
        check_merged(b, base, trained, loss)
        check_adapter(b, trained)
        check_given(b)
        check_alphas(b)
        check_changes(b)
        check_job(b)
        check_served(b)
        check_refused(b)
        check_manifest(b)


if __name__ == "__main__":
    main()
