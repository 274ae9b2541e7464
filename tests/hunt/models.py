# SPDX-License-Identifier: Apache-2.0
"""Exports the tiny models of the hunt, and writes data for them.

    models.py FOLDER

Each model has free rows. FOLDER gets NAME.pt2, NAME.eval.pt2 (exported after
model.eval()), a file NAME.MODULE.pt2 for each module that a life may swap, and
data. model.json says what a life may do with each model.
"""
import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

ROWS, LENGTH, VOCABULARY = 2, 6, 24


class Plain(nn.Module):
    """Linear layers with dropout; a frozen parameter."""
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.mid = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.drop = nn.Dropout(.2)
        self.down = nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x, wanted):
        y = self.drop(self.up(x).relu()) * self.scale
        return (self.down(self.mid(y)) - wanted).square().mean()


class Norm(nn.Module):
    """Batch norms, whose buffers each microbatch changes."""
    def __init__(self):
        super().__init__()
        self.up, self.bn1 = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.mid, self.bn2 = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.down = nn.Linear(6, 3)

    def forward(self, x, wanted):
        y = self.bn1(self.up(x)).relu()
        y = self.bn2(self.mid(y)).relu()
        return (self.down(y) - wanted).square().mean()


class Block(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(),
                                 nn.Linear(2 * d, d), nn.Dropout(p))

    def forward(self, x):
        q, k, v = self.qkv(self.ln(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v,
                                                        is_causal=True))
        return x + self.mlp(x)


class Tokens(nn.Module):
    """A language model without positions; its head has the weight of its
    embedding."""
    def __init__(self, p=0., tied=True):
        super().__init__()
        d = 8
        self.wte, self.wpe = nn.Embedding(VOCABULARY, d), nn.Embedding(32, d)
        if tied:
            self.wpe = None
        self.h = nn.ModuleList(Block(d, p) for _ in range(2))
        self.ln_f = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        return self.rest(self.wte(tokens), targets)

    def rest(self, x, targets):
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        right = (logits.argmax(-1) == targets).float().mean()
        return {"loss": loss, "accuracy": right}


class Packed(Tokens):
    """Has an input for positions, so that documents can be packed."""
    def __init__(self):
        super().__init__(.1, False)

    def forward(self, tokens, targets, position_ids):
        return self.rest(self.wte(tokens) + self.wpe(position_ids), targets)


def floats():
    return torch.randn(ROWS, 4), torch.randn(ROWS, 3)


def tokens():
    return tuple(torch.randint(0, VOCABULARY, (2, ROWS, LENGTH)))


def packed():
    return *tokens(), torch.arange(LENGTH).repeat(ROWS, 1)


# name: (model, microbatch, modules to swap with the width of their input,
# layers of --at, patterns of parameters)
MODELS = {
    "plain": (Plain, floats, {"mid": 8, "up": 4}, ["mid", "down"],
              ["up", "mid", "down.bias", "mid.0.weight"]),
    "norm": (Norm, floats, {"mid": 6}, ["bn1", "mid", "down"],
             ["up", "bn1", "mid.bias", "down"]),
    "gpt": (Packed, packed,
            {"h.0.mlp": 8, "ln_f": 8}, ["h.0", "h.1", "ln_f"],
            ["h.0", "wte", "head", "h.*.mlp.0.weight", "wpe"]),
    "tied": (Tokens, tokens, {"h.1.mlp": 8, "h.0.out": 8},
             ["h.0", "h.1", "ln_f", "head"], ["h.1", "ln_f", "h.0.qkv"]),
}


def export(folder, name):
    make, batch, swaps, cuts, patterns = MODELS[name]
    rows = torch.export.Dim("rows", min=1, max=64)
    torch.manual_seed(1)
    model, inputs = make(), batch()
    shapes = tuple({0: rows} for _ in inputs)
    for end, m in ("", model), (".eval", model.eval()):
        m.train(end == "")
        torch.export.save(torch.export.export(
            m, inputs, dynamic_shapes=shapes),
            os.path.join(folder, f"{name}{end}.pt2"))
    model.train()
    for at, (module, width) in enumerate(swaps.items()):
        torch.manual_seed(10 + at)
        x = torch.randn(ROWS, *([LENGTH] if batch != floats else []), width)
        torch.export.save(torch.export.export(
            model.get_submodule(module), (x,), dynamic_shapes=({0: rows},)),
            os.path.join(folder, f"{name}.{module}.pt2"))
    return {"swaps": list(swaps), "cuts": cuts, "patterns": patterns,
            "lora": {"gpt": "h.*.qkv", "tied": "h.?.mlp.0",
                     "plain": "mid.0"}.get(name),
            "tokens": batch != floats, "packed": batch == packed,
            "params": [n for n, p in model.named_parameters()],
            "modules": [n for n, m in model.named_modules() if n and
                        any(True for _ in m.parameters(recurse=False))],
            "trained": [n for n, p in model.named_parameters()
                        if p.requires_grad],
            "buffers": [n for n, _ in model.named_buffers()]}


def data(folder):
    from safetensors.torch import save_file
    torch.manual_seed(3)
    weight = torch.randn(4, 3)
    for name, rows in ("a", 53), ("b", 31), ("e", 11), ("f", 14):
        x = torch.randn(rows, 4)
        wanted = x @ weight + .3 * torch.randn(rows, 3)
        save_file({"x": x, "wanted": wanted},
                  os.path.join(folder, f"{name}.safetensors"))
        if name == "a":  # with a row that is not finite
            wanted[29, 1] = float("nan")
            save_file({"x": x, "wanted": wanted},
                      os.path.join(folder, "n.safetensors"))
        n = rows * LENGTH + 4
        text = torch.arange(n).mul(5).add(torch.randint(0, 3, (n,))) % (
            VOCABULARY)
        text[4::9] = 0  # ends documents
        with open(os.path.join(folder, f"{name}.bin"), "wb") as file:
            file.write(bytes(text.tolist()))
    with open(os.path.join(folder, "bytes"), "wb") as file:
        file.write(bytes([1] * VOCABULARY))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    data(folder)
    about = {name: export(folder, name) for name in MODELS}
    path = os.path.join(folder, "models.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    main()
