#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares steps with microbatches of unequal sizes and weights with PyTorch,
on random models in random cuts.

    batches.py PENSTOCK WORKDIR [--seed N] [--number N] [--one SEED]

A model (terms.py, or a tree of forest.py) is exported with a free number of
rows. Two steps of SGD on a drawn --batch, -m and --microbatch-weights run uncut
and are compared with PyTorch: losses, outputs, gradients, parameters, buffers.
Then cuts before any operators run with any schedule, placement, transport and
recomputation, and have the same bits. What fails is left in WORKDIR; --one runs
it again. Ends with "N passed, N failed".
"""
import argparse
import collections
import copy
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.ERROR)

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import forest  # noqa: E402
from terms import Terms  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[2] / "daemon"))
from patience import PATIENCE  # noqa: E402

STEPS, LR = 2, 0.05
# Allowed error, relative to PyTorch's own error against float64.
TIMES_TORCH = 10
FLOORS = {"loss": 2e-6, "losses": 2e-6, "output": 1e-5, "grad": 5e-5,
          "param": 5e-6, "buffer": 1e-5}
EXACT_USES = 8  # with more uses, last bits may differ (docs/guarantees.md)
IGNORED = -100
CUTS, BATCHES = 2, 2  # of each model
LAYOUTS = 2  # of each cut with each batch
SCHEDULES = ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "looped-bfs",
             "zb-h1", "zb-h1", "zb-v", "dualpipe-v", "auto"]
# The exit code of what a drawn cut or schedule cannot have.
REFUSED = 64, 65


class Failed(Exception):
    pass


class LeftOut(Exception):
    """Raised if PyTorch cannot export the model or train it."""


class Refused(Exception):
    pass


class Batch:
    """The rows of two steps: m microbatches, as even as possible."""

    def __init__(self, rng, model):
        self.m = rng.randint(1, 7)
        self.n = rng.randint(self.m * model.least, 7 * self.m)
        weights = ["rows", "rows", "equal"]
        if model.tokens:
            weights = ["rows", "tokens", "tokens", "equal"]
        self.by = rng.choice(weights)
        self.words = ["-m", self.m, "--batch", self.n, "--microbatch-weights",
                      self.by, "--steps", STEPS, "--optimizer", "sgd", "--lr",
                      LR, "--threads", 1, "--quiet"]
        if rng.random() < .15:
            self.words.append("--no-chunked-loss")
        if model.whole:
            self.words += ["--chunk", "whole=replicate"]
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        rows = STEPS * self.n
        self.data = {"x": torch.randn(rows, 4, generator=generator)}
        if model.labelled:
            label = torch.randint(0, 3, (rows,), generator=generator)
            ignored = torch.rand(rows, generator=generator) < rng.choice(
                [0, .3, .6])
            # Without a target that counts, a mean is NaN: by tokens, such a
            # microbatch weighs nothing, but not all can be so.
            last = torch.tensor(self.sizes() * STEPS).cumsum(0) - 1
            if self.by == "tokens" and rng.random() < .4:
                ignored[:last[0]] = True
                last = last[[-1, self.m - 1]]
            ignored[last] = False
            self.data["label"] = label.where(~ignored, IGNORED)
        self.whole = {}
        if model.whole:
            self.whole["whole"] = torch.rand(4, generator=generator)

    def sizes(self):
        return [self.n // self.m + (k < self.n % self.m)
                for k in range(self.m)]

    def parts(self, step):
        """Returns the weight and the inputs of each microbatch of a step."""
        rows = {k: t[step * self.n:(step + 1) * self.n].split(self.sizes())
                for k, t in self.data.items()}
        parts = [dict(zip(rows, p)) for p in zip(*rows.values())]
        weights = {"rows": self.sizes(), "equal": [1] * self.m}.get(self.by)
        if weights is None:
            weights = [(p["label"] != IGNORED).sum().item() for p in parts]
        return [(w / sum(weights), {**p, **self.whole})
                for w, p in zip(weights, parts)]

    def __str__(self):
        return f"{self.n} rows in {self.m}, weights by {self.by}"


def train(model, batch, dtype):
    """Trains in PyTorch; returns the tensors of a dump."""
    model = copy.deepcopy(model).to(dtype)
    named = list(model.named_parameters(remove_duplicate=False))
    optimizer = torch.optim.SGD(model.parameters(), LR)
    dump = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        losses, outputs, total = [], [], 0
        for weight, part in batch.parts(step):
            part = {k: t.to(dtype) if t.is_floating_point() else t
                    for k, t in part.items()}
            loss, *rest = model(**part)
            losses.append(loss.detach())
            outputs.append([t.detach() for t in (loss, *rest)])
            if weight > 0:
                (loss * weight).backward()
                total = total + loss.detach() * weight
        if step == 0:
            dump = {"losses": torch.stack(losses), "loss": total}
            for i, parts in enumerate(zip(*outputs)):
                dump[f"output.{i}"] = (torch.stack(parts) if parts[0].dim() == 0
                                       else torch.cat(parts))
            for n, p in named:
                dump["grad." + n] = (torch.zeros_like(p) if p.grad is None
                                     else p.grad)
            dump = {n: t.clone() for n, t in dump.items()}
        optimizer.step()
    dump.update(("param." + n, p.detach().clone()) for n, p in named)
    dump.update(("buffer." + n, b.clone()) for n, b in model.named_buffers())
    return dump


def kind(name):
    return name.split(".")[0]


def usual_size(tensors, which):
    flat = [t.flatten().double().nan_to_num() for n, t in tensors.items()
            if kind(n) == which and t.is_floating_point()]
    return torch.cat(flat).square().mean().sqrt().item() if flat else 0.0


def compare(have, want, exact, ties):
    """Compares a dump with PyTorch's results in both precisions."""
    for name, sure in exact.items():
        if name not in have:
            # Another name of the parameter, or a buffer that is not read.
            if kind(name) == "buffer" or \
                    any(n in have for n in ties.get(name, [])):
                continue
            raise Failed(f"{name} is missing")
        got = have[name]
        if not sure.is_floating_point():
            if not torch.equal(got.view(sure.shape).to(sure.dtype), sure):
                raise Failed(f"{name}: other integers than PyTorch's")
            continue
        if got.numel() != sure.numel():
            raise Failed(f"{name}: shape {tuple(got.shape)}, not "
                         f"{tuple(sure.shape)}")
        got = got.double().view(sure.shape)
        own = want[name].double()
        # The mean of a microbatch without targets.
        if kind(name) in ("losses", "output"):
            if not torch.equal(got.isnan(), sure.isnan()):
                raise Failed(f"{name}: NaN elsewhere than PyTorch's")
            got, own, sure = (t.nan_to_num() for t in (got, own, sure))
        scale = max(sure.norm().item(), 1e-30, 1e-2 * usual_size(
            exact, kind(name)) * sure.numel() ** .5)
        off = (got - sure).norm().item() / scale
        own = (own - sure).norm().item() / scale
        if not off <= max(TIMES_TORCH * own, FLOORS[kind(name)]):
            raise Failed(f"{name}: off by {off:.2e}, PyTorch by {own:.2e}")


def same_bits(have, want, loose):
    """Compares two dumps. loose: rounding may differ."""
    if have.keys() != want.keys():
        raise Failed(f"only one dump has {set(have) ^ set(want)}")
    for name, t in want.items():
        got = have[name]
        if got.shape == t.shape and \
                got.numpy().tobytes() == t.numpy().tobytes():
            continue
        off = ((got.double() - t.double()).norm() /
               t.double().norm().clamp(min=1e-30)).item()
        if not loose or not off <= 1e-5:
            raise Failed(f"{name}: other bits than uncut, off by {off:.2e}")


class Model:
    """A model with what can be drawn for it."""

    def __init__(self, seed, penstock, folder):
        self.rng = random.Random(seed)
        self.penstock, self.folder = penstock, folder
        self.done = collections.Counter()
        self.tree = self.rng.random() < .25
        if self.tree:
            self.text = forest.source(seed, 60)
            self.tokens = self.labelled = self.whole = False
        else:
            terms = Terms(seed)
            self.text, self.tokens = terms.text, terms.tokens
            self.labelled, self.whole = True, terms.whole
        # A batch norm refuses a microbatch of one row.
        self.least = 4 if "self.bn" in self.text else 1
        self.eager = forest.load(self.text, f"drawn_{seed}").Model()
        self.what = "export"

    def call(self, *words, refusable=False):
        done = subprocess.run([self.penstock, *map(str, words)], text=True,
                              cwd=self.folder, capture_output=True,
                              check=False, timeout=PATIENCE)
        if refusable and done.returncode in REFUSED:
            raise Refused(done.stderr)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, words))}: exit code "
                         f"{done.returncode}: {done.stderr[-600:]}")
        return done.stdout

    # --- PyTorch -------------------------------------------------------------

    def export(self):
        """Exports the model; returns the module that PyTorch runs: the flat
        program if the export may have lost no_grad regions, or a decomposition
        detach()."""
        rows = torch.export.Dim("rows", min=1, max=64)
        given = {"x": torch.randn(5, 4)}
        if self.labelled:
            given["label"] = torch.tensor([0, 1, 2, 1, 0])
        free = {k: {0: rows} for k in given}
        if self.whole:
            given["whole"], free["whole"] = torch.randn(4), {}
        try:
            program = torch.export.export(
                copy.deepcopy(self.eager), (), given,
                dynamic_shapes=free, strict=self.rng.random() < .2)
            # Decomposed, a cross entropy has no targets that are ignored.
            core = not self.tokens and self.rng.random() < .2
            if core:
                program = program.run_decompositions()
            torch.export.save(program, self.folder / "model.pt2")
            flat = torch.export.load(self.folder / "model.pt2").module()
        except Exception as error:  # exporters raise many kinds
            raise LeftOut(str(error)) from error
        nodes = [n for n in program.graph.nodes if n.op == "call_function"]
        self.nodes = [n.name for n in nodes]
        uses = [len(n.users) for n in program.graph.nodes
                if n.op == "placeholder"]
        self.loose = max(uses) > EXACT_USES or "torch.cond" in self.text
        groups = collections.defaultdict(list)
        for n, p in self.eager.named_parameters(remove_duplicate=False):
            groups[id(p)].append(n)
        self.ties = {f"{k}.{n}": [f"{k}.{o}" for o in names]
                     for names in groups.values() for n in names
                     for k in ("grad", "param")}
        self.parameters = [n for n in groups.values() if len(n) == 1]
        return flat if self.tree or core else self.eager

    # --- penstock ------------------------------------------------------------

    def split(self, plan):
        """Cuts the model anywhere; returns the number of stages and the options
        of the cut."""
        rng = self.rng
        for _ in range(8):
            words = ["--policy", "flops", "--stages", rng.randint(2, 6)]
            if rng.random() < .8:
                names = rng.sample(self.nodes, min(len(self.nodes),
                                                   rng.randint(1, 7)))
                # The last operators, which may only add to the loss.
                if rng.random() < .6:
                    names.append(rng.choice(self.nodes[-4:]))
                words = [w for n in dict.fromkeys(names)
                         for w in ("--at", n)]
            if self.parameters and rng.random() < .25:
                words += ["--transmit", rng.choice(self.parameters)[0]]
            for _ in range(6):
                shutil.rmtree(self.folder / plan, ignore_errors=True)
                try:
                    about = self.call("split", "model.pt2", "-o", plan,
                                      "--json", *words, refusable=True)
                    return json.loads(about)["stage_count"], words
                except Refused as error:
                    text = str(error)
                unknown = re.search(r'cut at "([^"]+)": the model has no', text)
                owner = re.search(r"--owner (\S+=\d+)", text)
                if unknown:
                    at = words.index(unknown[1])
                    del words[at - 1:at + 1]
                elif owner:
                    words += ["--owner", owner[1]]
                else:
                    break
            self.done["cuts refused: " + text.split("[")[-1].split("]")[0]] += 1
        raise LeftOut("no cut")

    def layout(self, stages, m):
        """Draws how a plan runs: options that change no bit."""
        rng = self.rng
        name = rng.choice(SCHEDULES)
        ranks = rng.randint(1, min(stages, 4))
        if name in ("zb-v", "dualpipe-v"):
            ranks = stages // 2
            if stages % 2 or name == "dualpipe-v" and m < 2 * ranks:
                name, ranks = "looped-bfs", max(1, ranks)
        words = ["--schedule", name, "-n", ranks, "--transport",
                 "mpi" if ranks > 1 and rng.random() < .08 else "self"]
        # Buffers are those of the first replica.
        if "self.b" not in self.text and m > 1 and rng.random() < .15:
            words[3] = f"2x{ranks}"
            if m % 2 == 0:
                words += ["--shard", rng.choice(["none", "zero1", "zero2",
                                                 "zero3"])]
        if rng.random() < .15 and name in ("gpipe", "1f1b", "looped-bfs"):
            at = [*range(ranks), *(rng.randrange(ranks)
                                   for _ in range(stages - ranks))]
            rng.shuffle(at)
            words += ["--place", ",".join(f"{s}={r}"
                                          for s, r in enumerate(at))]
        if rng.random() < .4:
            words += ["--recompute", rng.choice(
                ["full", "none", "full,twice", f"{rng.randrange(stages)}=full",
                 f"full,{rng.randrange(stages)}=none"])]
        for p, *more in ((.15, "--stash", "ram", "--stash-keep", "1"),
                         (.15, "--verify"), (.15, "--no-chains"),
                         (.1, "--data-at", "first")):
            if rng.random() < p:
                words += more
        return words

    def dump(self, *words, refusable=False):
        self.what = " ".join(map(str, words))
        (self.folder / "dump").unlink(missing_ok=True)
        self.call("run", *words, "--data", "data.safetensors", "--dump", "dump",
                  refusable=refusable)
        return load_file(self.folder / "dump")

    def run_batch(self, module, cuts):
        batch = Batch(self.rng, self)
        self.what = str(batch)
        save_file({**batch.data, **batch.whole},
                  self.folder / "data.safetensors")
        try:
            want = train(module, batch, torch.float32)
            exact = train(module, batch, torch.float64)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise LeftOut(str(error)) from error
        if not all(t.isfinite().all() for n, t in exact.items()
                   if kind(n) not in ("losses", "output")):
            raise LeftOut("numbers that are not finite")
        uncut = self.dump("model.pt2", "--stages", 1, "--transport", "self",
                          "--schedule", "gpipe", *batch.words)
        compare(uncut, want, exact, self.ties)
        self.done["batches"] += 1
        for plan, (stages, words) in cuts.items():
            for _ in range(LAYOUTS):
                self.run_cut(plan, stages, words, batch, uncut)

    def run_cut(self, plan, stages, words, batch, uncut):
        how = self.layout(stages, batch.m)
        try:
            have = self.dump(plan, *how, *batch.words, refusable=True)
        except Refused as error:
            why = str(error).split("[")[-1].split("]")[0]
            self.done["runs refused: " + why] += 1
            return
        self.what += f"; {plan}: {' '.join(map(str, words))}"
        replicas = str(how[3]).startswith("2x")
        same_bits(have, uncut, self.loose or replicas)
        self.done["runs of replicas"] += replicas
        self.done["runs over MPI"] += "mpi" in how
        self.done["runs"] += 1
        self.done["stages"] += stages

    def run(self):
        module = self.export()
        cuts = {f"plan-{k}": self.split(f"plan-{k}") for k in range(CUTS)}
        for _ in range(BATCHES):
            self.run_batch(module, cuts)
        self.done["trees" if self.tree else "sums"] += 1


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock", type=Path)
    p.add_argument("workdir", type=Path)
    p.add_argument("--seed", type=int, default=int(time.time()) % 1000000)
    p.add_argument("--number", type=int, default=12)
    p.add_argument("--one", type=int, help="this model alone")
    a = p.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    folder, penstock = a.workdir.resolve(), a.penstock.resolve()
    seeds = ([a.one] if a.one is not None else
             range(a.seed * 1000, a.seed * 1000 + a.number))
    done, failed = collections.Counter(), 0
    print(f"models from --seed {a.seed}")
    for seed in seeds:
        model = None
        # A failed export leaves gradients switched off.
        torch.set_grad_enabled(True)
        try:
            model = Model(seed, penstock, folder)
            model.run()
        except KeyboardInterrupt:
            break
        except LeftOut as error:
            done["left out"] += 1
            print(f"left out model {seed}: {str(error)[:200]}")
        except Exception as error:
            failed += 1
            text = (str(error) if isinstance(error, Failed) else
                    traceback.format_exc(limit=-3))
            print(f"FAIL --one {seed} ({model and model.what}): {text}",
                  flush=True)
            if model:
                (folder / f"model-{seed}.py").write_text(model.text)
        if model:
            done += model.done
    print(", ".join(f"{n} {k}" for k, n in sorted(done.items())))
    passed = done["trees"] + done["sums"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
