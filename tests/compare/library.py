#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares lib/penstock.py with PyTorch on PyTorch's own tensors.

    library.py PENSTOCK

penstock.export writes a model; sessions train it on tensors by DLPack, also on
windows that overlap in one storage, and have PyTorch's losses and parameters.
Modules with faults are refused, or exported with a note, in plain words.
"""
import os
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lib"))
sys.dont_write_bytecode = True
import penstock  # noqa: E402

ROWS, MICROBATCHES, STEPS = 8, 2, 5
done = []


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.GELU(),
                                    nn.BatchNorm1d(16), nn.Linear(16, 3))

    def forward(self, x, y):
        guess = self.layers(x)
        return nn.functional.mse_loss(guess, y), guess


def case(function):
    with tempfile.TemporaryDirectory() as folder:
        try:
            function(os.path.join(folder, "model.pt2"))
            done.append(True)
        except Exception as e:  # pylint: disable=broad-except
            print(f"{function.__name__}: {type(e).__name__}: {e}",
                  file=sys.stderr)
            done.append(False)


def eager(model, batches):
    """Returns the losses of training; microbatch after microbatch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        total = 0
        for part in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
            loss = model(*part)[0] / MICROBATCHES
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def windows():
    """Rows that overlap: windows of 6 numbers, 2 apart, in one storage."""
    torch.manual_seed(3)
    line = torch.randn(2 * STEPS * ROWS * MICROBATCHES + 8)
    rows = line.unfold(0, 6, 2)
    targets = line.as_strided((len(rows), 3), (2, 1), 2)
    n = ROWS * MICROBATCHES
    return [(rows[k * n:(k + 1) * n], targets[k * n:(k + 1) * n])
            for k in range(STEPS)]


def trains(path):
    torch.manual_seed(0)
    model = Model().train()
    notes = penstock.export(model, (torch.randn(ROWS, 6),
                                    torch.randn(ROWS, 3)), path, stages=2)
    assert notes == [], notes
    batches = windows()
    assert batches[0][0].stride() == (2, 1)
    for as_numpy in False, True:
        with penstock.Model(path, stages=2) as m:
            session = m.session(microbatches=MICROBATCHES, optimizer="sgd",
                                lr=.1, threads=1)
            losses = []
            for x, y in batches:
                if as_numpy:
                    x, y = x.numpy(), y.numpy()
                    x.flags.writeable = False
                else:
                    x = x.requires_grad_()
                losses.append(session.train_step(x, y).loss)
                x = x.requires_grad_(False) if not as_numpy else x
            state = {name: session.get(name, out=torch.empty_like(value))
                     for name, value in model.state_dict().items()}
            out = numpy.asarray(session.get("layers.0.weight"))
    wanted = eager(model, batches)
    numpy.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert losses[-1] != losses[0]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)
    assert (out == state["layers.0.weight"].numpy()).all()


def evaluates(path):
    torch.manual_seed(1)
    model = Model().train()
    x, y = torch.randn(ROWS, 6), torch.randn(ROWS, 3)
    penstock.export(model, (x, y), path)
    model.eval()
    with penstock.Model(path) as m:
        session = m.session(threads=1)
        loss = session.forward(x.t().contiguous().t(), y)
        guess = session.output(1, out=torch.empty(3, ROWS).t())
    wanted = model(x, y)
    numpy.testing.assert_allclose(loss, wanted[0].item(), rtol=1e-5)
    torch.testing.assert_close(guess, wanted[1], rtol=1e-5, atol=1e-6)


class Across(nn.Module):
    """Rows are dimension 1 of the first input."""
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.fc(x.t()), y)


def means(path):
    """The mean loss over any number of rows, each of them once."""
    torch.manual_seed(2)
    for model, dim in (Model().train(), 0), (Across(), 1):
        x, y = torch.randn(6, 50), torch.randn(50, 3)
        if dim == 0:
            x = x.t()
        rows = [x.split([n, 50 - n], dim)[0].clone() for n in range(50)]
        penstock.export(model, (rows[ROWS], y[:ROWS]), path)
        model.eval()
        with penstock.Model(path) as m:
            session = m.session(threads=1, microbatches=MICROBATCHES,
                                chunk=f"x={dim}")
            for n in 1, 3, ROWS, 2 * ROWS, 5 * ROWS + 7:
                part = rows[n], y[:n]
                wanted = model(*part)
                if dim == 0:  # loss and guess
                    wanted, _ = wanted
                numpy.testing.assert_allclose(session.evaluate(*part),
                                              wanted.item(), rtol=1e-5)


def refused(module, args, path, **options):
    try:
        penstock.export(module, args, path, **options)
    except penstock.Error as e:
        return e
    raise AssertionError("no error")


class Branches(nn.Module):
    def forward(self, x):
        return x.mean() if x.sum() > 0 else x.sum()


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x).mean()


def says_what_to_change(path):
    error = refused(Branches(), (torch.ones(2, 2),), path)
    assert error.id == "export" and "torch.where" in error.remedy, error
    error = refused(Bessel(), (torch.ones(2, 2),), path)
    assert "bessel_j0" in error.text and error.remedy, error
    x = torch.ones(ROWS, 3)
    notes = penstock.export(nn.Linear(3, 3).eval(), (x,), path)
    assert len(notes) == 2 and "eval mode" in notes[0] and \
        "no loss" in notes[1], notes
    notes = penstock.export(nn.Linear(3, 3), (x,), path, loss_fn="mse")
    assert not any("no loss" in note for note in notes), notes
    notes = penstock.export(nn.MSELoss(), (x, x), path)
    assert "one tensor" in notes[0], notes


def main():
    library = Path(sys.argv[1]).resolve().parents[1] / "lib"
    penstock.load(str(library / "libpenstock.so.0"))
    torch.set_num_threads(1)
    for function in trains, evaluates, means, says_what_to_change:
        case(function)
    print(f"{sum(done)} passed, {len(done) - sum(done)} failed")


main()
