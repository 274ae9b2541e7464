# SPDX-License-Identifier: Apache-2.0
"""libpenstock for Python: trains and runs what torch.export.save has written.

    import penstock

    model = penstock.Model("model.pt2", stages=2)
    session = model.session(microbatches=4, optimizer="adamw", lr=1e-3)
    for x, y in batches:
        print(session.train_step(x, y).loss)
    model.close()

The file needs libpenstock.so.0 and the standard library alone. penstock.h
describes the calls: threads, which are collective, what an error leaves.

Arrays are read and written in place. An array is anything with __dlpack__ on
the CPU (NumPy, PyTorch, JAX), or with the buffer protocol (array.array,
memoryview, bytes); strides are respected. One with one dimension and the right
number of elements, in one piece, is taken for a tensor of the wanted shape.

Options are keywords with the names of the command line, with `_` for `-`; those
that are repeated are lists, and flags are True. A failure raises
penstock.Error. `message` is called with notes and warnings.
"""
import collections
import ctypes

NAME = "libpenstock.so.0"
INPUT, OUTPUT, PARAMETER, BUFFER = range(4)

Info = collections.namedtuple("Info", "name dtype shape batch_dim trained")
Step = collections.namedtuple("Step", "step loss grad_norm lr applied")


class Error(Exception):
    """A failure: status (enum penstock_status), id (docs/errors.md), text, and
    remedy, which says what to do next."""

    def __init__(self, status, name, text, remedy):
        super().__init__(f"{text} [{name}] {remedy}")
        self.status, self.id, self.text, self.remedy = \
            status, name, text, remedy


# --- structs of penstock.h, dlpack.h and Python.h -----------------------------

_P, _Size, _I32, _I64 = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32,
                         ctypes.c_int64)
_MESSAGE = ctypes.CFUNCTYPE(None, _P, ctypes.c_char_p)


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", _P), ("device", _I32), ("device_id", _I32),
                ("ndim", _I32), ("dtype", _DType),
                ("shape", ctypes.POINTER(_I64)),
                ("strides", ctypes.POINTER(_I64)), ("offset", ctypes.c_uint64)]


_FILL = ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_uint64, ctypes.c_uint32,
                         ctypes.c_uint32, ctypes.POINTER(_Tensor))


class _Sized(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self):
        super().__init__(ctypes.sizeof(self))


class _Error(_Sized):
    _fields_ = [("size", _Size), ("status", ctypes.c_int),
                ("id", ctypes.c_char * 48), ("text", ctypes.c_char * 4096),
                ("remedy", ctypes.c_char * 512)]


class _Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _OpenConfig(_Sized):
    _fields_ = [("size", _Size), ("options", ctypes.POINTER(_Option)),
                ("n_options", _Size), ("message", _MESSAGE), ("ctx", _P)]


class _SessionConfig(_Sized):
    _fields_ = [("size", _Size), ("options", ctypes.POINTER(_Option)),
                ("n_options", _Size), ("mpi_comm", _P), ("message", _MESSAGE),
                ("ctx", _P)]


class _Info(_Sized):
    _fields_ = [("size", _Size), ("name", ctypes.c_char_p), ("dtype", _DType),
                ("ndim", _I32), ("shape", ctypes.POINTER(_I64)),
                ("batch_dim", _I32), ("trained", _I32)]


class _Step(_Sized):
    _fields_ = [("size", _Size), ("step", ctypes.c_uint64),
                ("loss", ctypes.c_double), ("grad_norm", ctypes.c_double),
                ("lr", ctypes.c_double), ("applied", _I32)]


class _Buffer(ctypes.Structure):
    """Py_buffer"""
    _fields_ = [("buf", _P), ("obj", ctypes.py_object),
                ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", _P), ("internal", _P)]


# PyBUF_RECORDS_RO and PyBUF_WRITABLE; together they are PyBUF_RECORDS.
_RECORDS, _WRITABLE = 0x1c, 0x1
# dtype: DLDataType's code and bits, format of struct (bfloat16 has none).
_DTYPES = {"float32": (2, 32, "f"), "float64": (2, 64, "d"),
           "float16": (2, 16, "e"), "bfloat16": (4, 16, "H"),
           "int64": (0, 64, "q"), "int32": (0, 32, "i"), "int16": (0, 16, "h"),
           "int8": (0, 8, "b"), "uint8": (1, 8, "B"), "bool": (6, 8, "?"),
           "complex64": (5, 64, "Zf"), "complex128": (5, 128, "Zd")}
_NAMES = {(code, bits): name for name, (code, bits, _) in _DTYPES.items()}
_FORMATS = {form: (code, bits) for code, bits, form in _DTYPES.values()
            if form != "H"}
_FORMATS["l"] = (0, 8 * ctypes.sizeof(ctypes.c_long))

_library = None


def load(path=NAME):
    """Loads the library from a file; by default, the dynamic linker finds it.
    Returns the version of the library."""
    global _library
    if _library is None:
        library = ctypes.CDLL(path)
        pointer = ctypes.POINTER
        e, text, i = pointer(_Error), ctypes.c_char_p, ctypes.c_int
        for name, result, args in (
                ("version", text, []),
                ("open", i, [text, pointer(_OpenConfig), pointer(_P), e]),
                ("close", None, [_P]), ("count", _Size, [_P, i]),
                ("describe", i, [_P, i, _Size, pointer(_Info), e]),
                ("session_new", i,
                 [_P, pointer(_SessionConfig), pointer(_P), e]),
                ("comm_from_fortran", i, [i, _P, _Size, e]),
                ("session_free", None, [_P]),
                ("session_describe", i, [_P, i, _Size, pointer(_Info), e]),
                ("train_step", i,
                 [_P, pointer(pointer(_Tensor)), _Size, pointer(_Step), e]),
                ("forward_backward", i,
                 [_P, pointer(pointer(_Tensor)), _Size, pointer(_Step), e]),
                ("update", i, [_P, pointer(_Step), e]),
                ("train_step_fill", i, [_P, _FILL, _P, pointer(_Step), e]),
                ("forward_backward_fill", i,
                 [_P, _FILL, _P, pointer(_Step), e]),
                ("set_gradient", i,
                 [_P, text, pointer(_Tensor), ctypes.c_int, e]),
                ("forward", i, [_P, pointer(pointer(_Tensor)), _Size,
                                pointer(ctypes.c_double), e]),
                ("evaluate", i, [_P, pointer(pointer(_Tensor)), _Size,
                                 pointer(ctypes.c_double), e]),
                ("output", i, [_P, _Size, pointer(_Tensor), e]),
                ("input_gradient", i, [_P, _Size, pointer(_Tensor), e]),
                ("get", i, [_P, text, pointer(_Tensor), e]),
                ("gradient", i, [_P, text, pointer(_Tensor), e]),
                ("set", i, [_P, text, pointer(_Tensor), e]),
                ("save", i, [_P, text, e]),
                ("load", i, [_P, text, pointer(ctypes.c_uint64), e]),
                ("session_count", _Size, [_P, i]),
                ("swap", i, [_P, text, text, pointer(_Option), _Size, e]),
                ("session_bytes", _Size, [_P])):
            function = getattr(library, "penstock_" + name)
            function.restype, function.argtypes = result, args
        _library = library
    return _library.penstock_version().decode()


def _call(name, *words):
    """Calls a function whose last parameter is the error."""
    error = _Error()
    status = getattr(_library, "penstock_" + name)(*words, ctypes.byref(error))
    if status != 0:
        raise Error(status, *(text.decode(errors="replace") for text in
                              (error.id, error.text, error.remedy)))


def _set_options(config, options):
    rows = []
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one is not False:
                rows.append(_Option(name.replace("_", "-").encode(),
                                    b"yes" if one is True else
                                    str(one).encode()))
    config.options = (_Option * (len(rows) + 1))(*rows)
    config.n_options = len(rows)


def _set_message(config, message):
    if message is not None:
        config.message = _MESSAGE(
            lambda ctx, text: message(text.decode(errors="replace")))


def _info(call, *words):
    info = _Info()
    _call(call, *words, ctypes.byref(info))
    key = (info.dtype.code, info.dtype.bits)
    return Info(info.name.decode(), _NAMES[key],
                tuple(info.shape[d] for d in range(info.ndim)), info.batch_dim,
                bool(info.trained))


# --- arrays -------------------------------------------------------------------

def _count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


class _Array:
    """A DLTensor of a caller's array; close() releases the array."""

    def __init__(self, array, info, writes):
        self.held, self.view, self.tensor = None, None, _Tensor()
        if array is None:
            self.pointer = None
            return
        if not self.by_dlpack(array):
            self.by_buffer(array, writes)
        self.pointer = ctypes.pointer(self.tensor)
        self.reshape(info.shape)

    def by_dlpack(self, array):
        if not hasattr(array, "__dlpack__"):
            return False
        if getattr(array, "requires_grad", False):
            array = array.detach()
        try:
            capsule = array.__dlpack__()
        except (BufferError, TypeError):  # such as a read-only array
            return False
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
        # The capsule stays unconsumed, so it frees the tensor when it is freed.
        self.held = (array, capsule)
        at = get(capsule, b"dltensor")
        ctypes.memmove(ctypes.byref(self.tensor), at, ctypes.sizeof(_Tensor))
        return True

    def by_buffer(self, array, writes):
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
        view = _Buffer()
        get(array, ctypes.byref(view), _RECORDS | (_WRITABLE if writes else 0))
        self.view = view
        form = (view.format or b"B").decode().lstrip("@=<")
        if form not in _FORMATS or \
                any(view.strides[d] % view.itemsize for d in range(view.ndim)):
            self.close()
            raise TypeError(f"an array of format {form!r} is no tensor")
        sizes = _I64 * max(view.ndim, 1)
        code, bits = _FORMATS[form]
        self.held = (sizes(*view.shape[:view.ndim]),
                     sizes(*(view.strides[d] // view.itemsize
                             for d in range(view.ndim))))
        self.tensor = _Tensor(
            view.buf, 1, 0, view.ndim, _DType(code, bits, 1),
            *(ctypes.cast(one, ctypes.POINTER(_I64)) for one in self.held), 0)

    def reshape(self, shape):
        """Gives a flat array the shape that is wanted; None: any size."""
        t = self.tensor
        if t.ndim == 1 and None in shape:
            rest = _count(size for size in shape if size is not None)
            shape = [t.shape[0] // rest if size is None else size
                     for size in shape]
        if t.ndim != 1 or len(shape) == 1 or t.shape[0] != _count(shape) or \
                t.strides and t.strides[0] != 1 and t.shape[0] > 1:
            return
        self.held = (self.held, (_I64 * max(len(shape), 1))(*shape))
        t.ndim, t.strides = len(shape), None
        t.shape = ctypes.cast(self.held[1], ctypes.POINTER(_I64))

    def close(self):
        if self.view is not None:
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self.view))
        self.held = self.view = None


class _Arrays:
    """The arrays of one call."""

    def __init__(self, pairs, writes=False):
        self.all = []
        try:
            for array, info in pairs:
                self.all.append(_Array(array, info, writes))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        n = len(self.all)
        return (ctypes.POINTER(_Tensor) * max(n, 1))(
            *(one.pointer for one in self.all)), n

    def __exit__(self, *_):
        for one in self.all:
            one.close()


def _empty(info):
    """Makes a memoryview for a tensor. bfloat16 are 16 bits each, float16 too;
    complex numbers are pairs; a tensor without dimensions or elements is
    flat."""
    code, bits, form = _DTYPES[info.dtype]
    shape = list(info.shape)
    if code == 5:
        form, shape = form[1], shape + [2]
    if form == "e":
        form = "H"
    view = memoryview(bytearray(_count(info.shape) * bits // 8))
    return view.cast(form, shape) if shape and view.nbytes else view.cast(form)


def _view(tensor):
    """Returns a flat memoryview of a contiguous tensor, as _empty() has it."""
    form = _DTYPES[_NAMES[tensor.dtype.code, tensor.dtype.bits]][2]
    n = _count(tensor.shape[d] for d in range(tensor.ndim))
    raw = (ctypes.c_char * (n * tensor.dtype.bits // 8)).from_address(
        tensor.data + tensor.offset)
    return memoryview(raw).cast("B").cast(
        {"e": "H", "Zf": "f", "Zd": "d"}.get(form, form))


def _write(info, out, call):
    """Calls call(tensor) with the array `out`, or with a new one, and returns
    it."""
    if out is not None:
        with _Arrays([(out, info)], writes=True) as (tensors, _):
            call(tensors[0])
        return out
    made = _empty(info)
    with _Arrays([(memoryview(made).cast("B"), info)], writes=True) as \
            (tensors, _):
        # The dtype is the model's, also where struct has no format.
        t = tensors[0].contents
        shape = (_I64 * max(len(info.shape), 1))(*info.shape)
        t.dtype = _DType(*_DTYPES[info.dtype][:2], 1)
        t.ndim, t.strides = len(info.shape), None
        t.shape = ctypes.cast(shape, ctypes.POINTER(_I64))
        call(tensors[0])
    return made


# --- models and sessions ------------------------------------------------------

class Model:
    """A .pt2 file, which is cut into stages, or the folder of a plan. Options:
    those of `penstock split`. inputs, outputs, parameters and buffers are lists
    of Info, with the shapes of a microbatch."""

    def __init__(self, path, *, message=None, **options):
        load()
        self._handle, self._session = _P(), None
        self._config = _OpenConfig()
        _set_options(self._config, options)
        _set_message(self._config, message)
        _call("open", str(path).encode(), ctypes.byref(self._config),
              ctypes.byref(self._handle))
        self.inputs, self.outputs, self.parameters, self.buffers = (
            [_info("describe", self._handle, kind, i) for i in
             range(_library.penstock_count(self._handle, kind))]
            for kind in range(4))

    def session(self, *, comm=None, message=None, **options):
        """Makes the session of the model; see Session."""
        return Session(self, comm=comm, message=message, **options)

    def close(self):
        if self._session is not None:
            self._session.close()
        _library.penstock_close(self._handle)
        self._handle = _P()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Session:
    """A model with memory, an optimizer and ranks. Options: those of
    `penstock run` that shape a step. comm: a communicator of mpi4py, or its
    Fortran handle; None: all ranks are in this process. inputs and outputs are
    lists of Info, with the shapes of a whole step; parameters and buffers are
    those of the model, which swap() changes."""

    def __init__(self, model, *, comm=None, message=None, **options):
        self._model, self._handle = model, _P()
        self._config = _SessionConfig()
        _set_options(self._config, options)
        _set_message(self._config, message)
        if comm is not None:
            self._comm = (_I64 * 2)()
            handle = comm if isinstance(comm, int) else comm.py2f()
            _call("comm_from_fortran", handle, self._comm,
                  ctypes.sizeof(self._comm))
            self._config.mpi_comm = ctypes.addressof(self._comm)
        _call("session_new", model._handle, ctypes.byref(self._config),
              ctypes.byref(self._handle))
        model._session = self
        self._describe()

    def _describe(self):
        self.inputs, self.outputs, self.parameters, self.buffers = (
            [_info("session_describe", self._handle, kind, i) for i in
             range(_library.penstock_session_count(self._handle, kind))]
            for kind in range(4))

    def _inputs(self, given, infos=None):
        if len(given) != len(self.inputs):
            raise TypeError(f"{len(given)} inputs were given, and the model "
                            f"has {len(self.inputs)}")
        return _Arrays(zip(given, infos or self.inputs))

    def train_step(self, *inputs):
        """Makes a step of training on all rows of all microbatches. Returns a
        Step. An input that no stage of this rank reads may be None."""
        with self._inputs(inputs) as (tensors, n):
            return self._step("train_step", tensors, n)

    def _step(self, call, *words):
        step = _Step()
        _call(call, self._handle, *words, ctypes.byref(step))
        return Step(step.step, step.loss, step.grad_norm, step.lr,
                    bool(step.applied))

    def forward_backward(self, *inputs):
        """Makes the first part of a step of training: loss and gradients.
        Returns a Step; update() makes the optimizer's step."""
        with self._inputs(inputs) as (tensors, n):
            return self._step("forward_backward", tensors, n)

    def train_step_fill(self, fill):
        """Makes a step of training whose inputs fill(step, microbatch, input,
        view) writes: view is a flat, writable memoryview of the elements of a
        microbatch's input, valid during the call. It may be called in another
        thread. An exception fails the step, and is raised again."""
        return self._step_fill("train_step_fill", fill)

    def forward_backward_fill(self, fill):
        """Makes forward_backward() with inputs that fill() writes, as for
        train_step_fill()."""
        return self._step_fill("forward_backward_fill", fill)

    def _step_fill(self, call, fill):
        raised = []

        def write(_, step, microbatch, index, tensor):
            try:
                with _view(tensor.contents) as view:
                    fill(step, microbatch, index, view)
            except BaseException as e:  # raised below, in the caller's thread
                raised.append(e)
            return len(raised)

        try:
            return self._step(call, _FILL(write), None)
        except Error:
            if raised:
                raise raised[0]
            raise

    def update(self):
        """Makes the optimizer's step with the gradients of the last
        forward_backward(). Returns a Step."""
        return self._step("update")

    def forward(self, *inputs):
        """Runs the model in eval mode. Returns the loss, NaN if there is none;
        output() has the rest."""
        loss = ctypes.c_double()
        with self._inputs(inputs) as (tensors, n):
            _call("forward", self._handle, tensors, n, ctypes.byref(loss))
        return loss.value

    def evaluate(self, *inputs):
        """Returns the mean loss in eval mode over any number of rows, each of
        them once, as `penstock eval` computes it."""
        loss = ctypes.c_double()
        infos = [info._replace(shape=[
            None if d == info.batch_dim else size
            for d, size in enumerate(info.shape)]) for info in self.inputs]
        with self._inputs(inputs, infos) as (tensors, n):
            _call("evaluate", self._handle, tensors, n, ctypes.byref(loss))
        return loss.value

    def output(self, index, out=None):
        """Copies an output of the last forward() to the array `out`, or to a
        new memoryview, and returns it. With MPI: on rank 0."""
        if not 0 <= index < len(self.outputs):
            raise IndexError(f"the model has {len(self.outputs)} outputs")
        return _write(self.outputs[index], out, lambda tensor: _call(
            "output", self._handle, index, tensor))

    def gradient(self, name, out=None):
        """Copies the gradient of a parameter in the last step of training to
        the array `out`, or to a new memoryview, and returns it."""
        return _write(self._named(name), out, lambda tensor: _call(
            "gradient", self._handle, name.encode(), tensor))

    def input_gradient(self, index, out=None):
        """Copies the gradient of an input in the last train_step(), one that
        the option input_gradients names, to the array `out`, or to a new
        memoryview, and returns it. With MPI: on rank 0."""
        if not 0 <= index < len(self.inputs):
            raise IndexError(f"the model has {len(self.inputs)} inputs")
        return _write(self.inputs[index], out, lambda tensor: _call(
            "input_gradient", self._handle, index, tensor))

    def set_gradient(self, name, array, add=False):
        """Sets the gradient of a parameter between forward_backward() and
        update(), or adds to it."""
        with _Arrays([(array, self._named(name))]) as (tensors, _):
            _call("set_gradient", self._handle, name.encode(), tensors[0],
                  int(add))

    def _named(self, name):
        for info in self.parameters + self.buffers:
            if info.name == name:
                return info
        raise KeyError(name)

    def get(self, name, out=None):
        """Copies a parameter or buffer to the array `out`, or to a new
        memoryview, and returns it."""
        return _write(self._named(name), out, lambda tensor: _call(
            "get", self._handle, name.encode(), tensor))

    def set(self, name, array):
        """Sets a parameter or buffer."""
        with _Arrays([(array, self._named(name))]) as (tensors, _):
            _call("set", self._handle, name.encode(), tensors[0])

    def swap(self, module, path, **options):
        """Replaces a module of the model by another one, in a file. Options:
        at_call, aliases, state."""
        given = _SessionConfig()
        _set_options(given, options)
        _call("swap", self._handle, module.encode(), str(path).encode(),
              given.options, given.n_options)
        self._describe()

    def save(self, folder):
        """Writes a checkpoint."""
        _call("save", self._handle, str(folder).encode())

    def load(self, folder):
        """Loads a checkpoint. Returns the number of its finished steps."""
        step = ctypes.c_uint64()
        _call("load", self._handle, str(folder).encode(), ctypes.byref(step))
        return step.value

    @property
    def nbytes(self):
        """Bytes of memory that were planned for the ranks of this process."""
        return _library.penstock_session_bytes(self._handle)

    def close(self):
        _library.penstock_session_free(self._handle)
        self._handle, self._model._session = _P(), None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- export -------------------------------------------------------------------

# Parts of PyTorch's messages, and what to change in the module.
_CHANGES = (
    ("data-dependent", "A branch or a size depends on the values of a tensor. "
     "Compute both branches and choose with torch.where, or use torch.cond; "
     "keep sizes constant."),
    (".item()", "A number is taken out of a tensor. Keep it a tensor."),
    ("requires_grad", "Take tensors that need no gradient as inputs, and make "
     "the others parameters."),
    ("unexpected keyword", "Give each argument of forward as an example, in "
     "its order."),
    ("missing", "Give each argument of forward as an example, in its order."))


def _tensors(args):
    import torch
    return [t for t in torch.utils._pytree.tree_leaves(args)
            if isinstance(t, torch.Tensor)]


def export(module, args, path, kwargs=None, **options):
    """Exports a torch.nn.Module with examples of the arguments of forward (a
    tuple), of the size of a microbatch, writes it to path, and opens it as
    `penstock split` does (options: its options). Returns a list of sentences
    that say what to change or to know; it is empty if there is nothing. Raises
    Error if the model cannot be exported (id "export") or run."""
    import torch

    notes = []
    examples = _tensors((args, kwargs or {}))
    if len({id(t) for t in examples}) < len(examples):
        notes.append("Two inputs are one tensor, so torch.export takes uses of "
                     "the second one for uses of the first: give each of them "
                     "a tensor of its own.")
    if not module.training:
        notes.append("The module is in eval mode, so dropout and batch "
                     "normalization do not train: call module.train() before "
                     "the export, unless that is meant.")
    try:
        program = torch.export.export(module, tuple(args), kwargs, strict=False)
    except Exception as e:
        text = str(e).strip().partition("\n")[0]
        change = [what for part, what in _CHANGES if part in str(e).lower()]
        raise Error(-4, "export", f"torch.export refuses the module: {text}",
                    change[0] if change else "PyTorch's message, above, names "
                    "the line of the module to change.") from e
    torch.export.save(program, str(path))
    with Model(path, message=notes.append, **options) as model:
        first = model.outputs[0] if model.outputs else None
        if "loss" not in options and "loss_fn" not in options and (
                first is None or first.shape != () or
                not first.dtype.startswith(("float", "bfloat"))):
            notes.append("The first output is no loss, so the model runs, and "
                         "does not train: let forward return the loss, a "
                         "floating-point scalar, first, or name it with the "
                         "option loss or loss_fn.")
    return notes
