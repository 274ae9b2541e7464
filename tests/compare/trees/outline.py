# SPDX-License-Identifier: Apache-2.0
"""Finds the calls of modules in an exported program, and which of them are
equal, from PyTorch's own graph. Tests compare `penstock modules --calls --json`
with the result.

The operators of a program form one sequence; each has the stack of modules in
which it was called. A call is a run of operators whose stacks begin alike. It
is described by its contents in order: operators with constants, the numbers of
the values that they take or the module's names of its state, and nested calls
by the numbers of their own descriptions.
"""
import torch
from torch.export.graph_signature import OutputKind
from torch.fx.node import map_arg

NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
COND = torch.ops.higher_order.cond
EMPTY = "_empty_nn_module_stack_from_metadata_hook"


class Value:
    """A result of an operator. `owner`: the call that contains the operator.
    `wanted`: the innermost call that contains all its readers."""

    def __init__(self, owner=None):
        self.owner, self.wanted = owner, owner


class Operator:
    def __init__(self, target, args, kwargs, grad, frames):
        self.target, self.grad, self.frames = target, grad, frames
        self.args, self.kwargs = args, kwargs
        self.value = Value()


class Call:
    def __init__(self, path="", index=0, key="", parent=None):
        self.path, self.index, self.key = path, index, key
        self.parent = parent
        self.depth = parent.depth + 1 if parent else 0
        self.items, self.takes, self.gives = [], [], []

    def is_it(self, frame):
        return (self.path, self.index) == frame[:2]


def frames_of(stack):
    """Returns (path, index, key) of the nested modules of a stack."""
    found, outer = [], ""
    for key, (path, _) in stack.items():
        name, _, index = key.partition("@")
        if path == "":
            continue
        if outer and not path.startswith(outer + "."):
            break
        found.append((path, int(index or 0), name))
        outer = path
    return found


def is_in_place(target):
    schema = getattr(target, "_schema", None)
    if schema is None or len(schema.returns) != 1 or not schema.arguments:
        return False
    first = schema.arguments[0].alias_info
    return first is not None and first.is_write


class Outline:
    def __init__(self, program):
        self.program = program
        self.root = Call()
        self.calls, self.row = [], []
        self.names = self.state_names()
        self.numbers = {}
        given = {}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                given[node.name] = Value(self.root)
        self.state = {
            given[s.arg.name]: self.names[s.target]
            for s in program.graph_signature.input_specs
            if s.target is not None and s.arg.name in given}
        self.root.takes = [v for v in given.values() if v not in self.state]
        results = self.walk(program.graph_module, dict(given), None, True)
        self.drop_dead(results)
        self.place()
        self.wire(results)
        self.describe(self.root)
        first = {}
        for c in self.calls:
            name = c.path + (f"@{c.index}" if c.index else "")
            c.name = first.setdefault((c.path, c.template), name)

    def state_names(self):
        """Returns all names of each tensor, by any of its names."""
        tensors, groups = {}, {}
        tensors.update(self.program.state_dict)
        tensors.update(self.program.constants)
        for name, t in tensors.items():
            if isinstance(t, torch.Tensor):
                groups.setdefault(
                    (t.untyped_storage()._cdata, t.dtype, t.shape, t.stride(),
                     t.storage_offset()), []).append(name)
        return {name: sorted(g) for g in groups.values() for name in g}

    # --- the sequence of operators -------------------------------------------

    def drop_dead(self, results):
        """Removes operators whose results are unused: they are in the file,
        but not in penstock's graph."""
        wanted, live = set(self.values_in(results)), []
        for item in reversed(self.row):
            schema = getattr(item.target, "_schema", None)
            writes = schema is not None and schema.is_mutable
            if writes or item.value in wanted:
                wanted.update(self.values_in([item.args, item.kwargs]))
                live.append(item)
        self.row = live[::-1]

    def place(self):
        """Makes the calls from the sequence of operators. An operator whose
        stack is shorter than those of its neighbours in a call has lost a part
        of its stack: decomposition gives operators of a no_grad region the
        stack of the region."""
        last, around = {}, [self.root]
        for i, item in enumerate(self.row):
            for path, index, _ in item.frames:
                last[path, index] = i
        for i, item in enumerate(self.row):
            while len(around) > 1 and (
                    last[around[-1].path, around[-1].index] < i or
                    not all(c.is_it(f)
                            for c, f in zip(around[1:], item.frames))):
                around.pop()
            for frame in item.frames[len(around) - 1:]:
                call = Call(*frame, parent=around[-1])
                call.parent.items.append(call)
                self.calls.append(call)
                around.append(call)
            item.value.owner = item.value.wanted = around[-1]
            around[-1].items.append(item)

    def walk(self, module, values, stack, grad):
        """Collects the operators of a graph, including those of no_grad
        regions."""
        for node in module.graph.nodes:
            own = node.meta.get("nn_module_stack") or stack
            if node.op == "get_attr":
                values[node.name] = getattr(module, node.target)
            elif node.op == "output":
                return self.substitute(node.args[0], values)
            elif node.op == "call_function":
                values[node.name] = self.add_operator(node, values, own, grad)
        raise AssertionError("a graph without output")

    @staticmethod
    def substitute(arg, values):
        return map_arg(arg, lambda n: values[n.name])

    def add_operator(self, node, values, stack, grad):
        args = self.substitute(node.args, values)
        if node.target is NO_GRAD:
            on, body, *given = args
            names = [n.name for n in body.graph.nodes if n.op == "placeholder"]
            return self.walk(body, dict(zip(names, given)), stack, on)
        if (getattr(node.target, "__name__", "") == "getitem"
                and not isinstance(args[0], Value)):
            return args[0][args[1]]
        if node.target is COND:
            args = self.branches(*args[:3], operands=args[3])
        if stack and EMPTY not in stack:
            frames = frames_of(stack)
        else:  # the operator belongs to the same call as the one before it
            frames = self.row[-1].frames if self.row else []
        self.row.append(Operator(node.target, args,
                                 self.substitute(node.kwargs, values), grad,
                                 frames))
        return (args[0] if is_in_place(node.target) else
                self.row[-1].value)

    # --- what passes from call to call ---------------------------------------

    @staticmethod
    def values_in(arg):
        if isinstance(arg, Value):
            return [arg]
        if isinstance(arg, dict):
            arg = list(arg.values())
        if isinstance(arg, (list, tuple)):
            return [v for a in arg for v in Outline.values_in(a)]
        return []

    def attribute(self, call, value):
        """Returns the name that a tensor of the state has in the module of a
        call."""
        below = call.path + "." if call.path else ""
        for name in self.state.get(value, ()):
            if name.startswith(below):
                return name[len(below):]
        return None

    def wire(self, results):
        self.pass_to(self.root)
        for v in self.values_in(results):
            self.extend_wanted(v, self.root)
        self.add_outputs(self.root)

    def extend_wanted(self, value, call):
        """Extends value.wanted to the innermost call that contains both
        value.wanted and `call`, which reads the value."""
        at = value.wanted
        while at is not call:
            if at.depth >= call.depth:
                at = at.parent
            else:
                call = call.parent
        value.wanted = at

    def pass_to(self, call):
        for item in call.items:
            if isinstance(item, Call):
                self.pass_to(item)
                continue
            for v in self.values_in([item.args, item.kwargs]):
                self.extend_wanted(v, call)
                at, ancestors = call, set()
                up = v.owner
                while up:
                    ancestors.add(up)
                    up = up.parent
                while at not in ancestors and self.attribute(at, v) is None:
                    if v not in at.takes:
                        at.takes.append(v)
                    at = at.parent

    def add_outputs(self, call):
        for item in call.items:
            if isinstance(item, Call):
                self.add_outputs(item)
                continue
            at = call
            while at is not item.value.wanted:
                at.gives.append(item.value)
                at = at.parent

    # --- descriptions --------------------------------------------------------

    @staticmethod
    def branches(pred, *bodies, operands):
        """Describes the arguments of a condition: lists the operands in order
        of use; the branches refer to them by number."""
        order, texts = [], []
        for body in bodies:
            described = {}
            for n, given in zip([n for n in body.graph.nodes
                                 if n.op == "placeholder"], operands):
                described[n] = given

            def describe_arg(arg):
                if isinstance(arg, torch.fx.Node):
                    value = described[arg]
                    if not isinstance(value, Value):
                        return value
                    if value not in order:
                        order.append(value)
                    return f"given {order.index(value)}"
                if isinstance(arg, (list, tuple)):
                    return tuple(map(describe_arg, arg))
                return repr(arg)

            text = []
            for n in body.graph.nodes:
                if n.op in ("call_function", "output"):
                    text.append((str(n.target), describe_arg(n.args),
                                 describe_arg(sorted(n.kwargs.items()))))
                    described[n] = f"made {len(text)}"
            texts.append(str(text))
        return pred, *texts, *order

    def describe(self, call):
        place = {v: ("in", i) for i, v in enumerate(call.takes)}
        made = 0
        items = []

        def described(arg):
            if isinstance(arg, Value):
                name = self.attribute(call, arg)
                return ("attribute", name) if name is not None else place[arg]
            if isinstance(arg, dict):
                return tuple((k, described(a)) for k, a in sorted(arg.items()))
            if isinstance(arg, (list, tuple)):
                return ("list", *map(described, arg))
            return (type(arg).__name__, repr(arg))

        for item in call.items:
            if isinstance(item, Call):
                self.describe(item)
                items.append(("call", item.template,
                              *map(described, item.takes)))
                new = item.gives
            else:
                items.append((str(item.target), item.grad,
                              described(item.args), described(item.kwargs)))
                new = [item.value]
            for v in new:
                place[v] = ("made", made)
                made += 1
        key = (*items, ("return", *map(described, call.gives)))
        call.template = self.numbers.setdefault(key, len(self.numbers))


def outline(program):
    """Returns the object that `penstock modules --calls --json` prints."""
    found = Outline(program)
    keys = {}
    calls = [{"path": c.path, "index": c.index,
              "identity": keys.setdefault(c.key, len(keys)),
              "name": c.name, "template": c.template} for c in found.calls]
    return {"calls": calls, "names": sorted({c["name"] for c in calls}),
            "templates": len({c["template"] for c in calls})}


def updates(program):
    """Returns how many results are updates of buffers and inputs: these come
    first."""
    return sum(s.kind is not OutputKind.USER_OUTPUT
               for s in program.graph_signature.output_specs)
