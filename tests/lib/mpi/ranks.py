#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks penstock.py on MPI: ranks.py LIBRARY TINY.pt2 under mpiexec -n 2.

What a call copies arrives at rank 0; on the other rank the call returns None,
and leaves the array that it was given as it is.
"""
import array
import ctypes
import os
import sys

library, model = sys.argv[1:]
mpi = ctypes.CDLL(os.path.abspath(library), ctypes.RTLD_GLOBAL)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(library)),
                                "python"))
import penstock  # noqa: E402

level = ctypes.c_int()
mpi.MPI_Init_thread(None, None, 1, ctypes.byref(level))
# MPI_COMM_WORLD as an integer of Fortran: Open MPI's, or that of MPICH.
WORLD = 0 if hasattr(mpi, "ompi_mpi_comm_world") else 0x44000000
mpi.MPI_Comm_f2c.restype = ctypes.c_void_p
number = ctypes.c_int()
mpi.MPI_Comm_rank(ctypes.c_void_p(mpi.MPI_Comm_f2c(WORLD)),
                  ctypes.byref(number))
RANK = number.value

penstock.load(library)
opened = penstock.Model(model, stages=2)
session = opened.session(comm=WORLD, threads=1, microbatches=2,
                         input_gradients="*")
given = [array.array("q" if info.dtype == "int64" else "f",
                     [1] * len(penstock.Tensor(info.dtype, info.shape).flat))
         for info in session.inputs]
session.train_step(*given)
session.forward(*given)


def check(call, info, *words):
    """All of the result is on rank 0, with other elements than 0."""
    found = call(*words)
    assert (found is None) == (RANK > 0), (RANK, call, found)
    out = array.array("f", [77] * len(
        penstock.Tensor(info.dtype, info.shape).flat))
    again = call(*words, out)
    if RANK == 0:
        assert again is out and [*out] == [*found.flat] and any(out), call
    else:
        assert again is None and set(out) == {77}, call


weight = next(p for p in session.parameters if p.name == "fc.weight")
check(session.get, weight, "fc.weight")
check(session.gradient, weight, "fc.weight")
check(session.input_gradient, session.inputs[1], 1)
check(session.output, session.outputs[0], 0)
session.close()
alone = opened.session(threads=1)
assert alone.get("fc.bias") is not None  # each rank has its own session
alone.close()
opened.close()
mpi.MPI_Finalize()
