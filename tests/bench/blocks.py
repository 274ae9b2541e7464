# SPDX-License-Identifier: Apache-2.0
"""Measures how the time of `split` and `plan` grows with the number of blocks.

usage: blocks.py CLIENT[,OTHER...] FOLDER [ROUNDS [WIDTH]]

Exports two kinds of models with 1, 12, 48 and 96 equal blocks into FOLDER:
"mlp" (two linear layers per block) and "gpt" (attention and two linear
layers). The models of "mlp weights" and "gpt weights" have the parameters of
12 and 96 blocks, but no operator that reads them. WIDTH is the width of all of
them (default 16; GPT-2 has 768).

`split` and `plan` run ROUNDS times (default 9) on each model, in alternation.
The table has the medians of their processor time in milliseconds and the bytes
of plan.pb; the row "start" is `penstock --version`, which does nothing. Below
the table are three ratios for each kind: 96 blocks to 12 blocks, the same
without the time for the weights of the 84 additional blocks, and `plan` of 48
blocks to 1 block. Needs PyTorch to make the models.
"""
import os
import shutil
import statistics
import sys

COUNTS = 1, 12, 48, 96
WIDTH = int(sys.argv[4]) if len(sys.argv) > 4 else 16


def make(path, kind, count, used):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(WIDTH, 2 * WIDTH)
            self.down = nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(x)))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1 = nn.LayerNorm(WIDTH)
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.proj = nn.Linear(WIDTH, WIDTH)
            self.norm_2 = nn.LayerNorm(WIDTH)
            self.mlp = Mlp()

        def forward(self, x):  # (B, T, C)
            b, t, c = x.shape
            parts = self.qkv(self.norm_1(x)).split(c, dim=2)
            q, k, v = (p.view(b, t, 2, c // 2).transpose(1, 2) for p in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return self.mlp(self.norm_2(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            block = {"mlp": Mlp, "gpt": Gpt}[kind]
            self.blocks = nn.ModuleList(block() for _ in range(count))
            self.head = nn.Linear(WIDTH, 4)

        def forward(self, x, label):
            for block in self.blocks if used else ():
                x = block(x)
            return F.cross_entropy(self.head(x).flatten(0, 1), label)

    args = torch.randn(2, 8, WIDTH), torch.randint(4, (16,))
    program = torch.export.export(Net().train(), args, strict=False)
    torch.export.save(program, path)


def milliseconds(*args):
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0)
            for fd in (1, 2)]
    pid = os.posix_spawn(args[0], args, os.environ, file_actions=null)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(args)}")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def measure(client, models, folder, into):
    plan = os.path.join(folder, "blocks.plan")
    into.setdefault(("start", 0), []).append(
        (milliseconds(client, "--version"),) * 2 + (0,))
    for key, path in models.items():
        shutil.rmtree(plan, ignore_errors=True)
        into.setdefault(key, []).append(
            (milliseconds(client, "split", path, "-o", plan),
             milliseconds(client, "plan", plan),
             os.path.getsize(os.path.join(plan, "plan.pb"))))


def report(client, times):
    median = {key: [statistics.median(t) for t in zip(*runs)]
              for key, runs in times.items()}
    print(f"{client}\n{'':>16}{'blocks':>8}{'split':>8}{'plan':>8}{'both':>8}"
          f"{'plan.pb':>9}")
    for (kind, count), (split, plan, size) in median.items():
        print(f"{kind:>16}{count:>8}{split:8.1f}{plan:8.1f}{split + plan:8.1f}"
              f"{size:9.0f}")
    for kind in ("mlp", "gpt"):
        both = {c: sum(median[kind, c][:2]) for c in COUNTS}
        bare = sum(median[kind + " weights", 96][:2]) - sum(
            median[kind + " weights", 12][:2])
        print(f"{kind}: 96 blocks are {both[96] / both[12]:.2f} times 12, "
              f"{(both[96] - bare) / both[12]:.2f} times without weights; plan "
              f"of 48 is {median[kind, 48][1] / median[kind, 1][1]:.2f} times 1")


def main():
    clients, folder = sys.argv[1].split(","), sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    os.makedirs(folder, exist_ok=True)
    models = {}
    for kind in ("mlp", "gpt"):
        for used in (True, False):
            for count in COUNTS if used else (12, 96):
                key = kind if used else kind + " weights", count
                path = f"{folder}/{key[0].replace(' ', '-')}-{count}.pt2"
                models[key] = path
                if not os.path.exists(path):
                    make(path, kind, count, used)
    times = {client: {} for client in clients}
    for _ in range(rounds):
        for client in clients:
            measure(os.path.abspath(client), models, folder, times[client])
    for client in clients:
        report(client, times[client])


if __name__ == "__main__":
    main()
