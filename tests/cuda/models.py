#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of models on a GPU: numbers against the CPU's and PyTorch's, bits over
cuts, times beside PyTorch's eager mode (scripts/gpu.sh).

usage: models.py PENSTOCK PACK OUT

Writes OUT/models.txt, a line for each model. Without a GPU (the tests' driver)
only bytegpt runs.
"""
import json
import os
import statistics
import struct
import subprocess
import sys
import time

LIMIT = 240  # seconds; models that would begin later are left out


def load(path):
    """Tensors of a safetensors file as lists of bytes, by name."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (t["dtype"], data[8 + size + t["data_offsets"][0]:
                                    8 + size + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def save(path, tensors):
    """Writes i64 tensors of PyTorch as a safetensors file."""
    header, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "I64", "shape": list(tensor.shape),
                        "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def distance(a, b):
    """The largest difference of a gradient, relative to the tensor's largest
    element, and its name."""
    import numpy as np
    worst = (0.0, "")
    for name, (dtype, raw) in a.items():
        if not name.startswith("grad.") or dtype != "F32":
            continue
        x = np.frombuffer(raw, np.float32).astype(np.float64)
        y = np.frombuffer(b[name][1], np.float32).astype(np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return float("inf"), name
        scale = np.abs(x).max()
        if scale > 1e-7:
            worst = max(worst, (float(np.abs(x - y).max() / scale), name))
    return worst


class Job:
    def __init__(self, penstock, out):
        self.penstock, self.out = penstock, out

    def __call__(self, *words):
        done = subprocess.run([self.penstock, *map(str, words)], text=True,
                              capture_output=True, cwd=self.out, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr[-400:]}")
        return done.stdout

    def step(self, model, data, device, ranks, m, steps, *more):
        """The JSON object of a run on one process."""
        said = self("run", model, "--data", data, "-n", ranks, "--transport",
                    "self", "-m", m, "--steps", steps, "--device", device,
                    "--lr", "1e-4", "--json", *more)
        return json.loads(said.splitlines()[-1])


def bytegpt(job, pack, lines):
    """Gradients equal the CPU's within rounding; cuts keep the bits."""
    model = os.path.join(pack, "bytegpt.pt2")
    data = os.path.join(pack, "GPL-3")
    for name, device, ranks in (("cpu", "cpu", 1), ("one", "cuda", 1),
                                ("two", "cuda", 2)):
        plan = f"bytegpt-{ranks}"
        if not os.path.exists(os.path.join(job.out, plan)):
            job("split", model, "-o", plan, "--stages", ranks)
        job.step(plan, data, device, ranks, 2, 1, "--dump", f"{name}.st")
    cpu, one, two = (load(os.path.join(job.out, f"{n}.st"))
                     for n in ("cpu", "one", "two"))
    far, name = distance(cpu, one)
    lines.append(f"bytegpt: gradients differ from the CPU's by {far:.1e} of "
                 f"the largest ({name}); two stages "
                 f"{'keep' if one == two else 'CHANGE'} the bits")
    if far > 1e-4 or one != two:
        raise AssertionError(lines[-1])


def models():
    """Name, a function that makes the module, vocabulary, rows, length,
    microbatches: as the tables of docs/gpu.md have them."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.proj = nn.Linear(width, width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            rows, length, width = x.shape
            q, k, v = self.qkv(self.ln_1(x)).view(
                rows, length, 3, self.heads, width // self.heads).permute(
                    2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(F.gelu(self.up(self.ln_2(x)),
                                        approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self, vocab, length, width, heads, layers):
            super().__init__()
            self.wte = nn.Embedding(vocab, width)
            self.wpe = nn.Embedding(length, width)
            self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)
            self.register_buffer("places", torch.arange(length))

        def forward(self, x, y):
            h = self.wte(x) + self.wpe(self.places)
            for block in self.h:
                h = block(h)
            return F.cross_entropy(self.head(self.ln_f(h)).flatten(0, 1),
                                   y.flatten())

    return (("gpt-25m 8x(2,128)", lambda: Gpt(512, 128, 512, 8, 8), 512, 2,
             128, 8),
            ("gpt2-124m 8x(4,1024)", lambda: Gpt(50304, 1024, 768, 12, 12),
             50304, 4, 1024, 8))


def eager(make, x, y, m):
    """Median seconds of a step of PyTorch in f32, and its gradients' norm in
    the first one."""
    import torch
    torch.manual_seed(0)
    net = make().cuda().train()
    optim = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    times = []
    x, y = x.cuda().chunk(m), y.cuda().chunk(m)
    loss = 0.0
    for step in range(7):
        begin = time.perf_counter()
        optim.zero_grad(set_to_none=True)
        for i in range(m):
            part = net(x[i], y[i]) / m
            part.backward()
            if step == 0:
                loss += float(part.detach())
        optim.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    del net, optim
    torch.cuda.empty_cache()
    return statistics.median(times[2:]), loss


def measure(job, row, lines):
    import torch
    name, make, vocab, rows, length, m = row
    torch.manual_seed(0)
    net = make().train()
    x = torch.randint(0, vocab, (m * rows, length))
    y = torch.randint(0, vocab, (m * rows, length))
    base = name.split()[0]
    torch.export.save(torch.export.export(net, (x[:rows], y[:rows])),
                      os.path.join(job.out, base + ".pt2"))
    save(os.path.join(job.out, base + ".safetensors"), {"x": x, "y": y})
    ours, theirs, first = [], [], None
    for _ in range(3):
        said = job.step(base + ".pt2", base + ".safetensors", "cuda", 1, m, 6)
        ours.append(said["step_s"])
        first = first or said
        torch.manual_seed(0)
        seconds, loss = eager(make, x, y, m)
        theirs.append(seconds)
    a, b = statistics.median(ours), statistics.median(theirs)
    lines.append(f"{name} f32: {a:.4f} s, PyTorch eager {b:.4f} s, ratio "
                 f"{a / b:.2f}; first loss of PyTorch {loss:.5f}, last loss "
                 f"{first['loss']:.5f}; planned {first['planned_mib']:.0f} MiB")


def main():
    penstock, pack, out = map(os.path.abspath, sys.argv[1:4])
    job, lines, failed = Job(penstock, out), [], False
    begin = time.monotonic()
    try:
        bytegpt(job, pack, lines)
        if "PENSTOCK_LIBCUDA" not in os.environ:
            for row in models():
                if time.monotonic() - begin < LIMIT:
                    measure(job, row, lines)
                else:
                    lines.append(f"{row[0]}: left out for want of time")
    except Exception as error:  # the table says what went wrong
        lines.append(f"FAILED: {error}")
        failed = True
    with open(os.path.join(out, "models.txt"), "w", encoding="utf-8") as file:
        file.write("\n" + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return failed


if __name__ == "__main__":
    sys.exit(main())
