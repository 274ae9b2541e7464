#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests trained parameters in bf16 (--params bf16): dtypes of all that a run
has, the rounding of updates, that cuts, replicas and restarts keep their bits,
averages, evaluations within a run, served answers, their memory, that a
training learns as with f32, and refusals.

usage: bf16.py PENSTOCK BYTEGPT.pt2 TEXT COMPLEX.pt2
"""
import array
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402
from ema import Trained  # noqa: E402


def wide(data):
    """Returns the numbers of a bf16 tensor."""
    words = array.array("H", data)
    return array.array("f", array.array("I", [w << 16 for w in words])
                       .tobytes())


def bits(t):
    """Checks that cuts, schedules, replicas and a restart keep all bits."""
    def run(folder, *more, steps=4):
        t.run(folder, "-m", "3", *more, steps=steps)
        return t.saved(folder)

    want = run("one", "-n", "1")
    assert run("two", "-n", "2", "--schedule", "gpipe") == want
    run("half", "-n", "2", steps=2)
    assert run("half", "-n", "1", "--resume") == want
    assert run("seed", "-n", "1", "--seed", "5") != want
    replicas = run("rep", "-n", "3x1", "--compare-replicas", "1")
    run("again", "-n", "3x1", steps=1)
    assert run("again", "-n", "3x2", "--resume") == replicas
    states = ["--state-dtype", "int8", "--ema", ".9", "--no-decay", "norms",
              "--group", "h.1:optimizer=rmsprop,state-dtype=bf16"]
    want = run("mixed-1", "-n", "1", *states)
    run("mixed-2", "-n", "2", *states, steps=3)
    assert run("mixed-2", "-n", "1", "--resume", *states) == want
    return t.saved("one")


def dtypes(b, tensors):
    """Checks the dtypes in a checkpoint and in a dump."""
    for name, (dtype, _, _) in tensors.items():
        assert dtype == ("BF16" if name.startswith("param.") else "F32"), name
    b.call("run", "gpt.plan", "-n", "2", "--transport", "self", "-m", "2",
           "--data", "text", "--steps", "1", "--dump", "dump")
    dump = tensor_file.load(b.path("dump"))[0]
    grads = [n for n in dump if n.startswith("grad.")]
    assert len(grads) > 10 and all(dump[n][0] == "F32" for n in grads)


def rounds(b):
    """Checks that an update rounds to a neighbour, up as often as it has to.
    With SGD the exact update is known from the gradient."""
    b.call("run", "gpt.plan", "-n", "1", "--transport", "self", "-m", "2",
           "--data", "text", "--steps", "1", "--dump", "dump", "--optimizer",
           "sgd", "--lr", "1e-3")
    b.call("run", "gpt.plan", "-n", "1", "--transport", "self", "-m", "2",
           "--data", "text", "--steps", "1", "--dump", "start", "--optimizer",
           "none")
    old, new = (tensor_file.load(b.path(n))[0] for n in ("start", "dump"))
    moved, wanted = 0.0, 0.0
    for name in (n for n in old if n.startswith("param.")):
        grad = array.array("f", new["grad." + name[6:]][2])
        pairs = zip(wide(old[name][2]), wide(new[name][2]), grad)
        for was, now, g in pairs:
            unit = max(abs(was), abs(now)) / 128
            assert abs(now - (was - 1e-3 * g)) <= unit * 1.001, (name, was, now)
            sign = (g < 0) - (g > 0)
            moved += sign * (now - was)
            wanted += 1e-3 * abs(g)
    # Rounding to nearest loses nearly all of these updates.
    assert abs(moved - wanted) < .1 * wanted, (moved, wanted)


def averages(t):
    """An average is f32, and can be read in place of the parameter."""
    t.run("ema", "-n", "1", "--ema", ".9", steps=3)
    tensors = t.saved("ema")
    assert all(x[0] == "F32" for n, x in tensors.items() if n[:4] == "ema.")
    t.b.call("run", "f32.plan", "-n", "1", "--transport", "self", "-m", "2",
             "--data", "text", "--steps", "3", "--checkpoint", "ema-f32",
             "--lr", ".002", "--ema", ".9")
    plain, average, full = (json.loads(t.b.said(
        "eval", plan, "--checkpoint", name, "--data", "short", "--json",
        *words))["loss"] for plan, name, *words in (
            ("gpt.plan", "ema"), ("gpt.plan", "ema", "--use-ema"),
            ("f32.plan", "ema-f32", "--use-ema")))
    assert plain != average and abs(average / full - 1) < .01, (average, full)
    # A run that has none begins them as its parameters.
    t.run("half", "-n", "1", "-m", "3", "--ema", ".9", "--resume", steps=5)


def eval_loss(b, plan, folder, *words):
    return json.loads(b.said("eval", plan, "--checkpoint", folder, "--data",
                             "short", "-m", "2", "--json", *words))["loss"]


def evaluates(b):
    """Checks that evaluations within a run, with the trained graph or another
    export, have the loss that `eval` computes from the checkpoint."""
    for name, *words in (("past",), ("past-other", "--eval-model", "gpt.pt2")):
        said = b.said("run", "gpt.plan", "-n", "2", "--transport", "self", "-m",
                      "2", "--data", "text", "--steps", "4", "--lr", ".002",
                      "--checkpoint", name, "--eval-data", "short",
                      "--eval-every", "2", "--keep-best", "--patience", "9",
                      "--json", *words)
        found = json.loads(said)["evaluations"][-1]
        assert found["step"] == 4, found
        assert found["loss"] == eval_loss(b, "gpt.plan", name), (name, found)
        assert os.path.exists(b.path(name, "best"))


def write_rows(b):
    """Writes samples for the model that are text."""
    with open(b.path("short"), "rb") as file:
        text = file.read()

    def tokens(at):
        ids = array.array("q", list(text[at:at + 512]))
        return ("I64", [4, 128], ids.tobytes())

    tensor_file.save(b.path("rows.safetensors"),
                     {"x": tokens(0), "y": tokens(1)})


def served(b, *words):
    """Serves the checkpoints of `averages`. Returns its answers."""
    job = b.begin("serve", "gpt.plan", "-n", "2", "--transport", "self",
                  "--threads", "1", "--checkpoint", "ema", "--job", "served",
                  *words)
    while "serving with" not in (line := job.stdout.readline()):
        assert line, job.communicate()
    b.call("ask", "rows.safetensors", "-o", "asked", "--job", "served")
    b.call("stop", "--job", "served")
    b.ended(job, code=None)
    return tensor_file.load(b.path("asked"))[0]["1"]


def infers(b, plan, *words):
    b.call("infer", plan, "--data", "rows.safetensors", "-o", "outputs",
           "--threads", "1", *words)
    return tensor_file.load(b.path("outputs"))[0]["1"]


def serves(b):
    """Checks that a checkpoint is served as `infer` computes with it, also
    with another export."""
    write_rows(b)
    want = infers(b, "gpt.plan", "--checkpoint", "ema")
    assert served(b) == want
    assert served(b, "--eval-model", "gpt.pt2") == want


def evaluates_averages(b):
    """Checks that all commands evaluate averages as they were saved, in f32:
    like an f32 plan that begins with them."""
    b.call("weights", "ema", "--use-ema", "-o", "ema.safetensors")
    for name, *words in (("of",), ("of-cast", "--autocast", "bf16")):
        words = ["gpt.pt2", *words]
        b.call("split", *words, "-o", name + ".plan", "--weights",
               "ema.safetensors")
        b.call("split", *words, "-o", name + "-low.plan", "--stages", "2",
               "--params", "bf16")
        want = json.loads(b.said("eval", name + ".plan", "--data", "short",
                                 "-m", "2", "--json"))["loss"]
        more = [] if name == "of" else ["--other-model"]
        for plan in [name + "-low.plan"], [*words, "--params", "bf16"]:
            assert eval_loss(b, *plan[:1], "ema", *plan[1:], "--use-ema",
                             *more) == want, plan
    want = infers(b, "of.plan")
    averages = "--checkpoint", "ema", "--use-ema"
    assert infers(b, "gpt.plan", *averages) == want
    assert served(b, "--use-ema") == want
    assert served(b, "--use-ema", "--eval-model", "gpt.pt2") == want


def memory(b):
    def of(plan, *words):
        ranks = json.loads(b.call("plan", plan, "--json", *words))["ranks"]
        found = [x.get("memory", x) for x in ranks]
        return [sum(x[k] for x in found) for k in ("params_bytes",
                                                   "grads_bytes",
                                                   "optim_bytes")]

    low, full = of("gpt.plan"), of("f32.plan")
    assert abs(low[0] / full[0] - .5) < .02 and low[1:] == full[1:], (low, full)


def learns(t):
    """Checks that a training loses as much as with f32, and is another one."""
    found = {}
    for plan in "gpt.plan", "f32.plan":
        out = t.b.said("run", plan, "-n", "1", "--transport", "self", "-m", "2",
                       "--data", "text", "--steps", "20", "--lr", ".002",
                       "--json")
        found[plan] = json.loads(out)["losses"][-1]
    print(found)
    assert found["gpt.plan"] != found["f32.plan"]
    assert abs(found["gpt.plan"] / found["f32.plan"] - 1) < .02, found


def refused(t, pairs):
    """pairs: a model whose only parameter is complex, which stays f32."""
    b = t.b

    def fails(text, *words):
        done = b.done(*words, code=None)
        assert done.returncode > 0 and text in done.stderr, done

    run = ["--transport", "self", "-m", "2", "--data", "text", "--steps", "9"]
    for words in (["--optimizer", "muon"], ["--optimizer", "schedulefree"],
                  ["--group", "h.0:optimizer=lamb"]):
        fails("trains f32 only", "run", "gpt.plan", "-n", "1", *run, *words)
    fails("replicas shard f32 only", "run", "gpt.plan", "-n", "2x1", "--shard",
          "zero1", *run)
    fails("another model", "run", "f32.plan", "-n", "1", *run, "--checkpoint",
          "one", "--resume")
    fails("--params", "split", "gpt.pt2", "-o", "no", "--params", "f16")
    fails("--params bf16 has no effect", "split", "gpt.pt2", "-o", "no",
          "--params", "bf16", "--freeze", "*")
    fails("--params bf16 has no effect", "split", pairs, "-o", "no",
          "--params", "bf16")
    b.call("split", "gpt.pt2", "-o", "sent.plan", "--stages", "2", "--params",
           "bf16", "--transmit", "wte.weight")
    fails("only f32 is transmitted", "run", "sent.plan", "-n", "2", *run)
    t.begin("job", "-n", "1")
    fails("stays as it was split", "freeze", "h.0", "--job", "job")
    b.call("stop", "--job", "job")
    b.call("weights", "f32", "-o", "f32.safetensors")
    b.call("split", "gpt.pt2", "-o", "from.plan", "--params", "bf16",
           "--weights", "f32.safetensors")
    one, other = (json.loads(b.said("eval", *words, "--data", "short",
                                    "--json"))["loss"]
                  for words in (["from.plan"],
                                ["f32.plan", "--checkpoint", "f32"]))
    assert one != other and abs(one / other - 1) < .01, (one, other)


def main():
    penstock, model, text, pairs = map(os.path.abspath, sys.argv[1:5])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            job.Bench(penstock, folder) as b:
        shutil.copy(model, b.path("gpt.pt2"))
        os.symlink(text, b.path("text"))
        with open(text, "rb") as long, open(b.path("short"), "wb") as short:
            short.write(long.read(2000))
        b.call("split", "gpt.pt2", "--stages", "2", "-o", "gpt.plan",
               "--params", "bf16")
        b.call("split", "gpt.pt2", "--stages", "2", "-o", "f32.plan")
        t = Trained(b)
        dtypes(b, bits(t))
        rounds(b)
        averages(t)
        evaluates(b)
        serves(b)
        evaluates_averages(b)
        memory(b)
        learns(t)
        b.call("run", "f32.plan", "-n", "1", "--transport", "self", "-m", "2",
               "--data", "text", "--steps", "2", "--checkpoint", "f32")
        refused(t, pairs)
        b.no_files_left()
    print("ok")


if __name__ == "__main__":
    main()
