# SPDX-License-Identifier: Apache-2.0
"""Compares numbers for gpu.py: the bits of several cuts, schedules and
transports, and errors against f64 with those of PyTorch on the same GPU.

Functions import PyTorch themselves, so that bytegpt() also runs without it.
"""
import array
import concurrent.futures
import hashlib
import json
import math
import multiprocessing
import os
import struct
import traceback

MICROBATCHES = 4
AT_ONCE = 6  # number of models of the zoo that run at the same time
# Stages, ranks, transport, schedule. Each cut has the bits of the first one.
CUTS = [(1, 1, "self", "1f1b"), (2, 2, "self", "gpipe"),
        (4, 4, "self", "zb-h1"), (2, 2, "mpi", "1f1b"),
        (4, 4, "mpi", "1f1b"), (4, 1, "self", "1f1b")]


def name_of(cut):
    return "{} stages, {} ranks, {}, {}".format(*cut)


def load(path):
    """Returns (dtype, bytes) of each tensor of a safetensors file, by name."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (t["dtype"], data[8 + size + t["data_offsets"][0]:
                                    8 + size + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def contents(path):
    """Returns the tensors of a dump without their names: a shared parameter
    may have any of its names, and has several if several stages use it."""
    return {(name.split(".")[0], dtype, hashlib.sha1(data).digest())
            for name, (dtype, data) in load(path).items()}


def distance(a, b):
    """Returns the largest difference of any gradient, relative to the largest
    element of its tensor, and the name of the tensor."""
    worst = (0.0, "")
    for name, (dtype, raw) in a.items():
        if not name.startswith("grad.") or dtype != "F32":
            continue
        x, y = array.array("f", raw), array.array("f", b[name][1])
        scale = max(map(abs, x), default=0.0)
        far = max((abs(p - q) for p, q in zip(x, y)), default=0.0)
        if not all(map(math.isfinite, y)):
            return float("inf"), name
        if scale > 1e-7:
            worst = max(worst, (far / scale, name))
    return worst


def dump(job, plan, data, m, device, cut, to, *more):
    """Runs a step; returns the path of the dump that it writes."""
    stages, ranks, transport, schedule = cut
    path = os.path.join(job.work, f"{to}.st")
    if os.path.exists(path):
        os.unlink(path)
    if not os.path.exists(f"{plan}-{stages}"):
        job.penstock("split", f"{plan}.pt2", "-o", f"{plan}-{stages}",
                     "--policy", "flops", "--stages", stages)
    job.run(f"{plan}-{stages}", data, device, ranks, m, 1, "--schedule",
            schedule, "--dump", path, *more, transport=transport)
    return path


def bytegpt(job):
    """Checks that gradients equal those of the CPU up to rounding, and have
    the same bits in all cuts. Needs no PyTorch."""
    model = f"{job.pack}/bytegpt.pt2"
    data = f"{job.pack}/GPL-3"
    if job.tiny:  # emulated, a microbatch of bytegpt takes 20 s
        model = f"{job.pack}/golden/shared.pt2"
        data = f"{job.pack}/golden/shared.safetensors"
    plan = os.path.join(job.work, "bytegpt")
    if not os.path.exists(f"{plan}.pt2"):
        os.symlink(model, f"{plan}.pt2")
    cuts = CUTS
    cpu = load(dump(job, plan, data, 2, "cpu", CUTS[0], "byte-cpu"))
    paths = [dump(job, plan, data, 2, "cuda", cut, f"byte-{i}")
             for i, cut in enumerate(cuts)]
    far, name = distance(cpu, load(paths[0]))
    job.row("bytegpt: largest difference of a gradient from the CPU's",
            f"{far:.1e}", wanted="at most 1e-4", note=name,
            failed=not far <= 1e-4)
    bits_row(job, "bytegpt", paths, cuts)


def bits_row(job, what, paths, cuts):
    first = contents(paths[0])
    other = [name_of(cut) for path, cut in zip(paths[1:], cuts[1:])
             if contents(path) != first]
    job.row(f"{what}: cuts, schedules, transports with the same bits",
            f"{len(cuts) - len(other)} of {len(cuts)}",
            wanted=f"{len(cuts)} of {len(cuts)}", note="; ".join(other),
            failed=bool(other))


# --- nets -------------------------------------------------------------------


def prepare_nets(job):
    import nets
    for name in "gpt-25m", "gpt2-124m":
        nets.prepare(job, name, (1, 2, 4))


def prepare_llama(job):
    import nets
    nets.prepare(job, "llama-374m", (1,))


def on_device(job, module, data, dtype, m, **more):
    """Computes a step in PyTorch, on the GPU if there is one. Returns its
    tensors with the names of a dump."""
    import torch
    import reference
    device = job.torch_device()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    data = {k: v.to(device) for k, v in data.items()}
    with torch.device(device):  # for tensors that a model makes itself
        made = reference.train(module.to(device), data, m, "none", 0.0, 1,
                               dtype, **more)
    return {k: v.cpu() for k, v in made.items()}


def error_of(tensors, exact):
    """Returns the error of all gradients together, relative to the exact
    ones."""
    far = whole = 0.0
    for name, want in exact.items():
        if name.startswith("grad."):
            far += (tensors[name].double() - want).square().sum().item()
            whole += want.square().sum().item()
    return math.sqrt(far / max(whole, 1e-300))


def net(job, name):
    """Compares our errors of gradients against f64 with PyTorch's, for two
    microbatches."""
    import safetensors.torch
    import torch
    import nets
    of = nets.find(job, name)
    data = nets.batch(of, 2)
    path = os.path.join(job.work, name)
    safetensors.torch.save_file(data, f"{path}-2.safetensors")
    theirs = on_device(job, nets.built(of), data, torch.float32, 2)
    exact = on_device(job, nets.built(of), data, torch.float64, 2)
    ours = safetensors.torch.load_file(
        dump(job, path, f"{path}-2.safetensors", 2, "cuda", CUTS[0],
             f"{name}-dump", "--optimizer", "none"))
    a, b = error_of(ours, exact), error_of(theirs, exact)
    job.row(f"{name} f32: error of all gradients against f64", f"{a:.2e}",
            f"{b:.2e}", f"{a / b:.2f}", "at most 10", failed=not a <= 10 * b,
            note=f"loss {ours['loss'].item():.6f}, PyTorch "
                 f"{theirs['loss'].item():.6f}, f64 "
                 f"{exact['loss'].item():.6f}")


# --- zoo --------------------------------------------------------------------


def zoo_names(job):
    from zoo import ZOO
    return ["mlp", "skips"] if job.tiny else list(ZOO)


def zoo_folder(work, name):
    return os.path.join(work, "zoo", name)


def is_prepared(work, name):
    return os.path.exists(zoo_folder(work, name) + "/f64.safetensors")


def prepare_model(words):
    import torch
    import reference
    torch.set_num_threads(1)
    work, name = words
    try:
        if not is_prepared(work, name):
            reference.make(name, zoo_folder(work, name), MICROBATCHES,
                           optimizer="none", steps=1)
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()  # zoo() adds the model to its report


def prepare_zoo(job):
    """Exports the models of the zoo, and computes their results in f64 on the
    CPU."""
    with multiprocessing.Pool(AT_ONCE, maxtasksperchild=8) as pool:
        pool.map(prepare_model, [(job.work, name) for name in zoo_names(job)],
                 chunksize=1)


def check_model(job, name):
    """Returns (wrong tensors, cuts with other bits, calls that run on the
    host)."""
    import reference
    folder = zoo_folder(job.work, name)
    data, plan = f"{folder}/data.safetensors", f"{folder}/model"
    cuts = CUTS[:3] if job.tiny else CUTS[:5]
    paths = [dump(job, plan, data, MICROBATCHES, "cuda", cut,
                  f"zoo/{name}/{i}", "--optimizer", "none")
             for i, cut in enumerate(cuts)]
    _, wrong = reference.check(paths[0], folder)
    first = contents(paths[0])
    other = [name_of(cut) for path, cut in zip(paths[1:], cuts[1:])
             if contents(path) != first]
    planned = json.loads(job.penstock("plan", f"{plan}-1", "--device", "cuda",
                                      "-m", MICROBATCHES, "--json"))
    return wrong, other, planned["ranks"][0]["hosted_calls"]


def on_gpu(job, name):
    """Computes PyTorch's results in f32 on the GPU instead of the CPU."""
    import safetensors.torch
    import torch
    import reference
    torch.manual_seed(0)
    module, _ = reference.find(name)
    folder = zoo_folder(job.work, name)
    data = safetensors.torch.load_file(f"{folder}/data.safetensors")
    safetensors.torch.save_file(
        on_device(job, module.train(), data, torch.float32, MICROBATCHES),
        f"{folder}/f32.safetensors")


def zoo(job):
    """Checks all models of tests/compare/zoo.py on the GPU."""
    names, results = zoo_names(job), {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {}
        for name in names:
            if is_prepared(job.work, name):
                on_gpu(job, name)
                running[name] = pool.submit(check_model, job, name)
            else:
                results[name] = (["not exported"], ["not exported"], 0)
        for name, future in running.items():
            try:
                results[name] = future.result()
            except Exception as error:  # pylint: disable=broad-except
                results[name] = ([str(error)], ["not run"], 0)
    wrong = {n: r[0] for n, r in results.items() if r[0]}
    bits = {n: r[1] for n, r in results.items() if r[1]}
    hosted = [f"{n} {r[2]}" for n, r in results.items() if r[2]]
    print(json.dumps({"wrong": wrong, "bits": bits}, indent=1))
    count = f"{len(names)} of {len(names)}"
    job.row("zoo: error against f64 at most 10 times PyTorch's on this GPU",
            f"{len(names) - len(wrong)} of {len(names)}", wanted=count,
            note="; ".join(f"{n}: {w[0]}" for n, w in wrong.items()),
            failed=bool(wrong))
    job.row("zoo: 1, 2, 4 stages, self and mpi, with the same bits",
            f"{len(names) - len(bits)} of {len(names)}", wanted=count,
            note="; ".join(f"{n}: {b[0]}" for n, b in bits.items()),
            failed=bool(bits))
    job.row("zoo: calls of a microbatch on the host", note=", ".join(hosted) or
            "none")
