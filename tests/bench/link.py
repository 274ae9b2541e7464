#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how well transfers between replicas overlap with kernels (--shard
zero3) on links of a limited rate.

    link.py PENSTOCK WORKDIR [--model gpt-3m] [--rows 16] [--microbatches 8]
            [--rates .7,1.5] [--rounds 3] [--steps 5] [--more "WORDS"]
    link.py PENSTOCK WORKDIR --model mlp-12 --rows 4 --kernel-ms 4 ...

Two hosts (tests/nodes/rig.py: network namespaces, `tc ... tbf`) have one
replica each, with one thread per rank; each block is a group of parameters.
--rates: at a rate of 1.5, the bytes of a step take 1.5 times as long as its
kernels do on a link without a limit. The bytes are those that the interfaces
of the hosts count. A plain connection on the same link measures the time that
they take without kernels.

With --kernel-ms each kernel sleeps for that long before it does its work. With
a small model this simulates a processor whose speed does not depend on the
load of the machine.

The step time may exceed the longer of both times, that of the kernels and that
of the bytes, by 15 %: exit code 1 if the median of the rounds exceeds that for
any rate.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "nodes"))
import rig as rigs  # noqa: E402
from peer_models import MODELS, Mlp  # noqa: E402
from torch_peer import WithLoss  # noqa: E402

HOSTS = ["left", "right"]
SLACK = 1.15
EXTRA = {"mlp-12": Mlp(4, 512, 12)}


def export(a, folder):
    from safetensors.torch import save_file
    model = EXTRA.get(a.model) or MODELS[a.model]
    model.samples = a.rows
    torch.manual_seed(0)
    program = torch.export.export(WithLoss(model).train(), model.batch(1),
                                  strict=False)
    folder.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, folder / "model.pt2")
    x, target = model.batch(a.microbatches)
    save_file({"x": x, "target": target}, folder / "data.safetensors")
    subprocess.run([a.penstock.resolve(), "split", "model.pt2", "-o",
                    "model.plan", "--stages", "1"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)


def limit(rig, bytes_s):
    """Sets the rate of the link; None: no limit. Its queue holds 20 ms, like
    that of a switch."""
    for host in HOSTS:
        subprocess.run(["tc", "-n", rig.space(host), "qdisc", "del", "dev",
                        "eth0", "root"], capture_output=True, check=False)
        if bytes_s is not None:
            subprocess.run(
                ["tc", "-n", rig.space(host), "qdisc", "add", "dev", "eth0",
                 "root", "tbf", "rate", f"{int(bytes_s * 8)}bit", "burst",
                 f"{max(65536, int(bytes_s / 250))}", "latency", "20ms"],
                check=True)


def sent(rig, host):
    return int(rig.at(host, "cat", "/sys/class/net/eth0/statistics/tx_bytes"))


def run(a, folder, rig, steps):
    """Runs the job. Returns the seconds of a step and of its kernels, the
    bytes that a host has sent, and the peak memory in MiB."""
    before = [sent(rig, h) for h in HOSTS]
    played = ({"PENSTOCK_FAULT": f"kernel:1+:{a.kernel_ms}"}
              if a.kernel_ms else {})
    done = subprocess.run(
        rig.on(HOSTS[0], str(a.penstock.resolve()), "run", "model.plan", "-n",
               "2x1", "-m", str(a.microbatches), "--schedule",
               "1f1b", "--shard", "zero3", "--hosts", "left:1,right:1",
               "--interface", rig.network, "--data", "data.safetensors",
               "--steps", str(steps), "--threads", "1", "--lr", "1e-3",
               "--log-dir", "log", "--job", f"link-{os.getpid()}", "--json",
               *a.more.split()),
        cwd=folder, env=dict(os.environ, TMPDIR=str(folder), **played,
                             **rig.env()),
        capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    out = json.loads(done.stdout.strip().splitlines()[-1])
    bytes_ = [sent(rig, h) - b for h, b in zip(HOSTS, before)]
    kernels = []
    for rank in range(2):
        text = (folder / "log" / f"rank-{rank}.log").read_text()
        times = [{k: float(v) for k, v in re.findall(
            r" (forward_s|backward_s|optim_s)=(\S+)", line)}
            for line in text.splitlines() if " event=step " in line]
        kernels.append(statistics.median(sum(t.values()) for t in times))
    return out["step_s"], max(kernels), max(bytes_), out["peak_rss_mib"]


# Sends and receives `size` bytes at the same time, and prints the seconds.
PLAIN = """
import socket, sys, threading, time
host, side, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if side == "left":
    with socket.create_server(("", 7711)) as door:
        s = door.accept()[0]
else:
    for _ in range(100):
        try:
            s = socket.create_connection((host, 7711))
            break
        except OSError:
            time.sleep(.05)
begin = time.monotonic()
sender = threading.Thread(target=lambda: s.sendall(bytes(size)))
sender.start()
left = size
while left > 0:
    left -= len(s.recv(1 << 20))
sender.join()
s.sendall(b"x")
s.recv(1)
print(time.monotonic() - begin)
"""


def plain_seconds(rig, folder, size):
    """Returns the seconds that both hosts need to send `size` bytes to each
    other at the same time."""
    env = dict(os.environ, TMPDIR=str(folder), **rig.env())
    both = [subprocess.Popen(
        rig.on(side, sys.executable, "-c", PLAIN, HOSTS[0], side,
               str(int(size))), env=env, stdout=subprocess.PIPE, text=True)
        for side in HOSTS]
    return max(float(p.communicate(timeout=120)[0]) for p in both)


def bytes_of_step(a, folder, rig):
    """Returns the bytes that a host sends per step, without those that it
    sends before the first step and after the last one."""
    return (run(a, folder, rig, 6)[2] - run(a, folder, rig, 2)[2]) / 4


def measure(a, folder, rig):
    size = bytes_of_step(a, folder, rig)
    free = [run(a, folder, rig, a.steps) for _ in range(2)]
    kernels = min(r[1] for r in free)
    rates = [size / (kernels * float(x)) for x in a.rates.split(",")]
    print(f"{a.model}: {size / 1e6:.1f} MB a step, kernels {kernels:.3f} s, "
          f"steps without a limit {min(r[0] for r in free):.3f} s, "
          f"{max(r[3] for r in free):.0f} MiB resident")
    print("| rate, MB/s | bytes, s | kernels, s | step, s | of the longer |")
    print("| --: | --: | --: | --: | --: |")
    took = [[] for _ in rates]
    plain = [[] for _ in rates]
    for _ in range(a.rounds):
        for i, rate in enumerate(rates):
            limit(rig, rate)
            plain[i].append(plain_seconds(rig, folder, size))
            took[i].append(run(a, folder, rig, a.steps))
    bad = 0
    for rate, runs, alones in zip(rates, took, plain):
        bare = statistics.median(alones)
        ratios = [step / max(bare, ours) for step, ours, *_ in runs]
        ratio = statistics.median(ratios)
        bad += ratio > SLACK
        print(f"| {rate / 1e6:.1f} | {bare:.3f} "
              f"| {statistics.median(r[1] for r in runs):.3f} "
              f"| {statistics.median(r[0] for r in runs):.3f} | {ratio:.2f} "
              f"({min(ratios):.2f}-{max(ratios):.2f})"
              f"{' OFF' if ratio > SLACK else ''} |", flush=True)
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--model", choices=[*MODELS, *EXTRA], default="gpt-3m")
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--microbatches", type=int, default=8)
    p.add_argument("--rates", default=".7,1.5")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--kernel-ms", type=int, default=0)
    p.add_argument("--more", default="")
    a = p.parse_args()
    why = rigs.why_not()
    if why:
        print(f"there are no hosts: {why}")
        return 77
    folder = a.workdir / a.model
    export(a, folder)
    with rigs.Rig(HOSTS) as rig:
        limit(rig, None)
        return measure(a, folder, rig)


if __name__ == "__main__":
    sys.exit(main())
