#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares loss curves of 50 steps of low-rank adapters on a small GPT-2: those
of penstock and of PyTorch (with peft if installed, else handwritten adapters).

    lora_curve.py PENSTOCK WORKDIR [--seed N] [--svg FILE] [--markdown]

The model is first trained on one text; then only its adapters are trained on
another text. Both sides start from the same values and read the same rows. Ends
with "1 passed, 0 failed" if the losses differ by at most 1e-5.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

try:
    import peft
except ImportError:
    peft = None

ROOT = Path(__file__).resolve().parents[3]
STEPS, ROWS, LENGTH = 50, 8, 64
BATCHES = 5  # number of batches of the second text, which are repeated
RANK, ALPHA, LR = 4, 16, 1e-2
LAYERS = "transformer.h.*.c_*"


class Trained(nn.Module):
    """The module that is exported: it returns the loss of a batch."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        logits = self.model(input_ids=x, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def rows_of(files, n):
    text = b"".join(f.read_bytes() for f in files)
    text = (text * (n * LENGTH // len(text) + 2))[:n * LENGTH + 1]
    data = torch.tensor(list(text), dtype=torch.int64)
    return (data[:-1].view(n, LENGTH).clone(),
            data[1:].view(n, LENGTH).clone())


def pretrained():
    """Returns a GPT-2 that was trained on the first text, a licence."""
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=64, n_layer=3, n_head=4,
        bos_token_id=None, eos_token_id=None, attn_pdrop=0, embd_pdrop=0,
        resid_pdrop=0)).train()
    x, y = rows_of([ROOT / "LICENSE"], 200 * ROWS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for i in range(200):
        rows = slice(i * ROWS, (i + 1) * ROWS)
        optimizer.zero_grad()
        Trained(model)(x[rows], y[rows]).backward()
        optimizer.step()
    return model


class Adapter(nn.Module):
    def __init__(self, base, down):
        super().__init__()
        self.base, self.down = base, nn.Parameter(down.clone())
        self.up = nn.Parameter(torch.zeros(base.weight.shape[1], RANK))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T * (ALPHA / RANK)


def by_hand(model, downs):
    model.requires_grad_(False)
    for path, down in downs.items():
        outer, _, name = path.rpartition(".")
        setattr(model.get_submodule(outer), name,
                Adapter(model.get_submodule(path), down))
    return model


def by_peft(model, downs):
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, fan_in_fan_out=True,
        target_modules=list(downs)))
    for path, down in downs.items():
        layer = model.base_model.model.get_submodule(path)
        layer.lora_A["default"].weight.data.copy_(down)
    return model


def train(model, x, y):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=LR, weight_decay=0)
    losses = []
    for i in range(STEPS):
        rows = slice(i % BATCHES * ROWS, (i % BATCHES + 1) * ROWS)
        optimizer.zero_grad()
        loss = Trained(model)(x[rows], y[rows])
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, sum(p.numel() for p in params)


class Bench:
    def __init__(self, penstock, folder):
        self.penstock, self.folder = penstock, folder

    def call(self, *words):
        done = subprocess.run([self.penstock, *map(str, words)], text=True,
                              cwd=self.folder, capture_output=True,
                              check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(self, model, x, y):
        """Returns the initial A of each layer."""
        half = slice(0, ROWS // 2)
        torch.export.save(torch.export.export(Trained(model), (
            x[half], y[half])), self.folder / "model.pt2")
        print(self.call("split", "model.pt2", "-o", "plan", "--stages", 2,
                        "--lora", f"model.{LAYERS}:rank={RANK},alpha={ALPHA}"),
              end="")
        self.call("weights", "plan", "-o", "start.safetensors")
        end = ".lora_A.default.weight"
        return {n[len("model."):-len(end)]: t for n, t in load_file(
            self.folder / "start.safetensors").items() if n.endswith(end)}

    def losses(self, x, y):
        save_file({"x": x, "y": y}, self.folder / "rows.safetensors")
        self.call("run", "plan", "--transport", "self", "--ranks", 2, "-m", 2,
                  "--steps", STEPS, "--lr", LR, "--optimizer", "adamw",
                  "--weight-decay", 0, "--data", "rows.safetensors",
                  "--log-every", 1, "--log-dir", "log")
        text = (self.folder / "log" / "rank-0.log").read_text()
        return [float(m) for m in re.findall(
            r"event=step .*?\bloss=(\S+)", text)][-STEPS:]


def draw(path, curves):
    """Draws the losses over the steps as an SVG file; the second curve is
    dotted."""
    low = min(map(min, curves.values()))
    high = max(map(max, curves.values()))

    def at(i, loss):
        return (50 + 540 * i / (STEPS - 1),
                20 + 230 * (high - loss) / (high - low))

    (one, line), (two, dots) = curves.items()
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="620" height="300"'
             ' font-family="sans-serif" font-size="12">',
             '<rect width="620" height="300" fill="white"/>',
             '<path d="M50 20V250H590" fill="none" stroke="#888"/>']
    for value in (low, (low + high) / 2, high):
        parts.append(f'<text x="44" y="{at(0, value)[1] + 4:.0f}" '
                     f'text-anchor="end">{value:.2f}</text>')
    for step in (1, 10, 20, 30, 40, 50):
        parts.append(f'<text x="{at(step - 1, low)[0]:.0f}" y="268" '
                     f'text-anchor="middle">{step}</text>')
    path_data = " ".join(f"{'L' if i else 'M'}{at(i, v)[0]:.1f} "
                         f"{at(i, v)[1]:.1f}" for i, v in enumerate(line))
    parts.append(f'<path d="{path_data}" fill="none" stroke="#1f77b4" '
                 'stroke-width="2"/>')
    parts += [f'<circle cx="{at(i, v)[0]:.1f}" cy="{at(i, v)[1]:.1f}" r="3" '
              'fill="none" stroke="#d62728"/>' for i, v in enumerate(dots)]
    parts += [f'<text x="400" y="40" fill="#1f77b4">line: {one}</text>',
              f'<text x="400" y="58" fill="#d62728">circles: {two}</text>',
              '<text x="320" y="288" text-anchor="middle">step</text>',
              '<text x="14" y="135" text-anchor="middle" '
              'transform="rotate(-90 14 135)">loss</text>', '</svg>']
    path.write_text("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    b = Bench(Path(args.penstock).resolve(), args.folder.resolve())
    model = pretrained()
    x, y = rows_of([ROOT / "examples" / "bytegpt" / "export.py"],
                   BATCHES * ROWS)
    downs = b.start(model, x, y)
    have = b.losses(x, y)
    how = "adapters by hand" if peft is None else f"peft {peft.__version__}"
    want, n = train((by_hand if peft is None else by_peft)(model, downs), x, y)
    worst = max(abs(p - q) for p, q in zip(have, want, strict=True))
    if args.markdown:
        print(f"| step | penstock | {how} |\n| --- | --- | --- |")
        for i in [0, *range(9, STEPS, 10)]:
            print(f"| {i + 1} | {have[i]:.6f} | {want[i]:.6f} |")
    if args.svg:
        draw(args.svg, {"penstock": have, how: want})
    print(f"{len(downs)} layers, {n} trained parameters; loss {have[0]:.4f} to "
          f"{have[-1]:.4f}; largest difference to {how} {worst:.1e}")
    good = worst <= 1e-5
    print(f"{int(good)} passed, {int(not good)} failed")
    return not good


if __name__ == "__main__":
    sys.exit(main())
