#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what inputs of models of tokens get besides the tokens: from a prompt,
and from a file of tokens.

usage: token_inputs.py PENSTOCK FOLDER (tests/golden/roles)
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402

NAMES = ["--tokens-input", "b", "--mask-input", "a", "--positions-input", "c"]


class Bench(job.Bench):
    def __init__(self, penstock, folder, models):
        super().__init__(penstock, folder)
        self.models = models
        with open(self.model("want.json"), encoding="utf-8") as file:
            self.want = json.load(file)

    def model(self, name):
        return os.path.join(self.models, name)

    def infer(self, name, *words, **more):
        prompt = " ".join(map(str, self.want["prompt"]))
        return self.done("infer", self.model(name + ".pt2"), "--prompt",
                         prompt, "--tokens", 9, "--json", *words, **more)

    def tokens(self, name, *words):
        done = self.infer(name, *words)
        assert "input" not in done.stderr, done.stderr
        return [int(t) for t in json.loads(done.stdout)["text"].split()]

    def loss(self, name, *words):
        return json.loads(self.said("eval", self.model(name + ".pt2"), "--data",
                                    "tokens.bin", "--json", *words))["loss"]


def prompts(b):
    """Compares the tokens with PyTorch's."""
    tokens = b.want["tokens"]
    for name in "all", "loss", "places", "added", "bf16":
        assert b.tokens(name) == tokens[name], name
    assert b.tokens("named", *NAMES) == tokens["named"]
    assert b.tokens("loss", "--mask-input", "attention_mask", "--tokens-input",
                    "input_ids") == tokens["loss"]
    for name in "all", "loss":
        assert b.tokens(name, "--autocast", "bf16") == tokens[name], name


def refused_prompts(b):
    for name, words, says in (
            ("named", [], "the logits depend on input 'b' (i64[2, 8]), which "
             "does not follow from the text"),
            ("named", NAMES[:2], "depend on input 'a' (i64[2, 8])"),
            ("named", NAMES[:4], "depend on input 'c' (i64[2, 8])"),
            ("named", [*NAMES[:4], "--positions-input", "b"],
             "input 'b' is given by two options"),
            ("all", ["--tokens-input", "labels"],
             "do not depend on input 'labels', which was taken for the tokens"),
            ("all", ["--mask-input", "labels", "--targets-input",
                     "attention_mask"], "depend on input 'attention_mask'"),
            ("added", ["--tokens-input", "mask"],
             "input 'mask' is f32[8, 8], it has to be integers"),
            ("two", [], "the outputs 0 and 1 could both be the logits (batch, "
             "8, 260)")):
        said = b.infer(name, *words, code=65).stderr
        assert says in said, said
    said = b.infer("all", "--mask-input", "x", code=65).stderr
    assert "the model has no input 'x'" in said, said


def files(b):
    """Compares the losses of two rows with PyTorch's."""
    losses = b.want["losses"]
    with open(b.path("tokens.bin"), "wb") as file:
        file.write(bytes((5 * k + k * k) % 250 for k in range(17)))
    for name in "all", "loss", "places":
        assert abs(b.loss(name) - losses[name]) < 2e-5, (name, b.loss(name))
    assert b.loss("loss", "--mask-input", "attention_mask") == b.loss("loss")
    run = b.said("run", b.model("loss.pt2"), "--data", "tokens.bin", "--steps",
                 1, "--transport", "self", "-n", 1, "--quiet")
    assert f"loss {losses['loss']:.4f}," in run, run
    said = b.said("infer", b.model("named.pt2"), "--data", "tokens.bin",
                  "--output", "x.safetensors", code=65)
    assert "the model's input 'c' (i64[2, 8]) cannot be made from it" in said \
        and "--positions-input" in said, said


def main():
    penstock, models = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder, models) as b:
        prompts(b)
        refused_prompts(b)
        files(b)
    print("ok")


if __name__ == "__main__":
    main()
