#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of replicas (--shard) beside PyTorch's DDP and FSDP2 on gloo.

    fsdp.py PENSTOCK WORKDIR [--model gpt-25m] [--grids 2x1,4x1,2x2]
            [--modes none,zero1,zero2,zero3] [--schedules 1f1b] [--rounds 3]
            [--steps 6]

The same 8 microbatches, AdamW, a thread for each rank; two stages a rank with
interleaved-1f1b. The peers of a grid have
as many processes: DDP of `none`; FSDP2 with a group for each block of `zero1`
(gradients are reduced once a step, values stay gathered), of `zero2` (reduced
in each microbatch) and of `zero3` (gathered again for the backward, too).

Compared are all gradients of the first step and the loss of the last one, whose
bits must be those of `none` for `zero1`; steps and memory of a rank are taken in
alternation and printed as ratios. Exit code 1 if a number is off.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from peer_models import MODELS
from torch_peer import MICROBATCHES, WithLoss, export, free_port

GRAD, LOSS = 2e-5, 1e-5  # largest error in proportion to the largest value
DUMP = "ours.safetensors"


def wrapped(model, mode):
    if mode == "none":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard
    again = mode == "zero3"
    for unit in model.model:
        fully_shard(unit, reshard_after_forward=again)
    return fully_shard(model, reshard_after_forward=again)


def peer_rank(rank, a, port):
    import torch.distributed as dist
    from safetensors.torch import load_file, save_file
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=a.ranks)
    torch.manual_seed(0)
    model = WithLoss(MODELS[a.model]).train()
    names = [n for n, _ in model.named_parameters()]
    net = wrapped(model, a.mode)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0)
    data = load_file(f"{a.folder}/data.safetensors")
    n = MICROBATCHES // a.ranks
    xs, ts = (data[k].chunk(MICROBATCHES)[rank * n:(rank + 1) * n]
              for k in ("x", "target"))
    seconds, losses, dump = [], [], {}
    for step in range(a.steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        total = 0.0
        for i, (x, target) in enumerate(zip(xs, ts)):
            last = i == n - 1
            if a.mode == "none":
                net.require_backward_grad_sync = last
            else:
                net.set_requires_gradient_sync(a.mode != "zero1" or last)
            loss = net(x, target)[0] / n
            loss.backward()
            total += loss.item()
        if step == 0:
            for name, p in zip(names, net.parameters()):
                g = p.grad
                g = g.full_tensor() if hasattr(g, "full_tensor") else g
                dump["grad." + name] = g.clone()
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
        total = torch.tensor(total)
        dist.all_reduce(total)
        losses.append(total.item() / a.ranks)
    rss = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    dist.all_reduce(rss, op=dist.ReduceOp.MAX)
    if rank == 0:
        save_file(dump, f"{a.folder}/peer.safetensors")
        print(json.dumps({"step_s": statistics.median(seconds[2:]),
                          "rss_mib": rss.item() / 1024, "loss": losses[-1]}),
              flush=True)
    dist.destroy_process_group()


def call(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(a, folder, grid, mode, schedule):
    ranks = int(grid.split("x")[1])
    stages = ranks * 2 if schedule.startswith("interleaved") else ranks
    out = call(a.penstock, "run", folder / "model.pt2", "--stages", stages,
               "-n", grid, "-m", MICROBATCHES, "--schedule", schedule, "--steps", a.steps, "--data",
               folder / "data.safetensors", "--optimizer", "adamw",
               "--weight-decay", 0, "--lr", 1e-3, "--threads", 1, "--shard",
               mode, "--transport", "mpi", "--dump", folder / DUMP,
               "--json")
    return {"step_s": out["step_s"], "rss_mib": out["peak_rss_mib"],
            "loss": out["loss"]}


def theirs(a, folder, grid, mode):
    replicas, ranks = map(int, grid.split("x"))
    return call(sys.executable, __file__, "peer", a.model, folder, mode,
                replicas * ranks, a.steps)


def largest_error(folder):
    from safetensors.torch import load_file
    mine = load_file(folder / DUMP)
    peer = load_file(folder / "peer.safetensors")
    worst = 0.0
    for name, g in peer.items():
        worst = max(worst, ((mine[name] - g).abs().max() /
                            g.abs().max().clamp(min=1e-30)).item())
    return worst


def compare(a, folder):
    print("| grid | schedule | mode | peer | step: ratio | memory of a rank: "
          "ratio | gradients, loss: error |")
    print("| --- | --- | --- | --- | --: | --: | --: |")
    bad, names = 0, a.schedules.split(",")
    for grid in a.grids.split(","):
        bits = {}
        for mode in a.modes.split(","):
            peers, own = [], {name: [] for name in names}
            for _ in range(a.rounds):
                peers.append(theirs(a, folder, grid, mode))
                for name in names:
                    own[name].append(ours(a, folder, grid, mode, name))
                    own[name][-1]["error"] = largest_error(folder)
                    bits[name, mode] = (folder / DUMP).read_bytes()
            for name in names:
                step, rss = (statistics.median(m[k] for m in own[name]) /
                             statistics.median(p[k] for p in peers)
                             for k in ("step_s", "rss_mib"))
                grad = max(m["error"] for m in own[name])
                loss = (abs(own[name][-1]["loss"] - peers[-1]["loss"]) /
                        abs(peers[-1]["loss"]))
                first = bits.get((name, "none"), bits[name, mode])
                good = grad <= GRAD and loss <= LOSS and (
                    mode != "zero1" or first == bits[name, mode])
                bad += not good
                print(f"| {grid} | {name} | {mode} "
                      f"| {'DDP' if mode == 'none' else 'FSDP2'} "
                      f"| {step:.2f} | {rss:.2f} | {grad:.0e}, {loss:.0e}"
                      f"{'' if good else ' OFF'} |", flush=True)
    return 1 if bad else 0


def main():
    if sys.argv[1:2] == ["peer"]:
        model, folder, mode, ranks, steps = sys.argv[2:7]
        a = argparse.Namespace(model=model, folder=folder, mode=mode,
                               ranks=int(ranks), steps=int(steps))
        torch.multiprocessing.spawn(peer_rank, (a, free_port()),
                                    nprocs=a.ranks)
        return 0
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--model", choices=MODELS, default="gpt-25m")
    p.add_argument("--grids", default="2x1,4x1,2x2")
    p.add_argument("--modes", default="none,zero1,zero2,zero3")
    p.add_argument("--schedules", default="1f1b")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    a = p.parse_args()
    os.environ.update(OMPI_MCA_rmaps_base_oversubscribe="1")
    folder = a.workdir / a.model
    export(a.model, folder)
    return compare(a, folder)


if __name__ == "__main__":
    sys.exit(main())
