#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the numbered cases of the conformance catalogue with PyTorch.

    conformance.py PENSTOCK WORKDIR [--only TEXT] [--seed N] [--list]

Each case exports a model, runs it cut into stages with penstock, and compares
it with PyTorch, uncut. Tolerances are those of the catalogue: D for outputs
and losses, G for gradients. If PyTorch's own error in float32 against float64
exceeds them, penstock's error may be four times as large as PyTorch's; such
tensors are printed. The last line is `N passed, N failed`.
"""
import argparse
import copy
import json
import os
import shutil
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

D = {"rtol": 1.3e-6, "atol": 1e-5}
G = {"rtol": 1e-5, "atol": 4e-5}
# Allowed error, relative to PyTorch's own error against float64.
TIMES_TORCH = 4
CASES = []


class Failed(Exception):
    pass


def case(name):
    def add(function):
        CASES.append((name, function))
        return function
    return add


class Tools:
    """The functions that cases use, with a work folder."""

    def __init__(self, penstock, folder):
        self.penstock = penstock
        self.stage_backward = (Path(penstock).resolve().parents[1] /
                               "tests/conformance/stage-backward")
        self.folder = folder
        self.runs = 0

    def call(self, *words, code=0):
        words = [str(w) for w in words]
        done = subprocess.run(words, capture_output=True, text=True,
                              timeout=PATIENCE)
        if done.returncode != code:
            said = (done.stderr + done.stdout).strip().splitlines()[-8:]
            raise Failed("\n".join([f"exit code {done.returncode}, not "
                                    f"{code}: {' '.join(words)}", *said]))
        return done

    def export(self, model, microbatch, name="model"):
        path = self.folder / f"{name}.pt2"
        program = torch.export.export(copy.deepcopy(model), (), microbatch,
                                      strict=False)
        torch.export.save(program, path)
        return path

    def data(self, batch):
        path = self.folder / "data.safetensors"
        save_file({n: t.contiguous() for n, t in batch.items()}, path)
        return path

    def run(self, model, batch, m, *options, schedule="1f1b", steps=1,
            ranks=None, optimizer="none", code=0, command="run"):
        """Runs a model on ranks of one process; returns its dump."""
        self.runs += 1
        dump = self.folder / f"dump-{self.runs}.safetensors"
        ranks = ["-n", ranks] if ranks else []
        done = self.call(self.penstock, command, model, "--transport", "self",
                         "--data", self.data(batch), "-m", m, "--schedule",
                         schedule, "--steps", steps, "--optimizer", optimizer,
                         "--dump", dump, "--quiet", "--threads", 1, *ranks,
                         *options, code=code)
        return load_file(dump) if code == 0 else done.stderr

    def split(self, model, *options, code=0):
        plan = self.folder / "plan"
        shutil.rmtree(plan, ignore_errors=True)
        done = self.call(self.penstock, "split", model, "-o", plan, "--json",
                         *options, code=code)
        if code != 0:
            if plan.exists():
                raise Failed(f"{plan} was left behind")
            return done.stderr
        return plan, json.loads(done.stdout)

    def backward(self, model, inputs, what):
        """Runs actions of the last stage: F and I, or F, I and W. Returns its
        dump."""
        out = self.folder / f"{what}.safetensors"
        self.call(self.stage_backward, model, self.data(inputs), out, what)
        return load_file(out)


def close(name, got, want, rtol, atol):
    if got.shape != want.shape:
        raise Failed(f"{name}: shape {tuple(got.shape)}, not "
                     f"{tuple(want.shape)}")
    if not torch.allclose(got.to(want.dtype), want, rtol=rtol, atol=atol):
        off = (got - want).abs().max().item()
        raise Failed(f"{name}: off by {off:.2e}, largest value "
                     f"{want.abs().max().item():.2e}")


class Step(dict):
    """The tensors of one step's dump in float32; `exact` has them in
    float64."""
    exact = None


def torch_step(model, batch, m, loss=0):
    """Returns PyTorch's results of a step: the means over the microbatches."""
    step = Step(one_step(model, batch, m, loss))
    double = {n: t.double() if t.is_floating_point() else t
              for n, t in batch.items()}
    step.exact = one_step(copy.deepcopy(model).double(), double, m, loss)
    return step


def one_step(model, batch, m, loss):
    model = copy.deepcopy(model)
    losses, outputs = [], []
    for k in range(m):
        part = {n: t.chunk(m)[k] for n, t in batch.items()}
        leaves = [t for t in tree_leaves(model(**part))
                  if isinstance(t, torch.Tensor)]
        (leaves[loss] / m).backward()
        losses.append(leaves[loss].detach())
        outputs.append([t.detach() for t in leaves])
    dump = {"losses": torch.stack(losses), "loss": torch.stack(losses).mean()}
    for i in range(len(outputs[0])):
        parts = [o[i] for o in outputs]
        dump[f"output.{i}"] = (torch.stack(parts) if parts[0].dim() == 0
                               else torch.cat(parts))
    for n, p in model.named_parameters(remove_duplicate=False):
        dump[f"grad.{n}"] = (torch.zeros_like(p) if p.grad is None
                             else p.grad)
    return dump


# Tensors of the current case that exceed a tolerance of the catalogue, but
# pass by is_near_exact().
ROUNDED = set()


def is_near_exact(name, got, want, exact):
    """Returns whether the error against float64 is at most TIMES_TORCH times
    PyTorch's. The largest errors are compared, since sums may be computed in
    any order. If it returns True, it adds the name to ROUNDED."""
    ours = (got.double() - exact).abs().max().item()
    theirs = (want.double() - exact).abs().max().item()
    if not ours <= TIMES_TORCH * theirs:
        return False
    ROUNDED.add(name)
    return True


def compare_one(step, n, got):
    want = step[n]
    if want.numel() == 0:
        return
    try:
        close(n, got, want, **(G if n.startswith("grad.") else D))
    except Failed:
        if got.shape != want.shape or \
                not is_near_exact(n, got, want, step.exact[n]):
            raise


def compare(dump, step):
    for n in step:
        if n not in dump:
            raise Failed(f"{n} is missing")
        compare_one(step, n, dump[n])


def main():
    import cases  # noqa: F401 (these fill CASES)
    import schedules  # noqa: F401
    import stages  # noqa: F401
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--seed", type=int, default=0, help="of weights and data")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    passed = failed = 0
    for name, function in sorted(CASES, key=lambda c: c[0]):
        if a.only not in name:
            continue
        if a.list:
            print(name)
            continue
        folder = a.workdir / name.split()[0]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(a.seed)
        ROUNDED.clear()
        try:
            function(Tools(a.penstock, folder))
            passed += 1
            print(f"ok      {name}", flush=True)
            if ROUNDED:
                print("        as near to float64 as PyTorch: "
                      + ", ".join(sorted(ROUNDED)), flush=True)
            shutil.rmtree(folder)
        except Failed as e:
            failed += 1
            print(f"FAILED  {name}\n{e}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.modules["conformance"] = sys.modules["__main__"]
    sys.exit(main())
