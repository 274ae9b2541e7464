#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the training step of the benchmarks in PyTorch's own pipelines.

    torch_peer.py export MODEL DIR [-m 8]     model.pt2, data.safetensors
    torch_peer.py pipe MODEL [--ranks 2] [--schedule 1f1b] [OPTIONS]
    torch_peer.py eager|compile MODEL [OPTIONS]

`pipe` runs torch.distributed.pipelining over gloo, with one process per rank;
`eager` and `compile` (torch.compile) run one microbatch after the other in one
process. OPTIONS: [-m 8] [--steps 9] [--threads 1] [--bf16]: with --bf16 under
torch.autocast. Each prints a JSON object: step_s (median seconds of forward,
backward and SGD, without the first two steps), first_step_at_s (seconds from
the start of the process to the end of the first step), rss_mib (memory of the
largest rank).
"""
import argparse
import json
import os
import resource
import socket
import statistics
import time

STARTED = time.time()

import torch  # noqa: E402
from torch import nn  # noqa: E402

from peer_models import MODELS  # noqa: E402

MICROBATCHES = 8


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = nn.Sequential(*model.units())
        self.loss = model.loss

    def forward(self, x, target):
        y = self.model(x)
        return self.loss(y, target), y


def export(name, folder, dtype=torch.float32, microbatches=MICROBATCHES):
    from safetensors.torch import save_file
    model = MODELS[name]

    def given(n):
        x, target = model.batch(n)
        return x.to(dtype) if x.is_floating_point() else x, target

    torch.manual_seed(0)
    program = torch.export.export(WithLoss(model).train().to(dtype), given(1),
                                  strict=False)
    os.makedirs(folder, exist_ok=True)
    torch.export.save(program, f"{folder}/model.pt2")
    x, target = given(microbatches)
    save_file({"x": x, "target": target}, f"{folder}/data.safetensors")


def parts(units, n):
    """Divides the units into n contiguous groups with about the same number of
    weights of matmuls."""
    costs = [sum(p.numel() for m in u.modules() if isinstance(m, nn.Linear)
                 for p in m.parameters()) for u in units]
    groups, done = [[] for _ in range(n)], 0
    for unit, cost in zip(units, costs):
        middle = (done + cost / 2) / sum(costs)
        groups[min(n - 1, int(middle * n))].append(unit)
        done += cost
    return [nn.Sequential(*g) for g in groups]


def autocast(a):
    return torch.autocast("cpu", torch.bfloat16, enabled=a.bf16)


def report(seconds, first, rss):
    print(json.dumps({"step_s": statistics.median(seconds[2:] or seconds),
                      "first_step_at_s": first, "rss_mib": rss / 1024}),
          flush=True)


def one_process(a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    module = WithLoss(MODELS[a.model]).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    run = torch.compile(module) if a.mode == "compile" else module
    data = [t.chunk(a.microbatches)
            for t in MODELS[a.model].batch(a.microbatches)]
    seconds = []
    for _ in range(a.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        for x, target in zip(*data):
            with autocast(a):
                loss = run(x, target)[0]
            (loss / a.microbatches).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        if len(seconds) == 1:
            first = time.time() - a.started
    report(seconds, first, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def pipe_rank(rank, a, port):
    import torch.distributed as dist
    from torch.distributed.pipelining import (PipelineStage, Schedule1F1B,
                                              ScheduleGPipe)
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=a.ranks)
    model = MODELS[a.model]
    stage = PipelineStage(parts(model.units(), a.ranks)[rank], rank, a.ranks,
                          torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[a.schedule]
    schedule = kind(stage, a.microbatches, loss_fn=model.loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=1e-3)
    x, target = model.batch(a.microbatches)
    seconds = []
    for _ in range(a.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        with autocast(a):
            if rank == 0:
                schedule.step(x)
            elif rank == a.ranks - 1:
                schedule.step(target=target, losses=[])
            else:
                schedule.step()
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
        if len(seconds) == 1:
            first = time.time() - a.started
    rss = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    dist.all_reduce(rss, op=dist.ReduceOp.MAX)
    if rank == 0:
        report(seconds, first, rss.item())
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    top = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = top.add_subparsers(dest="mode", required=True)
    for mode in "export", "pipe", "eager", "compile":
        p = sub.add_parser(mode)
        p.add_argument("model", choices=MODELS)
        p.add_argument("-m", "--microbatches", type=int, default=MICROBATCHES)
        if mode == "export":
            p.add_argument("dir")
            continue
        p.add_argument("--steps", type=int, default=9)
        p.add_argument("--threads", type=int, default=1)
        p.add_argument("--bf16", action="store_true")
        if mode == "pipe":
            p.add_argument("--ranks", type=int, default=2)
            p.add_argument("--schedule", choices=["gpipe", "1f1b"],
                           default="1f1b")
    a = top.parse_args()
    a.started = STARTED
    if a.mode == "export":
        export(a.model, a.dir, microbatches=a.microbatches)
    elif a.mode == "pipe":
        torch.multiprocessing.spawn(pipe_rank, (a, free_port()),
                                    nprocs=a.ranks)
    else:
        one_process(a)


if __name__ == "__main__":
    main()
