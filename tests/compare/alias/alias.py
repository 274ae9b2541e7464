# SPDX-License-Identifier: Apache-2.0
"""Compares random programs that write through aliases with a byte-level
interpreter and eager PyTorch.

usage: alias.py PENSTOCK DIR [--count N] [--full] [--seed S] [--keep]

The drivers, test-alias-cases and lib-cases (the same programs through
penstock_call), are taken from the build of PENSTOCK.

Operands are views of shared storages, of several dtypes. Programs make views
(as_strided anywhere in a storage, view(dtype)) and write through them, several
times. Some programs compute gradients: then a leaf (contiguous, with gaps or
expanded) is an operand, or operands are derived from it, and an optimizer may
update it. Eager PyTorch runs each program; its storages, returns and gradients
are written to a file of cases. The file also has the required bases: the
connected components of operands that share a byte of which one is written.
storages.py, which uses no tensor library, must give the same results. Some
programs run a second time with that interpreter's values, on storages that were
partly overwritten. The drivers must agree with all results. --full: 10 000
programs. Program N of a seed is the same for any --count. --keep: keeps the
file of cases, DIR/alias-random.json.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import time

import storages
import torch

DTYPES = {"float32": torch.float32, "int64": torch.int64,
          "int32": torch.int32, "int16": torch.int16, "int8": torch.int8,
          "uint8": torch.uint8, "float64": torch.float64}


def overlaps_itself(t):
    seen = offsets(t)
    return len(set(seen)) != len(seen)


def offsets(t):
    """Returns the offsets of the elements in the storage, in row-major
    order."""
    ret = [t.storage_offset()]
    for size, stride in zip(t.shape, t.stride()):
        ret = [o + i * stride for o in ret for i in range(size)]
    return ret


def bytes_of(t):
    size = t.element_size()
    return {o * size + k for o in offsets(t) for k in range(size)}


class Program:
    def __init__(self, rng, grads):
        self.rng = rng
        self.grads = grads
        self.storages, self.tensors, self.args = {}, {}, []
        self.ops, self.before = [], []
        self.live = {}  # name -> PyTorch tensor, for the tensors of the program
        self.origin = {}    # data pointer of a storage -> its name
        self.of = {}  # name -> the operand that this tensor is a view of
        self.written = set()
        self.counter = 0
        self.stage = 0 if rng.random() < .25 else None
        self.stages = {}    # storage -> stages that have written it
        self.silent = False # a value without a gradient was written
        self.beyond = False  # a tensor reaches outside of all operands
        self.expanded = False # elements of the leaf share memory
        self.sgd = None

    # --- operands ----------------------------------------------------------

    def window(self, n):
        """Returns sizes, strides and offset of a window that does not overlap itself."""
        rng = self.rng
        while n > 0:
            rank = rng.choice([0, 1, 1, 2, 2, 3])
            sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rank)]
            order = list(range(rank))
            rng.shuffle(order)
            strides, step = [0] * rank, rng.choice([1, 1, 1, 2])
            for d in order:
                strides[d] = step
                step *= sizes[d]
                if rng.random() < .3:
                    step += rng.choice([1, 2])
            span = 1 + sum((s - 1) * t for s, t in zip(sizes, strides))
            if span <= n:
                return sizes, strides, rng.randrange(n - span + 1)
        return [0], [1], 0

    def add_operands(self):
        rng = self.rng
        for k in range(rng.choice([1, 1, 2])):
            dtype = "float32" if self.grads else rng.choice(
                ["float32", "float32", *DTYPES])
            n = rng.choice([6, 8, 12, 16, 24])
            low = 0 if dtype == "uint8" else -9
            values = [float(rng.randrange(low, 10)) for _ in range(n)]
            if "int" in dtype:
                values = [int(v) for v in values]
            self.storages[f"s{k}"] = {"dtype": dtype, "values": values}
            self.live[f"s{k}"] = torch.tensor(values, dtype=DTYPES[dtype])
            self.origin[self.live[f"s{k}"].data_ptr()] = f"s{k}"
        for k in range(rng.choice([1, 2, 2, 3, 4])):
            self.add_operand(f"a{k}", rng.choice(sorted(self.storages)))
        if rng.random() < .15:
            self.args.append(rng.choice(self.args))
        if self.grads:
            self.add_leaf()

    def add_operand(self, name, storage):
        dtype = self.storages[storage]["dtype"]
        memory = self.live[storage].untyped_storage()
        if not self.grads and self.rng.random() < .15:
            dtype = self.rng.choice([d for d, t in DTYPES.items()
                                     if t.itemsize <= memory.nbytes()])
        t = torch.tensor([], dtype=DTYPES[dtype])
        sizes, strides, offset = self.window(
            memory.nbytes() // t.element_size())
        t.set_(memory, offset, sizes, strides)
        self.tensors[name] = {"storage": storage, "dtype": dtype,
                              "offset": offset, "sizes": sizes,
                              "strides": strides}
        self.live[name] = t
        self.of[name] = name
        self.args.append(name)

    def add_leaf(self):
        """Makes a leaf, and operands that the caller derives from it."""
        rng = self.rng
        n = rng.choice([2, 3, 4])
        values = [float(rng.randrange(1, 9)) for _ in range(5 * n)]
        strides = rng.choice([[n, 1], [n, 1], [n, 1], [1, 2], [n + 1, 1],
                              [2 * n, 2], [0, 1], [1, 0]])
        self.expanded = 0 in strides
        offset = rng.choice([0, 0, 0, 1, 2])
        self.storages["w"] = {"dtype": "float32", "values": values}
        self.tensors["w"] = {"storage": "w", "dtype": "float32",
                             "offset": offset, "sizes": [2, n],
                             "strides": strides, "requires_grad": True}
        self.live["storage of w"] = torch.tensor(values)
        w = self.live["storage of w"].as_strided([2, n], strides, offset)
        self.origin[self.live["storage of w"].data_ptr()] = "w"
        self.live["w"] = w = w.detach().requires_grad_()
        self.of["w"] = "w"
        self.make("m", "aten.mul.Scalar", ["%w", 1], w * 1)
        if rng.random() < .6:
            i = rng.randrange(2)
            self.make("r", "aten.select.int", ["%m", 0, i],
                      self.live["m"].select(0, i))
        if rng.random() < .3:
            self.args.append("w")
        if rng.random() < .3:
            self.make("v", "aten.t", ["%w"], w.t())
        if rng.random() < .2:
            self.make("d", "aten.detach", ["%w"], w.detach())
        if rng.random() < .3 and self.live["a0"].dim():
            self.make("u", "aten.select.int", ["%a0", 0, 0],
                      self.live["a0"].select(0, 0))
        if not self.expanded and rng.random() < .5:
            self.sgd = {"lr": .5, "weight_decay": rng.choice([0., .25])}

    def make(self, name, op, args, t):
        """Adds an operator that derives an operand from tensor `t` before the
        call."""
        self.before.append({"op": op, "args": args, "out": [name]})
        self.live[name], self.of[name] = t, name
        self.args.append(name)

    # --- operators ---------------------------------------------------------

    def name(self):
        self.counter += 1
        return f"t{self.counter}"

    def add(self, op, args, out, **more):
        if self.stage is not None:
            more["stage"] = self.stage
        self.ops.append({"op": op, "args": args, "out": [out], **more})

    def visible(self):
        return [n for n in self.live
                if n in self.of and (n in self.args or n[0] == "t")]

    def pick(self):
        return self.rng.choice(self.visible())

    def view(self, x, t):
        """Returns (operator, arguments, result) of a view of t."""
        rng, ret = self.rng, []
        d = rng.randrange(t.dim()) if t.dim() else 0
        if t.dim():
            n = t.shape[d]
            if n:
                i = rng.randrange(-n, n)
                ret.append(("aten.select.int", [d, i], t.select(d, i)))
                a = rng.randrange(n)
                b = rng.randrange(a + 1, n + 1)
                step = rng.choice([1, 1, 2])
                ret.append(("aten.slice.Tensor", [d, a, b, step],
                            torch.ops.aten.slice.Tensor(t, d, a, b, step)))
                ret.append(("aten.narrow", [d, a, b - a],
                            t.narrow(d, a, b - a)))
            order = list(range(t.dim()))
            rng.shuffle(order)
            ret.append(("aten.permute", [order], t.permute(order)))
            e = rng.randrange(t.dim())
            ret.append(("aten.transpose.int", [d, e], t.transpose(d, e)))
            ret.append(("aten.reshape", [[-1]], t.reshape(-1)))
            ret.append(("aten.movedim.int", [d, e], t.movedim(d, e)))
            if n:
                size, step = rng.randrange(1, n + 1), rng.choice([1, 1, 2])
                ret.append(("aten.unfold", [d, size, step],
                            t.unfold(d, size, step)))
            ret.append(("aten.flatten.using_ints", [], t.flatten()))
        if t.dim() >= 2:
            ret.append(("aten.diagonal", [0, 0, 1], t.diagonal(0, 0, 1)))
        ret += self.as_strided(t) + self.as_bits(t)
        ret.append(("aten.unsqueeze", [0], t.unsqueeze(0)))
        # An expanded leaf has a gradient for each of the elements that share
        # memory, so no further expanded view is made.
        if not self.expanded:
            ret.append(("aten.expand", [[2, *t.shape]],
                        t.expand(2, *t.shape)))
        ret.append(("aten.squeeze", [], t.squeeze()))
        ret.append(("aten.contiguous", [], t.contiguous()))
        ret.append(("aten.alias", [], torch.ops.aten.alias(t)))
        ret.append(("aten.detach", [], t.detach()))
        ret.append(("aten.dropout", [.5, False],
                    torch.nn.functional.dropout(t, .5, False)
                    if t.is_floating_point() else t))
        op, args, result = rng.choice(ret)
        return op, [f"%{x}"] + args, result

    def as_strided(self, t):
        n = t.untyped_storage().nbytes() // t.element_size()
        sizes, strides, offset = self.window(n)
        result = t.as_strided(sizes, strides, offset)
        # PyTorch loses the gradients of elements that are outside of t.
        if t.requires_grad and not bytes_of(result) <= bytes_of(t):
            return []
        return [("aten.as_strided", [sizes, strides, offset], result)]

    def as_bits(self, t):
        name = self.rng.choice([*DTYPES])
        try:
            return [("aten.view.dtype", [name], t.view(DTYPES[name]))]
        except RuntimeError: # strides or offset do not fit
            return []

    def move(self, x, t):
        """Changes the geometry of a tensor itself by an in-place operator, as
        t_()."""
        rng = self.rng
        again = [f"%{i}" for i, n in enumerate(self.args) if n == x]
        op, args, move = rng.choice([
            ("aten.t_", [], lambda: t.t_()),
            ("aten.squeeze_", [], lambda: t.squeeze_()),
            ("aten.unsqueeze_", [0], lambda: t.unsqueeze_(0)),
            ("aten.transpose_", [0, -1], lambda: t.transpose_(0, -1))])
        if t.dim() < 1 or t.dim() > 2:
            return
        self.add(op, [rng.choice(again)] + args, self.name())
        move()

    def set(self, x, t):
        """Moves x to the data of another tensor (set_), under all of its
        names."""
        y = self.pick()
        u = self.live[y]
        if t.dtype != u.dtype or t is u or not t.numel() or not u.numel():
            return
        self.add("aten.set_.source_Tensor", [f"%{x}", f"%{y}"], self.name())
        for name in self.live:
            if self.live[name] is t:
                self.of[name] = self.of[y]
        t.set_(u)

    def step(self):
        rng = self.rng
        x = self.pick()
        t = self.live[x]
        kind = rng.random()
        if t.dim() > 5:
            return
        if self.stage is not None and rng.random() < .25:
            self.stage += 1
        if kind < .35:
            op, args, result = self.view(x, t)
            out = self.name()
            self.add(op, args, out)
            shares = result.untyped_storage().data_ptr() == \
                t.untyped_storage().data_ptr()
            if shares and not bytes_of(result) <= self.bytes.get(
                    self.of[x], bytes_of(result)):
                self.beyond = True
            self.live[out], self.of[out] = result, self.of[x] if shares else out
        elif kind < .7:
            self.write(x, t)
        elif kind < .77 and x in self.args and not self.grads:
            self.move(x, t)
        elif kind < .79 and not self.grads:
            self.set(x, t)
        else:
            self.compute(x, t)

    def compute(self, x, t):
        y = self.pick()
        u = self.live[y]
        out = self.name()
        number = self.rng.randrange(2, 5)
        if t.shape == u.shape and t.dtype == u.dtype and self.rng.random() < .6:
            self.add("aten.add.Tensor", [f"%{x}", f"%{y}"], out)
            self.live[out] = t + u
        elif self.rng.random() < .5:
            self.add("aten.mul.Scalar", [f"%{x}", number], out)
            self.live[out] = t * number
        else:
            self.add("aten.clone", [f"%{x}"], out)
            self.live[out] = t.clone()
        self.of[out] = out

    def write(self, x, t):
        rng = self.rng
        if t.numel() == 0:
            return
        if overlaps_itself(t):
            # Elements that share memory can only be set to one number.
            if not self.grads:
                t.fill_(3)
                self.add("aten.fill_.Scalar", [f"%{x}", 3], self.name())
                self.note_write(x, t)
            return
        number = rng.randrange(-3, 4)
        silent = self.grads and rng.random() < .2
        had = t.requires_grad
        y = self.pick()
        u = self.live[y]
        one = t.untyped_storage().data_ptr() == u.untyped_storage().data_ptr()
        if rng.random() < .4 and u.dtype == t.dtype and u.shape == t.shape and \
                not (one and set(offsets(t)) & set(offsets(u)) and
                     offsets(t) != offsets(u)):
            op = rng.choice(["add_", "copy_"])
            try:
                with torch.set_grad_enabled(not silent):
                    getattr(t, op)(u)
            except RuntimeError: # PyTorch refuses it
                return
            self.add("aten.add_.Tensor" if op == "add_" else "aten.copy_",
                     [f"%{x}", f"%{y}"], self.name(), no_grad=silent)
        else:
            op = rng.choice(["add_", "mul_", "fill_", "clamp_min_"])
            try:
                with torch.set_grad_enabled(not silent):
                    getattr(t, op)(number)
            except RuntimeError:
                return
            self.add(f"aten.{op}" + ("" if op[0] == "c" else ".Scalar"),
                     [f"%{x}", number], self.name(), no_grad=silent)
        self.silent = self.silent or silent or not had
        self.note_write(x, t)

    def note_write(self, x, t):
        # A tensor that is not an operand may still be a view of one.
        self.written.add(self.of[x])
        self.stages.setdefault(t.untyped_storage().data_ptr(),
                               set()).add(self.stage)

    # --- the case ----------------------------------------------------------

    def bases(self, first):
        """Returns the number of components with two and more operands, by the
        operands' initial geometry."""
        names = [n for i, n in enumerate(self.args) if n not in self.args[:i]]
        root = {n: n for n in names}

        def find(n):
            while root[n] != n:
                n = root[n]
            return n
        for i, a in enumerate(names):
            for b in names[i + 1:]:
                if a not in self.written and b not in self.written:
                    continue
                if first[a][0] == first[b][0] and first[a][1] & first[b][1]:
                    root[find(b)] = find(a)
        return sum(1 for n in names if root[n] == n and
                   any(m != n and find(m) == n for m in names))

    def location(self, name):
        t = self.live[name]
        return (t.shape, t.stride(), t.storage_offset(),
                t.untyped_storage().data_ptr())

    def place(self, t):
        p = t.untyped_storage().data_ptr()
        return self.origin.get(p, "new")

    def listed(self, t):
        return t.detach().reshape(-1).tolist()

    def build(self, name):
        self.add_operands()
        self.bytes = {n: bytes_of(self.live[n]) for n in self.args}
        first = {n: (self.live[n].untyped_storage().data_ptr(),
                     bytes_of(self.live[n])) for n in self.args}
        shapes = {n: self.location(n) for n in self.args}
        start = self.normalised({n: self.geometry(n) for n in self.args})
        for _ in range(self.rng.choice([2, 3, 5, 8, 12])):
            self.step()
        case = {"name": name, "text": "random", "storages": self.storages,
                "tensors": self.tensors, "args": self.args, "ops": self.ops,
                "plan": {"bases": self.bases(first)}, "expect": {}}
        if self.beyond:  # then the whole range from first to last byte counts
            del case["plan"]["bases"]
        if any(len(s) > 1 for p, s in self.stages.items() if p in self.origin):
            case["plan"]["or_error"] = \
                "E_" if "or_error" in case["plan"] else "E_SHARED_MUT"
        reaches = self.stage and any(
            "as_strided" in op["op"] or "view.dtype" in op["op"]
            for op in self.ops)
        made = [n for n in self.live if n[0] == "t"]
        returns = self.rng.sample(made, min(len(made), 3)) or [self.args[0]]
        if self.grads and not self.differentiate(case, returns):
            return None
        if reaches: # a stage may have received only the window
            case["plan"]["or_error"] = "" # any message
        if self.before:
            case["before"] = self.before
        case["returns"] = returns
        case["expect"]["returns"] = [[
            {"dtype": str(t.dtype).split(".")[1], "storage": self.place(t),
             "offset": t.storage_offset(), "sizes": list(t.shape),
             "strides": list(t.stride()), "values": self.listed(t)}
            for t in (self.live[n] for n in returns)]]
        machine = storages.Machine(case)
        machine.call()
        self.check_agreement(case, machine)
        if self.sgd is not None:
            self.optimize(case)
        case["expect"]["storages"] = {
            n: self.listed(self.live[n if n != "w" else "storage of w"])
            for n in self.storages}
        moved = {n: self.geometry(n) for n in self.args
                 if shapes[n] != self.location(n)}
        if moved:
            case["expect"]["geometry"] = moved
        # The stride of a dimension of size 1 may differ, since no element uses
        # it.
        if start | self.normalised(moved) != \
                start | self.normalised(machine.geometry()):
            self.differs("geometry", moved, machine.geometry())
        if not self.grads and self.rng.random() < .3:
            self.run_again(case, machine)
        # Drops programs whose results have NaN or infinity, which JSON cannot
        # represent.
        text = json.dumps(case["expect"])
        return None if "NaN" in text or "Infinity" in text else case

    def geometry(self, name):
        t = self.live[name]
        return {"offset": t.storage_offset(), "sizes": list(t.shape),
                "strides": list(t.stride())}

    def normalised(self, geometry):
        """Returns the geometry without strides that no element uses."""
        return {n: (g["offset"], g["sizes"], [
            s for size, s in zip(g["sizes"], g["strides"]) if size != 1])
            for n, g in geometry.items()}

    def differs(self, what, torchs, ours):
        if "NaN" not in json.dumps([torchs, ours]): # main() drops such programs
            raise AssertionError(f"{what}: PyTorch {torchs}, bytes {ours}")

    def check_agreement(self, case, machine):
        """Checks that PyTorch and the interpreter agree on the results of a
        program."""
        want = case["expect"]
        for a, b in zip(want["returns"][0], machine.returns()):
            strides = [(s, t) for n, s, t in zip(a["sizes"], a["strides"],
                                                 b["strides"]) if n != 1]
            near = all(math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-12)
                       for x, y in zip(a["values"], b["values"]))
            if not near or any(a[k] != b[k] for k in a
                               if k not in ("strides", "values")) or \
                    any(s != t for s, t in strides):
                self.differs("returns", a, b)
        held = {n: self.listed(self.live[n if n != "w" else "storage of w"])
                for n in self.storages}
        if held != machine.contents():
            self.differs("storages", held, machine.contents())
        # If elements of the leaf share memory, the interpreter has no gradient
        # to compare with.
        if "grads" in want and not self.expanded:
            ours = machine.gradient("w")
            if any(abs(a - b) > 1e-6 * abs(a)
                   for a, b in zip(want["grads"]["w"], ours)):
                self.differs("gradient", want["grads"]["w"], ours)
        if not self.beyond and not self.before:
            bases, inner = machine.passed()
            if bases != case["plan"]["bases"]:
                self.differs("bases", case["plan"]["bases"], bases)
            case["plan"]["inner"] = inner

    def run_again(self, case, machine):
        values = {n: [self.rng.randrange(0, 9) for _ in s["values"]]
                  for n, s in self.storages.items() if self.rng.random() < .6}
        case["runs"] = [{}, values]
        case["fresh"] = True  # operands keep the geometry of the first run
        for name, given in values.items():
            machine.overwrite(name, given)
        machine.call()
        again = machine.returns()
        for first, second in zip(case["expect"]["returns"][0], again):
            second["strides"] = first["strides"] # also of dimensions of size 1
        case["expect"]["returns"].append(again)
        case["expect"]["storages"] = machine.contents()

    def differentiate(self, case, returns):
        """Adds to the program a loss, which is the sum of a tensor that
        depends on the leaf, and PyTorch's gradients. Returns False if there is
        no such tensor."""
        names = [n for n in self.visible() if self.live[n].requires_grad]
        if not names:
            return False
        x = self.rng.choice(names)
        self.add("aten.sum", [f"%{x}"], "loss")
        loss = self.live[x].sum()
        try:
            loss.backward()
        except RuntimeError:
            return False
        self.live["loss"] = loss
        returns.insert(0, "loss")
        case["backward"] = True
        case["expect"]["grads"] = {"w": self.live["w"].grad.reshape(-1).tolist()}
        if self.expanded: # penstock cannot record where its views are
            case["plan"]["or_error"] = \
                "E_" if "or_error" in case["plan"] else "E_SELF_OVERLAP"
        if self.silent:  # penstock may also refuse a write without a gradient
            case["plan"]["or_error"] = \
                "E_" if "or_error" in case["plan"] else "E_ALIAS_NONDIFF"
        return True

    def optimize(self, case):
        case["sgd"] = self.sgd
        torch.optim.SGD([self.live["w"]], **self.sgd).step()
        case["expect"]["after_step"] = {"w": self.listed(self.live["w"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("penstock")
    parser.add_argument("dir")
    parser.add_argument("--count", type=int)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = int(time.time_ns() // 1000 % 1000000)
    print(f"seed {args.seed}", flush=True)
    torch.set_num_threads(1)
    count = args.count or (10000 if args.full else 2000)
    cases, wrong = [], 0
    for i in range(count):
        rng = random.Random(f"{args.seed} {i}")
        case = None
        while case is None:
            try:
                case = Program(rng, rng.random() < .3).build(f"r{i}")
            except AssertionError as e:
                print(f"r{i}: {e}")
                wrong += 1
                break
        else:
            cases.append(case)
    os.makedirs(args.dir, exist_ok=True)
    path = os.path.join(args.dir, "alias-random.json")
    build = os.path.dirname(os.path.dirname(os.path.abspath(args.penstock)))
    drivers = [os.path.join(build, "tests", name) for name in
               ("alias/test-alias-cases", "lib/program/lib-cases")]
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    failed = 0
    for driver in drivers:
        run = subprocess.run([driver, path], capture_output=True, text=True)
        lines = run.stdout.splitlines() or ["0 passed, 1 failed"]
        print("\n".join(lines[-40:-1]))
        sys.stderr.write(run.stderr[-2000:])
        failed = max(failed, int(lines[-1].split()[2]), run.returncode != 0)
    bases = [c["plan"].get("bases", 0) for c in cases]
    print(f"with bases: {sum(b > 0 for b in bases)}, with gradients: "
          f"{sum('backward' in c for c in cases)}, with stages: "
          f"{sum(any(o.get('stage') for o in c['ops']) for c in cases)}, "
          f"that run twice: {sum('runs' in c for c in cases)}, "
          f"that may be refused: "
          f"{sum('or_error' in c['plan'] for c in cases)}, seed {args.seed}")
    if not args.keep:
        os.unlink(path)
    print(f"{len(cases) - failed} passed, {failed + wrong} failed")
    return failed + wrong > 0


sys.exit(main())
