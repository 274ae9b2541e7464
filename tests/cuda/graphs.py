# SPDX-License-Identifier: Apache-2.0
"""Compares for gpu.py: steps replayed as CUDA graphs with steps whose kernels
are launched one by one, steps with and without chains, ranks on several GPUs with
ranks on one, and processes with CUDA IPC with processes without it."""
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


def run(job, model, data, ranks, m, *more, device="cuda", transport="self",
        event="graphs"):
    """Returns the result of a run, its dump, and the log's lines of an
    event."""
    dump, log = f"{job.work}/graphs.st", f"{job.work}/graphs-log"
    shutil.rmtree(log, ignore_errors=True)
    said = job.run(model, data, device, ranks, m, STEPS, "--dump", dump,
                   "--log-dir", log, "--policy", "flops", *more,
                   transport=transport)
    lines = []
    for name in sorted(x for x in os.listdir(log) if x.endswith(".log")):
        with open(f"{log}/{name}", encoding="utf-8") as file:
            lines += [x for x in file if f" event={event} " in x]
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


def chains(job):
    """Adds rows for a GPT-2 whose gelu is eight operators, with chains of
    elementwise operators and without."""
    import nets
    name = "gelu-new"
    nets.prepare(job, name)
    net, path = nets.find(job, name), f"{job.work}/{name}"
    theirs = nets.Trainer(job, name)
    if job.tiny:  # joins small tensors, too
        job.env["PST_CHAIN_BLOCK"] = "4"
    for mode in [], speed.AUTOCAST:
        times, dumps, kernels = {"on": [], "off": []}, [], {}
        for _ in range(ROUNDS):
            for key, more in ("off", ["--no-chains"]), ("on", []):
                said, dump, lines = run(
                    job, f"{path}.pt2", f"{path}.safetensors", 1, net.m,
                    "--stages", 1, *mode, *more)
                times[key].append(said["step_s"])
                dumps.append(dump)
                kernels[key] = total(lines, "kernels")
        a, b = speed.median(times["on"]), speed.median(times["off"])
        same = sum(x == dumps[0] for x in dumps)
        row = f"{name} {'bf16' if mode else 'f32'}: step with chains"
        torch_s = None if mode else speed.median(theirs.times(STEPS))
        job.row(f"{row}, without: {speed.ms(b)}", speed.ms(a),
                speed.ms(torch_s) if torch_s else "", f"{a / b:.3f}",
                "" if job.tiny else "at most 1.00",
                f"{kernels['on']:.0f} kernels, not {kernels['off']:.0f}; "
                f"{same} of {len(dumps)} runs have the same bits",
                failed=same < len(dumps) or kernels["on"] >= kernels["off"])
    job.env.pop("PST_CHAIN_BLOCK", None)


def ipc(job):
    """Adds rows for two processes on one GPU, whose messages pass through the
    host or not."""
    for name, model, data, m in models(job):
        results = {}
        for refused in "0", "1":
            job.env["PENSTOCK_CUDA_IPC"] = refused
            said, dump, lines = run(job, model, data, 2, m, "--stages", 2,
                                    device="cuda:0", transport="mpi",
                                    event="peers")
            results[refused] = said["step_s"], dump, total(lines, "direct")
            why = [x.split(" why=")[1].strip() for x in lines if " why=" in x]
        del job.env["PENSTOCK_CUDA_IPC"]
        (a, want, none), (b, dump, direct) = results["0"], results["1"]
        failed = dump != want or none != 0 or direct != 2
        job.row(f"{name} f32: 2 processes on one GPU, CUDA IPC; without: "
                f"{speed.ms(a)}", speed.ms(b), "", f"{b / a:.3f}",
                "" if job.tiny else "at most 1.00",
                f"{'same bits' if dump == want else 'OTHER BITS'}; "
                f"{direct:.0f} of 2 ranks use it; " + "; ".join(why),
                failed=failed)


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
