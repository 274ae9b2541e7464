#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks penstock.py without any package: python.py ROOT LIBRARY DRIVE.

The model is that of tests/golden/make/make_arrays.py, which printed PyTorch's
losses, scale and weight: its outputs add a number of its own to each element.
The losses are, bit by bit, those of a program in C (drive.c).
"""
import array
import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..",
                                "daemon"))
from patience import PATIENCE  # noqa: E402

BY_PYTORCH = [35.5286979675293, 32.007110595703125, 28.86567497253418,
              26.058847427368164]
SCALE, WEIGHT = 0.27950215339660645, 0.6808226704597473
OPTIONS = {"microbatches": 2, "optimizer": "sgd", "lr": 1e-3, "threads": 1,
           "ranks": 2}
ROWS = 4
SHAPES = {"a": (ROWS, 3, 4, 5), "b": (ROWS, 3, 4), "c": (ROWS, 3),
          "d": (ROWS,)}
FORMATS = {"a": "f", "b": "d", "c": "i", "d": "q"}


def places(shape):
    return itertools.product(*(range(size) for size in shape))


def inputs():
    """make_arrays.inputs, as flat arrays."""
    found = {}
    for name, shape in SHAPES.items():
        values = [sum((i + 1) * (d + 1) for d, i in enumerate(at))
                  for at in places(shape)]
        if FORMATS[name] in "fd":
            values = [v / 16 for v in values]
        found[name] = array.array(FORMATS[name], values)
    return found


def as_views(given):
    """The same as memoryviews with their shapes; d has gaps, backwards."""
    views = {name: memoryview(one).cast("B").cast(FORMATS[name], SHAPES[name])
             for name, one in given.items() if name != "d"}
    wide = array.array("q", [99] * (2 * ROWS))
    wide[::-2] = given["d"]
    return [views["a"], views["b"], views["c"], memoryview(wide)[::-2]]


def in_c(drive, model, given, folder):
    """Returns the losses of drive.c on the same arrays, step after step."""
    files = []
    for name, one in given.items():
        files.append(os.path.join(folder, name))
        with open(files[-1], "wb") as file:
            file.write(one.tobytes() * len(BY_PYTORCH))
    done = subprocess.run(
        [drive, "open", model, "stages=2", "session",
         *(f"{name}={value}" for name, value in OPTIONS.items()), "data",
         *files, "train", "arrays", str(len(BY_PYTORCH))], check=True,
        capture_output=True, text=True, timeout=PATIENCE)
    return [float.fromhex(loss) for loss in
            re.findall(r"^loss (\S+)$", done.stdout, re.M)]


def near(ours, theirs):
    return abs(ours / theirs - 1) < 1e-6


def fails(kind, call, *words, **options):
    """Returns the error that the call raises."""
    try:
        call(*words, **options)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} from {call}{words}")


def outputs(session, given):
    """Every output is an input and the decimal digits of the indices."""
    assert near(session.forward(*given.values()), BY_PYTORCH[0])
    assert near(session.evaluate(*given.values()), BY_PYTORCH[0])
    twice = [one * 2 for one in given.values()]
    assert near(session.evaluate(*twice), BY_PYTORCH[0])
    assert session.forward(*given.values()) > 0
    assert session.copies().in_place > 0 == session.copies().written
    for i, (name, one) in enumerate(given.items()):
        shape, number = SHAPES[name], array.array(FORMATS[name], one)
        view = session.output(i + 1)
        assert view.shape == shape and view.format == FORMATS[name]
        session.output(i + 1, out=number)
        for at, old, new in zip(places(shape), one, number):
            digits = "".join(str(k) for k in at[1:]) or "0"
            assert new == old + int(digits) == view[at], (name, at, old, new)
    fails(IndexError, session.output, 5)
    for number in bytes(8 * ROWS), memoryview(array.array(
            "q", [7] * ROWS)).toreadonly():
        error = fails(sys.modules["penstock"].Error, session.output, 4,
                      out=number)
        assert error.id == "library.tensor" and "read-only" in error.text
    assert number.tolist() == [7] * ROWS


def views(penstock, session, given):
    """Tensors in the session's memory: what output() and get() copy; no call
    writes to them."""
    weight = session.view("weight")
    assert weight.shape == (3, 4, 5) and weight.dtype == "float32"
    assert weight.view.readonly and weight == session.get("weight")
    session.set("weight", array.array("f", range(60)))
    assert weight[2, 3, 4] == 59
    assert session.view("at_d").dtype == "int64"
    session.evaluate(*given.values())
    assert fails(penstock.Error, session.view, 1).id == "library.order"
    session.forward(*given.values())
    for i, shape in enumerate(SHAPES.values()):
        assert session.view(i + 1).shape == shape
        assert session.view(i + 1) == session.output(i + 1)
    fails(KeyError, session.view, 5)
    fails(KeyError, session.view, "scales")
    old = session.get("scale")
    error = fails(penstock.Error, session.get, "scale",
                  out=session.view("scale"))
    assert error.id == "library.tensor" and "read-only" in error.text
    session.set("scale", session.view("scale"))
    assert session.get("scale") == old


def state(penstock, session, given, folder, losses):
    scale = session.get("scale")
    assert near(scale[0], SCALE), list(scale)
    weight = session.get("weight")
    assert weight.shape == (3, 4, 5) and near(weight[2, 0, 1], WEIGHT)
    assert session.get("at_d").format == "q"
    session.set("scale", array.array("f", [8]))
    assert session.get("scale", out=array.array("f", [0]))[0] == 8
    assert fails(penstock.Error, session.set, "scale",
                 array.array("d", [8])).id == "library.tensor"
    fails(KeyError, session.get, "scales")
    assert session.load(os.path.join(folder, "checkpoint")) == 2
    assert session.train_step(*given.values()).loss == losses[2]
    step = session.forward_backward(*given.values())
    assert (step.loss, step.step, step.applied) == (losses[3], 3, False)
    assert session.gradient("weight").shape == (3, 4, 5)
    grad = session.gradient("weight").cast("B").cast("f")
    assert any(grad)
    session.set_gradient("weight", array.array("f", [3 * g for g in grad]))
    session.set_gradient("weight", array.array("f", [-2 * g for g in grad]),
                         add=True)
    got = session.gradient("weight").cast("B").cast("f")
    assert all(abs(a - b) < 1e-6 for a, b in zip(got, grad))
    session.set_gradient("weight", session.gradient("weight"))
    session.set_gradient("weight", grad)
    assert session.gradient("weight").cast("B").cast("f") == grad
    assert fails(penstock.Error, session.input_gradient, 0).id == \
        "library.gradient"
    fails(IndexError, session.input_gradient, 4)
    step = session.update()
    assert (step.loss, step.step, step.applied) == (losses[3], 4, True)
    assert fails(penstock.Error, session.update).id == "library.order"
    assert fails(penstock.Error, session.set_gradient, "weight",
                 grad).id == "library.order"
    assert session.get("weight") == weight


def callbacks(penstock, session, given, folder, losses):
    """Inputs that a function writes: the steps after the checkpoint again."""
    rows = list(given.values())
    size = [len(one) // OPTIONS["microbatches"] for one in rows]
    kept = []

    def fill(step, microbatch, index, view):
        assert step == session_step and view.nbytes == \
            size[index] * rows[index].itemsize
        at = microbatch * size[index]
        view[:] = rows[index][at:at + size[index]]
        kept.append(view)

    def bad(*_):
        raise OverflowError("no data")

    session_step = session.load(os.path.join(folder, "checkpoint"))
    fails(OverflowError, session.train_step_fill, bad)
    for call in session.close, session.update:
        error = fails(penstock.Error, session.train_step_fill,
                      lambda *_, call=call: call())
        assert error.id == "library.busy", error
    assert session.train_step_fill(fill).loss == losses[2]
    session_step += 1
    fails(OverflowError, session.forward_backward_fill, bad)
    assert session.forward_backward_fill(fill).loss == losses[3]
    assert session.update().loss == losses[3]
    fails(ValueError, kept[0].tolist)


def swaps(penstock, root):
    """Replaces a module between two steps."""
    golden = os.path.join(root, "tests", "golden")
    given = array.array("q", [3, 1, 15, 9]), array.array("q", [0, 4, 2, 1])
    with penstock.Model(os.path.join(golden, "order.pt2"), stages=2) as model:
        session = model.session(lr=1e-2, threads=1)
        assert session.parameters == model.parameters
        session.train_step(*given)
        weight = session.get("up.weight")
        error = fails(penstock.Error, session.swap, "mids",
                      os.path.join(golden, "order-more.pt2"))
        assert error.id == "module.unknown", error
        session.swap("mid", os.path.join(golden, "order-more.pt2"),
                     at_call=0, state="keep")
        assert len(session.parameters) == len(model.parameters) + 4
        assert session.get("mid.2.weight").shape == (8, 8)
        assert session.get("up.weight") == weight
        fails(KeyError, session.get, "mid.weight")
        assert session.train_step(*given).step == 2


def overlaps(penstock, root):
    """Inputs that are overlapping parts of one buffer are those of copies."""
    line = array.array("f", [k % 7 / 7 for k in range(5 * 64 + 64)])
    parts = memoryview(line)[:320], memoryview(line)[100:164]
    losses = []
    for given in parts, tuple(array.array("f", one) for one in parts):
        with penstock.Model(os.path.join(root, "examples", "fortran",
                                         "closure.pt2"), stages=2) as model:
            session = model.session(microbatches=2, lr=1e-2, threads=1)
            losses.append([session.train_step(*given).loss for _ in range(3)])
    assert losses[0] == losses[1] and len(set(losses[0])) == 3, losses


WINDOWS = {"tensors": {"a": {"dtype": "float32"}, "b": {"dtype": "float32"}},
           "args": ["a", "b"],
           "ops": [{"op": "aten.mul_.Scalar", "args": ["%a", 10]},
                   {"op": "aten.add.Tensor", "args": ["%a", "%b"],
                    "out": ["sum"]},
                   {"op": "aten.slice.Tensor", "args": ["%b", 0, 1, 3],
                    "out": ["part"]}],
           "returns": ["sum", "part"]}


def programs(penstock):
    """The program of the page on windows of one array, and on rows of it that
    have gaps; what it leaves is valid while results are held."""
    line = array.array("f", range(1, 7))
    view = memoryview(line)
    with penstock.Program(WINDOWS) as program:
        total, part = program.call({"a": view[:4], "b": view[2:]})
        assert total.tolist() == [40, 60, 35, 46] and total.operand is None
        assert part.tolist() == [40, 5] and part.operand == "a"
        assert program.last == (16, 24, 1, 1, True, 24), program.last
        assert line.tolist() == [10, 20, 30, 40, 5, 6]
        assert program.operand("b").tolist() == [30, 40, 5, 6]
        part.view[1] = 50
        assert line[4] == 50 and total.tolist() == [40, 60, 35, 46]
        fails(BufferError, line.append, 7)  # results lend its memory
        wide = memoryview(array.array("f", range(12)))[::2]
        total, part = program.call({"b": wide[2:], "a": wide[:4]})
        assert total.tolist() == [40, 80, 48, 70] and part.strides == (2,)
        assert part.operand == "a" and part.tolist() == [60, 8]
        fails(BufferError, lambda: part.view)
        fails(BufferError, lambda: part[0])
        assert part.__array_interface__["strides"] == (8,)
        refuses(penstock, program, view)
        one = memoryview(array.array("f", [1, 2, 3, 4]))
        assert program.call({"a": one, "b": one})[0].tolist() == \
            [20, 40, 60, 80]
    assert line.tolist() == [10, 20, 30, 40, 50, 6] and part.tolist() == [60, 8]
    fails(penstock.Error, program.call, {})


def refuses(penstock, program, view):
    before = view.tolist()
    for given, name in (({"a": view[:4].toreadonly(), "b": view[2:]},
                         "alias.read-only"),
                        ({"a": view[:4]}, "alias.call"),
                        ({"a": view[:4], "b": view[2:5]}, "op.shape"),
                        ({"c": view, "a": view, "b": view}, "library.name")):
        error = fails(penstock.Error, program.call, given)
        assert error.id == name, error
    assert view.tolist() == before
    copy = memoryview(array.array("f", before))
    total, part = program.call({"a": copy[:4], "b": copy[2:].toreadonly()})
    assert total.tolist()[:2] == [10 * a + b for a, b in
                                  zip(before, [10 * b for b in before[2:4]])]
    assert part.operand == "a" and not part.readonly
    line = memoryview(array.array("f", before))
    _, part = program.call({"a": line[:4], "b": copy[2:].toreadonly()})
    assert part.operand == "b" and part.view.readonly
    fails(penstock.Error, program.call, {"a": part, "b": part})
    fails(penstock.Error, program.operand, "a")
    error = fails(penstock.Error, penstock.Program, "{", lr=1)
    assert error.id == "alias.text", error


def storages(penstock):
    """An operator reaches the whole storage; set_() and t_() move operands;
    leaves have gradients."""
    line = array.array("f", range(6))
    view = memoryview(line)
    text = {"tensors": {"x": {}}, "args": ["x"], "ops": [
        {"op": "aten.as_strided", "args": ["%x", [2], [4], 1], "out": ["y"]},
        {"op": "aten.zero_", "args": ["%y"]}], "returns": ["y"]}
    with penstock.Program(json.dumps(text)) as program:
        error = fails(penstock.Error, program.call, {"x": view[2:4]})
        assert line.tolist() == [*range(6)], error
        y, = program.call({"x": view[2:4]}, {"x": line})
        assert line.tolist() == [0, 0, 2, 3, 4, 0] and y.strides == (4,)
        assert y.operand == "x"
        # Strides say which bytes a storage has.
        backwards = view[3:6][::-1]
        error = fails(penstock.Error, program.call, {"x": view[3:4]},
                      {"x": backwards})
        assert line.tolist() == [0, 0, 2, 3, 4, 0], error
        fixed = memoryview(bytes(24)).cast("f")
        error = fails(penstock.Error, program.call, {"x": fixed[2:4]},
                      {"x": fixed})
        error = fails(penstock.Error, program.call, {"x": view[2:4]},
                      {"x": view.toreadonly()})
        assert line.tolist() == [0, 0, 2, 3, 4, 0], error
        program.call({"x": view[2:4]}, {"x": view[::-1]})
    # PyTorch refuses it: source and target have other numbers of dimensions.
    text = {"tensors": {"x": {}}, "args": ["x"], "returns": [], "ops": [
        {"op": "aten.unsqueeze", "args": ["%x", 0], "out": ["y"]},
        {"op": "aten.add_.Tensor", "args": ["%y", "%x"]}]}
    with penstock.Program(text) as program:
        program.call({"x": view})
        assert line.tolist() == [0, 0, 4, 6, 8, 0]
    text = {"tensors": {"x": {"requires_grad": True}}, "args": ["x"], "ops": [
        {"op": "aten.mul.Tensor", "args": ["%x", "%x"], "out": ["y"]},
        {"op": "aten.sum", "args": ["%y"], "out": ["loss"]}],
        "returns": ["loss"], "backward": True}
    with penstock.Program(text, optimizer="sgd", lr=.25) as program:
        loss, = program.call({"x": array.array("f", [1, 2, 3])})
        assert loss.shape == () and loss.tolist() == [14]
        assert program.gradient("x").tolist() == [2, 4, 6]
        assert program.operand("x").tolist() == [.5, 1, 1.5]
    text = {"tensors": {"x": {}}, "args": ["x"], "returns": ["t"],
            "ops": [{"op": "aten.t_", "args": ["%x"], "out": ["t"]}]}
    rows = memoryview(array.array("f", range(6))).cast("B").cast("f", [2, 3])
    with penstock.Program(text) as program:
        t, = program.call({"x": rows})
        x = program.operand("x")
        assert x.tolist() == t.tolist() and x.operand == t.operand == "x"
        assert x.shape == (3, 2) and x.strides == (1, 3)
        assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    # One array with two names is one tensor; two equal ones are two.
    text = {**text, "tensors": {"x": {}, "y": {}}, "args": ["x", "y"]}
    with penstock.Program(text) as program:
        for y, shape in (rows, (3, 2)), (rows[:], (2, 3)):
            program.call({"x": rows, "y": y})
            assert program.operand("x").shape == (3, 2)
            assert program.operand("y").shape == shape, shape


def program_threads(penstock):
    """Threads that use one program get their own numbers, or are refused."""
    text = {"tensors": {"x": {}, "y": {}}, "args": ["x", "y"],
            "returns": ["part", "twice"], "ops": [
                {"op": "aten.add_.Scalar", "args": ["%x", 1]},
                {"op": "aten.slice.Tensor", "args": ["%x", 0, 1, 3],
                 "out": ["part"]},
                {"op": "aten.mul.Scalar", "args": ["%x", 2],
                 "out": ["twice"]}]}
    program, got = penstock.Program(text), []

    def use(k):
        for _ in range(200):
            x, y = (array.array("f", [k] * n) for n in (4096, 4))
            given = {"y": y, "x": x} if k % 2 else {"x": x, "y": y}
            try:
                part, twice = program.call(given)
            except penstock.Error as e:
                if e.id != "library.busy":
                    got.append(False)
                continue
            got.append((part.operand, part.tolist(), twice.tolist()) ==
                       ("x", [k + 1] * 2, [2 * k + 2] * 4096))

    threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) > 50 and all(got), (len(got), got.count(False))
    program.close()


def page(root):
    """The program of docs/library.md trains `model.pt2`."""
    with open(os.path.join(root, "docs", "library.md"),
              encoding="utf-8") as file:
        text, = re.findall(r"```python\n(.*?)```", file.read(), re.S)
    text = text.replace("model.pt2", os.path.join(root, "examples", "fortran",
                                                  "closure.pt2"))
    printed = io.StringIO()
    names = {}
    with contextlib.redirect_stdout(printed):
        exec(text, names)  # pylint: disable=exec-used
    losses = [float(line) for line in printed.getvalue().splitlines()]
    assert len(losses) == 10 and losses[-1] < losses[0], losses
    assert names["weight"].shape == (16, 5)


def goes_back(penstock, path, given, folder):
    """A session that has gone back with load leaves no later checkpoints in
    the folder; those of another program it does not touch."""
    good, other = (os.path.join(folder, n) for n in ("good", "other"))

    def saved():
        return sorted(n for n in os.listdir(other) if n.startswith("step-"))

    def train(session, n):
        for _ in range(n):
            session.train_step(*given.values())

    with penstock.Model(path, stages=2) as model, \
            model.session(**OPTIONS) as session:
        train(session, 1)
        session.save(good)
        for _ in range(2):
            train(session, 1)
            session.save(other)
        assert session.load(good) == 1
        train(session, 1)
        session.save(other)
        assert saved() == ["step-00000002"], saved()
        assert os.listdir(os.path.join(other, "former-1")) == ["step-00000003"]
    with penstock.Model(path, stages=2) as model, \
            model.session(**OPTIONS) as late:
        assert late.load(other) == 2
        with penstock.Model(path, stages=2) as same, \
                same.session(**OPTIONS) as quick:
            assert quick.load(other) == 2
            train(quick, 2)
            quick.save(other)
        for n in 1, 2:  # before and after the other one's step
            train(late, n)
            error = fails(penstock.Error, late.save, other)
            assert error.id == "checkpoint.other-run", error
            assert saved() == ["step-00000002", "step-00000004"], saved()


def two_folders(penstock, path, given, folder):
    """A session knows the checkpoints of each folder: in another one it leaves
    a later checkpoint that another program has made meanwhile."""
    high, low = (os.path.join(folder, n) for n in ("high", "low"))

    def train(session, n):
        for _ in range(n):
            session.train_step(*given.values())

    with penstock.Model(path, stages=2) as model, \
            model.session(**OPTIONS) as session:
        train(session, 1)
        session.save(low)
        train(session, 4)
        session.save(high)
    with penstock.Model(path, stages=2) as model, \
            model.session(**OPTIONS) as late:
        assert late.load(high) == 5 and late.load(low) == 1
        with penstock.Model(path, stages=2) as same, \
                same.session(**OPTIONS) as quick:
            assert quick.load(low) == 1
            train(quick, 2)
            quick.save(low)
        train(late, 1)
        error = fails(penstock.Error, late.save, low)
        assert error.id == "checkpoint.other-run", error
        assert not os.path.exists(os.path.join(low, "former-1"))
        late.load(high)
        train(late, 1)
        late.save(high)


class Lazy:
    """Stands in for a tensor of PyTorch with the negative or conjugate bit:
    DLPack shows its memory, whose values are not the tensor's."""

    def __init__(self, bit, memory, values):
        self.bit, self.memory, self.values = bit, memory, values

    def is_neg(self):
        return self.bit == "neg"

    def is_conj(self):
        return self.bit == "conj"

    def resolve_neg(self):
        return self.values if self.is_neg() else self

    def resolve_conj(self):
        return self.values if self.is_conj() else self

    def __buffer__(self, flags):
        return memoryview(self.memory)

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0


def lazy_bits(penstock, session):
    """Tensors of PyTorch are read as the values that they are; calls that use
    their memory refuse them by name."""
    name, n = "weight", 60
    info = session._named(name)
    right = array.array("f", [3] * n)
    for bit, word in ("neg", "negative"), ("conj", "conjugate"):
        lazy = Lazy(bit, penstock.Tensor("float32", info.shape), right)
        session.set(name, lazy)
        found = array.array("f", [0] * n)
        session.get(name, out=found)
        assert found == right, (bit, found[:3])
        with penstock.Program({
                "tensors": {"a": {}}, "args": ["a"], "returns": [],
                "ops": [{"op": "aten.zero_", "args": ["%a"]}]}) as program:
            for call, words, options, array_name in (
                    (session.get, [name], {"out": lazy}, name),
                    (program.call, [{"a": lazy}], {}, "a"),
                    (program.call, [{"a": right}], {"storages": {"a": lazy}},
                     "a")):
                error = fails(penstock.Error, call, *words, **options)
                assert error.id == "library.tensor" and error.remedy == \
                    f"Give its resolve_{bit}(), a copy without that bit.", error
                assert f"'{array_name}' has PyTorch's {word} bit" in \
                    error.text, error.text
        assert right == array.array("f", [3] * n)


class MaskedArray:
    """Stands in for a masked array of NumPy, which this test does not need."""
    __module__ = "numpy.ma"

    def __init__(self, memory):
        self.memory = memory

    def __buffer__(self, flags):
        return memoryview(self.memory)

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0


class OwnMask(MaskedArray):
    """A class of a user's, derived from it."""


def masks(penstock, session, given):
    """Masked arrays are refused by name wherever arrays are given."""
    right = penstock.Tensor("float32", session._named("weight").shape)
    whole, name = [*given.values()], session.inputs[0].name
    with penstock.Program({
            "tensors": {"a": {}}, "args": ["a"], "returns": [],
            "ops": [{"op": "aten.zero_", "args": ["%a"]}]}) as program:
        for kind in MaskedArray, OwnMask:
            odd = kind(right)
            for call, words, options, array_name in (
                    (session.train_step, [odd, *whole[1:]], {}, name),
                    (session.forward, [odd, *whole[1:]], {}, name),
                    (session.set, ["weight", odd], {}, "weight"),
                    (session.get, ["weight"], {"out": odd}, "weight"),
                    (program.call, [{"a": odd}], {}, "a"),
                    (program.call, [{"a": right}], {"storages": {"a": odd}},
                     "a")):
                error = fails(penstock.Error, call, *words, **options)
                assert error.id == "library.tensor" and error.remedy, error
                assert f"'{array_name}' is a masked array of NumPy" in \
                    error.text, error.text


def masks_of_numpy(penstock):
    """NumPy's own class is found, too."""
    try:
        import numpy
    except ImportError:
        return
    with penstock.Program({"tensors": {"a": {}}, "args": ["a"], "ops": [
            {"op": "aten.zero_", "args": ["%a"]}], "returns": []}) as program:
        error = fails(penstock.Error, program.call, {
            "a": numpy.ma.masked_array(numpy.ones(2, "f"), [True, False])})
        assert "'a' is a masked array of NumPy" in error.text, error.text


def refusals(penstock, path, model, session, given):
    given = list(given.values())
    fails(TypeError, session.train_step, *given[:3])
    error = fails(penstock.Error, session.train_step, *given[:3],
                  array.array("q", [1] * 5))
    assert error.id == "library.tensor" and "'d'" in error.text
    assert error.status == -5 and error.remedy
    fails(TypeError, session.train_step, *given[:3], "1234")
    fails(TypeError, session.train_step, *given[:3],
          array.array("u", "1234"))
    assert fails(penstock.Error, session.train_step, *given[:3],
                 None).id == "library.tensor"
    assert fails(penstock.Error, model.session).id == "library.order"
    session.close()
    assert fails(penstock.Error, model.session, data="x").id == \
        "library.option"
    for call, words in ((session.forward, given), (session.save, ["x"]),
                        (session.load, ["x"]), (session.swap, ["x", "x"])):
        assert fails(penstock.Error, call, *words).id == "library.argument"
    # A session is closed with its model, also after another one's second close.
    again = penstock.Model(path, stages=2)
    first = again.session(**OPTIONS)
    first.close()
    second = again.session(**OPTIONS)
    first.close()
    again.close()
    assert fails(penstock.Error, second.forward, *given).id == \
        "library.argument"


def nul(penstock, session, path, folder):
    """A text with a NUL is refused, and not cut there."""
    for call, words in ((session.save, [os.path.join(folder, "nul\0x")]),
                        (session.load, [os.path.join(folder, "nul\0x")]),
                        (session.swap, ["", path + "\0x"]),
                        (session.swap, ["\0x", path]),
                        (penstock.Model, [path + "\0x"])):
        fails(ValueError, call, *words)
    fails(ValueError, penstock.Model, path, stages="2\0x")
    assert not os.path.exists(os.path.join(folder, "nul"))


def main():
    root, library, drive = (os.path.abspath(word) for word in sys.argv[1:])
    path = os.path.join(root, "tests", "golden", "arrays.pt2")
    sys.path.insert(0, os.path.join(os.path.dirname(library), "python"))
    sys.dont_write_bytecode = True
    import penstock

    assert penstock.load(library) == "0.1.0"
    said = []
    penstock.Model(os.path.join(root, "tests", "golden", "tiny.pt2"),
                   message=said.append).close()
    assert len(said) == 1 and "spare.weight" in said[0], said
    given = inputs()
    with tempfile.TemporaryDirectory() as folder, \
            penstock.Model(path, stages=2) as model:
        assert [i.name for i in model.inputs] == [*SHAPES]
        assert model.inputs[1].dtype == "float64" and \
            model.inputs[1].shape == (2, 3, 4)
        assert [(p.name, p.trained) for p in model.parameters] == \
            [("weight", True), ("scale", True)]
        session = model.session(**OPTIONS)
        assert [i.shape for i in session.inputs] == [*SHAPES.values()]
        assert session.nbytes > 0
        module, = model.modules()
        assert (module.name, module.type, module.parameters, module.stages) \
            == ("", "__main__.Arrays", 61, (0, 1)), module
        outputs(session, given)
        losses = []
        for k, wanted in enumerate(BY_PYTORCH):
            step = session.train_step(
                *(as_views(given) if k % 2 else given.values()))
            assert step.step == k + 1 and step.applied and step.lr == 1e-3
            assert near(step.loss, wanted), (k, step)
            losses.append(step.loss)
            if k == 1:
                session.save(os.path.join(folder, "checkpoint"))
        assert losses == in_c(drive, path, given, folder), losses
        state(penstock, session, given, folder, losses)
        callbacks(penstock, session, given, folder, losses)
        views(penstock, session, given)
        goes_back(penstock, path, given, folder)
        two_folders(penstock, path, given, folder)
        nul(penstock, session, path, folder)
        lazy_bits(penstock, session)
        masks(penstock, session, given)
        refusals(penstock, path, model, session, given)
    swaps(penstock, root)
    overlaps(penstock, root)
    programs(penstock)
    storages(penstock)
    program_threads(penstock)
    page(root)
    assert fails(penstock.Error, penstock.Model,
                 "/nowhere.pt2").remedy
    assert "numpy" not in sys.modules and "torch" not in sys.modules
    masks_of_numpy(penstock)


main()
