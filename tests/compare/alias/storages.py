# SPDX-License-Identifier: Apache-2.0
"""Interprets the programs of alias.py byte by byte.

A storage is bytes; a tensor knows where its elements begin. The implementation
is as simple as possible: every operator loops over all elements, gradients are
computed in forward mode with one number for each element of the leaf, and
operands that must be passed together are found by comparing bytes. No tensor
library is used.
"""
import itertools
import math
import struct

FORMATS = {"float32": "<f", "float64": "<d", "int64": "<q", "int32": "<i",
           "int16": "<h", "int8": "<b", "uint8": "<B"}


class Storage:
    def __init__(self, name, size):
        self.name, self.data = name, bytearray(size)


class History:
    """Gradient history of memory. Tensors that share one see each other's
    writes."""

    def __init__(self):
        self.wanted = False
        # (storage, byte) -> derivatives with respect to the leaf's elements
        self.derivatives = {}


class Tensor:
    def __init__(self, storage, dtype, offset, sizes, strides, history,
                 operand=None):
        self.storage, self.dtype = storage, dtype
        self.offset, self.sizes, self.strides = offset, sizes, strides
        self.history = history
        self.operand = operand  # the operand that this tensor is a view of

    def item(self):
        return struct.calcsize(FORMATS[self.dtype])

    def window(self, sizes, strides, offset):
        return Tensor(self.storage, self.dtype, offset, list(sizes),
                      list(strides), self.history, self.operand)

    def places(self):
        """Yields the first byte of each element, in row-major order."""
        for index in itertools.product(*(range(n) for n in self.sizes)):
            yield self.item() * (self.offset + sum(
                i * s for i, s in zip(index, self.strides)))

    def bytes(self):
        return {p + k for p in self.places() for k in range(self.item())}

    def load(self, place):
        return struct.unpack_from(FORMATS[self.dtype], self.storage.data,
                                  place)[0]

    def store(self, place, x):
        if "int" in self.dtype:
            bits = 8 * self.item()
            x = int(x) % (1 << bits)
            if self.dtype != "uint8" and x >> (bits - 1):
                x -= 1 << bits
        try:
            struct.pack_into(FORMATS[self.dtype], self.storage.data, place, x)
        except OverflowError:
            x = math.copysign(math.inf, x)
            struct.pack_into(FORMATS[self.dtype], self.storage.data, place, x)

    def values(self):
        return [self.load(p) for p in self.places()]

    def derivatives(self):
        return [self.history.derivatives.get((self.storage, p), {})
                for p in self.places()]

    def contiguous(self):
        return not all(self.sizes) or all(
            s == want for n, s, want in zip(self.sizes, self.strides,
                                            row_major(self.sizes)) if n != 1)


def row_major(sizes):
    ret, step = [], 1
    for n in reversed(sizes):
        ret.insert(0, step)
        step *= max(n, 1)
    return ret


def is_dense(t):
    step = 1
    for n, s in sorted(((n, s) for n, s in zip(t.sizes, t.strides) if n != 1),
                       key=lambda x: x[1]):
        if s != step:
            return False
        step *= n
    return True


def sorted_strides(sizes, operands):
    """Returns strides for a new result, whose dimensions have the order that
    the operands' strides have."""
    if all(t.contiguous() for t in operands):
        return row_major(sizes)
    if all(is_dense(t) and t.strides == operands[0].strides for t in operands):
        return list(operands[0].strides)

    def wider(a, b):
        for t in operands:
            x, y = t.strides[a] * t.item(), t.strides[b] * t.item()
            if x == 0 or y == 0:
                continue
            if x != y:
                return 1 if x > y else -1
            if sizes[a] > sizes[b]:
                return 1
        return 0
    order = list(reversed(range(len(sizes))))
    for i in range(1, len(order)):
        at = i
        for k in range(i - 1, -1, -1):
            c = wider(order[k], order[at])
            if c > 0:
                order[k], order[at] = order[at], order[k]
                at = k
            elif c < 0:
                break
    ret, step = [0] * len(sizes), 1
    for d in order:
        ret[d] = step
        step *= sizes[d]
    return ret


def new(dtype, sizes, strides, values, derivatives=None):
    t = Tensor(None, dtype, 0, list(sizes), strides, History())
    t.storage = Storage(None, t.item() * math.prod(sizes))
    write(t, values, derivatives)
    return t


def write(t, values, derivatives=None):
    for k, (place, x) in enumerate(zip(t.places(), values)):
        t.store(place, x)
        if derivatives is not None:
            t.history.derivatives[t.storage, place] = derivatives[k]
    if derivatives is not None:
        t.history.wanted = t.history.wanted or any(derivatives)


def scaled(derivatives, x):
    return {k: x * s for k, s in derivatives.items()}


def added(a, b):
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


# --- views -------------------------------------------------------------------

def flat(t):
    """Returns a one-dimensional view of t, or None if a copy would be
    needed."""
    sizes, strides = [], []
    for n, s in zip(t.sizes, t.strides):
        if n == 1:
            continue
        if sizes and strides[-1] == n * s:
            sizes[-1] *= n
            strides[-1] = s
        else:
            sizes.append(n)
            strides.append(s)
    if not all(t.sizes):
        return t.window([0], [1], t.offset)
    if len(sizes) > 1:
        return None
    return t.window(sizes or [1], strides or [1], t.offset)


def as_contiguous(t):
    if t.contiguous():
        return t
    return new(t.dtype, t.sizes, row_major(t.sizes), t.values(),
               t.derivatives())


def reshape(t, sizes):
    view = flat(t)
    return view if view is not None else flat(as_contiguous(t))


def select(t, d, i):
    i %= t.sizes[d]
    return t.window(t.sizes[:d] + t.sizes[d + 1:],
                    t.strides[:d] + t.strides[d + 1:],
                    t.offset + i * t.strides[d])


def cut(t, d, a, b, step=1):
    sizes, strides = list(t.sizes), list(t.strides)
    sizes[d], strides[d] = -((a - b) // step), step * t.strides[d]
    return t.window(sizes, strides, t.offset + a * t.strides[d])


def permute(t, order):
    return t.window([t.sizes[d] for d in order], [t.strides[d] for d in order],
                    t.offset)


def swap(t, a, b):
    order = list(range(len(t.sizes)))
    if order:
        order[a], order[b] = order[b], order[a]
    return permute(t, order)


def diagonal(t, skip, a, b):
    rest = [d for d in range(len(t.sizes)) if d not in (a, b)]
    return t.window([t.sizes[d] for d in rest] + [min(t.sizes[a], t.sizes[b])],
                    [t.strides[d] for d in rest] + [t.strides[a] + t.strides[b]],
                    t.offset)


def squeeze(t):
    keep = [d for d, n in enumerate(t.sizes) if n != 1]
    return permute(t, keep)


def unsqueeze(t, d):
    return t.window([1] + t.sizes,
                    [t.sizes[0] * t.strides[0] if t.sizes else 1] + t.strides,
                    t.offset)


def bits(t, dtype):
    was, now = t.item(), struct.calcsize(FORMATS[dtype])
    sizes, strides = list(t.sizes), list(t.strides)
    if sizes and was != now:
        sizes[-1] = sizes[-1] * was // now
        strides = [s * was // now for s in strides[:-1]] + [1]
    return Tensor(t.storage, dtype, t.offset * was // now, sizes, strides,
                  # Gradients do not pass through this view.
                  History(), t.operand)


def detach(t):
    ret = t.window(t.sizes, t.strides, t.offset)
    ret.history = History()
    return ret


def unfold(t, d, size, step):
    sizes, strides = list(t.sizes), list(t.strides)
    sizes[d] = (sizes[d] - size) // step + 1
    strides[d] *= step
    return t.window(sizes + [size], strides + [t.strides[d]], t.offset)


def move(t, a, b):
    order = [d for d in range(len(t.sizes)) if d != a]
    order.insert(b, a)
    return permute(t, order)


def expand(t, sizes):
    new = len(sizes) - len(t.sizes)
    return t.window(sizes, [0] * new + t.strides, t.offset)


def moved(t, view):
    t.sizes, t.strides = view.sizes, view.strides
    t.storage, t.offset = view.storage, view.offset
    t.operand, t.history = view.operand, view.history
    return t


# --- operators ---------------------------------------------------------------

def add(t, u):
    return new(t.dtype, t.sizes, sorted_strides(t.sizes, [t, u]),
               [x + y for x, y in zip(t.values(), u.values())],
               [added(a, b) for a, b in zip(t.derivatives(), u.derivatives())])


def times(t, x):
    return new(t.dtype, t.sizes, sorted_strides(t.sizes, [t]),
               [x * v for v in t.values()],
               [scaled(s, x) for s in t.derivatives()])


def total(t):
    ret = {}
    for s in t.derivatives():
        ret = added(ret, s)
    return new(t.dtype, [], [], [sum(t.values())], [ret])


def inplace(t, fn, grad):
    values, derivatives = fn(t.values(), t.derivatives())
    write(t, values, derivatives if grad else None)
    return t


VIEWS = {
    "select.int": select, "slice.Tensor": cut,
    "narrow": lambda t, d, a, n: cut(t, d, a, a + n),
    "permute": permute, "transpose.int": swap, "t": lambda t: swap(t, 0, 1),
    "reshape": reshape, "diagonal": diagonal,
    "flatten.using_ints": lambda t: t if len(t.sizes) == 1 else reshape(t, [-1]),
    "as_strided": lambda t, sizes, strides, offset: t.window(sizes, strides,
                                                             offset),
    "view.dtype": bits, "unsqueeze": unsqueeze, "squeeze": squeeze,
    "contiguous": as_contiguous, "detach": detach,
    "alias": lambda t: t.window(t.sizes, t.strides, t.offset),
    "dropout": lambda t, p, train: t,
    "unfold": unfold, "movedim.int": move, "expand": expand,
    "set_.source_Tensor": moved,
    "t_": lambda t: moved(t, swap(t, 0, 1) if len(t.sizes) > 1 else t),
    "squeeze_": lambda t: moved(t, squeeze(t)),
    "unsqueeze_": lambda t, d: moved(t, unsqueeze(t, d)),
    "transpose_": lambda t, a, b: moved(t, swap(t, a, b)),
    "add.Tensor": add, "mul.Scalar": times, "sum": total,
    "clone": lambda t: new(t.dtype, t.sizes, sorted_strides(t.sizes, [t]),
                           t.values(), t.derivatives()),
}

WRITES = {
    "add_.Tensor": lambda v, s, u: (
        [x + y for x, y in zip(v, u.values())],
        [added(a, b) for a, b in zip(s, u.derivatives())]),
    "copy_": lambda v, s, u: (u.values(), u.derivatives()),
    "add_.Scalar": lambda v, s, x: ([y + x for y in v], s),
    "mul_.Scalar": lambda v, s, x: ([y * x for y in v],
                                    [scaled(a, x) for a in s]),
    "fill_.Scalar": lambda v, s, x: ([x] * len(v), [{}] * len(v)),
    "clamp_min_": lambda v, s, x: (
        [max(y, x) for y in v],
        [a if y >= x else {} for y, a in zip(v, s)]),
}


# --- a program ---------------------------------------------------------------

class Machine:
    def __init__(self, case):
        self.case = case
        self.storages, self.live, self.first = {}, {}, {}
        self.written, self.moved = set(), set()
        for name, s in case["storages"].items():
            size = struct.calcsize(FORMATS[s["dtype"]])
            self.storages[name] = Storage(name, size * len(s["values"]))
            self.overwrite(name, s["values"])

    def overwrite(self, name, values):
        t = Tensor(self.storages[name], self.case["storages"][name]["dtype"], 0,
                   [len(values)], [1], None)
        write(t, values)

    def call(self):
        """Runs the program once, with operands where the case places them."""
        self.live = {}
        for name, w in self.case["tensors"].items():
            t = Tensor(self.storages[w["storage"]], w["dtype"], w["offset"],
                       list(w["sizes"]), list(w["strides"]), History())
            if w.get("requires_grad"):
                t.history.wanted = True
                for k, p in enumerate(t.places()):
                    t.history.derivatives[t.storage, p] = {k: 1.}
            self.live[name] = t
        for op in self.case.get("before", []):
            self.run(op)
        self.first = {n: (self.live[n].storage, self.live[n].bytes())
                      for n in self.case["args"]}
        self.shapes = {n: self.location(n) for n in self.case["args"]}
        for n in self.case["args"]:
            self.live[n].operand = n
        for i, n in enumerate(self.case["args"]):
            self.live[str(i)] = self.live[n]
        for op in self.case["ops"]:
            self.run(op)

    def run(self, op):
        name = op["op"].removeprefix("aten.")
        args = [self.live[a[1:]] if isinstance(a, str) and a[0] == "%" else a
                for a in op["args"]]
        if name in WRITES:
            fn = WRITES[name]
            self.written.add(args[0].operand)
            if len(args) > 1 and args[0].dtype == "uint8" and \
                    isinstance(args[1], int):
                args[1] %= 256  # numbers wrap before the operator is computed
            ret = inplace(args[0], lambda v, s: fn(v, s, *args[1:]),
                          not op.get("no_grad"))
        else:
            if name.partition(".")[0][-1] == "_":
                self.moved |= {n for n in self.case["args"]
                               if self.live[n] is args[0]}
            ret = VIEWS[name](*args)
        self.live[op["out"][0]] = ret

    def returns(self):
        ret = []
        for name in self.case["returns"]:
            t = self.live[name]
            ret.append({"dtype": t.dtype, "storage": t.storage.name or "new",
                        "offset": t.offset, "sizes": t.sizes,
                        "strides": t.strides, "values": t.values()})
        return ret

    def contents(self):
        return {n: Tensor(s, self.case["storages"][n]["dtype"], 0, [len(
            self.case["storages"][n]["values"])], [1], None).values()
            for n, s in self.storages.items()}

    def gradient(self, leaf):
        derivatives = self.live["loss"].derivatives()[0]
        return [derivatives.get(k, 0.)
                for k in range(math.prod(self.live[leaf].sizes))]

    def geometry(self):
        return {n: {"offset": t.offset, "sizes": t.sizes, "strides": t.strides}
                for n, t in ((n, self.live[n]) for n in self.case["args"])
                if self.shapes[n] != self.location(n)}

    def location(self, name):
        t = self.live[name]
        return list(t.sizes), list(t.strides), t.offset, t.storage

    def passed(self):
        """Returns the number of bases and the names of the operands that are
        passed, bases first. Operands that share a byte, of which one is
        written, form one base."""
        args = self.case["args"]
        group = {n: {n} for n in args}
        for a, b in itertools.combinations(list(group), 2):
            if (a in self.written or b in self.written) and \
                    self.first[a][0] is self.first[b][0] and \
                    self.first[a][1] & self.first[b][1]:
                together = group[a] | group[b]
                for n in together:
                    group[n] = together
        bases, others = [], []
        for i, n in enumerate(args):
            again = n in args[:i] and n in self.written | self.moved
            if len(group[n]) > 1:
                if all(group[n] is not b for b in bases):
                    bases.append(group[n])
            elif not again:
                others.append(n)
        firsts = [next(n for n in args if n in b) for b in bases]
        return len(bases), [self.first[n][0].name for n in firsts] + others
