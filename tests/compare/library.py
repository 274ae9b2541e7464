#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares penstock.py with PyTorch on PyTorch's own tensors.

    library.py PENSTOCK

penstock.export writes a model; sessions train it on tensors by DLPack, also on
windows that overlap in one storage, and have PyTorch's losses and parameters.
Modules with faults are refused, or exported with a note, in plain words. NumPy
and PyTorch share the memory of results, and what is read-only is not written.
Programs (penstock.Program) on PyTorch's storages do what eager mode does, and
so does the example on views of one array.

PENSTOCK_JAX: a Python with JAX, for tests/lib/python/with_jax.py; by default
this one.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
# The one file that the build makes of lib/python/.
sys.path.insert(0, str(Path(sys.argv[1]).resolve().parents[1] / "lib" /
                       "python"))
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


class Old:
    """An exporter of DLPack before 1.0, which has no flag for read-only."""
    def __init__(self, array, flags=None):
        self.array = array
        if flags is not None:
            self.flags = flags

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


def read_only(path):
    """What is read-only is refused as `out`, and has the old numbers."""
    x = torch.randn(ROWS, 6)
    penstock.export(nn.Linear(6, 3).train(), (x,), path, loss="none")
    with penstock.Model(path, loss="none") as m:
        session = m.session(optimizer="none", threads=1)
        weight = torch.from_dlpack(session.get("weight"))
        for out in (numpy.full((3, 6), 7, "f4"), Old(numpy.full(
                (3, 6), 7, "f4")), torch.full((3, 6), 7.)):
            kept = getattr(out, "array", out)
            if isinstance(out, numpy.ndarray):
                out.flags.writeable = False
            if isinstance(out, torch.Tensor):
                session.get("weight", out=out)
                assert (out == weight).all()
                continue
            try:
                session.get("weight", out=out)
                raise AssertionError("written")
            except penstock.Error as e:
                assert e.id == "library.tensor" and "read-only" in e.text, e
            assert (kept == 7).all()
        out = numpy.empty((3, 6), "f4")
        session.get("weight", out=Old(out, out.flags))
        assert (out == weight.numpy()).all()


def lends(_):
    """NumPy and PyTorch share the memory of results, which they keep; an error
    of theirs stays what it is."""
    for dtype, form in ((torch.float32, "f4"), (torch.float64, "f8"),
                        (torch.float16, "f2"), (torch.int64, "i8"),
                        (torch.bool, "?"), (torch.complex64, "c8"),
                        (torch.bfloat16, "u2"), (torch.uint8, "u1")):
        name = str(dtype).partition(".")[2]
        for shape in (3, 4), (), (0, 2):
            made = penstock.Tensor(name, shape)
            theirs = torch.from_dlpack(made)
            assert theirs.dtype == dtype and theirs.shape == shape
            numbers = numpy.asarray(made)
            assert numbers.dtype == form and numbers.shape == shape
            theirs.fill_(1)
            if dtype != torch.bfloat16:
                assert (numpy.from_dlpack(made) == 1).all()
                assert (numbers == 1).all()
            del made, numbers
            assert (theirs == 1).all()
    for take in torch.from_dlpack, numpy.from_dlpack:
        try:
            take(penstock.Tensor("float32", (3,))).reshape(2, 2)
        except (RuntimeError, ValueError) as e:
            assert "[2, 2]" in str(e) or "(2,2)" in str(e), e
        else:
            raise AssertionError("reshaped")


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, z, t):
        found = z * self.w
        far = torch.view_as_real(found - t)
        return (far * far).mean(), found


def complexes(path):
    """Complex arrays of PyTorch and NumPy, with gaps; gradients, results, and
    views of the session's memory, which neither package may write."""
    torch.manual_seed(5)
    wide = torch.randn(ROWS, 8, dtype=torch.complex64)
    z, t = wide[:, 1::2], torch.randn(ROWS, 4, dtype=torch.complex64)
    model = Complex()
    penstock.export(model, (z.contiguous(), t), path)
    for given in (z, t), (z.numpy(), t.numpy()):
        with penstock.Model(path) as m:
            session = m.session(optimizer="none", threads=1,
                                input_gradients="z")
            loss = session.forward(*given)
            guess = session.output(1, out=torch.empty(
                4, ROWS, dtype=torch.complex64).t())
            pairs = numpy.asarray(session.view(1))
            weight = session.view("w")
            assert not pairs.flags.writeable and weight.dtype == "complex64"
            assert (pairs.view("c8")[..., 0] == guess.numpy()).all()
            assert (numpy.asarray(weight) == model.w.detach().numpy()).all()
            session.train_step(*given)
            of_z = numpy.empty((ROWS, 4), "c8")
            session.input_gradient(0, out=of_z)
            of_w = session.gradient("w", out=torch.empty(
                4, dtype=torch.complex64))
            session.set("w", of_w)
            assert (numpy.asarray(weight) == of_w.numpy()).all()
        model.zero_grad()
        ours = z.clone().requires_grad_()
        wanted = model(ours, t)
        wanted[0].backward()
        numpy.testing.assert_allclose(loss, wanted[0].item(), rtol=1e-5)
        for got, want in ((guess, wanted[1]), (of_w, model.w.grad),
                          (torch.from_numpy(of_z), ours.grad)):
            torch.testing.assert_close(got, want.detach(), rtol=1e-5,
                                       atol=1e-6)


def case_storages(one):
    """The storages and tensors of a case of tests/golden/aliasing.json."""
    storages = {name: torch.tensor(s.get("values") or [0] * s.get("zeros", 0),
                                   dtype=getattr(torch, s["dtype"]))
                for name, s in one["storages"].items()}
    tensors = {}
    for name, t in one["tensors"].items():
        dtype = getattr(torch, t["dtype"])
        tensors[name] = storages[t["storage"]].view(dtype).as_strided(
            t["sizes"], t["strides"], t["offset"])
    return storages, tensors


def same_result(got, wanted, one, storages):
    place = None
    if wanted["storage"] != "new":
        place = storages[wanted["storage"]]
        begin = place.data_ptr() + wanted["offset"] * torch.from_dlpack(
            got).element_size()
        assert torch.from_dlpack(got).data_ptr() == begin, one["name"]
    assert (got.operand is None) == (place is None), one["name"]
    assert [got.dtype, [*got.shape], [*got.strides]] == \
        [wanted["dtype"], wanted["sizes"], wanted["strides"]], one["name"]
    torch.testing.assert_close(
        torch.from_dlpack(got).reshape(-1),
        torch.tensor(wanted["values"], dtype=getattr(torch, got.dtype)),
        rtol=1e-6, atol=0, equal_nan=True)


def run_case(one):
    """Calls a case's program, and compares what it leaves."""
    storages, tensors = case_storages(one)
    lr = one.get("sgd", {})
    options = {key.replace("-", "_"): n for key, n in lr.items()}
    with penstock.Program({key: one[key] for key in one if key != "storages"},
                          **(dict(options, optimizer="sgd") if lr else {})) \
            as program:
        whole = {name: storages[t["storage"]]
                 for name, t in one["tensors"].items() if name in one["args"]}
        used = {name: tensors[name] for name in whole}
        for new, wanted in zip(one.get("runs", [{}]),
                               one["expect"].get("returns", [[]]),
                               strict=True):
            for name, values in new.items():
                storages[name].copy_(torch.tensor(values))
            got = program.call(used, whole)
            assert len(got) == len(wanted), one["name"]
            for tensor, want in zip(got, wanted):
                same_result(tensor, want, one, storages)
        for name, values in one["expect"].get("grads", {}).items():
            assert program.gradient(name).view.cast("B").cast(
                "f").tolist() == values, one["name"]
    for name, values in one["expect"].get("storages", {}).items():
        if isinstance(values, dict):  # a large one
            assert storages[name].sum() == values["sum"]
            assert storages[name][-32:].tolist() == values["last_32"]
            continue
        wanted = torch.tensor(values, dtype=storages[name].dtype)
        torch.testing.assert_close(storages[name], wanted, rtol=1e-6, atol=0,
                                   equal_nan=True)


def suite(_):
    """The cases of aliasing whose numbers PyTorch gave, through Program."""
    with open(ROOT / "tests" / "golden" / "aliasing.json",
              encoding="utf-8") as file:
        cases = json.load(file)
    n = refused_by_name = 0
    for one in cases:
        # Leaves of operators before the call, and storages that resize.
        error = one["plan"].get("error") or one["plan"].get("or_error")
        if "before" in one or "returns" not in one["expect"] and not error:
            continue
        try:
            run_case(one)
            assert "error" not in one["plan"], one["name"]
            n += 1
        except penstock.Error as e:
            assert error == "refused" or error and error in e.text, \
                (one["name"], e)
            refused_by_name += 1
    assert n > 80 and refused_by_name > 8, (n, refused_by_name)


def example(path):
    """Checks that examples/python/windows.py prints the losses and the series
    that PyTorch computes."""
    steps, rows, width = 8, 64, 5
    closure = ROOT / "examples" / "fortran"
    env = dict(os.environ, PYTHONPATH=os.path.dirname(penstock.__file__),
               OMP_NUM_THREADS="1", LD_LIBRARY_PATH=os.path.dirname(LIBRARY),
               PYTHONDONTWRITEBYTECODE="1")

    def run(*words):
        return subprocess.run([sys.executable, *map(str, words)], check=True,
                              env=env, capture_output=True,
                              text=True).stdout.splitlines()

    said = run(ROOT / "examples" / "python" / "windows.py",
               closure / "closure.pt2", steps)
    k = torch.arange(steps * rows + width)
    series = ((k % 32 - 16).abs() + (k % 24 - 12).abs()) / 16
    head, tail = series[:-1], series[1:]
    scaled = tail * .5
    head.mul_(.5).add_(scaled)
    assert said[0] == "smoothed, the last three: " + " ".join(
        str(x) for x in tail[-3:].tolist()), said[0]
    series.unfold(0, width, 1)[:steps * rows].contiguous().numpy().tofile(
        path + ".stencil")
    series[width:].numpy().tofile(path + ".correction")
    wanted = run(closure / "export.py", "--train", path, steps)
    losses = [float(line.split()[-1]) for line in said[1:]]
    assert len(losses) == len(wanted) == steps
    numpy.testing.assert_allclose(losses, [float(x) for x in wanted],
                                  rtol=1e-5)


def with_jax(_):
    python = os.environ.get("PENSTOCK_JAX", sys.executable)
    ran = subprocess.run([python, ROOT / "tests/lib/python/with_jax.py", ROOT,
                          penstock.NAME if LIBRARY is None else LIBRARY],
                         check=False, capture_output=True, text=True)
    if ran.returncode == 77:
        print("left out JAX: it is not installed (PENSTOCK_JAX)")
    assert ran.returncode in (0, 77), ran.stderr
    assert ran.stderr == "", ran.stderr


LIBRARY = None


def main():
    global LIBRARY  # pylint: disable=global-statement
    LIBRARY = str(Path(sys.argv[1]).resolve().parents[1] / "lib" /
                  "libpenstock.so.0")
    penstock.load(LIBRARY)
    torch.set_num_threads(1)
    for function in (trains, evaluates, means, says_what_to_change, read_only,
                     lends, complexes, suite, example, with_jax):
        case(function)
    print(f"{sum(done)} passed, {len(done) - sum(done)} failed")


main()
