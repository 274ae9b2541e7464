#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the folder roles: language models that read more than tokens, and
want.json: the tokens that each generates greedily, and losses of two rows.

Run again only if PyTorch's format changes.
"""

import json
import os

import torch
from torch.nn import functional as F

FOLDER = os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "roles")
VOCABULARY, WIDTH, LENGTH, ROWS = 260, 4, 8, 2
SEED, GAP = 99, .06  # chosen so that no choice of a token is close
PROMPT, N = [7, 259, 30], 9  # the text becomes longer than the window
ROW = torch.arange(LENGTH).expand(ROWS, LENGTH).contiguous()
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = torch.nn.Embedding(LENGTH, WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def core(self, ids, positions=None, seen=None, ones=None):
        """Returns logits and scores. seen: pairs of tokens (bool), or a mask
        that is added; ones: 1 for tokens that are no padding."""
        x = self.wte(ids) + self.wpe(
            torch.arange(LENGTH) if positions is None else positions)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        if seen is not None:
            scores = (scores.masked_fill(~seen, -1e9)
                      if seen.dtype == torch.bool else scores + seen)
        if ones is not None:
            scores = scores + (1 - ones[:, None].to(x.dtype)) * -1e9
        scores = scores.softmax(-1)
        return self.head(x + 2 * (scores @ v)), scores


def next_tokens(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class All(Model):
    """The tokens are the fourth input; outputs of other ranks come first."""
    def forward(self, attention_mask, block_mask, position_ids, input_ids,
                labels):
        logits, scores = self.core(input_ids, position_ids, block_mask[:, 0],
                                   attention_mask)
        return (next_tokens(logits, labels), scores, logits,
                logits[:, None].expand(-1, 2, -1, -1).contiguous())

    @staticmethod
    def inputs(n):
        return dict(attention_mask=(ROW < n).long(),
                    block_mask=CAUSAL.expand(ROWS, 1, -1, -1).contiguous(),
                    position_ids=ROW, labels=0 * ROW)


class Loss(Model):
    """Two integer inputs, and the second one is no targets."""
    def forward(self, input_ids, attention_mask):
        logits = self.core(input_ids, None, CAUSAL, attention_mask)[0]
        return next_tokens(logits[:, :-1], input_ids[:, 1:]), logits

    @staticmethod
    def inputs(n):
        return dict(attention_mask=(ROW < n).long())


class Places(Loss):
    def forward(self, batch):
        logits = self.core(batch["tokens"], batch["position_ids"], CAUSAL)[0]
        return next_tokens(logits[:, :-1], batch["tokens"][:, 1:]), logits

    @staticmethod
    def inputs(n):
        return dict(position_ids=ROW)


class Named(Model):
    """Only options can tell the inputs. All tokens attend to each other."""
    def forward(self, a, b, c):
        return self.core(b, c, None, a)[0]

    @staticmethod
    def inputs(n):
        return dict(a=(ROW < n).long(), c=ROW)


class Added(Model):
    def forward(self, mask, idx):
        return {"scaled": 3 - self.core(idx, None, mask)[0],
                "logits": self.core(idx, None, mask)[0]}

    @staticmethod
    def inputs(n):
        return dict(mask=torch.zeros(LENGTH, LENGTH).masked_fill(
            ~CAUSAL, -torch.inf))


class Two(Model):
    def forward(self, tokens):
        logits = self.core(tokens, None, CAUSAL)[0]
        return logits, logits.softmax(-1)

    @staticmethod
    def inputs(n):
        return {}


MODELS = {"all": (All, "input_ids"), "loss": (Loss, "input_ids"),
          "places": (Places, "tokens"), "named": (Named, "b"),
          "added": (Added, "idx"), "two": (Two, "tokens")}


def run(model, tokens, ids, n, **more):
    inputs = {**model.inputs(n), tokens: ids, **more}
    if isinstance(model, Places):
        return model(inputs)
    return model(**inputs)


def logits_of(result):
    if isinstance(result, dict):
        return result["logits"]
    return next(x for x in result if x.dim() == 3 and
                x.shape[-1] == VOCABULARY) if isinstance(result, tuple) \
        else result


@torch.no_grad()
def greedy(model, tokens):
    """Returns the tokens, and the smallest difference between the best and the
    second best score."""
    text, gaps = list(PROMPT), []
    for _ in range(N):
        at = text[-LENGTH:]
        ids = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
        ids[0, :len(at)] = torch.tensor(at)
        row = logits_of(run(model, tokens, ids, len(at)))[0, len(at) - 1]
        gaps.append(float(row.topk(2).values.diff().abs()))
        text.append(int(row.argmax()))
    return text[len(PROMPT):], min(gaps)


def save(model, tokens, name):
    inputs = {**model.inputs(LENGTH), tokens: 2 + ROW}
    args, named = (((inputs,), {}) if isinstance(model, Places)
                   else ((), inputs))
    if not isinstance(model, Places):  # in the order of forward
        names = model.forward.__code__.co_varnames[1:1 + len(inputs)]
        args, named = tuple(inputs[k] for k in names), {}
    torch.export.save(
        torch.export.export(model, args, named, strict=False),
        os.path.join(FOLDER, name + ".pt2"))


def main():
    golden = {"prompt": PROMPT, "tokens": {}, "losses": {}}
    text = [(5 * k + k * k) % 250 for k in range(ROWS * LENGTH + 1)]
    ids = torch.tensor(text[:-1]).view(ROWS, LENGTH)
    labels = torch.tensor(text[1:]).view(ROWS, LENGTH)
    for name, (kind, tokens) in MODELS.items():
        torch.manual_seed(SEED)
        model = kind().eval()
        golden["tokens"][name], gap = greedy(model, tokens)
        print(name, golden["tokens"][name], gap)
        assert gap > GAP, gap
        save(model, tokens, name)
        if kind is All or issubclass(kind, Loss):
            more = dict(labels=labels) if kind is All else {}
            with torch.no_grad():
                golden["losses"][name] = float(
                    run(model, tokens, ids, LENGTH, **more)[0])
    torch.manual_seed(SEED)
    model = Loss().eval().to(torch.bfloat16)
    golden["tokens"]["bf16"], gap = greedy(model, "input_ids")
    print("bf16", golden["tokens"]["bf16"], gap)
    assert gap > GAP, gap
    save(model, "input_ids", "bf16")
    with open(os.path.join(FOLDER, "want.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, indent=1)


if __name__ == "__main__":
    main()
