# SPDX-License-Identifier: Apache-2.0
"""Writes aliases.json into tests/golden: programs in the format of
tests/alias/README.md, with their results in eager PyTorch.

Needs torch >= 2.9; rerun to add programs. Eager PyTorch has no bases, so
`bases` is given here. Programs that PyTorch refuses have a word of penstock's
error message."""
import json
import os

import torch

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DTYPES = {str(t).split(".")[1]: t for t in (
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.bfloat16, torch.float16)}
ONE_TO_12 = [float(i) for i in range(1, 13)]


def window(spec, storages, dtypes):
    name, sizes, strides, offset, *dtype = spec
    dtype = dtype[0] if dtype else dtypes[name]
    ret = torch.tensor([], dtype=DTYPES[dtype])
    ret.set_(storages[name].untyped_storage(), offset, sizes, strides)
    return dtype, ret


def value(arg, live):
    if isinstance(arg, list):
        return [value(a, live) for a in arg]
    if not isinstance(arg, str):
        return arg
    return live[arg[1:]] if arg[0] == "%" else DTYPES.get(arg, arg)


def call(op, live):
    name, args, out, *more = op
    more = dict(more[0]) if more else {}
    kwargs = {k: v for k, v in more.items() if k not in ("no_grad", "stage")}
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    with torch.set_grad_enabled(not more.get("no_grad", False)):
        results = op(*value(args, live),
                     **{k: value(v, live) for k, v in kwargs.items()})
    if not isinstance(results, (list, tuple)):
        results, out = [results], [out]
    live.update(zip(out, results))
    ret = {"op": f"aten.{name}", "args": args,
           "out": out if isinstance(out, list) else [out]}
    if kwargs:
        ret["kwargs"] = kwargs
    ret.update({k: v for k, v in more.items() if k not in kwargs})
    return ret


def numbers(t):
    return t.detach().reshape(-1).tolist()


def geometry(t):
    return {"offset": t.storage_offset(), "sizes": list(t.shape),
            "strides": list(t.stride())}


def case(name, storages, tensors, ops, returns, bases=None, args=None,
         before=(), leaves=(), sgd=None, error=None, runs=None):
    """Returns one program. tensors: name: (storage, sizes, strides, offset[,
    dtype]); ops: (operator, arguments, names of results[, keywords])."""
    made = {n: torch.tensor(v, dtype=DTYPES[d])
            for n, (d, v) in storages.items()}
    dtypes = {n: d for n, (d, _) in storages.items()}
    owner = {s.untyped_storage().data_ptr(): n for n, s in made.items()}
    live, listed = {}, {}
    args = list(tensors) if args is None else args
    for n, spec in tensors.items():
        dtype, live[n] = window(spec, made, dtypes)
        listed[n] = {"storage": spec[0], "dtype": dtype, **geometry(live[n])}
        if n in leaves:
            listed[n]["requires_grad"] = True
            live[n] = live[n].detach().requires_grad_()
    ret = {"name": name, "text": "eager", "storages": {
        n: {"dtype": d, "values": v} for n, (d, v) in storages.items()},
        "tensors": listed, "args": args, "returns": returns, "plan": {}}
    if before:
        ret["before"] = [call(o, live) for o in before]
    if error is not None:
        ret["plan"]["error"] = error
    if bases is not None:
        ret["plan"]["bases"] = bases
    was = {n: geometry(live[n]) for n in args}
    results = []
    if runs is not None:
        ret["runs"] = runs
    for run in [{}] if runs is None else runs:
        if results:  # the second run reads the values of the first one
            live = {n: live[n] for n in tensors}
        for n, v in run.items():
            made[n].copy_(torch.tensor(v, dtype=made[n].dtype))
        for i, n in enumerate(args):
            live[str(i)] = live[n]
        try:
            ret["ops"] = [call(o, live) for o in ops]
        except RuntimeError:
            assert error is not None, name
            ret["ops"] = [{"op": f"aten.{o[0]}", "args": o[1],
                           "out": [o[2]]} for o in ops]
            ret["expect"] = {}
            return ret
        results.append([{
            "dtype": str(t.dtype).split(".")[1], **geometry(t),
            "storage": owner.get(t.untyped_storage().data_ptr(), "new"),
            "values": numbers(t)} for t in (live[n] for n in returns)])
    assert error is None or not error.startswith("eager"), name
    expect = ret["expect"] = {"returns": results}
    if leaves:
        ret["backward"] = True
        try:
            live[returns[0]].backward()
        except RuntimeError:  # a tensor that backward needs was written
            assert error is not None, name
            ret["expect"] = {}
            return ret
        expect["grads"] = {n: numbers(live[n].grad) for n in leaves
                           if live[n].grad is not None}
    if sgd is not None:
        ret["sgd"] = sgd
        torch.optim.SGD([live[n] for n in leaves], **sgd).step()
        expect["after_step"] = {n: numbers(live[n]) for n in leaves
                                if live[n].grad is not None}
    expect["storages"] = {n: s.tolist() for n, s in made.items()}
    moved = {n: geometry(live[n]) for n in args if geometry(live[n]) != was[n]}
    if moved:
        expect["geometry"] = moved
    return ret


def floats(n=12):
    return {"s": ("float32", ONE_TO_12[:n])}


def bits():
    """Yields programs with view(dtype) of another element size, which is a
    view of memory, too."""
    row = {"a": ("s", [4], [1], 2)}
    fill = ("fill_.Scalar", ["%v", 0], "f")
    yield case("larger", floats(), row,
               [("view.dtype", ["%a", "int64"], "v"), fill], ["v", "a"], 0)
    yield case("smaller", floats(), {"a": ("s", [4], [1], 3)},
               [("view.dtype", ["%a", "int16"], "v"), fill], ["v", "a"], 0)
    yield case("smaller-rows", floats(), {"a": ("s", [3, 2], [4, 1], 0)},
               [("view.dtype", ["%a", "int16"], "v"), fill], ["v", "a"], 0)
    yield case("larger-rows", floats(), {"a": ("s", [3, 2], [4, 1], 2)},
               [("view.dtype", ["%a", "int64"], "v"),
                ("select.int", ["%v", 0, 1], "r"),
                ("fill_.Scalar", ["%r", 0], "f")], ["v", "r", "a"], 0)
    yield case("part-of-an-element", floats(), row,
               [("view.dtype", ["%a", "int8"], "v"),
                ("slice.Tensor", ["%v", 0, 5, 11], "w"),
                ("fill_.Scalar", ["%w", 0], "f"),
                ("mul_.Scalar", ["%a", 2.], "m")], ["w", "a"], 0)
    yield case("written-through-both", floats(), row,
               [("view.dtype", ["%a", "int64"], "v"), fill,
                ("add_.Scalar", ["%a", 1.], "b"),
                ("clone", ["%v"], "c")], ["c", "v", "a"], 0)
    yield case("of-a-new-tensor", floats(), row,
               [("mul.Scalar", ["%a", 1.], "y"),
                ("view.dtype", ["%y", "int64"], "v"), fill,
                ("sum", ["%y"], "z")], ["z", "v"], 0)
    yield case("read", floats(), row,
               [("view.dtype", ["%a", "int64"], "v"),
                ("clone", ["%v"], "c")], ["c", "v"], 0)
    yield case("back", floats(), row,
               [("view.dtype", ["%a", "int64"], "v"),
                ("view.dtype", ["%v", "float32"], "w"),
                ("mul_.Scalar", ["%w", 2.], "m")], ["w", "v", "a"], 0)


def beyond():
    """Yields programs with numbers that a dtype cannot hold: they wrap before
    the operator is computed."""
    x = {"x": ("uint8", [0, 1, 3, 7, 128, 200, 254, 255])}
    y = {"x": ("int8", [0, 1, 3, 7, -128, -56, -2, 127])}
    two = [("clamp", ["%x", -1], {}), ("clamp", ["%x", None, -1], {}),
           ("clamp_min", ["%x", -1], {}), ("eq.Scalar", ["%x", -1], {}),
           ("ge.Scalar", ["%x", -1], {}), ("remainder.Scalar", ["%x", -1], {}),
           ("div.Scalar_mode", ["%x", -1], {"rounding_mode": "floor"}),
           ("fmod.Scalar", ["%x", -1], {}), ("threshold", ["%x", -1, 3], {}),
           ("isin.Tensor_Scalar", ["%x", -1], {}),
           ("searchsorted.Scalar", ["%x", -1], {}),
           ("bitwise_right_shift.Tensor_Scalar", ["%x", -1], {}),
           ("maximum", ["%x", "%z"], {}), ("fmin", ["%z", "%x"], {}),
           ("lt.Tensor", ["%x", "%z"], {}), ("floor_divide", ["%x", "%z"], {}),
           ("pow.Tensor_Tensor", ["%x", "%z"], {}),
           ("logical_and", ["%x", "%z"], {}), ("gcd", ["%x", "%z"], {}),
           ("lcm", ["%x", "%z"], {}), ("clamp.Tensor", ["%x", "%z"], {})]
    for storages, number in ((x, -1), (x, 511), (y, 200), (y, -256)):
        dtype = storages["x"][0]
        tensors = {"x": ("x", [8], [1], 0), "z": ("z", [], [], 0)}
        storages = dict(storages, z=("int64", [number]))
        for op, args, kwargs in two:
            args = [number if a == -1 else a for a in args]
            try:
                yield case(f"{op}-{dtype}-{number}", storages, tensors,
                           [(op, args, "y", kwargs)], ["y"], 0)
            except AssertionError: # "cannot be converted without overflow"
                continue


def offsets():
    """Yields programs with as_strided, which counts its offset from the start
    of the caller's storage."""
    row = {"a": ("s", [4], [1], 4)}
    add = ("add_.Scalar", ["%v", 100.], "x")
    yield case("own", floats(), row,
               [("as_strided", ["%a", [2], [1], 4], "v"), add], ["v", "a"], 0)
    yield case("before", floats(), row,
               [("as_strided", ["%a", [2], [1], 0], "v"), add], ["v", "a"], 0)
    yield case("behind", floats(), row,
               [("as_strided", ["%a", [2], [1], 9], "v"),
                ("clone", ["%v"], "c")], ["v", "c"], 0)
    yield case("longer", floats(), row,
               [("as_strided", ["%a", [6], [1]], "v"), add], ["v", "a"], 0)
    yield case("in-place", floats(), row,
               [("as_strided_", ["%a", [2, 2], [1, 2], 3], "v"), add],
               ["v", "a"], 0)
    yield case("of-a-view", floats(), row,
               [("slice.Tensor", ["%a", 0, 1, 4], "w"),
                ("as_strided", ["%w", [2], [1]], "v"), add], ["v", "a"], 0)
    yield case("on-a-base", floats(),
               {"b": ("s", [4], [1], 1), "a": ("s", [4], [1], 2)},
               [("as_strided", ["%a", [2], [1], 3], "v"), add],
               ["v", "a", "b"], 1)
    yield case("reaches-another", floats(),
               {"b": ("s", [2], [1], 0), "a": ("s", [4], [1], 2)},
               [("as_strided", ["%a", [2], [1], 1], "v"), add,
                ("clone", ["%b"], "c")], ["v", "a", "c"], 1)
    yield case("near", {"s": ("int8", list(range(1, 9)))},
               {"a": ("s", [4], [1], 4), "b": ("s", [2], [1], 2)},
               [("as_strided", ["%a", [3], [2], 1], "v"),
                ("mul_.Scalar", ["%b", 3], "x"), ("clone", ["%v"], "c")],
               ["c", "v"], 1)
    # b lies within the range of a, but between its elements.
    for dtype in ("float32", "int32"):
        yield case(f"gap-{dtype}", floats(),
                   {"a": ("s", [3], [2], 2), "b": ("s", [1], [1], 3, dtype)},
                   [("mul_.Scalar", ["%b", 3], "x"),
                    ("as_strided", ["%a", [4], [1], 2], "v"),
                    ("clone", ["%v"], "c")], ["c", "v"], 1)
    later = {"stage": 1}
    for name, made in [("cut", ("slice.Tensor", ["%y", 0, 2, 8], "v")),
                       ("cut-behind-gaps",
                        ("slice.Tensor", ["%y", 0, 2, 9, 2], "v"))]:
        yield case(name, floats(), {"a": ("s", [12], [1], 0)},
                   [("mul.Scalar", ["%a", 2.], "y"), made,
                    ("as_strided", ["%v", [2], [1], 4], "z", later),
                    ("clone", ["%z"], "c", later)], ["c"], 0,
                   error=None if name == "cut" else "no cut")
    yield case("cut-view", floats(), {"a": ("s", [], [], 2)},
               [("as_strided", ["%a", [], [], 0], "v"),
                ("copy_", ["%v", "%v"], "x", later),
                ("mul_.Scalar", ["%a", -2.], "y", later)], ["v", "a"], 0)
    yield case("scatter", floats(),
               {"a": ("s", [4], [1], 4), "u": ("s", [2], [2], 0)},
               [("as_strided_scatter", ["%a", "%u", [2], [1], 5], "v")],
               ["v"], 0)
    yield case("beyond-the-storage", floats(), row,
               [("as_strided", ["%a", [4], [1], 0], "v"), add], ["v"], 0,
               runs=[{}, {"s": ONE_TO_12}])
    yield case("unaligned", floats(), {"a": ("s", [4], [1], 1)},
               [("view.dtype", ["%a", "int64"], "v")], ["v"],
               error="aten.view.dtype")
    yield case("aligned-within", floats(), {"a": ("s", [4], [1], 1)},
               [("slice.Tensor", ["%a", 0, 1, 3], "w"),
                ("view.dtype", ["%w", "int64"], "v"),
                ("fill_.Scalar", ["%v", 0], "f")], ["v", "a"], 0)
    yield case("two-sizes", {"s": ("int64", list(range(6)))},
               {"a": ("s", [3], [1], 1), "b": ("s", [3], [2], 3, "float32")},
               [("fill_.Scalar", ["%a", 7], "f"), ("add_.Scalar", ["%b", 1.],
                                                   "g"),
                ("clone", ["%a"], "c")], ["a", "b", "c"], 1)


def before():
    """Yields programs whose caller makes some operands from tensors and
    leaves."""
    w = {"w": ("float32", ONE_TO_12[:6])}
    leaf = {"w": ("w", [2, 3], [3, 1], 0)}
    total = ("sum", ["%q"], "loss")
    quiet = {"no_grad": True}
    row = ("select.int", ["%w", 0, 0], "r")
    twice = ("mul_.Scalar", ["%r", 2.], "x", quiet)
    yield case("view-of-a-leaf", w, leaf,
               [twice, ("mul.Tensor", ["%r", "%r"], "q"), total],
               ["loss", "r"], 0, ["r"], [row], ["w"])
    yield case("view-and-leaf", w, leaf,
               [twice, ("mul.Tensor", ["%w", "%w"], "q"), total],
               ["loss", "w", "r"], 1, ["r", "w"], [row], ["w"])
    yield case("detached", w, leaf,
               [("mul_.Scalar", ["%r", 2.], "x"),
                ("mul.Tensor", ["%w", "%w"], "q"), total],
               ["loss"], 1, ["r", "w"], [("detach", ["%w"], "r")], ["w"])
    yield case("view-with-history", w, leaf,
               [("mul_.Scalar", ["%r", 2.], "x"), ("sum", ["%r"], "loss")],
               ["loss"], error="E_LEAF", args=["r"], before=[row],
               leaves=["w"])
    both = dict(floats(), **w)
    tensors = dict(leaf, a=("s", [3], [1], 1), b=("s", [3], [1], 2))
    made = ("mul.Scalar", ["%w", 1.], "m")
    add = ("add_.Scalar", ["%v", 1.], "x")
    square = ("mul.Tensor", ["%m", "%m"], "q")
    part = ("slice.Tensor", ["%a", 0, 0, 2], "v")
    yield case("view-meets-an-operand", both, tensors,
               [add, square, total, ("clone", ["%b"], "c")],
               ["loss", "v", "c"], 1, ["v", "m", "b"], [made, part], ["w"])
    yield case("view-alone", both, tensors, [add, square, total],
               ["loss", "v"], 0, ["v", "m"], [made, part], ["w"])
    yield case("hidden", both, tensors,
               [("add_.Scalar", ["%b", 1.], "x"),
                ("mul.Tensor", ["%n", "%n"], "q"), total], ["loss"], 0,
               ["n", "b"], [made, ("add.Tensor", ["%m", "%a"], "n")], ["w"])
    yield case("written-before", both, tensors,
               [("add_.Scalar", ["%t", 1.], "x"), square, total], ["loss"], 1,
               ["t", "m"], [made, ("mul_.Scalar", ["%m", 3.], "y"),
                            ("t", ["%m"], "t")], ["w"])


def leaves():
    """Yields programs with gradients, which are contiguous, and optimizer
    steps, which reach the caller's storage."""
    w = {"w": ("float32", ONE_TO_12)}
    total = ("sum", ["%q"], "loss")
    rate = {"lr": .25, "weight_decay": .5}
    weigh = [("mul.Tensor", ["%w", "%f"], "q"), total]

    def plain(name, window, factor, **more):
        f = {"f": ("float32", [float(i * i) for i in range(12)])}
        return case(name, dict(w, **f), {"w": ("w", *window), "f": factor},
                    weigh, ["loss"], 0, leaves=["w"], **more)
    square = ("f", [2, 3], [3, 1], 0)
    yield plain("transposed", ([2, 3], [1, 2], 0), square, sgd=rate)
    yield plain("with-gaps", ([2, 3], [4, 1], 2), square, sgd=rate)
    yield plain("shifted", ([2, 3], [3, 1], 5), square, sgd=rate)
    yield plain("expanded", ([3, 4], [0, 1], 2), ("f", [3, 4], [4, 1], 0))
    yield case("views-of-expanded", w, {"w": ("w", [2, 3], [1, 0], 1)},
               [("t", ["%w"], "t"), ("select.int", ["%t", 0, 1], "r"),
                ("clone", ["%t"], "c"), ("contiguous", ["%c"], "d"),
                ("fill_.Scalar", ["%c", 2.], "x"),
                ("mul.Tensor", ["%w", "%w"], "q"), total],
               ["loss", "t", "r", "c", "d"], 0, leaves=["w"])
    yield plain("one", ([], [], 3), square, sgd={"lr": 1.})
    quiet = {"no_grad": True}
    yield case("step-from-what-is-written", w, {"w": ("w", [3], [1], 2)},
               [("mul_.Scalar", ["%w", 10.], "x", quiet),
                ("mul.Tensor", ["%w", "%w"], "q"), total], ["loss"], 0,
               leaves=["w"], sgd=rate)
    yield case("one-storage", w,
               {"w": ("w", [3], [1], 0), "v": ("w", [3], [1], 3)},
               [("mul.Tensor", ["%w", "%v"], "q"), total], ["loss"], 0,
               leaves=["w", "v"], sgd=rate)
    yield case("view-is-returned", w, {"w": ("w", [2, 3], [1, 2], 1)},
               [("t", ["%w"], "y"), ("mul.Tensor", ["%w", "%w"], "q"), total],
               ["loss", "y", "w"], 0, leaves=["w"])


def names():
    """Yields programs in which one tensor has two names, or a result is the
    operand itself."""
    a = {"a": ("s", [3, 4], [4, 1], 0)}
    two = ["a", "a"]
    yield case("turned", floats(), a, [("t_", ["%0"], "x"),
                                       ("clone", ["%1"], "c")],
               ["c", "1"], 0, two)
    yield case("turned-and-added", floats(), a,
               [("t_", ["%0"], "x"), ("sum.dim_IntList", ["%a", [0]], "r"),
                ("add_.Tensor", ["%1", "%r"], "y", {"alpha": 2.}),
                ("mul_.Scalar", ["%0", 2.], "z")], ["0", "1"], 0, two)
    yield case("squeezed", floats(), {"a": ("s", [3, 1], [1, 1], 0)},
               [("squeeze_", ["%0"], "x"), ("mul.Scalar", ["%1", 2.], "c")],
               ["c"], 0, two)
    yield case("flat-then-unsqueezed", floats(), {"a": ("s", [4], [1], 2)},
               [("unsqueeze_", ["%a", 0], "x"),
                ("flatten.using_ints", ["%a"], "v"),
                ("add_.Scalar", ["%v", 1.], "y")], ["v", "a"], 0)


def strides():
    """Yields programs whose new results must have PyTorch's strides, since a
    later reshape depends on these."""
    x = {"x": ("s", [2, 3], [1, 2], 3), "y": ("s", [2, 3], [3, 1], 0),
         "m": ("m", [2, 3], [1, 2], 0), "i": ("i", [2, 3], [1, 2], 0),
         "r": ("s", [3], [2], 0), "d": ("s", [2], [3], 0)}
    data = dict(floats(), m=("bool", [True, False] * 3),
                i=("int64", [1, 0, 1, 0, 0, 1]))
    ops = [("zeros_like", ["%x"]), ("full_like", ["%x", 3.]),
           ("to.dtype", ["%x", "float64"]), ("type_as", ["%x", "%i"]),
           ("flip", ["%x", [1]]), ("fliplr", ["%x"]),
           ("masked_fill.Scalar", ["%x", "%m", 1.]),
           ("pow.Scalar", [2., "%x"]), ("lift_fresh_copy", ["%x"]),
           ("slice_scatter", ["%x", "%y", 0]), ("copy", ["%x", "%y"]),
           ("select_scatter", ["%x", "%r", 0, 1]),
           ("diagonal_scatter", ["%x", "%d"]), ("argsort", ["%x"]),
           ("ravel", ["%x"]), ("threshold_backward", ["%y", "%x", 4])]
    for name, args in ops:
        dtype = float if name not in ("type_as", "argsort") else int
        yield case(name, data, x,
                   [(name, args, "c"), ("reshape", ["%c", [-1]], "v"),
                    ("fill_.Scalar", ["%v", dtype(7)], "f")], ["c", "v", "x"],
                   0)
    yield case("sort", data, x, [("sort", ["%x", 1], ["c", "k"])],
               ["c", "k"], 0)
    one = {"x": ("s", [1, 3], [4, 1], 0)}
    yield case("ravel-of-a-row", floats(), {"x": ("s", [2, 3], [6, 2], 0)},
               [("ravel", ["%x"], "v"), ("fill_.Scalar", ["%v", 0.], "f")],
               ["v", "x"], 0)
    yield case("ravel-is-a-view", floats(), one,
               [("ravel", ["%x"], "v"), ("fill_.Scalar", ["%v", 0.], "f")],
               ["v", "x"], 0)
    image = {"x": ("s", [1, 4, 2, 2], [16, 1, 8, 4], 0),
             "w": ("s", [2, 4, 1, 1], [4, 1, 1, 1], 0)}
    images = {"s": ("float32", [float(i) for i in range(16)])}
    for name, args in [
            ("conv2d", ["%x", "%w"]), ("max_pool2d", ["%x", [2, 2]]),
            ("avg_pool2d", ["%x", [2, 2]]), ("pixel_shuffle", ["%x", 2]),
            ("adaptive_avg_pool2d", ["%x", [1, 1]]),
            ("upsample_nearest2d", ["%x", [4, 4]])]:
        yield case(name, images, image, [(name, args, "c")], ["c"], 0)


def empty():
    """Yields programs with views without elements."""
    rows = {"a": ("s", [3, 4], [4, 1], 0)}
    yield case("slice", floats(), {"a": ("s", [4], [1], 3)},
               [("slice.Tensor", ["%a", 0, 2, 2], "x")], ["x"], 0)
    yield case("slice-at-the-end", floats(), rows,
               [("slice.Tensor", ["%a", 0, 3, 9], "x"),
                ("narrow", ["%a", 0, 2, 0], "y")], ["x", "y"], 0)
    yield case("pieces", floats(), rows,
               [("split_with_sizes", ["%a", [0, 4, 0], 1], ["x", "y", "z"])],
               ["x", "y", "z"], 0)
    yield case("chunks", floats(), {"a": ("s", [0, 4], [4, 1], 0)},
               [("chunk", ["%a", 3, 0], ["x", "y", "z"])], ["x", "y", "z"], 0)
    # Empty views have the offsets of non-empty ones, even beyond the storage.
    for where in 2, 12:
        spec = {"a": ("s", [3, 0], [1, 1], where)}
        yield case(f"rows-{where}", floats(), spec,
                   [("select.int", ["%a", 0, 2], "u"),
                    ("unbind.int", ["%a", 0], ["v", "w", "x"]),
                    ("split.Tensor", ["%a", 2, 0], ["y", "z"])],
                   ["u", "v", "w", "x", "y", "z"], 0)
        yield case(f"new-rows-{where}", floats(), spec,
                   [("clone", ["%a"], "b"), ("select.int", ["%b", 0, 2], "u"),
                    ("slice.Tensor", ["%b", 0, 1, 3], "v")], ["u", "v"], 0)
    yield case("written", floats(), {"a": ("s", [0, 4], [4, 1], 0),
                                     "b": ("s", [4], [1], 0)},
               [("fill_.Scalar", ["%a", 3.], "x"),
                ("add_.Scalar", ["%b", 1.], "y")], ["b"], 0)


def places():
    """Yields indexed writes that read the tensor that they write, which is
    refused."""
    data = dict(floats(6), i=("int64", [0, 0, 1, 1, 2, 2]))
    a = {"a": ("s", [6], [1], 0), "i": ("i", [6], [1], 0)}
    for name, args in [("index_put_", ["%a", ["%i"], "%a", True]),
                       ("index_put_", ["%a", ["%i"], "%a"]),
                       ("scatter_add_", ["%a", 0, "%i", "%a"]),
                       ("scatter_.src", ["%a", 0, "%i", "%a"]),
                       ("index_add_", ["%a", 0, "%i", "%a"]),
                       ("index_copy_", ["%a", 0, "%i", "%a"]),
                       ("index_fill_.int_Scalar", ["%i", 0, "%i", 1])]:
        yield case(f"{name}{len(args)}", data, a, [(name, args, "x")], ["a"],
                   error="E_OVERLAP")
    wide = {"a": ("s", [3, 4], [0, 1], 2)}
    fill = [("fill_.Scalar", ["%a", 5.], "x")]
    yield case("fill-expanded", floats(), wide, fill, ["a"], 0)
    yield case("zero-expanded", floats(), wide, [("zero_", ["%a"], "x")],
               ["a"], 0)
    yield case("fill-expanded-beside", floats(),
               dict(wide, b=("s", [4], [1], 4)),
               fill + [("mul.Scalar", ["%b", 2.], "c")], ["a", "b", "c"], 1)
    yield case("mul-expanded", floats(), wide,
               [("mul_.Scalar", ["%a", 5.], "x")], ["a"],
               error="E_SELF_OVERLAP")
    row = {"a": ("s", [4], [1], 0)}
    one = ("select.int", ["%a", 0, 1], "v")
    yield case("fill-with-one-of-them", floats(), row,
               [one, ("fill_.Tensor", ["%a", "%v"], "x")], ["a"], 0)
    yield case("add-one-of-them", floats(), row,
               [one, ("add_.Tensor", ["%a", "%v"], "x")], ["a"],
               error="E_OVERLAP")


def sets():
    """Yields programs with set_(), which moves a tensor to another storage,
    under all of its names."""
    both = {**floats(), "t": ("float32", [float(-i) for i in range(1, 9)])}
    pair = {"a": ("s", [4], [1], 0), "b": ("t", [4], [1], 1)}
    to_b = ("set_.source_Tensor", ["%a", "%b"], "x")
    add = ("add_.Scalar", ["%a", 100.], "y")
    copy = ("clone", ["%b"], "c")
    yield case("storage", both, {**pair, "b": ("t", [2, 2], [4, 1], 1)},
               [to_b, add], ["a", "b", "x", "y"], 0)
    yield case("written", both, pair,
               [("mul_.Scalar", ["%a", 3.], "w"), to_b, add,
                ("add.Tensor", ["%a", "%w"], "c")], ["c", "a", "w"], 0)
    yield case("views", both, pair,
               [("slice.Tensor", ["%a", 0, 1, 3], "v"), to_b,
                ("add_.Scalar", ["%v", 100.], "z"), add], ["a", "v"], 0)
    yield case("names", both, pair,
               [("set_.source_Tensor", ["%0", "%b"], "x"),
                ("fill_.Scalar", ["%2", 5.], "y"), copy], ["c", "a"], 0,
               args=["a", "b", "a"])
    yield case("overlap", both, {**pair, "b": ("s", [4], [1], 2)},
               [to_b, ("fill_.Scalar", ["%a", 5.], "y"), copy], ["c", "a"])
    yield case("new", both, pair,
               [("mul.Scalar", ["%b", 2.], "n"),
                ("set_.source_Tensor", ["%a", "%n"], "x"), add], ["n", "a"], 0)
    for more in ([2, [2]], [2, [2, 2], [1, 3]], [0, [3], [1]]):
        yield case(f"part-{len(more)}-{more[0]}", both, pair,
                   [("set_.source_Tensor_storage_offset",
                     ["%a", "%b", *more], "x"), add, copy], ["c", "a"], 0)
    yield case("swap", both, pair,
               [("alias", ["%a"], "k"), to_b,
                ("set_.source_Tensor", ["%b", "%k"], "z"), add,
                ("mul_.Scalar", ["%b", 2.], "q")], ["a", "b", "k"], 0)
    yield case("runs", both, pair, [to_b, add], ["a"], 0,
               runs=[{}, {"t": [1.] * 8}])
    yield case("stages", both, pair,
               [to_b, (*add, {"stage": 1}), (*copy, {"stage": 1})], ["c", "a"])
    yield case("dtype", {**both, "i": ("int32", [1, 2, 3, 4])},
               {**pair, "b": ("i", [4], [1], 0)}, [to_b], ["a"],
               error="cannot change its dtype")


def fills():
    """Yields programs that write a single number to elements that share
    memory."""
    windows = {"unfold": ("unfold", ["%a", 0, 2, 1], "v"),
               "strided": ("as_strided", ["%a", [3, 3], [1, 1], 0], "v"),
               "expanded": ("expand", ["%a", [3, 4]], "v"),
               "both": ("as_strided", ["%a", [2, 2, 2], [0, 1, 1], 1], "v")}
    for name, view in windows.items():
        for op in (("fill_.Scalar", ["%v", 7.], "x"), ("zero_", ["%v"], "x")):
            yield case(f"{name}-{op[0].partition('.')[0]}", floats(),
                       {"a": ("s", [4], [1], 0), "b": ("s", [4], [1], 2)},
                       [view, op, ("clone", ["%v"], "c"),
                        ("clone", ["%b"], "d")], ["c", "d", "v"], 1)
    yield case("gradient", floats(), {"w": ("s", [2, 3], [3, 1], 0)},
               [("mul.Scalar", ["%w", 2.], "m"), ("view", ["%m", [6]], "f"),
                ("unfold", ["%f", 0, 3, 1], "v"),
                ("slice.Tensor", ["%v", 0, 0, 2], "u"),
                ("fill_.Scalar", ["%u", 1.], "x"),
                ("mul.Tensor", ["%m", "%m"], "q"), ("sum", ["%q"], "loss")],
               ["loss", "m"], 0, leaves=["w"])


def histories():
    """Yields programs whose gradients follow views of a tensor, not its
    memory. Programs are refused if a tensor shares written memory without
    being a view of it."""
    apart = {"w": ("w", [4], [1], 0), "a": ("s", [4], [1], 0),
             "b": ("s", [4], [1], 2), "c": ("s", [4], [1], 6)}
    both = {**floats(), "w": ("float32", [2., 3., 4., 5.])}
    write = ("add_.Tensor", ["%a", "%w"], "x")
    loss = ("sum", ["%a"], "l")
    for name, ops in {
            "written": [write, ("mul_.Scalar", ["%b", -3.], "y"), loss],
            "read": [write, ("mul.Tensor", ["%b", "%w"], "y"),
                     ("sum", ["%y"], "l")],
            "view": [write, ("slice.Tensor", ["%b", 0, 0, 1], "v"),
                     ("fill_.Scalar", ["%v", 1.], "y"), loss]}.items():
        yield case(name, both, apart, ops, ["l"], leaves=["w"],
                   error='E_ALIAS_NONDIFF: "b" shares memory with "a"')
    yield case("apart", both, apart,
               [write, ("mul_.Scalar", ["%c", -3.], "y"), loss], ["l", "c"],
               leaves=["w"])
    yield case("beside", both, apart,
               [write, ("slice.Tensor", ["%b", 0, 2, 4], "v"),
                ("mul_.Scalar", ["%v", -3.], "y"), loss], ["l", "v"],
               leaves=["w"])
    yield case("before", both, apart,
               [("mul_.Scalar", ["%b", -3.], "y"), write, loss], ["l", "b"],
               leaves=["w"])
    yield case("own", both, apart,
               [write, ("slice.Tensor", ["%a", 0, 1, 3], "v"),
                ("mul_.Scalar", ["%v", -3.], "y"), loss], ["l", "v"],
               leaves=["w"])


def texts():
    """Yields refused programs, whose messages name both operands and their
    locations."""
    yield case("leaf", floats(),
               {"w": ("s", [4], [1], 0), "b": ("s", [4], [1], 8, "uint8")},
               [("zero_", ["%b"], "x"), ("sum", ["%w"], "l")], ["l"],
               leaves=["w"], error='leaf "w", f32[4] at 0, which wants a '
               'gradient, shares memory with "b", u8[4] at 8')
    yield case("operand", floats(), {"a": ("s", [4], [1], 0)},
               [("slice.Tensor", ["%a", 0, 1, 4], "v"),
                ("slice.Tensor", ["%a", 0, 0, 3], "u"),
                ("copy_", ["%v", "%u"], "x")], ["a"],
               error="f32[3] at 1, cannot be written in place: it shares "
               "memory with an operand, ")
    yield case("names", floats(), {"a": ("s", [4], [1], 0)},
               [("slice.Tensor", ["%a", 0, 1, 4], "v"),
                ("slice.Tensor", ["%a", 0, 0, 3], "u"),
                ("copy_", ["%v", "%u"], "x")], ["a"],
               error="aten.copy_.default(v, u): ")


def expanded():
    """Yields programs with a leaf whose elements share memory: it has a
    gradient for each element, also after a write under no_grad."""
    quiet = {"no_grad": True}
    row = {"w": ("s", [4], [0], 1), "c": ("c", [4], [1], 0)}
    rows = {"w": ("s", [2, 3], [0, 1], 1), "c": ("c", [2, 3], [3, 1], 0)}
    data = {"s": ("float32", ONE_TO_12[:6]),
            "c": ("float32", [2., 3., 5., 7., 11., 13.])}
    loss = [("mul.Tensor", ["%w", "%c"], "p"), ("sum", ["%p"], "loss")]
    view = [("select.int", ["%w", 0, 1], "v")]
    for name, spec, ops in [
            ("fill", row, [("fill_.Scalar", ["%w", 9.], "f", quiet)]),
            ("zero", rows, [("zero_", ["%w"], "f", quiet)]),
            ("part", row, [("slice.Tensor", ["%w", 0, 1, 3], "v"),
                           ("fill_.Scalar", ["%v", 9.], "f", quiet)]),
            ("row", rows, [*view, ("fill_.Scalar", ["%v", 9.], "f", quiet)]),
            ("row-added", rows, [*view, ("add_.Scalar", ["%v", 1.], "f",
                                         quiet)]),
            ("twice", rows, [("fill_.Scalar", ["%w", 2.], "f", quiet), *view,
                             ("mul_.Scalar", ["%v", 3.], "g", quiet)])]:
        yield case(name, data, spec, [*ops, *loss], ["loss"], 0, leaves=["w"])
        if spec is rows and ops[0][2] == "v":
            after = [("mul.Tensor", ["%v", "%v"], "p"),
                     ("sum", ["%p"], "loss")]
            yield case(f"{name}-seen", data, spec, [*ops, *after], ["loss"], 0,
                       leaves=["w"])
    for name, ops, word in [
            ("add", [("add_.Scalar", ["%w", 1.], "f", quiet)],
             "E_SELF_OVERLAP"),
            ("with-grad", [("fill_.Scalar", ["%w", 1.], "f")], "E_LEAF")]:
        yield case(name, data, row, [*ops, *loss], ["loss"], leaves=["w"],
                   error=word)
    fill = ("fill_.Scalar", ["%w", 9.], "f", quiet)
    yield case("read-before", data, row, [*loss, fill], ["loss"], 0,
               leaves=["w"])
    for name, ops in [
            ("needed-before", [("mul.Tensor", ["%w", "%w"], "p"), loss[1],
                               fill]),
            ("needed-between", [fill, ("mul.Tensor", ["%w", "%w"], "p"),
                                loss[1], ("zero_", ["%w"], "g", quiet)])]:
        yield case(name, data, row, ops, ["loss"], leaves=["w"],
                   error="E_ALIAS_NONDIFF")


def shared():
    """Yields programs in which another tensor shares a leaf's memory and is
    written: the leaf gets the new values, and its gradient is unaffected."""
    spec = {"w": ("s", [2, 3], [3, 1], 1), "b": ("s", [4], [2], 0)}
    double = ("mul.Scalar", ["%w", 2.], "v")
    square, kept = (("mul.Tensor", ["%w", "%w"], n) for n in ("p", "k"))
    write = ("mul_.Scalar", ["%b", 3.], "x")
    again = ("add_.Scalar", ["%b", 1.], "y", {"no_grad": True})
    row = ("select.int", ["%w", 0, 1], "r")
    for name, ops, of in [
            ("before", [write, square], "p"),
            ("behind", [double, write], "v"),
            ("unread", [double, kept, write], "v"),
            ("twice", [double, write, ("mul.Tensor", ["%v", "%w"], "p")], "p"),
            ("view", [row, write, ("mul.Tensor", ["%r", "%r"], "p")], "p"),
            ("view-later", [write, row, ("mul.Tensor", ["%r", "%r"], "p")],
             "p"),
            ("between", [write, double, again,
                         ("mul.Tensor", ["%v", "%w"], "p")], "p"),
            ("detached", [("detach", ["%w"], "d"), write,
                          ("mul.Tensor", ["%w", "%d"], "p")], "p")]:
        yield case(name, floats(), spec, [*ops, ("sum", [f"%{of}"], "l")],
                   ["l", "w", "b"], 1, leaves=["w"])
    yield case("stepped", floats(), spec,
               [write, square, ("sum", ["%p"], "l")], ["l"], 1, leaves=["w"],
               sgd={"lr": .5, "weight_decay": .25})
    for name, ops in [
            ("needed", [square, write]), ("needed-quiet", [square, again]),
            ("needed-between", [write, square, again]),
            ("needed-view", [row, ("mul.Tensor", ["%r", "%r"], "p"), write])]:
        yield case(name, floats(), spec, [*ops, ("sum", ["%p"], "l")], ["l"],
                   leaves=["w"], error="E_ALIAS_NONDIFF")
    yield case("itself", floats(), spec,
               [write, ("add_.Scalar", ["%w", 1.], "y"), ("sum", ["%w"], "l")],
               ["l"], leaves=["w"], error="E_LEAF")
    yield case("its-view", floats(), spec,
               [row, write, ("add_.Scalar", ["%r", 1.], "y"),
                ("sum", ["%w"], "l")], ["l"], leaves=["w"], error="E_LEAF")


def reaches():
    """Yields programs in which as_strided of a view reaches outside of it.
    Values written there have a gradient; values that are only read have none,
    as in PyTorch."""
    w = {"w": ("float32", [.5, -1., 2., -3., 1.5, .25])}
    leaf = {"w": ("w", [6], [1], 0)}
    own = ("mul.Scalar", ["%w", 2.], "a")
    part = ("slice.Tensor", ["%a", 0, 2, 3], "v")
    far = ("as_strided", ["%v", [2], [2], 1], "u")
    end = [("mul.Tensor", ["%a", "%a"], "p"), ("sum", ["%p"], "l")]
    for name, ops in [
            ("clamp", [far, ("clamp_", ["%u", -3., 3.], "x")]),
            ("mul", [far, ("slice.Tensor", ["%w", 0, 0, 2], "s"),
                     ("mul_.Tensor", ["%u", "%s"], "x")]),
            ("add", [far, ("add_.Scalar", ["%u", 1.], "x")]),
            ("view", [far, ("select.int", ["%u", 0, 0], "s"),
                      ("mul_.Scalar", ["%s", 3.], "x")]),
            ("twice", [far, ("mul_.Scalar", ["%u", 3.], "x"),
                       ("tanh_", ["%u"], "y")]),
            ("read", [far, ("mul_.Tensor", ["%a", "%w"], "x"),
                      ("add_.Tensor", ["%u", "%u"], "y")]),
            ("copy", [far, ("slice.Tensor", ["%w", 0, 0, 2], "s"),
                      ("copy_", ["%u", "%s"], "x")]),
            ("index", [far, ("clamp_min_", ["%u", 0.], "x"),
                       ("unsqueeze", ["%u", 0], "s"),
                       ("neg_", ["%s"], "y")])]:
        yield case(name, w, leaf, [own, part, *ops, *end], ["l", "u"],
                   leaves=["w"])
    yield case("only-read", w, leaf,
               [own, part, far, ("mul.Tensor", ["%u", "%u"], "p"), end[1]],
               ["l"], leaves=["w"])


def turns():
    """Yields programs with rot90, whose result has the strides of flip,
    transposed."""
    for k in range(-1, 4):
        for strides in ([1, 4], [3, 1], [6, 2]):
            spec = {"a": ("s", [2 if strides == [6, 2] else 4, 3], strides, 0)}
            yield case(f"{k}-{strides[0]}", floats(), spec,
                       [("rot90", ["%a", k, [0, 1]], "v")], ["v"], 0)


GROUPS = [bits, beyond, offsets, before, leaves, names, strides, empty,
          places, sets, fills, expanded, shared, reaches, turns, texts,
          histories]


def main():
    cases = []
    for group in GROUPS:
        for c in group():
            c["name"] = f"{group.__name__}-{c['name']}"
            cases.append(c)
    with open(os.path.join(HERE, "aliases.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(len(cases), "programs")


main()
