# SPDX-License-Identifier: Apache-2.0
"""Writes aliases.json beside itself: programs in the form of
tests/alias/README.md, with what eager PyTorch makes of them.

Needs torch >= 2.9; rerun to add programs. `bases` are given here, since eager
has none; programs that it refuses have the word that penstock's refusal has.
"""
import json
import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
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
    """One program. tensors: name: (storage, sizes, strides, offset[, dtype]);
    ops: (operator, arguments, names of results[, keywords])."""
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
        if results: # the caller makes its operands again
            live = {n: window(s, made, dtypes)[1] for n, s in tensors.items()}
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
            "storage": owner.get(t.untyped_storage().data_ptr(), "new")
            if t.numel() else "new",
            "values": numbers(t)} for t in (live[n] for n in returns)])
    assert error is None or not error.startswith("eager"), name
    expect = ret["expect"] = {"returns": results}
    if leaves:
        ret["backward"] = True
        live[returns[0]].backward()
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
    """view(dtype) with elements of another size is a window, too."""
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
    """Numbers that a dtype cannot hold wrap before anything is computed."""
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


GROUPS = [bits, beyond]


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
