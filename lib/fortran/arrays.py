#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the functions of penstock_tensor, one for each type and rank.

usage: arrays.py TEMPLATE

Prints the template, arrays.f90.in, in which a line with NAMES becomes their
names, and one with FUNCTIONS the functions. Strides are seen in the addresses
of the second elements along each dimension (`place`).
"""
import sys

RANKS = range(8)
# Name, declaration, code and bits in DLPack.
TYPES = [("real32", "real(real32)", "dl_float", "32_c_int8_t"),
         ("real64", "real(real64)", "dl_float", "64_c_int8_t"),
         ("int32", "integer(int32)", "dl_int", "32_c_int8_t"),
         ("int64", "integer(int64)", "dl_int", "64_c_int8_t"),
         ("complex32", "complex(real32)", "dl_complex", "64_c_int8_t"),
         ("complex64", "complex(real64)", "dl_complex", "bits_128")]


def function(name, declaration, code, bits, rank):
    colons = f"({', '.join([':'] * rank)})" if rank else ""
    lines = [f"function {name}_{rank}(a) result(t)",
             f"    {declaration}, intent(in), target :: a{colons}",
             "    type(penstock_tensor) :: t", ""]
    if rank == 0:
        lines += [f"    t = make({code}, {bits}, [integer ::])",
                  "    t%data = c_loc(a)"]
    else:
        firsts = ["1"] * rank
        seconds = [", ".join([*firsts[:d], f"next(size(a, {d + 1}))",
                              *firsts[d + 1:]]) for d in range(rank)]
        lines += [f"    t = make({code}, {bits}, shape(a))",
                  f"    if (size(a) > 0) call place(t, "
                  f"c_loc(a({', '.join(firsts)})), [ &"]
        lines += [f"        c_loc(a({at})){', &' if d < rank - 1 else '])'}"
                  for d, at in enumerate(seconds)]
    return lines + ["end function"]


def main():
    functions = [function(*row, rank) for row in TYPES for rank in RANKS]
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            if line.strip() == "NAMES":
                for name, *_ in TYPES:
                    print(f"        module procedure {name}_0, " + ", &\n"
                          "            ".join(", ".join(
                              f"{name}_{rank}" for rank in some)
                              for some in (RANKS[1:4], RANKS[4:])))
            elif line.strip() == "FUNCTIONS":
                print("\n\n".join("\n".join(
                    ("    " + text).rstrip() for text in one)
                    for one in functions))
            else:
                print(line, end="")


main()
