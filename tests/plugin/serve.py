#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a model with operators of a plugin (ours.c).

usage: serve.py PENSTOCK OURS.so OTHER.so OLDER.so GOLDEN

The answers are PyTorch's, and those of `infer` bit by bit, with the model in
one stage and in two. Without the plugin, with another file and with one of an older ABI, `serve`
refuses the plan by name.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))
import tensor_file  # noqa: E402
from bench import Bench as Plugins, compare, flat, known_of, numbers  # noqa: E402
from job import Bench  # noqa: E402


def answers(b, stages, plugin):
    plan = f"plan.{stages}"
    b.call("split", b.model, "--stages", stages, "--policy", "flops", "-o",
           plan, "--plugin", plugin)
    b.call("infer", plan, "-m", "2", "--data", b.data, "-o",
           "want.safetensors", "--plugin", plugin)
    name = f"served-{stages}"
    job = b.begin("serve", plan, "-n", stages, "-m", "2", "--transport",
                  "self", "--job", name, "--log-dir", name, "--plugin", plugin)
    b.await_event(name, "serve_begin", "rank-0")
    b.call("ask", b.data, "--job", name, "-o", "got.safetensors")
    b.call("stop", "--job", name)
    b.ended(job)
    got, want = (tensor_file.load(b.path(f"{x}.safetensors"))[0]
                 for x in ("got", "want"))
    assert set(got) == {"1"} and got["1"] == want["1"], (got, want)
    return got


def warned(b, plugin, other):
    """The checkpoint is of a run with another plugin."""
    b.call("split", b.model, "-o", "plan.other", "--plugin", other)
    b.call("run", "plan.other", "--steps", "1", "--optimizer", "sgd",
           "--data", b.data, "--transport", "self", "--checkpoint", "saved",
           "--plugin", other, "--quiet")
    job = b.begin("serve", "plan.1", "-n", "1", "-m", "2", "--transport",
                  "self", "--job", "warned", "--log-dir", "warned",
                  "--checkpoint", "saved", "--plugin", plugin)
    b.await_event("warned", "serve_begin", "rank-0")
    b.call("stop", "--job", "warned")
    out = b.ended(job)
    line, = b.events("warned", "resume_changed", "rank-0")
    for text in out.stderr, line:
        assert "and is 1.0, digest" in text and \
            "its operators may compute something else" in text, (out, line)


def refused(b, text, *more):
    said = b.call("serve", "plan.2", "-n", "2", "--transport", "self", "--job",
                  "refused", "--log-dir", "refused", *more, code=None)
    assert all(word in said for word in text), said


def main():
    penstock, ours, other, older, golden = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        known = known_of(golden, "plugin-guess")
        b.model = os.path.join(golden, "plugin-guess.pt2")
        b.data = Plugins(penstock, folder).data("data.safetensors", known,
                                                repeat=2)
        one, two = (answers(b, stages, ours) for stages in (1, 2))
        assert one == two
        compare("answers", numbers(one["1"]), flat(known["guess"]) * 2, 2e-6)
        warned(b, ours, other)
        refused(b, ["[plugin.missing]"])
        refused(b, ["[plugin.other]", other], "--plugin", other)
        refused(b, ["[plugin.abi]", "ABI 0", older], "--plugin", older)


main()
