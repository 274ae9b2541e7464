#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no kernel has to spill registers, and prints a table of the
registers, shared memory and spills of each one.

usage: registers.py CUDA_DEF REPORT...

CUDA_DEF lists the kernels. The reports are what nvcc's assembler says of them
(stages/ops/cuda/nvcc.sh), for compute capabilities 8.0 and 9.0.

Spills cost time in the loops of matmuls, attention, norms, softmax and losses:
none of these kernels may have any. Elementwise loops call a function for
operands with strides and of 16 bits; around such a call they may save a few
registers.
"""
import re
import sys

TARGETS = "sm_80", "sm_90"
ELEMENTWISE = "pst_loop_"
SAVED = 16  # bytes of registers that a loop saves around a call


def read(paths):
    """Returns {(kernel, target): [registers, shared bytes, bytes stored, bytes
    loaded]}."""
    found = {}
    kernel = function = None
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if m := re.search(r"entry function '(\w+)' for '(\w+)'", line):
                    kernel = m[1], m[2]
                elif m := re.search(r"Function properties for (\S+)", line):
                    function = m[1]
                elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes "
                                    "spill loads", line):
                    # Functions that are called report in between.
                    if kernel and function == kernel[0]:
                        found[kernel] = [0, 0, int(m[1]), int(m[2])]
                elif m := re.search(r"Used (\d+) registers", line):
                    shared = re.search(r"(\d+) bytes smem", line)
                    found[kernel][:2] = (int(m[1]),
                                         int(shared[1]) if shared else 0)
    return found


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        names = re.findall(r"^X\((\w+)\)", f.read(), re.M)
    found = read(sys.argv[2:])
    faults = [f"{name}: nvcc reports nothing for {target}"
              for name in names for target in TARGETS
              if (name, target) not in found]
    print("kernel, target, registers, shared bytes, spilled bytes stored and "
          "loaded")
    for (name, target), row in sorted(found.items()):
        print(name, target, *row)
        most = SAVED if name.startswith(ELEMENTWISE) else 0
        if max(row[2:]) > most:
            faults.append(f"{name}, {target}: spills {row[2]} bytes and loads "
                          f"{row[3]}, at most {most} are allowed")
    print("\n".join(faults))
    return 1 if faults or not found else 0


if __name__ == "__main__":
    sys.exit(main())
