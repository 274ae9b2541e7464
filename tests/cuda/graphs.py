# SPDX-License-Identifier: Apache-2.0
"""Compares for gpu.py: steps replayed as CUDA graphs with steps whose kernels
are launched one by one, and ranks on several GPUs with ranks on one."""
import os
import re
import shutil

import speed

ROUNDS = 2
STEPS = 6  # one by one, recorded, replayed
NETS = ["gpt-25m", "gpt2-124m"]


def models(job):
    """Returns (name, model, data, number of microbatches): a small model of the
    archive, and those of nets.py that were prepared."""
    name = "shared" if job.tiny else "bytegpt"
    model = f"{job.pack}/golden/shared.pt2" if job.tiny else \
        f"{job.pack}/bytegpt.pt2"
    data = f"{job.pack}/golden/shared.safetensors" if job.tiny else \
        f"{job.pack}/GPL-3"
    ret = [(name, model, data, 4)]
    for net in NETS:
        if os.path.exists(f"{job.work}/{net}.pt2"):
            ret.append((net, f"{job.work}/{net}.pt2",
                        f"{job.work}/{net}.safetensors", 8 if not job.tiny
                        else 2))
    return ret


def run(job, model, data, ranks, m, *more, device="cuda", transport="self"):
    """Returns the result of a run, its dump, and the log's lines `graphs`."""
    dump, log = f"{job.work}/graphs.st", f"{job.work}/graphs-log"
    shutil.rmtree(log, ignore_errors=True)
    said = job.run(model, data, device, ranks, m, STEPS, "--dump", dump,
                   "--log-dir", log, "--policy", "flops", *more,
                   transport=transport)
    lines = []
    for name in sorted(x for x in os.listdir(log) if x.endswith(".log")):
        with open(f"{log}/{name}", encoding="utf-8") as file:
            lines += [x for x in file if " event=graphs " in x]
    with open(dump, "rb") as file:
        return said, file.read(), lines


def total(lines, field):
    return sum(float(re.search(rf" {field}=([\d.e+-]+)", x)[1]) for x in lines)


def graphs(job):
    """Adds a row for each model: times with and without graphs, and whether
    the bits of dumps and losses are equal."""
    for name, model, data, m in models(job):
        on, off, results = [], [], []
        for _ in range(ROUNDS):
            for times, more in (off, ["--no-graphs"]), (on, []):
                said, dump, lines = run(job, model, data, 1, m, "--stages", 1,
                                        *more)
                times.append(said["step_s"])
                results.append((dump, said["losses"]))
        a, b = speed.median(on), speed.median(off)
        same = sum(x == results[0] for x in results)
        why = [x.split(" why=")[1].strip() for x in lines if " why=" in x]
        replayed = total(lines, "replayed")
        job.row(f"{name} f32: step with graphs, without: {speed.ms(b)}",
                speed.ms(a), "", f"{a / b:.3f}",
                "" if job.tiny else "at most 1.00",
                f"{replayed:.0f} of {total(lines, 'actions'):.0f} actions, "
                f"{total(lines, 'partly'):.0f} more in part; "
                f"{total(lines, 'kernels'):.0f} kernels; recorded in "
                f"{1e3 * total(lines, 'record_s'):.0f} ms; "
                + "; ".join(why), failed=bool(why))
        job.row(f"{name}: runs with the same bits, graphs on and off",
                f"{same} of {len(results)}", wanted=f"{len(results)}",
                failed=same < len(results))


def count_gpus(job):
    said = job.penstock("doctor", code=None)
    return len(re.findall(r"\bGPU \d+: ", said))


def several(job):
    """Adds rows for ranks on several GPUs, if there are some."""
    n = count_gpus(job)
    if n < 2:
        job.row("several GPUs", note=f"left out: there is {n}")
        return
    for name, model, data, m in models(job):
        alone = first = None
        for device, transport in (("cuda:0", "self"), ("cuda", "self"),
                                  ("cuda", "mpi")):
            said, dump, _ = run(job, model, data, 2, m, "--stages", 2,
                                device=device, transport=transport)
            alone, first = alone or said["step_s"], first or dump
            job.row(f"{name} f32: 2 ranks on "
                    f"{'one GPU' if device == 'cuda:0' else 'two'}, "
                    f"{transport}", speed.ms(said["step_s"]), "",
                    f"{said['step_s'] / alone:.3f}", "",
                    "same bits" if dump == first else "OTHER BITS",
                    failed=dump != first)
