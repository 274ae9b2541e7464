# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of `gpu.sh run --more`: compiled PyTorch, PyTorch's pipelines,
and steps on the CPU of the machine."""
import os
import time

import speed

THREADS = [1, 2, 4, 8, 16]
RANKS = [1, 2, 4, 8]


def compiled(job):
    speed.measure(job, "gpt2-124m", compiled=True)
    if not speed.refusal(job, f"{job.work}/gpt2-124m.pt2"):
        speed.measure(job, "gpt2-124m", "bf16", compiled=True)
        speed.measure(job, "llama-374m", "bf16", compiled=True)


def stages_of(net, cut):
    """Returns two modules: one of the first blocks, one of the others with the
    head."""
    from torch import nn

    class Front(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe, self.h = net.wte, net.wpe, net.h[:cut]
            self.register_buffer("places", net.places)

        def forward(self, x):
            h = self.wte(x) + self.wpe(self.places)
            for block in self.h:
                h = block(h)
            return h

    class Back(nn.Module):
        def __init__(self):
            super().__init__()
            self.h, self.ln_f, self.head = net.h[cut:], net.ln_f, net.head

        def forward(self, h):
            for block in self.h:
                h = block(h)
            return self.head(self.ln_f(h))
    return Front(), Back()


def pipelining(job):
    """Times torch.distributed.pipelining with two stages on one rank."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import (PipelineStage,
                                              ScheduleInterleaved1F1B)
    from torch.nn import functional as F
    import nets
    name, device = "gpt2-124m", job.torch_device()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0",
                      WORLD_SIZE="1")
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=0,
                            world_size=1)
    net = nets.find(job, name)
    module = nets.built(net).to(device)
    parts = [PipelineStage(part, i, 2, torch.device(device))
             for i, part in enumerate(stages_of(module, len(module.h) // 2))]
    schedule = ScheduleInterleaved1F1B(
        parts, net.m,
        loss_fn=lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))
    optimizer = torch.optim.AdamW(module.parameters(), lr=nets.LR, fused=True)
    data = {k: v.to(device) for k, v in nets.batch(net).items()}
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        schedule.step(data["x"], target=data["y"], losses=[])
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    dist.destroy_process_group()
    job.row(f"{name} f32: torch pipelining, 2 stages on one rank", "",
            speed.ms(speed.median(times[2:])))


def cpu(job):
    """Times gpt-25m on the CPU of the machine, with 16 microbatches."""
    import nets
    name = "gpt-25m"
    data = f"{job.work}/{name}.safetensors"
    begin = time.monotonic()
    for dtype in "f32", "bf16":
        for bind in "none", "cores":
            found = []
            for n in THREADS[:1] if job.tiny else THREADS[::-1]:
                if n <= (os.cpu_count() or 1) and time.monotonic() - begin < 120:
                    said = job.run(f"{job.work}/{name}-1", data, "cpu", 1, 16,
                                   3, "--threads", n, "--dtype", dtype,
                                   "--bind", bind)
                    found.append(f"{n}: {said['step_s']:.3f}")
            job.row(f"{name} 16 x (2, 128) {dtype} on the CPU, --bind {bind}, "
                    "seconds by threads", "; ".join(found))
        found = []
        for n in RANKS[1:2] if job.tiny else RANKS[::-1]:
            if n <= (os.cpu_count() or 1) and time.monotonic() - begin < 130:
                said = job.run(f"{job.work}/{name}.pt2", data, "cpu", n, 16, 3,
                               "--threads", 1, "--dtype", dtype, "--policy",
                               "flops", "--stages", n, "--bind", "cores",
                               transport="mpi")
                found.append(f"{n}: {said['step_s']:.3f} (bubble "
                             f"{said['bubble']:.2f})")
        job.row(f"{name} {dtype} on the CPU, --bind cores, seconds by "
                "ranks of one thread",
                "; ".join(found))
    job.row("the same in PyTorch", "", speed.ms(torch_step(job, nets, name)))


def torch_step(job, nets, name):
    """Returns the seconds that PyTorch takes for a step on all cores, with 16
    microbatches (twice as many as the net has)."""
    import torch
    net = nets.find(job, name)
    module = nets.built(net)
    optimizer = torch.optim.AdamW(module.parameters(), lr=nets.LR)
    data = nets.batch(net)
    parts = list(zip(data["x"].chunk(net.m), data["y"].chunk(net.m)))
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for k in range(16):
            (module(*parts[k % net.m]) / 16).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return speed.median(times[1:])
