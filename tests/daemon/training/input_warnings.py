#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests warnings and notes about input that is valid but probably a mistake.

usage: input_warnings.py PENSTOCK BYTEGPT.pt2 NORM.pt2 SHIFTS.pt2 TEXT
"""
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
from eval_job import write_data  # noqa: E402

LAST = r"\d+ steps?, loss \S+, .* a step, .*\n"


class Bench(job.Bench):
    runs = 0

    def run(self, model, data, *more, **env):
        """Returns the warnings of standard error and of the log. The log is
        read since such a short run may end before clients get its events."""
        self.runs += 1
        log = f"log-{self.runs}"
        done = self.done("run", model, "-n", "1", "--transport", "self",
                         "--data", data, "--steps", "1", "--quiet",
                         "--log-dir", log, *more, **env)
        # Standard output has nothing but the last line.
        assert re.fullmatch(LAST, done.stdout), done.stdout
        return done.stderr + "".join(self.events(log, "doubt", "rank-0"))


def of_data(b, gpt, norm, text):
    assert b.run(gpt, text) == ""
    with open(b.path("wide.bin"), "wb") as file:
        file.write(b"".join(struct.pack("<H", k * k % 5003)
                            for k in range(4096)))
    said = b.run(gpt, "wide.bin")
    assert "read as tokens of one byte each, but looks like integers of two: " \
        "give --token-dtype uint16" in said, said
    assert "looks like" not in b.run(gpt, "wide.bin", "--token-dtype", "uint8")
    said = b.done("eval", gpt, "--data", "wide.bin", "--batches", "1").stderr
    assert "looks like integers of two" in said, said
    said = b.run(gpt, text, "--pack", "10")
    assert "is packed, but the model has no input for a mask " \
        "(attention_mask) or for documents (document_ids): tokens attend to " \
        "the documents before theirs; the model has no input for positions " \
        "(position_ids)" in said, said
    assert "the loss ignores no target" not in said, said
    write_data(b.path("x.safetensors"), 1, x=[7, 4])
    said = b.run(norm, "x.safetensors", "-m", "2")
    assert "has 7 rows, and a step takes 8: each step has some of them more " \
        "than once" in said, said
    assert b.run(norm, "x.safetensors", "-m", "1") == ""


def of_models(b, norm, shifts, text):
    said = b.run(shifts, text)
    assert "the targets are shifted twice: from " in said and \
        "'labels' gets the token after each place" in said, said
    said = b.run(norm, "x.safetensors", "-m", "1", "--freeze", "*")
    assert "no parameter has a gradient: the steps change nothing" in said, said
    assert b.run(norm, "x.safetensors", "-m", "1", "--freeze", "*",
                 "--optimizer", "none") == ""


def of_words(b, norm):
    """Tests unknown environment variables, and mistakes in file names."""
    said = b.run(norm, "x.safetensors", PENSTOCK_MICROBACHES="2",
                 PENSTOCK_SEED="1", PENSTOCK_NO_SUCH_THING="")
    assert said.count("penstock: warning: nothing reads PENSTOCK_") == 2, said
    assert "PENSTOCK_MICROBACHES; did you mean PENSTOCK_MICROBATCHES?" in said
    said = b.call("run", "net.pln", code=74)
    assert "net.pln" in said and "--data" not in said, said
    assert "--data FILE is missing" in b.call("run", norm, code=64)
    for options, other in ((), False), ((), False), (("--at", "conv"), True):
        said = b.done("split", norm, "-o", "norm.plan", *options).stderr
        assert ("norm.plan had another plan, which is replaced" in said) == \
            other, said


def main():
    penstock, gpt, norm, shifts, text = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, folder) as b:
        of_data(b, gpt, norm, text)
        of_models(b, norm, shifts, text)
        of_words(b, norm)
    print("ok")


if __name__ == "__main__":
    main()
