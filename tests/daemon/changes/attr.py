#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads, sets and casts parameters, buffers and constants of a running job, on
three ranks.

usage: attr.py PENSTOCK FOLDER self|mpi

FOLDER/u06.pt2 multiplies x by n.w three times, in three stages; u08.pt2 adds a
buffer and a constant. A refused change alters no bit. A value that is set is
used by every call on every rank and saved in checkpoints, and a run that
resumes from a checkpoint ends with the same bits.
"""
import json
import os
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import tensor_file  # noqa: E402
from patience import PATIENCE  # noqa: E402
from swap import MICROBATCHES, STEPS, Bench, daemons  # noqa: E402
from tensor_file import contents  # noqa: E402

NAN = float("nan")


def write(path, **values):
    """Writes a file of tensors. values: lists for dtype F32, otherwise (dtype,
    shape, bytes)."""
    tensor_file.save(path, {
        name.replace("__", "."): v if isinstance(v, tuple) else (
            "F32", [len(v)], struct.pack(f"<{len(v)}f", *v))
        for name, v in values.items()})


def log_text(b):
    with open(f"{b.folder}/log/rank-0.log", encoding="utf-8") as f:
        return f.read()


def losses(b):
    return [(int(m[1]), float(m[2])) for m in re.finditer(
        r"event=step .*?\bstep=(\d+) .*?\bloss=(\S+)", log_text(b))]


def check_get(b):
    run = b.train("got")
    one = b.ask("attr", "get", "n.w")
    assert re.match(r"n.w: parameter f32\[1\], stages 0,1,2 on ranks 0,1,2, "
                    r"trained: 1\.\d+\n$", one), one
    said = json.loads(b.ask("attr", "get", "n", "-o", "n.safetensors",
                            "--json"))
    tensor, = said["attrs"]
    assert said["tensors"] == 1 and said["path"].endswith("/n.safetensors")
    assert (tensor["name"], tensor["dtype"], tensor["shape"], tensor["stages"],
            tensor["ranks"], tensor["requires_grad"], tensor["nans"]) == (
                "n.w", "f32", "[1]", "0,1,2", "0,1,2", 1, 0), tensor
    value, = struct.unpack("<f", contents(f"{b.folder}/n.safetensors")["n.w"])
    assert tensor["min"] == tensor["max"] == tensor["mean"] == value
    assert struct.pack("<f", float(tensor["values"])) == struct.pack(
        "<f", value)
    assert one.endswith(f" {tensor['values']}\n")
    # Setting the current value again keeps the optimizer's state: no bit
    # changes.
    assert "1 tensor set" in b.ask("attr", "set", "n.w", "n.safetensors")
    b.end(run)
    assert b.result("got") == b.result("plain")
    run = b.train("reset")
    b.ask("attr", "get", "n", "-o", "n.safetensors")
    b.ask("attr", "set", "n.w", "n.safetensors", "--state", "reset")
    b.end(run)
    assert b.result("reset") != b.result("plain")


def refused(b):
    write(f"{b.folder}/wide.safetensors", n__w=[1.0, 2.0])
    write(f"{b.folder}/half.safetensors", n__w=("BF16", [1], b"\0\0"))
    write(f"{b.folder}/other.safetensors", m__w=[1.0])
    run = b.train("refused")
    for words, code, *args in (
            ('nearest name is "n.w"', 65, "get", "n.v"),
            ('nearest name is "n.w"', 65, "set", "m.w", "3"),
            ("is f32[2] in the file, the model has f32[1]", 65, "set", "n.w",
             "wide.safetensors"),
            ("is bf16[1] in the file, the model has f32[1]", 65, "set", "n",
             "half.safetensors"),
            ('the file has no "n.w"', 65, "set", "n.w", "other.safetensors"),
            ('cannot hold "1e39"', 65, "set", "n.w", "1e39"),
            ('cannot hold "-1e400"', 65, "set", "n.w", "-1e400"),
            ('cannot hold "true"', 65, "set", "n.w", "true"),
            ("which is not a number", 74, "set", "n.w", "none.safetensors"),
            ("expected attr get", 64, "put", "n.w"),
            ("expected attr get", 64, "set", "n.w"),
            ("-o is of attr get", 64, "set", "n.w", "3", "-o", "x"),
            ("--state is of attr set", 64, "get", "n.w", "--state", "keep")):
        said = b.ask("attr", *args, code=code)
        assert words in said, (args, said)
    os.mkfifo(f"{b.folder}/pipe")
    for path, words in (("none/x", "No such file"), (".", "it is a folder"),
                        ("pipe", "it is a pipe")):
        assert words in b.ask("attr", "get", "n.w", "-o", path, code=74)
    b.end(run)
    assert b.result("plain") == b.result("refused")


def set_everywhere(b):
    """Sets n.w to 3 and checks that the three calls of n then multiply by
    27."""
    b.call("split", f"{b.models}/u06.pt2", "-o", "still", "--loss-fn",
           "mse:target=x", "--freeze", "n")
    for name, value in ("three", "3"), ("minus", "-.5"):
        run = b.train(name, "--log-every", "1", "--log-dir", "log",
                      plan="still")
        step = json.loads(b.ask("attr", "set", "n.w", value, "--json"))["step"]
        assert f" {value} " not in b.ask("attr", "get", "n.w")
        b.end(run)
        after = float(value)
        for at, loss in losses(b):
            w = after if at > step else 2
            want = (w ** 3 - 1) ** 2 * 1.5625
            assert abs(loss - want) < 1e-6 * want, (at, step, loss)
        assert b.result(name) == {"param.n.w": struct.pack("<f", after)}
        os.rename(f"{b.folder}/log", f"{b.folder}/log.{name}")


def resumed(b):
    run = b.train("changed", "--checkpoint", "set", "--keep", "0",
                  "--checkpoint-every", str(STEPS // 4))
    b.ask("attr", "set", "n", "1.5")
    b.end(run)
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m",
           MICROBATCHES, "--steps", str(STEPS), "--lr", "1e-3",
           "--optimizer", "adamw", "--data", "x.safetensors", "--dump",
           "again", "--quiet", "--checkpoint", "set", "--keep", "0",
           f"--resume={STEPS * 3 // 4}", "--adopt")
    assert b.result("again") == b.result("changed") != b.result("plain")
    b.call("weights", "set", "-o", "all.safetensors")
    run = b.train("third")
    assert "written to" in b.ask("attr", "get", "", "-o", "before.safetensors")
    b.ask("attr", "set", "n", "all.safetensors")
    b.ask("attr", "get", "n.w", "-o", "now.safetensors")
    assert contents(f"{b.folder}/now.safetensors") == contents(
        f"{b.folder}/all.safetensors") != contents(
            f"{b.folder}/before.safetensors")
    b.end(run)


def no_parameters(b):
    """Sets a buffer that no step writes, and a constant, and checks that
    checkpoints contain both. y = 2 (x + 3) + 1 + 2 (buf + 1). The constant c
    does not affect y unless it is not finite."""
    b.call("split", f"{b.models}/u08.pt2", "-o", "plan8", "--stages", "2",
           "--loss-fn", "mse:target=x")
    run = b.train("buffer", "--checkpoint", "saved8", "--log-every", "1",
                  "--log-dir", "log", plan="plan8", ranks=2)
    assert "buffer f32[1]" in b.ask("attr", "get", "n.buf")
    assert "constant f32[1]" in b.ask("attr", "get", "n.c")
    assert "n.c" not in b.ask("attr", "get", "n")
    b.ask("attr", "set", "n.buf", "5")
    said = b.ask("attr", "set", "n.c", "nan")
    assert "warning: there is a NaN or an infinity in the values of n.c" in \
        said, said
    assert "warning" in b.ask("attr", "set", "n.c", "inf")
    write(f"{b.folder}/c.safetensors", n__c=[NAN])
    assert "warning" in b.ask("attr", "set", "n.c", "c.safetensors")
    b.ask("attr", "set", "n.c", "1e38")
    b.ask("stop")
    b.end(run, resume=False, code=130)
    run = b.train("buffer", "--checkpoint", "saved8", "--resume",
                  plan="plan8", ranks=2, steps=20 * STEPS)
    assert "not trained: 5\n" in b.ask("attr", "get", "n.buf")
    assert "not trained: 1e+38\n" in b.ask("attr", "get", "n.c")
    b.ask("stop", "--now")
    b.end(run, resume=False, code=130)


def overlapping(b):
    """Sets n.wide, a buffer of 100,000 elements that all share the memory of
    the single element n.buf."""
    with zipfile.ZipFile(f"{b.models}/u08.pt2") as old, \
            zipfile.ZipFile(b.path("wide.pt2"), "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            if entry.endswith("model_weights_config.json"):
                table = json.loads(data)
                wide = json.loads(json.dumps(table["config"]["n.buf"]))
                wide["tensor_meta"].update(sizes=[{"as_int": 100000}],
                                           strides=[{"as_int": 0}])
                table["config"]["n.wide"] = wide
                data = json.dumps(table)
            new.writestr(entry, data)
    b.call("split", "wide.pt2", "-o", "wide", "--stages", "2", "--loss-fn",
           "mse:target=x")
    run = b.train("overlap", plan="wide", ranks=2, steps=20 * STEPS)
    b.ask("attr", "set", "n.wide", "7")
    assert "buffer f32[100000]" in b.ask("attr", "get", "n.wide", "-o",
                                         "wide.safetensors")
    assert contents(b.path("wide.safetensors"))["n.wide"] == struct.pack(
        "<f", 7) * 100000
    b.ask("attr", "set", "n.buf", "5")
    assert "min 5, max 5, mean 5\n" in b.ask("attr", "get", "n.wide")
    b.ask("attr", "set", "n.wide", "wide.safetensors")
    assert "not trained: 7\n" in b.ask("attr", "get", "n.buf")
    b.ask("stop", "--now")
    b.end(run, resume=False, code=130)


def cast(b):
    """Checks that a trained parameter that is cast is stored in f32 and
    rounded when it is read, and that a frozen one takes half of the memory."""
    run = b.train("cast", "--checkpoint", "cast.saved", "--keep", "0",
                  "--checkpoint-every", str(STEPS // 4))
    b.ask("attr", "set", "n.w", "1.1")
    for words, *args in (
            ("is not a dtype", "n.w", "int7"), ("not floating", "n", "i64"),
            ("only f32 is trained", "n.w", "f64"),
            ('nearest name is "n.w"', "m.w", "bf16")):
        assert words in b.ask("attr", "cast", *args, code=65)
    assert "1 tensor cast" in b.ask("attr", "cast", "n.w", "bf16")
    assert ("parameter bf16[1], kept as f32, stages 0,1,2 on ranks 0,1,2, "
            "trained: 1.1015625\n") in b.ask("attr", "get", "n")
    write(f"{b.folder}/narrow.safetensors", n__w=("BF16", [1], b"\xc0\x3f"))
    b.ask("attr", "set", "n.w", "narrow.safetensors")
    assert "trained: 1.5\n" in b.ask("attr", "get", "n")
    b.end(run)
    b.call("run", "plan", "--transport", b.transport, *b.ranks, "-m",
           MICROBATCHES, "--steps", str(STEPS), "--lr", "1e-3",
           "--optimizer", "adamw", "--data", "x.safetensors", "--dump",
           "cast.again", "--quiet", "--checkpoint", "cast.saved", "--keep", "0",
           f"--resume={STEPS * 3 // 4}", "--adopt")
    assert b.result("cast.again") == b.result("cast")
    b.call("eval", "plan", "--checkpoint", "cast.saved", "--data",
           "x.safetensors", "--batches", "4")
    b.call("split", f"{b.models}/u13.pt2", "-o", "plan13", "--loss-fn",
           "mse:target=x")
    write(f"{b.folder}/bias.safetensors", bias=("F16", [1], b"\0\x3c"))
    run = b.train("bias", plan="plan13", ranks=1)
    b.ask("freeze", "bias")
    b.ask("attr", "cast", "bias", "f16")
    b.ask("attr", "set", "bias", "bias.safetensors")
    b.ask("attr", "set", "m.bias", "bias.safetensors", code=65)
    assert "bias (m.bias): parameter f16[1], stages 0 on ranks 0, not " \
        "trained: 1\n" in b.ask("attr", "get", "bias")
    assert "m.bias (bias): parameter f16[1]" in b.ask("attr", "get", "m")
    b.end(run)
    assert b.result("bias") == {"param.m.bias": b"\0\x3c"}


def behind_a_checkpoint(b):
    """Checks that a change after the last saved step is saved when the run
    ends, in whichever folder is writable."""
    options = ("--checkpoint", "each", "--checkpoint-every", "1", "--keep", "1",
               "--checkpoint-retry", "0", "--checkpoint-fallback", "each.2")
    shutil.rmtree(f"{b.folder}/log", ignore_errors=True)
    run = b.train("dump", *options, steps=20 * STEPS)
    b.ask("attr", "set", "n.w", "1.25")
    for change, want in (
            (("freeze", "n"), "f32[1], stages 0,1,2 on ranks 0,1,2, not "
             "trained: 1.25\n"),
            (("attr", "cast", "n.w", "bf16"), "bf16[1], stages 0,1,2 on ranks "
             "0,1,2, not trained: 1.25\n"),
            (("attr", "set", "n.w", "1.5"), "not trained: 1.5\n"),
            (("swap", "n", f"{b.models}/u06.pt2"), "n.n.w: ")):
        b.ask(*change)
        step = json.loads(b.ask("status", "--json"))["step"]
        if change[1] == "set":  # makes the first folder unwritable
            os.rename(f"{b.folder}/each", f"{b.folder}/away")
            with open(f"{b.folder}/each", "w", encoding="utf-8"):
                pass
        b.ask("stop")
        b.end(run, resume=False, code=130)
        if change[1] == "set":  # makes the first folder writable again
            os.remove(f"{b.folder}/each")
            os.rename(f"{b.folder}/away", f"{b.folder}/each")
            assert os.path.exists(f"{b.folder}/each.2/step-{step:08}")
        run = b.train("dump", "--resume", *options, steps=20 * STEPS)
        assert want in b.ask("attr", "get", "n"), change
    b.ask("stop", "--now")
    b.end(run, resume=False, code=130)


def no_number(b):
    """Sets n.w to NaN after a saved step. The checkpoint of that step must
    stay good, whether the next step fails because of the NaN or the run is
    stopped before that step."""
    for name, fault in (("shown", True), ("hidden", False)):
        options = ("--checkpoint", name, "--checkpoint-every", "1", "--keep",
                   "1", "--checkpoint-retry", "30", "--log-dir", "log")
        shutil.rmtree(f"{b.folder}/log", ignore_errors=True)
        run = b.train("dump", *options, steps=20 * STEPS)
        step = json.loads(b.ask("status", "--json"))["step"]
        before = b.ask("attr", "get", "n.w")
        b.ask("attr", "set", "n.w", "nan")
        if fault:
            b.ask("resume")
        else:
            b.ask("stop", code=77)
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == (65 if fault else 77), (run.returncode, said)
        assert "the good checkpoint of this step" in log_text(b), said
        with open(f"{b.folder}/{name}/step-{step:08}/manifest.json",
                  encoding="utf-8") as f:
            assert not json.load(f)["bad"]
        run = b.train("dump", "--resume", *options, steps=20 * STEPS)
        assert "nan" not in b.ask("attr", "get", "n.w") != before
        b.ask("stop", "--now")
        b.end(run, resume=False, code=130)


def check_pending(b):
    """Checks that while one change is pending, another one gets an error that
    says to retry."""
    if b.transport != "mpi":
        return
    shutil.rmtree(f"{b.folder}/log", ignore_errors=True)
    run = b.train("pending", "--log-dir", "log", steps=1000 * STEPS)
    b.ask("resume")
    rank = [p for p in daemons(b) if "2" == rank_of(p)][0]
    os.kill(int(rank), signal.SIGSTOP)
    first = b.begin("attr", "set", "n.w", "3", "--job", b.job)
    try:
        until = time.monotonic() + PATIENCE
        while "command=attr" not in log_text(b) and time.monotonic() < until:
            time.sleep(.02)
        assert "has not been made yet" in b.ask("attr", "get", "n.w", code=75)
        b.ask("swap", "n", f"{b.models}/u05.pt2", code=75)
    finally:
        os.kill(int(rank), signal.SIGCONT)
    assert "1 tensor set" in first.communicate(timeout=PATIENCE)[0]
    b.ask("stop", "--now")
    b.end(run, resume=False, code=130)


def rank_of(pid):
    with open(f"/proc/{pid}/environ", encoding="utf-8") as f:
        return dict(e.split("=", 1) for e in f.read().split("\0")
                    if "=" in e).get("OMPI_COMM_WORLD_RANK")


def main():
    penstock, models = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, models, sys.argv[3], folder) as b:
        b.end(b.train("plain"))
        for part in (check_get, refused, set_everywhere, resumed,
                     no_parameters, overlapping, cast, behind_a_checkpoint,
                     no_number, check_pending):
            part(b)
    print("ok")


if __name__ == "__main__":
    main()
