#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs eight microbatches of different data through the splitter's goldens.

    make_microbatches.py GOLDENS OUTDIR

GOLDENS is the unpacked tests/data/splitter.tar.xz and archives like it. Writes
NAME.safetensors: `loss`, `grad.FQN` (mean over the microbatches), `output.I`
(of all microbatches in order), and `buffer.FQN` after the last one. Of tensors
with more than 2048 elements it writes every 17th. For models of CANCEL it also
writes `error.output.I`: ten times PyTorch's own largest error against float64,
which covers any order of sums in float32. Element i of an input of microbatch
k is (1 - k / 16) times element i + 3 k of the golden's input, as in fill() of
tests/split/golden/test_golden_run.c; integers are only shifted.
"""
import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.distributed.pipelining import pipe_split  # noqa: E402,F401 (its op)
from torch.utils import _pytree as pytree  # noqa: E402

COUNT, LARGE, EVERY = 8, 2048, 17
# Outputs that are small differences of large sums, so that their error is not
# in proportion to their size. The text is the reason.
CANCEL = {"t12-mutated-buffer": "a buffer of 255 is added in front of a layer "
          "whose weights are around zero, and 510 multiplies what comes out"}


def moved(tensor, k):
    ret = tensor.flatten().roll(-3 * k).reshape(tensor.shape)
    return ret * (1 - k / 16) if ret.is_floating_point() else ret


def thinned(tensor):
    flat = tensor.detach().flatten()
    return (flat[::EVERY] if len(flat) > LARGE else flat).clone()


def tie_names(module, aliases):
    """Makes the names of a shared tensor one parameter again."""
    for group in aliases:
        owner, _, name = group[0].rpartition(".")
        first = getattr(module.get_submodule(owner), name)
        for other in group[1:]:
            owner, _, name = other.rpartition(".")
            setattr(module.get_submodule(owner), name, first)


def steps(program, golden, facts, count):
    """Runs `count` microbatches. Returns {name: value}."""
    module = program.module()
    tie_names(module, facts["aliases"])
    names = program.graph_signature.user_inputs
    losses, outputs = [], []
    for k in range(count):
        leaves = [moved(golden[f"input.{n}"], k)
                  if f"input.{n}" in golden else n for n in names]
        args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        out = pytree.tree_leaves(module(*args, **kwargs))
        if facts["loss"] == "mse":
            loss = torch.nn.functional.mse_loss(out[0],
                                                moved(golden["target"], k))
        else:
            loss = out[int(facts["loss"].split(":")[1])]
        (loss / count).backward()
        losses.append(loss.detach())
        outputs.append(out)
    params = dict(module.named_parameters(remove_duplicate=False))
    ret = {"loss": torch.stack(losses).mean()}
    for name in golden:
        kind, _, rest = name.partition(".")
        if kind == "grad":
            grad = params[rest].grad
            ret[name] = (torch.zeros_like(params[rest]) if grad is None
                         else grad)
        elif kind == "output":
            ret[name] = torch.stack([o[int(rest)].detach() for o in outputs])
        elif kind == "buffer":
            ret[name] = module.get_buffer(rest)
    return ret


def errors(program, golden, facts, many):
    """Returns {"error.output.I": bound} for the float32 results in `many`."""
    for tensors in (program.state_dict, program.constants):
        for name, tensor in tensors.items():
            if torch.is_tensor(tensor) and tensor.is_floating_point():
                tensors[name] = (torch.nn.Parameter(tensor.double())
                                 if isinstance(tensor, torch.nn.Parameter)
                                 else tensor.double())
    doubled = {n: t.double() if t.is_floating_point() else t
               for n, t in golden.items()}
    exact = steps(program, doubled, facts, COUNT)
    return {f"error.{n}": 10 * (t.double() - exact[n]).abs().max().float()
            for n, t in many.items() if n.startswith("output.")}


def main():
    goldens, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(goldens.glob("*.json")):
        facts = json.loads(path.read_text())
        golden = load_file(path.with_suffix(".safetensors"))
        program = torch.export.load(path.with_suffix(".pt2"))
        once = steps(program, golden, facts, 1)
        # One microbatch must give the golden's values.
        for name, value in once.items():
            want = golden[name]
            if not torch.allclose(value.reshape(want.shape), want, 1e-5, 4e-5):
                sys.exit(f"{path.stem}: {name} is not the golden's")
        program = torch.export.load(path.with_suffix(".pt2"))
        many = steps(program, golden, facts, COUNT)
        if path.stem in CANCEL:
            many.update(errors(torch.export.load(path.with_suffix(".pt2")),
                               golden, facts, many))
        save_file({n: thinned(t) for n, t in many.items()},
                  out / (path.stem + ".safetensors"))


main()
