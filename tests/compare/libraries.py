#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests how many model classes of a library run, in small sizes.

    libraries.py PENSTOCK WORKDIR [--library NAME] [--only TEXT] [--seed N]
                 [--sample N] [--part K/N] [--limit SECONDS] [--results FILE]
                 [--table FILE]

For each class with a configuration in a library (transformers; timm and
diffusers where they are installed), the script makes a model with random
weights, exports it in training mode with torch.export, and compares loss and
gradients of a step with PyTorch's in float64. Each class gets one result:

    equal       errors against float64 are similar to PyTorch's
    random      it runs, but its random numbers differ from PyTorch's
    differs     errors are larger: a fault of penstock or of the comparison
    refused     penstock reports what it does not support
    no export   PyTorch cannot export it, or not in training mode
    no model    this script does not know small sizes or inputs for it

--limit: a class that takes longer counts as `no model`. --sample tests N random
classes that are `equal` in docs/libraries.md. --results keeps the results in a
file; a class that has one there is not tested again. --table writes all results
as the table of docs/libraries.md. The last line is `N passed, N failed`: a
class must have the result of the table.
"""
import argparse
import copy
import importlib
import inspect
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PENSTOCK_ACCEPT_LOST_BACKWARD", "1")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "libraries.md"
VOCABULARY, ROWS, LENGTH = 128, 2, 16
OUTCOMES = ["equal", "random", "differs", "refused", "no export", "no model"]


class NoModel(Exception):
    pass


class TooSlow(BaseException):
    """Raised after --limit seconds; no `except Exception` takes it."""


def give_up(*_):
    raise TooSlow


# --- transformers -----------------------------------------------------------

# Small values by names of configuration fields.
SMALL = [
    (r"vocab_size|.*_vocab_size", VOCABULARY),
    (r"(num|n)_.*layers?|.*_layers|n_layers?|depth|num_blocks|num_layers", 2),
    (r".*num_key_value_heads|num_kv_heads|num_.*heads|n_heads?|.*_heads|.*attention_heads|num_heads", 4),
    (r"(global_)?head_dim|.*_head_dim|kv_channels|d_kv", 16),
    (r"d_model|hidden_size|n_embd|.*hidden_size|dim|d_embed|embed_dim|"
     r"embedding_size|hidden_dim|.*projection_dim|word_embed_proj_dim|"
     r".*encoder_dim|.*_embed_dim", 64),
    (r".*intermediate_size|.*ffn_dim|d_ff|n_inner|.*intermediate_dim|d_inner|"
     r"mlp_dim|ffn_hidden_size", 96),
    (r"max_position_embeddings|n_positions|max_source_positions|"
     r"max_target_positions|n_ctx", 64),
    (r"image_size", 64), (r"patch_size", 16),
    (r"num_(local_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_k|moe_topk", 2),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"num_queries", 10), (r"sliding_window", 8),
]
TOKENS = re.compile(r"(pad|bos|eos|sep|cls|unk|mask|decoder_start|image|video|"
                    r"audio|.*)_token_(id|index)s?$")


# Fields that other fields depend on: where a small value of one of them gives
# an invalid configuration, the class is tried with the library's own values.
DEPENDENT = [
    r"num_feat_extract_layers",
    r"(num|n)_.*heads|.*_heads|n_heads?|.*head_dim|kv_channels|d_kv",
    r".*embed_dim|.*hidden_size|.*hidden_dim|dim|d_model|.*projection_dim",
    r"(?!.*(layers?|depth|blocks|vocab_size)$).*",
]
MAX_PARAMETERS = 50_000_000


def small(config, but=()):
    """Returns the arguments of config.__class__ for a small model. Fields that
    match one of `but` keep their values."""
    ret = {}
    for name, value in config.to_dict().items():
        sub = getattr(config, name, None)
        if hasattr(sub, "to_dict") and not isinstance(sub, dict):
            ret[name] = {**small(sub, but), "model_type": sub.model_type}
        elif TOKENS.match(name) and isinstance(value, int):
            ret[name] = value if value < 10 else 3
        elif isinstance(value, int) and not isinstance(value, bool) and \
                not any(re.fullmatch(pattern, name) for pattern in but):
            for pattern, number in SMALL:
                if re.fullmatch(pattern, name):
                    ret[name] = min(number, value) if value > 0 else value
                    break
        elif "dropout" in name and isinstance(value, float):
            ret[name] = 0.0
    return ret


def size_of(config, *names, default=None):
    for n in names:
        for c in (config, getattr(config, "vision_config", None),
                  getattr(config, "backbone_config", None),
                  getattr(config, "audio_config", None),
                  getattr(config, "encoder", None)):
            value = getattr(c, n, None)
            if value is not None:
                return value
    return default


def image(config):
    size = size_of(config, "image_size", default=64)
    size = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(ROWS, size_of(config, "num_channels", "in_channels",
                                     default=3), *size)


def tokens(config, length=LENGTH):
    text = getattr(config, "get_text_config", lambda: config)()
    most = getattr(text, "vocab_size", None) or VOCABULARY
    return torch.randint(4, most, (ROWS, length))


# Inputs by the names of forward's arguments.
INPUTS = {
    "input_ids": tokens,
    "decoder_input_ids": lambda c: tokens(c, 8),
    "attention_mask": lambda c: torch.ones(ROWS, LENGTH, dtype=torch.long),
    "pixel_values": image,
    "input_values": lambda c: torch.randn(ROWS, 4000),
    "input_features": lambda c: torch.randn(
        ROWS, size_of(c, "num_mel_bins", "feature_size", "input_channels",
                      default=80), 2 * size_of(c, "max_source_positions",
                                               default=32)),
    "bbox": lambda c: torch.zeros(ROWS, LENGTH, 4, dtype=torch.long),
    "past_values": lambda c: torch.randn(
        ROWS, size_of(c, "context_length", default=32),
        size_of(c, "num_input_channels", "input_size", default=1)),
}
TRIES = [["input_ids"], ["pixel_values"], ["input_ids", "decoder_input_ids"],
         ["input_ids", "pixel_values"], ["input_values"], ["input_features"],
         ["input_features", "decoder_input_ids"],
         ["input_values", "decoder_input_ids"],
         ["input_ids", "attention_mask", "pixel_values"],
         ["input_ids", "bbox"], ["past_values"],
         ["pixel_values", "decoder_input_ids"]]


def transformers_classes():
    from transformers.models.auto import configuration_auto, modeling_auto
    import transformers
    for kind, name in modeling_auto.MODEL_MAPPING_NAMES.items():
        name = name if isinstance(name, str) else name[0]
        if kind in configuration_auto.CONFIG_MAPPING_NAMES:
            yield name, lambda k=kind, n=name: make_transformer(
                transformers, k, n)


def make_transformer(library, kind, name):
    """Makes a model whose configuration is as small as the class allows."""
    said = None
    for n in range(len(DEPENDENT) + 1):
        try:
            return make_small(library, kind, name, DEPENDENT[:n])
        except NoModel as e:
            said = said or e
    raise said


def make_small(library, kind, name, but):
    try:
        cls = getattr(library, name)
        config = library.AutoConfig.for_model(kind)
        config = config.__class__(**small(config, but))
        for part in ("use_cache", "output_router_logits"):
            if hasattr(config, part):
                setattr(config, part, False)
        config._attn_implementation = "eager"  # uses the most operators
        if but:
            with torch.device("meta"):
                count = sum(p.numel() for p in cls(config).parameters())
            if count > MAX_PARAMETERS:
                raise NoModel(f"{count} parameters")
        model = cls(config)
    except Exception as e:  # pylint: disable=broad-except
        raise NoModel(f"{type(e).__name__}: {e}") from e
    takes = inspect.signature(model.forward).parameters
    first = getattr(model, "main_input_name", "input_ids")
    said = "no arguments that this script knows"
    for names in sorted(TRIES, key=lambda names: names[0] != first):
        if not all(n in takes for n in names):
            continue
        try:
            batch = {n: INPUTS[n](config) for n in names}
            with torch.no_grad():
                Squared(model)(**batch)
            return Squared(model), batch
        except Exception as e:  # pylint: disable=broad-except
            said = f"{type(e).__name__}: {e}"
    raise NoModel(said)


# --- timm, diffusers --------------------------------------------------------


def timm_classes():
    """Yields the smallest model of each source file of timm, since the others
    differ only in size."""
    timm = importlib.import_module("timm")
    families = {}
    for name in timm.list_models(pretrained=False):
        family = timm.models.model_entrypoint(name).__module__
        families.setdefault(family, []).append(name)

    def size(name):
        try:
            with torch.device("meta"):
                model = timm.create_model(name, num_classes=5)
            return sum(p.numel() for p in model.parameters())
        except Exception:  # pylint: disable=broad-except
            return MAX_PARAMETERS  # some cannot be made without values

    for names in families.values():
        name = min(names, key=size)
        yield name, lambda n=name: make_timm(timm, n)


def make_timm(timm, name):
    try:
        model = timm.create_model(name, pretrained=False, num_classes=5)
        size = model.default_cfg.get("input_size", (3, 224, 224))
        batch = {"x": torch.randn(ROWS, *size)}
        with torch.no_grad():
            model(**batch)
    except Exception as e:  # pylint: disable=broad-except
        raise NoModel(f"{type(e).__name__}: {e}") from e
    return Squared(model), batch


def diffusers_classes():
    library = importlib.import_module("diffusers")
    for name in sorted(dir(library)):
        if name.startswith(("Autoencoder", "UNet")) or "Transformer" in name:
            yield name, lambda n=name: make_diffuser(library, n)


# Small values by names of the constructor's arguments. What a class does not
# accept together is left out, set by set.
DIFFUSER = [
    dict(num_layers=1, num_single_layers=1, num_refiner_layers=1,
         attention_head_dim=16, num_attention_heads=2,
         axes_dims_rope=(4, 6, 6), joint_attention_dim=32, text_dim=32,
         caption_channels=32, cross_attention_dim=32, text_embed_dim=32,
         pooled_projection_dim=16, ffn_dim=64, freq_dim=32, inner_dim=32,
         caption_projection_dim=32, cross_attention_head_dim=16,
         num_cross_attention_heads=2, sample_size=16, norm_num_groups=8,
         layers_per_block=1),
    dict(layers_per_block=1, norm_num_groups=8, sample_size=16,
         cross_attention_dim=32, attention_head_dim=8),
    dict(norm_num_groups=8, cross_attention_dim=32),
    {},
]


def diffuser_values(cls, values):
    """Returns the values that the class has arguments for, and small channels
    for each of its blocks."""
    takes = inspect.signature(cls.__init__).parameters
    ret = {k: v for k, v in values.items() if k in takes}
    for name in ("block_out_channels", "decoder_block_out_channels"):
        wide = takes[name].default if name in takes else None
        if isinstance(wide, (tuple, list)) and values:
            ret[name] = tuple(32 for _ in wide)
    return ret


def diffuser_batches(config):
    """Yields inputs for images, for videos, and for sounds."""
    channels = size_of(config, "in_channels", default=3)
    width = size_of(config, "joint_attention_dim", "text_dim",
                    "caption_channels", "text_embed_dim",
                    "cross_attention_dim", default=32)
    more = {"timestep": torch.tensor([3] * ROWS),
            "encoder_hidden_states": torch.randn(ROWS, 6, width),
            "encoder_attention_mask": torch.ones(ROWS, 6),
            "pooled_projections": torch.randn(ROWS, size_of(
                config, "pooled_projection_dim", default=16))}
    for shape in ((channels, 32, 32), (channels, 5, 32, 32), (channels, 64),
                  (16, channels)):
        yield torch.randn(ROWS, *shape), more


def make_diffuser(library, name):
    said = "no arguments that this script knows"
    for values in DIFFUSER:
        try:
            cls = getattr(library, name)
            values = diffuser_values(cls, values)
            with torch.device("meta"):
                count = sum(p.numel() for p in cls(**values).parameters())
            if count > MAX_PARAMETERS:
                raise NoModel(f"{count} parameters")
            model = cls(**values)
        except Exception as e:  # pylint: disable=broad-except
            said = f"{type(e).__name__}: {e}"
            continue
        takes = inspect.signature(model.forward).parameters
        first = next((n for n in ("sample", "hidden_states", "x")
                      if n in takes), None)
        if first is None:
            break
        for x, more in diffuser_batches(model.config):
            batch = {first: x, **{n: t for n, t in more.items() if n in takes}}
            try:
                with torch.no_grad():
                    Squared(model)(**batch)
                return Squared(model), batch
            except Exception as e:  # pylint: disable=broad-except
                said = f"{type(e).__name__}: {e}"
    raise NoModel(said)


LIBRARIES = {"transformers": transformers_classes, "timm": timm_classes,
             "diffusers": diffusers_classes}


# --- one class --------------------------------------------------------------


class Squared(nn.Module):
    """Adds a loss to a model: the sum of the mean squares of all outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        out = self.model(**inputs)
        if hasattr(out, "sample") and isinstance(out.sample, torch.Tensor):
            out = out.sample
        loss = 0
        for t in tree_leaves(out.to_tuple() if hasattr(out, "to_tuple")
                             else out):
            if isinstance(t, torch.Tensor) and t.is_floating_point() and \
                    t.numel() > 0:
                loss = loss + t.float().square().mean() \
                    if t.dtype != torch.float64 else loss + t.square().mean()
        return loss


def step(model, batch, dtype, seed=0):
    """Returns the loss and the gradients of a step in PyTorch."""
    model = copy.deepcopy(model).to(dtype)
    torch.manual_seed(seed)
    loss = model(**{n: t.to(dtype) if t.is_floating_point() else t
                    for n, t in batch.items()})
    loss.backward()
    ret = {f"grad.{n}": p.grad for n, p in model.named_parameters()
           if p.grad is not None}
    return {"loss": loss.detach(), **ret}


def first_line(text):
    lines = [x for x in text.strip().splitlines() if x.strip()]
    return lines[-1] if lines else "no message"


def compare(dump, f32, f64, floor):
    """Returns the names of tensors whose error against float64 exceeds both
    the floor and ten times PyTorch's float32 error, relative to the usual size
    of gradients."""
    usual = max((t.norm() / t.numel() ** 0.5).item()
                for n, t in f64.items() if n != "loss") if len(f64) > 1 else 0
    wrong = []
    for n, want in f64.items():
        if n not in dump:
            continue  # the dump has only one name of a tied parameter
        scale = max(want.norm().item(), 1e-3 * usual * want.numel() ** 0.5,
                    1e-30)
        error = (dump[n].double() - want).norm().item() / scale
        theirs = (f32[n].double() - want).norm().item() / scale
        if not error <= max(10 * theirs, floor):
            wrong.append(f"{n}: {error:.1e}, PyTorch {theirs:.1e}")
    return wrong


def run_class(make, penstock, folder):
    """Runs a class in penstock and PyTorch. Returns (result, reason), where
    the result is one of those in the module's docstring."""
    torch.manual_seed(0)
    try:
        model, batch = make()
    except NoModel as e:
        return "no model", str(e)
    model.train()
    folder.mkdir(parents=True)
    try:
        program = torch.export.export(copy.deepcopy(model), (), batch,
                                      strict=False)
        torch.export.save(program, folder / "model.pt2")
        f32 = step(model, batch, torch.float32)
        other = step(model, batch, torch.float32, seed=1)
    except Exception as e:  # pylint: disable=broad-except
        return "no export", f"{type(e).__name__}: {first_line(str(e))}"
    try:
        f64 = step(model, batch, torch.float64)
        floor = 1e-4
    # PyTorch has no f64 kernel for an operator: then both results have errors
    # of f32.
    except RuntimeError:
        f64 = {n: t.double() for n, t in f32.items()}
        floor = 1e-3
    save_file(batch, folder / "data.safetensors")
    for words in (
            ["split", folder / "model.pt2", "-o", folder / "plan", "--stages",
             1],
            ["run", folder / "plan", "-n", 1, "--transport", "self", "--data",
             folder / "data.safetensors", "-m", 1, "--steps", 1, "--threads", 1,
             "--optimizer", "none", "--dump", folder / "dump"]):
        try:
            done = subprocess.run([penstock, *map(str, words)], timeout=300,
                                  capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return "differs", f"{words[0]} takes more than 300 s"
        if done.returncode != 0:
            outcome = "refused" if words[0] == "split" else "differs"
            return outcome, first_line(done.stderr + done.stdout)
    if any(not torch.equal(t, other[n]) for n, t in f32.items()):
        return "random", "two seeds differ in PyTorch"
    wrong = compare(load_file(folder / "dump"), f32, f64, floor)
    return ("differs", "; ".join(wrong[:3])) if wrong else ("equal", "")


# --- the table --------------------------------------------------------------


def read_table(path):
    """Returns {(library, class): outcome} of all classes in the table."""
    named = {}
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        cells = [c.strip().strip("`") for c in line.strip("|").split("|")]
        if len(cells) == 4 and cells[2] in OUTCOMES:
            named[cells[0], cells[1]] = cells[2]
    for listed in re.finditer(r"^(Equal|No model) in (\w+) [^:]*:\n\n```\n"
                              r"([^`]*)```$", text, re.MULTILINE):
        named.update({(listed[2], name): listed[1].lower()
                      for name in listed[3].split()})
    return named


def write_table(path, found, versions):
    """Replaces the table between the marker comments of the file."""
    rows = ["| library | tried | exported | equal | random | differ | "
            "refused | share that runs |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for library, version in versions.items():
        count = {o: sum(1 for (k, _), v in found.items()
                        if k == library and v[0] == o) for o in OUTCOMES}
        runs = count["equal"] + count["random"]
        out = runs + count["differs"] + count["refused"]
        rows.append(f"| {library} {version} | {sum(count.values())} | {out} | "
                    f"{count['equal']} | {count['random']} | "
                    f"{count['differs']} | {count['refused']} | "
                    f"{100 * runs / max(out, 1):.0f} % |")
    for outcome in "equal", "no model":
        for library, version in versions.items():
            names = " ".join(n for (k, n), v in sorted(found.items())
                             if k == library and v[0] == outcome)
            if names:
                rows += ["", f"{outcome.capitalize()} in {library} {version}:",
                         "", "```", *textwrap.wrap(names, 80), "```"]
    rows += ["", "| library | class | outcome | why |",
             "| --- | --- | --- | --- |"]
    for (library, name), (outcome, why) in sorted(found.items()):
        if outcome not in ("equal", "no model"):
            why = re.sub(r"\S*/(?=model\.pt2)", "", why)
            why = re.sub(r"\s+", " ", why).replace("|", "/").replace(
                "`", "'").replace("<", "&lt;")[:160]
            rows.append(f"| {library} | `{name}` | {outcome} | {why} |")
    text = path.read_text()
    head, tail = text.split("<!-- table -->\n")[0], \
        text.split("<!-- end of the table -->\n")[1]
    path.write_text(head + "<!-- table -->\n" + "\n".join(rows) +
                    "\n<!-- end of the table -->\n" + tail)


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("penstock")
    p.add_argument("workdir", type=Path)
    p.add_argument("--library", choices=LIBRARIES, default="transformers")
    p.add_argument("--only", default="", help="classes whose name has this")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--sample", type=int, default=0)
    p.add_argument("--part", default="0/1",
                   help="K/N: each N-th class from K on")
    p.add_argument("--limit", type=int, default=0, help="0: none")
    p.add_argument("--results", type=Path,
                   help="JSON lines; what is there is not done again")
    p.add_argument("--table", type=Path)
    a = p.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, give_up)
    shutil.rmtree(a.workdir, ignore_errors=True)
    named = read_table(TABLE)
    classes = [c for c in LIBRARIES[a.library]() if re.search(a.only, c[0])]
    if a.sample:
        classes = [c for c in classes
                   if named.get((a.library, c[0])) == "equal"]
        classes = random.Random(a.seed).sample(classes, a.sample)
    k, n = map(int, a.part.split("/"))
    classes = classes[k::n]
    found, failed = {}, 0
    if a.results and a.results.exists():
        for line in a.results.read_text().splitlines():
            library, name, *rest = json.loads(line)
            found[library, name] = tuple(rest)
    for name, make in classes:
        if (a.library, name) in found:
            continue
        signal.alarm(a.limit)
        try:
            outcome, why = run_class(make, a.penstock, a.workdir / name)
        except TooSlow:
            outcome, why = "no model", f"takes more than {a.limit} s"
        signal.alarm(0)
        shutil.rmtree(a.workdir / name, ignore_errors=True)
        found[a.library, name] = outcome, why
        wrong = outcome != named.get((a.library, name), outcome)
        failed += wrong
        print(f"{'FAILED' if wrong else 'ok':7} {name}: {outcome}"
              f"{', ' if why else ''}{why[:400]}", flush=True)
        if a.results:
            with a.results.open("a") as f:
                f.write(json.dumps([a.library, name, outcome, why]) + "\n")
    if a.table:
        write_table(a.table, found, {
            a.library: importlib.import_module(a.library).__version__})
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
