# SPDX-License-Identifier: Apache-2.0
"""Measures for gpu.py: steps, kernels, ranks and memory, in alternation with
PyTorch."""
import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time

# Sizes of matmuls (rows, k, columns) and the wanted share of cuBLAS's speed.
PRODUCTS = [(8192, 8192, 8192), (4096, 768, 2304), (4096, 768, 3072),
            (4096, 3072, 768), (4096, 768, 50304), (4096, 1024, 4096),
            (16384, 768, 3072), (256, 768, 3072)]
RUNS = 10
ROUNDS = 2
ATTENTION = (("f32", (4, 12, 1024, 64)), ("bf16", (4, 12, 1024, 64)),
             ("bf16", (4, 6, 1024, 128)))
STEPS = 5
AUTOCAST = ["--autocast", "bf16"]
OPTIONS = {"bf16": AUTOCAST, "tf32": ["--tf32"]}
WANTED_STEP = {("gpt-25m", "f32"): .020, ("gpt2-124m", "f32"): .62,
               ("gpt2-124m", "bf16"): .13, ("llama-374m", "bf16"): .36}


def median(x):
    return statistics.median(x) if x else float("nan")


def ms(x):
    return f"{1e3 * x:.2f} ms"


# --- steps ------------------------------------------------------------------


def measure(job, name, dtype="f32", compiled=False):
    """Adds the rows of a model's step: times, losses, time of the start,
    memory. dtype: "f32", "bf16" with --autocast and PyTorch's autocast, or
    "tf32"."""
    import nets
    nets.prepare(job, name, (1,))
    theirs = nets.Trainer(job, name, dtype, compiled)
    net, data = theirs.net, f"{job.work}/{name}.safetensors"
    cast = OPTIONS.get(dtype, [])
    ours, others, said = [], [], None
    for k in range(ROUNDS):
        model = f"{job.work}/{name}" + ("-1" if k and not cast else ".pt2")
        result = job.run(model, data, "cuda", 1, net.m, STEPS, "--lr", nets.LR,
                         *cast)
        said = said or result
        ours.append(result["step_s"])
        others += theirs.times(STEPS)
    a, b = median(ours), median(others)
    mode = "compiled" if compiled else "eager"
    tokens = net.m * net.rows * net.length
    wanted = WANTED_STEP.get((name, dtype))
    if job.tiny or compiled:
        wanted = None
    job.row(f"{name} {net.m} x ({net.rows}, {net.length}) {dtype}: step, "
            f"PyTorch {mode}", ms(a), ms(b), f"{a / b:.2f}",
            f"at most {wanted} s" if wanted else "",
            f"{tokens / a:.0f} and {tokens / b:.0f} tokens/s; runs: " +
            ", ".join(map(ms, ours)))
    if compiled:
        job.row(f"{name} {dtype}: first step of compiled PyTorch", "",
                f"{theirs.first_s:.1f} s")
        return
    start_rows(job, name, dtype, said, theirs)


def start_rows(job, name, dtype, said, theirs):
    at, them = said["first_step_at_s"], theirs.first_s
    job.row(f"{name} {dtype}: start to the first step's end", f"{at:.2f} s",
            f"{them:.2f} s", f"{at / them:.2f}",
            "at most 3 s" if dtype == "bf16" else "",
            "from the .pt2; PyTorch without its import")
    far = max(abs(x - y) for x, y in zip(said["losses"][:3], theirs.losses))
    job.row(f"{name} {dtype}: losses of three steps", f"{said['losses'][0]:.6f}",
            f"{theirs.losses[0]:.6f}", note=f"largest difference {far:.1e}",
            failed=not far <= (1e-3 if dtype == "f32" else .1))
    job.row(f"{name} {dtype}: memory planned; PyTorch's most",
            f"{said['planned_mib']:.0f} MiB", f"{theirs.memory_mib():.0f} MiB")


def small(job):
    import accuracy
    accuracy.net(job, "gpt-25m")
    measure(job, "gpt-25m")


def gpt2(job):
    import accuracy
    accuracy.net(job, "gpt2-124m")
    measure(job, "gpt2-124m")


def llama(job):
    measure(job, "llama-374m")


def refusal(job, model):
    """Returns the message if a model in bf16 had operators on the host, whose
    times would be those of copies; else ""."""
    try:
        return job.penstock("plan", model, "--device", "cuda", *AUTOCAST,
                            "--no-fallback", code=65).strip()
    except RuntimeError as error:
        if "exit code 0" not in str(error):
            raise
        return ""


def bf16(job):
    """Measures steps with `--autocast bf16` beside PyTorch's autocast."""
    model = f"{job.work}/gpt2-124m.pt2"
    has_torch = os.path.exists(model)  # models are prepared with PyTorch
    said = refusal(job, model if has_torch else f"{job.pack}/bytegpt.pt2")
    job.row("bf16: all operators on the GPU", "refused" if said else "yes",
            wanted="yes", note=said[-140:])
    if not has_torch or said:
        return
    for name in "gpt2-124m", "llama-374m", "gpt-25m", "gpt2-tied":
        measure(job, name, "bf16")


def tf32(job):
    """Measures GPT-2 with --tf32 beside PyTorch's matmuls in TF32."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = True  # of this part's process
    measure(job, "gpt2-124m", "tf32")


# --- ranks ------------------------------------------------------------------


def ranks(job):
    """Compares 2 and 4 ranks on one GPU with one rank of 2 and 4 stages."""
    import nets
    name = "gpt2-124m"
    net, data = nets.find(job, name), f"{job.work}/{name}.safetensors"
    losses = []
    for stages in 2, 4:
        alone = None
        for n, transport in (1, "self"), (stages, "self"), (stages, "mpi"):
            said = job.run(f"{job.work}/{name}-{stages}", data, "cuda", n,
                           net.m, STEPS - 1, "--lr", nets.LR,
                           transport=transport)
            losses.append(said["losses"])
            alone = alone or said["step_s"]
            job.row(f"{name} f32: {stages} stages on {n} ranks, {transport}",
                    ms(said["step_s"]), "", f"{said['step_s'] / alone:.3f}",
                    "at most 1.05" if n > 1 else "",
                    f"bubble {said['bubble']:.3f}")
    same = sum(x == losses[0] for x in losses)
    job.row(f"{name}: losses of {STEPS - 1} steps with the same digits",
            f"{same} of {len(losses)}", wanted=f"{len(losses)}",
            failed=same < len(losses))


# --- memory and idle time ---------------------------------------------------


class Watch:
    """Runs nvidia-smi several times per second. nvidia-smi's own loop is not
    used, since it may buffer lines."""

    def __init__(self):
        self.seen, self.stopped = [], threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        if shutil.which("nvidia-smi") is not None:
            self.thread.start()

    def read(self):
        while not self.stopped.wait(0.1):
            said = subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.used,utilization.gpu",
                 "--format=csv,noheader,nounits"], stdout=subprocess.PIPE,
                text=True, check=False).stdout
            try:
                used, busy = map(float, said.splitlines()[0].split(","))
            except (ValueError, IndexError):
                continue
            self.seen.append((time.monotonic(), used, busy))


def watched(job, watch, model, data, m, steps):
    """Runs a model. Returns the result, the MiB of GPU memory that the job
    took, and the percentage of the last steps during which the GPU was
    busy."""
    before = watch.seen[-1][1] if watch.seen else 0.0
    begin = time.monotonic()
    said = job.run(model, data, "cuda", 1, m, steps, "--lr", "1e-4")
    end = time.monotonic() - 0.5  # approximate end of the last step
    seen = [x for x in watch.seen if x[0] >= begin]
    time.sleep(1.0)  # until the GPU memory is free again
    took = max((x[1] for x in seen), default=0.0) - before
    late = end - said["step_s"] * steps / 2
    return said, took, median([x[2] for x in seen if late <= x[0] <= end])


def memory(job):
    """Compares planned memory and idle time with those that nvidia-smi
    reports."""
    import nets
    watch = Watch()
    time.sleep(1.0)
    try:
        tiny, context, _ = watched(job, watch,
                                   f"{job.pack}/golden/shared.pt2",
                                   f"{job.pack}/golden/shared.safetensors", 2, 2)
        context -= tiny["planned_mib"]
        name = "gpt2-124m"
        net = nets.find(job, name)
        said, took, busy = watched(job, watch, f"{job.work}/{name}-1",
                                   f"{job.work}/{name}.safetensors", net.m, 12)
    finally:
        watch.stopped.set()
    note = f"context and code besides: {context:.0f} MiB" if watch.seen else \
        "no nvidia-smi"
    planned = said["planned_mib"]
    job.row(f"{name} f32: memory planned, and seen by nvidia-smi",
            f"{planned:.0f} and {took - context:.0f} MiB", "",
            f"{(took - context) / planned:.3f}", ".98 to 1.02", note)
    job.row(f"{name} f32: idle time of the GPU in a step",
            f"{100 - busy:.0f} %", wanted="at most 3 %",
            note=f"nvidia-smi's utilization; between actions, by events: "
                 f"{100 * said['bubble']:.1f} %")


# --- kernels ----------------------------------------------------------------


class Kernels:
    """A process of time-kernels, which times single kernels on the GPU."""

    def __init__(self, job, mib, **env):
        self.runs = 1 if job.tiny else RUNS
        self.process = subprocess.Popen(
            [f"{job.bin}/time-kernels", str(mib)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**job.env, **env},
            cwd=job.work)

    def times(self, text):
        """Returns the name of the kernel and the milliseconds of each of its
        runs."""
        self.process.stdin.write(f"{self.runs} {text}\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if not words:
            raise RuntimeError(f"time-kernels has no answer to {text}")
        print(text, *words, flush=True)
        return words[0], [float(w) for w in words[1:]]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def torch_times(device, run):
    """Returns the milliseconds of each run of a function."""
    import torch
    ret = []
    for k in range(RUNS + 3):
        if device == "cpu":
            begin = time.perf_counter()
            run()
            ret.append(1e3 * (time.perf_counter() - begin))
            continue
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        run()
        b.record()
        torch.cuda.synchronize()
        ret.append(a.elapsed_time(b))
    return ret[3:]


def alternate(device, kernels, texts, run):
    """Returns the median milliseconds of our kernels (summed over texts) and
    of PyTorch's, and the names of our kernels."""
    ours, theirs, names = [[] for _ in texts], [], []
    for _ in range(min(ROUNDS, kernels.runs)):
        names = []
        for text, times in zip(texts, ours):
            name, got = kernels.times(text)
            names.append(name)
            times += got
        theirs += torch_times(device, run)
    return sum(map(median, ours)), median(theirs), ", ".join(names)


def products(job):
    """Measures matmuls with cuBLASLt and, for the notes, with our kernels."""
    import torch
    from torch.nn import functional as F
    torch.backends.cuda.matmul.allow_tf32 = False
    device, kernels = job.torch_device(), Kernels(job, 2048)
    ours_alone = Kernels(job, 2048, PENSTOCK_LIBCUBLASLT="none")
    sizes = [(40, 24, 33), (8, 64, 9)] if job.tiny else PRODUCTS
    for m, k, n, name in [(*x, y) for y in ("f32", "bf16") for x in sizes]:
        dtype = torch.bfloat16 if name == "bf16" else torch.float32
        a = torch.randn(m, k, device=device, dtype=dtype)
        b = torch.randn(n, k, device=device, dtype=dtype)
        text = (f"input %x: {name}[{m}, {k}]; input %w: {name}[{n}, {k}]; "
                "%r = aten.linear.default(%x, %w)")
        ours, theirs, used = alternate(device, kernels, [text],
                                       lambda x=a, w=b: F.linear(x, w))
        alone = median(ours_alone.times(text)[1])
        flop = 2e-9 * m * k * n
        job.row(f"product {m} x {k} x {n} {name}",
                f"{flop / ours:.4g} TFLOP/s", f"{flop / theirs:.4g}",
                f"{theirs / ours:.2f}", "at least .97",
                f"{used}; without cuBLASLt {flop / alone:.4g} TFLOP/s")
    ours_alone.close()
    kernels.close()


def attention(job):
    for dtype, size in ATTENTION:
        with flash(job, dtype):
            attention_in(job, dtype, size)


def flash(job, dtype):
    """Returns the context in which PyTorch uses its flash attention for 16
    bits, and none of cuDNN's kernels, which some versions prefer."""
    from torch.nn import attention as A
    if dtype == "f32" or job.torch_device() == "cpu":
        return contextlib.nullcontext()
    return A.sdpa_kernel(A.SDPBackend.FLASH_ATTENTION)


def attention_in(job, dtype, size):
    import torch
    from torch.nn import functional as F
    size = (1, 1, 4, 4) if job.tiny else size
    shape, title = dtype + str(list(size)), "x".join(map(str, size))
    device, kernels = job.torch_device(), Kernels(job, 1024)
    q, k, v = (torch.randn(size, device=device, requires_grad=True,
                           dtype=torch.float32 if dtype == "f32" else
                           torch.bfloat16) for _ in range(3))
    g = torch.randn_like(q)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(y, (q, k, v), g)
    inputs = "".join(f"input %{x}: {shape}; " for x in "qkv")
    rest = "(%q, %k, %v, None, 0.0, True, None, False)"
    first = f"{inputs}%r = aten.scaled_dot_product_attention.default" + \
        rest.replace("None, False", "scale=None, enable_gqa=False")
    saving = first.replace("%r = aten.scaled_dot_product_attention",
                           "%r, %s = penstock.sdpa_with_sums")
    sums = f"input %p: f32{list(size[:-1]) + [2]}; "
    second = f"input %g: {shape}; input %o: {shape}; {sums}{inputs}%a, %b, " \
        "%c = penstock.sdpa_backward.default" + \
        rest.replace("(", "(%g, %o, %p, ")
    for what, texts, run in (("forward", [first], forward),
                             ("with backward", [saving, second], both)):
        ours, theirs, name = alternate(device, kernels, texts, run)
        job.row(f"attention {title} {dtype}, causal, {what}", f"{ours:.3f} ms",
                f"{theirs:.3f} ms", f"{ours / theirs:.2f}", "at most 1.1",
                name)
    kernels.close()
