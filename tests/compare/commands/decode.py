#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `penstock infer` with PyTorch, token by token, for models that cache
earlier tokens in buffers.

    decode.py PENSTOCK WORKDIR [--seed N] [--bench N]

--bench N measures instead: tokens per second of a GPT-2 of 12 layers with a
cache of 1024 tokens, with penstock, with generate() of transformers and with a
forward pass over the whole text for each token. N rounds in alternation on one
thread. Ends with "P passed, F failed".
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (GenerationConfig, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM)
from transformers.integrations.executorch import convert_and_export_with_cache

failed = passed = 0


def check(name, ok, why=""):
    global failed, passed
    passed += ok
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {why}", flush=True)


class Counting(nn.Module):
    """A model with a cache that counts in a buffer how many tokens it has
    read."""
    def __init__(self, width=16, capacity=24):
        super().__init__()
        self.emb = nn.Embedding(300, width)
        self.pos = nn.Embedding(capacity, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 300)
        self.register_buffer("keys", torch.zeros(1, capacity, width))
        self.register_buffer("values", torch.zeros(1, capacity, width))
        self.register_buffer("read", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("places", torch.arange(capacity),
                             persistent=False)

    def forward(self, tokens):
        x = self.emb(tokens) + self.pos(self.read)
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, self.read, k)
        self.values[0].index_copy_(0, self.read, v[0])
        y = F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=(self.places <= self.read)[None])
        self.read.add_(1)
        return self.head(x + y)


def cached(model, capacity):
    model.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=capacity,
        cache_config={"batch_size": 1, "max_cache_len": capacity},
        bos_token_id=None, eos_token_id=None)
    return convert_and_export_with_cache(model.eval())


def llama():
    return cached(LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=48, intermediate_size=80,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=None)), 48)


def gpt2(layers=2, width=48, heads=3, capacity=48):
    return cached(GPT2LMHeadModel(GPT2Config(
        vocab_size=256, n_positions=capacity, n_embd=width, n_layer=layers,
        n_head=heads, bos_token_id=None, eos_token_id=None)), capacity)


def counting():
    with torch.no_grad():
        return torch.export.export(Counting().eval(),
                                   (torch.zeros(1, 1, dtype=torch.int64),))


@torch.no_grad()
def greedy(program, prompt, n):
    """Generates n tokens greedily in PyTorch. Returns the tokens and the
    smallest difference of scores between the best and the second best
    token."""
    names = list(program.example_inputs[1])
    run, token, tokens, gaps = program.module(), None, [], []
    for i in range(len(prompt) + n - 1):
        token = prompt[i] if i < len(prompt) else token
        args = [torch.tensor([[token]]), torch.tensor([i])]
        out = run(**dict(zip(names, args))) if names else run(args[0])
        row = (out[0] if isinstance(out, tuple) else out)[0, -1]
        if i + 1 >= len(prompt):
            best = row.topk(2).values
            token = int(row.argmax())
            tokens.append(token)
            gaps.append(float(best[0] - best[1]))
    return tokens, min(gaps)


def infer(args, model, prompt, n, *more):
    """Runs `infer`, which prints tokens of a byte vocabulary as text, others
    as numbers."""
    return subprocess.run(
        [args.penstock, "infer", str(model), "--prompt", prompt, "--tokens",
         str(n), "--json", *more], capture_output=True)


def tokens_of(run, numbers):
    """Returns the text or the numbers that `infer` has printed. In JSON, bytes
    that are invalid UTF-8 are U+FFFD."""
    text = json.loads(run.stdout)["text"]
    return ([int(t) for t in text.split()] if numbers else text)


def compare(args, name, program, prompt, n):
    numbers = name == "counting"
    path = args.work / f"{name}.pt2"
    torch.export.save(program, path)
    want, gap = greedy(program, prompt, n)
    given = (" ".join(map(str, prompt)) if numbers
             else bytes(prompt).decode("ascii"))
    run = infer(args, path, given, n)
    if run.returncode != 0:
        check(name, False, run.stderr.decode())
        return
    got = tokens_of(run, numbers)
    text = want if numbers else bytes(want).decode("utf-8", "replace")
    check(f"{name}: the same {n} tokens", got == text or gap < 1e-5,
          f"{got!r}, not {text!r}; the closest choice has {gap:.2g}")
    said = json.loads(run.stdout)
    check(f"{name}: reads each token once",
          said["cached"] and said["prompt_tokens"] == len(prompt), str(said))
    check(f"{name}: copies nothing of its cache", said["copied_bytes"] == 0,
          str(said["copied_bytes"]))
    again = infer(args, path, given, n)
    check(f"{name}: begins anew", tokens_of(again, numbers) == got)


class Window(nn.Module):
    """A model without a cache that reads any number of tokens at once; each
    output depends on all of them."""
    def __init__(self, width=16):
        super().__init__()
        self.emb = nn.Embedding(256, width)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.emb(tokens)
        return self.head(torch.tanh(2 * x.cumsum(1)))


def window(args):
    """A symbolic length: the window is the one of the plan, which is said if
    the text outgrows it, and --size gives another."""
    length = torch.export.Dim("length", min=2, max=64)
    model, path = Window().eval(), args.work / "window.pt2"
    torch.export.save(torch.export.export(
        model, (torch.zeros(1, 6, dtype=torch.int64),),
        dynamic_shapes={"tokens": {1: length}}), path)
    for size, options, said in ((6, [], True),
                                (20, ["--size", "tokens.1=20"], False)):
        text, gaps = list(b"a text"), []
        for _ in range(12):
            with torch.no_grad():
                row = model(torch.tensor([text[-size:]]))[0, -1]
            best = row.topk(2).values
            gaps.append(float(best[0] - best[1]))
            text.append(int(row.argmax()))
        run = infer(args, path, "a text", 12, *options)
        want = bytes(text[6:]).decode("utf-8", "replace")
        check(f"a window of {size}: the same tokens", run.returncode == 0 and
              (tokens_of(run, False) == want or min(gaps) < 1e-5),
              f"{run.stderr.decode()} {run.stdout!r}, not {want!r}")
        check(f"a window of {size}: a note", said == (
            b"longer than the 6 tokens" in run.stderr), run.stderr.decode())


def refusals(args):
    long = infer(args, args.work / "llama.pt2", "x" * 60, 4)
    check("a text longer than the cache", long.returncode == 65
          and b"out of" in long.stderr, long.stderr.decode())
    word = infer(args, args.work / "counting.pt2", "5 seven", 4)
    check("a prompt that is not numbers", word.returncode == 65
          and b"seven" in word.stderr, word.stderr.decode())
    high = infer(args, args.work / "counting.pt2", "5 300", 4)
    check("a token that is none", high.returncode == 65
          and b"token 300" in high.stderr, high.stderr.decode())


def rate_of_generate(model, n):
    ids = torch.tensor([[97, 98, 99]])
    with torch.no_grad():
        begin = time.perf_counter()
        model.generate(ids, max_new_tokens=n, min_new_tokens=n,
                       do_sample=False, max_length=None,
                       cache_implementation="static", max_cache_len=1024)
        return n / (time.perf_counter() - begin)


def rate_anew(model, n):
    """Returns tokens per second of a forward pass over 1024 tokens for each
    new token."""
    ids = torch.randint(0, 256, (1, 1024))
    with torch.no_grad():
        begin = time.perf_counter()
        for _ in range(n):
            model(input_ids=ids, use_cache=False)
        return n / (time.perf_counter() - begin)


def bench(args):
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=256, bos_token_id=None, eos_token_id=None)).eval()
    path, plan = args.work / "gpt2-1024.pt2", args.work / "gpt2-1024.plan"
    window = args.work / "gpt2-window.pt2"
    torch.export.save(cached(model, 1024), path)
    model.generation_config = GenerationConfig(pad_token_id=0)
    with torch.no_grad():
        torch.export.save(torch.export.export(
            model, (torch.zeros(1, 1024, dtype=torch.int64),),
            {"use_cache": False}), window)
    subprocess.run([args.penstock, "split", path, "-o", plan], check=True,
                   capture_output=True)
    rates = {"penstock, at the beginning of the cache": [],
             "penstock, at its end": [], "generate()": [],
             "penstock, text anew": [], "PyTorch, text anew": []}
    for _ in range(args.bench):
        for name, tokens, prompt, model_at in (
                ("penstock, at the beginning of the cache", 60, "abc", plan),
                ("penstock, at its end", 60, "a" * 960, plan),
                ("penstock, text anew", 3, "a" * 960, window)):
            run = infer(args, model_at, prompt, tokens, "--threads", "1")
            rates[name].append(json.loads(run.stdout)["tokens_per_s"])
        rates["generate()"].append(rate_of_generate(model, 60))
        rates["PyTorch, text anew"].append(rate_anew(model, 2))
    for name, values in rates.items():
        print(f"{name:42} {statistics.median(values):8.2f} tokens/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--bench", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    seed = int(time.time()) if args.seed is None else args.seed
    torch.manual_seed(seed)
    print(f"seed {seed}", flush=True)
    if args.bench > 0:
        bench(args)
        return 0
    compare(args, "llama", llama(), list(b"a text"), 30)
    compare(args, "gpt2", gpt2(), list(b"q"), 40)
    compare(args, "counting", counting(), [7, 299, 0], 20)
    window(args)
    refusals(args)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
