#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `split` refuses wrong cuts.

usage: bad_cuts.py PENSTOCK MODEL.pt2

For each cut the exit code and the message are checked. `split` may leave no
plan, and must not change a plan that existed before.
"""
import os
import subprocess
import sys
import tempfile

CASES = [  # options, exit code, part of the message
    (["--at", "h.0.uq"], 65, 'nearest name is "h.0.up"'),
    (["--at", "h.1:middle"], 64, "NAME:end"),
    (["--at", "h.1", "--policy", "flops"], 64, "not both"),
    (["--at", "h.1", "--policy", "file:none.json"], 64, "use one"),
    (["--policy", "magic"], 64, "layers, flops, memory"),
    (["--policy", "markers"], 65, "no markers"),
    (["--policy", "file:none.json"], 74, "none.json"),
    (["--policy", "flops", "--stages", "4000"], 65, "at most"),
    (["--policy", "layers", "--stages", "9"], 65, "by layers"),
    (["--at", "h.1", "--stages", "7"], 65, "not 7"),
    (["--transmit", "wte.weighd"], 65, 'nearest name is "wte.weight"'),
    (["--transmit", "wte"], 65, "no parameter"),
    (["--loss", "9"], 65, "no output"),
    (["--costs", "none.json", "--policy", "flops"], 74, "none.json"),
    (["--costs", "none.json", "--policy", "memory"], 64, "no effect"),
    (["--costs", "none.json", "--at", "h.1"], 64, "no effect"),
    (["--stages", "-1"], 64, "--stages"),
    (["--bandwidth", "0"], 64, "--bandwidth"),
]


def main():
    penstock, model = (os.path.abspath(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        plan, old = os.path.join(folder, "plan"), os.path.join(folder, "old")
        subprocess.run([penstock, "split", model, "-o", old, "--stages", "2"],
                       check=True, stdout=subprocess.DEVNULL)
        before = sorted((e.name, e.stat().st_size) for e in os.scandir(old))
        for options, code, text in CASES:
            for target in plan, old:
                done = subprocess.run(
                    [penstock, "split", model, "-o", target, *options],
                    cwd=folder, capture_output=True, text=True, check=False)
                assert done.returncode == code, (options, done)
                assert text in done.stderr, (options, done.stderr)
                assert done.stdout == "", (options, done.stdout)
            assert sorted(os.listdir(folder)) == ["old"], os.listdir(folder)
            assert before == sorted(
                (e.name, e.stat().st_size) for e in os.scandir(old))
    print(len(CASES), "wrong cuts refused")


if __name__ == "__main__":
    main()
