#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the MPI calls of the library.

usage: mpi_calls.py MPICC MPIEXEC LIBRARY TINY.pt2 ROOT

Compiles mpi_calls.c together with trampolines for all MPI functions that the
library imports: each saves the registers of arguments, calls count_mpi() and
goes on in the function's PMPI name. The program's own calls count, too.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..",
                                "daemon"))
from patience import PATIENCE  # noqa: E402

REGISTERS = "rdi", "rsi", "rdx", "rcx", "r8", "r9"


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          timeout=PATIENCE)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def trampoline(name):
    return "\n".join([
        f".globl {name}", f".type {name}, @function", f"{name}:",
        *(f"push %{r}" for r in REGISTERS), "sub $8, %rsp",
        "call count_mpi@PLT", "add $8, %rsp",
        *(f"pop %{r}" for r in reversed(REGISTERS)), f"jmp P{name}@PLT", ""])


def main():
    mpicc, mpiexec, library, model, root = sys.argv[1:]
    library = os.path.abspath(library)
    names = re.findall(r" U (MPI_\w+)", call("nm", "-D", "--undefined-only",
                                              library))
    assert "MPI_Comm_dup" in names and len(names) > 10, names
    folder_of = os.path.dirname(library)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "trampolines.s")
        with open(source, "w", encoding="utf-8") as file:
            file.write(".text\n" + "".join(map(trampoline, names)) +
                       '.section .note.GNU-stack,"",@progbits\n')
        program = os.path.join(folder, "mpi_calls")
        call(mpicc, "-std=c17", "-D_GNU_SOURCE", "-O1", "-I", root, "-I",
             os.path.join(root, "include"),
             os.path.join(root, "tests", "lib", "mpi", "mpi_calls.c"), source,
             "-L", folder_of, "-lpenstock", "-pthread",
             "-Wl,-rpath," + folder_of, "-o", program)
        print(call(mpiexec, "-n", "2", program, model))


main()
