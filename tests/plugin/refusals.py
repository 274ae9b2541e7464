#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses plugins that are wrong, by the id of the error.

usage: refusals.py PENSTOCK FOLDER GOLDEN

FOLDER has ours.c compiled as ours.so and with each of its faults, as
ours-FAULT.so.
"""
import json
import os
import re
import shutil
import struct
import sys
import tempfile

from bench import Bench, known_of

WARNING = re.compile(
    "penstock: warning: plugin ours was 1.1, digest [0-9a-f]{16} in the run "
    "that saved this checkpoint, and is 1.0, digest [0-9a-f]{16} now: its "
    "operators may compute something else")

# fault -> id of the error, and words of its text
LOADED = {
    "abi": ("plugin.abi", "ABI 2"),
    "older": ("plugin.abi", "ABI 0"),
    "size": ("plugin.abi", "struct penstock_plugin"),
    "null": ("plugin.incomplete", "standardize_backward"),
    "kernels": ("plugin.incomplete", "no operators"),
    "schema": ("plugin.schema", "ours::gate"),
    "type": ("plugin.schema", "Tensor(a!)"),
    "space": ("plugin.schema", "theirs::gate"),
    "taken": ("plugin.name", "aten"),
    "twice": ("plugin.name", "ours.halves"),
    "formula": ("plugin.gradient", "ours.gate"),
    "no_tensor": ("plugin.gradient", "\"k\" is not a tensor"),
    "unknown": ("plugin.gradient", "ours::gate_backward"),
}
OPENED = {
    "result": ("plugin.result", "9 dimensions"),
    "refuses": ("op.shape", "never"),
}
TRAINED = {
    "no_gradient": ("plugin.gradient", "ours.gate"),
    "fails": ("op.data", "the gate is stuck"),
}
# With the model plugin-lists.
LISTS = {
    "no_list": ("plugin.gradient", "no list of 5 tensors"),
    "count": ("plugin.result", "0 results"),
}
# Without the checks these run through.
CHECKED = {
    "writes_beyond": ("op.data", "after the 512 bytes of result 1"),
    "writes_input": ("op.data", "its input x"),
    "leaves": ("op.data", "is not written"),
    "threads": ("op.data", "other bits"),
    "scratch": ("op.data", "scratch"),
}


def expect_words(what, text, error, *words):
    for word in (f"[{error}]", *words):
        if word not in text:
            raise SystemExit(f"{what}: {word} is not in\n{text}")


def trained_with_another(b, model, data, saved, was, now):
    """The newest checkpoint is of another plugin: eval and infer warn in the
    words of a resume."""
    eval_ = ["eval", model, "--data", data, "--checkpoint", saved]
    infer = ["infer", model, "--data", data, "--checkpoint", saved, "-o",
             b.at("out.safetensors")]
    for command in eval_, infer:
        text = b.call(*command, "--plugin", was)
        if "plugin ours" in text:
            raise SystemExit(f"the same plugin: {text}")
        text = b.call(*command, "--plugin", now)
        if not WARNING.search(text):
            raise SystemExit(f"{command[0]}: no warning in\n{text}")


def truncated(b, whole, refused):
    """A plugin that was copied in part, or whose header is damaged: loading its
    pages would end the process by SIGBUS."""
    with open(whole, "rb") as given:
        elf = given.read()
    phoff, shoff = struct.unpack_from("<QQ", elf, 32)
    types = [struct.unpack_from("<I", elf, phoff + 56 * i)[0]
             for i in range(struct.unpack_from("<H", elf, 56)[0])]
    load = phoff + 56 * types.index(1)
    sizes = [3000, 70, phoff + 60, len(elf) // 2, shoff, len(elf) - 1]
    damaged = [("cut", elf[:n]) for n in sizes]
    for name, at, value in (
            ("p_offset", load + 8, 1 << 40), ("p_filesz", load + 32, 1 << 40),
            ("overflow", load + 32, (1 << 64) - 1), ("e_phoff", 32, 1 << 40),
            ("e_phoff overflow", 32, (1 << 64) - 8)):
        damaged.append((name, elf[:at] + struct.pack("<Q", value) +
                        elf[at + 8:]))
    for name, content in damaged:
        with open(b.at("cut.so"), "wb") as cut:
            cut.write(content)
        refused(f"{name}, {len(content)} bytes", "plugin.file",
                ["cut.so", "truncated", f"has {len(content)} bytes"], "ops",
                "--plugin", b.at("cut.so"))


def main():
    penstock, built, golden = map(os.path.abspath, sys.argv[1:])
    model = os.path.join(golden, "plugin.pt2")

    def file(fault=""):
        return os.path.join(built, f"ours{'-' if fault else ''}{fault}.so")

    with tempfile.TemporaryDirectory() as folder:
        b = Bench(penstock, folder)
        data = b.data("data.safetensors", known_of(golden, "plugin"), repeat=2)
        plan = b.at("plan")
        b.call("split", model, "-o", plan, "--stages", "2", "--plugin", file())
        run = ["--transport", "self", "-n", "1", "--steps", "1", "--data", data,
               "--optimizer", "none", "--log-dir", b.at("logs"), "--quiet"]

        def refused(what, error, words, *command):
            expect_words(what, b.call(*command, good=False), error, *words)

        for fault, (error, word) in LOADED.items():
            refused(fault, error, [file(fault), word], "ops", "--plugin",
                    file(fault))
        for fault, (error, word) in OPENED.items():
            refused(fault, error, [word, "ours.standardize", "blocks.0"],
                    "show", model, "--plugin", file(fault))
        for fault, (error, word) in LISTS.items():
            refused(fault, error, [word], "split",
                    os.path.join(golden, "plugin-lists.pt2"), "-o",
                    b.at("lists"), "--plugin", file(fault))
        for fault, (error, word) in {**TRAINED, **CHECKED}.items():
            more = [*run, "--plugin", file(fault)]
            if fault in CHECKED:
                more.append("--check-plugins")
            refused(fault, error, [word, "make_plugin.py"], "run", model, *more)

        for name, gradient in ("ours", "yes"), ("no_gradient", "no"):
            rows = json.loads(b.call("ops", "ours.gate", "--json", "--plugin",
                                     file() if name == "ours" else file(name)))
            if [row["gradient"] for row in rows["operators"]] != [gradient]:
                raise SystemExit(f"{name}: {rows}")

        # Files that are no plugins.
        with open(b.at("text.so"), "w") as text:
            text.write("no library\n")
        refused("text", "plugin.file", ["text.so"], "ops", "--plugin",
                b.at("text.so"))
        refused("none", "file.missing", ["none.so"], "ops", "--plugin",
                b.at("none.so"))
        refused("no symbol", "plugin.file", ["penstock_plugin"], "ops",
                "--plugin", file("nothing"))
        truncated(b, file(), refused)
        # The same file twice, also under another name, is fine.
        shutil.copy(file(), b.at("copy.so"))
        b.call("ops", "ours", "--plugin", file(), "--plugin", b.at("copy.so"))
        # A path may contain ':', by itself and beside others.
        os.mkdir(b.at("a:b"))
        shutil.copy(file(), b.at("a:b", "copy.so"))
        for text in (b.at("a:b", "copy.so"),
                     b.at("copy.so") + ":" + b.at("a:b", "copy.so")):
            b.call("ops", "ours", "--plugin", text)
            b.call("run", plan, *run, "--plugin", text)
        refused("output", "option.value", ["copy.so"], "plan", plan, "--plugin",
                b.at("a:b", "copy.so"), "--csv", b.at("a:b", "copy.so"))
        b.env["PENSTOCK_PLUGIN"] = file()
        b.call("ops", "ours", "--plugin", file())
        if "ours.gate" not in b.call("ops", "ours"):
            raise SystemExit("PENSTOCK_PLUGIN is not read")
        del b.env["PENSTOCK_PLUGIN"]
        refused("two", "plugin.name", ["ours", "version 1.0"], "ops", "--plugin",
                file() + ":" + file("version"))

        # Plans name the plugin.
        for command in (["show", plan], ["run", plan, *run],
                        ["eval", plan, "--data", data], ["weights", plan, "-o",
                                                         b.at("w.safetensors")]):
            refused("plan without", "plugin.missing",
                    ["ours, version 1.0"], *command)
            if command[0] != "weights":
                refused("plan with another", "plugin.other",
                        ["version 1.0", "version 1.1"], *command, "--plugin",
                        file("version"))
        refused("model without", "op.not-supported",
                ["ours.gate", "ops --missing"], "show", model)
        # The plugin is not written over.
        refused("output", "option.value", ["copy.so"], "plan", plan, "--plugin",
                b.at("copy.so"), "--csv", b.at("copy.so"))
        # A checkpoint reports that the plugin has changed.
        saved = ["--checkpoint", b.at("saved"), "--checkpoint-every", "1"]
        b.call("run", model, *run, *saved, "--plugin", file())
        text = b.call("run", model, *run[:5], "2", *run[6:], *saved, "--resume",
                      "--plugin", file("version"))
        for word in ("plugin ours was 1.0, digest ", "and is 1.1, digest ",
                     "now: its operators may compute something else"):
            if word not in text:
                raise SystemExit(f"resume: {word} is not in\n{text}")
        trained_with_another(b, model, data, b.at("saved"), file("version"),
                             file())


if __name__ == "__main__":
    main()
