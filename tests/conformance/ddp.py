#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs steps of DistributedDataParallel in two processes.

usage: ddp.py MODEL DATA MICROBATCHES STEPS OUT

MODEL is a pickled module whose first output is the loss. The processes share
the batch of a step: each has one half of the microbatches, in order. OUT gets
the state of process 0 after the last step.
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel

LR, PROCESSES = 0.1, 2


def work(rank, store, path, data, m, steps, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                            world_size=PROCESSES)
    model = torch.load(path, weights_only=False)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    parts = {n: t.chunk(m * steps) for n, t in load_file(data).items()}
    share = m // PROCESSES
    for step in range(steps):
        optimizer.zero_grad()
        for k in range(share):
            wrapped.require_backward_grad_sync = k == share - 1
            at = step * m + rank * share + k
            loss = wrapped(**{n: p[at] for n, p in parts.items()})[0]
            (loss / share).backward()
        optimizer.step()
    if rank == 0:
        save_file(model.state_dict(), out)
    dist.destroy_process_group()


if __name__ == "__main__":
    model, data, m, steps, out = sys.argv[1:]
    # gloo sometimes aborts a process whose peer has closed the connection
    # first. The reference is not under test, so the run is repeated.
    for left in 2, 1, 0:
        with tempfile.TemporaryDirectory() as folder:
            try:
                torch.multiprocessing.start_processes(
                    work, (os.path.join(folder, "store"), model, data, int(m),
                           int(steps), out), PROCESSES, start_method="fork")
                break
            except torch.multiprocessing.ProcessExitedException:
                if left == 0:
                    raise
