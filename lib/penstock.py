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
What is written must not be read-only, as JAX's arrays are. Results are Tensors,
which these packages take in place. Program runs operators on arrays that may
share memory.

Options are keywords with the names of the command line, with `_` for `-`; those
that are repeated are lists, and flags are True. A failure raises
penstock.Error. `message` is called with notes and warnings.
"""
import collections
import ctypes
import json
import math

NAME = "libpenstock.so.0"
INPUT, OUTPUT, PARAMETER, BUFFER = range(4)

Info = collections.namedtuple("Info", "name dtype shape batch_dim trained")
Copies = collections.namedtuple("Copies", "in_place read written")
Module = collections.namedtuple(
    "Module", "name type own_parameters parameters calls stages")
Step = collections.namedtuple("Step", "step loss grad_norm lr applied")
# struct penstock_call_info without the number of results.
Call = collections.namedtuple(
    "Call", "copied passed bases plans is_new in_place")


class Error(Exception):
    """A failure: status (enum penstock_status), id (docs/errors.md), text, and
    remedy, which says what to do next."""

    def __init__(self, status, name, text, remedy):
        super().__init__(f"{text} [{name}] {remedy}")
        self.status, self.id, self.text, self.remedy = \
            status, name, text, remedy


# --- structs of penstock.h, dlpack.h and Python.h -----------------------------

_P, _Text, _Size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_I32, _I64 = ctypes.c_int32, ctypes.c_int64
_MESSAGE = ctypes.CFUNCTYPE(None, _P, _Text)


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


class _Managed(ctypes.Structure):
    """DLManagedTensorVersioned, which DLPack has since 1.0."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("ctx", _P), ("deleter", _P), ("flags", ctypes.c_uint64),
                ("tensor", _Tensor)]


class _Sized(ctypes.Structure):
    """A struct of penstock.h that begins with its size."""

    def __init__(self):
        super().__init__(ctypes.sizeof(self))


def _sized(*fields):
    return type("Sized", (_Sized,), {"_fields_": [("size", _Size), *fields]})


class _Option(ctypes.Structure):
    _fields_ = [("name", _Text), ("value", _Text)]


class _Operand(ctypes.Structure):
    _fields_ = [("name", _Text), ("tensor", ctypes.POINTER(_Tensor)),
                ("storage", _P), ("storage_bytes", _Size)]


_OPTIONS = ("options", ctypes.POINTER(_Option)), ("n_options", _Size)
_Error = _sized(("status", ctypes.c_int), ("id", ctypes.c_char * 48),
                ("text", ctypes.c_char * 4096), ("remedy", ctypes.c_char * 512))
# Also struct penstock_program_config.
_OpenConfig = _sized(*_OPTIONS, ("message", _MESSAGE), ("ctx", _P))
_SessionConfig = _sized(*_OPTIONS, ("mpi_comm", _P), ("message", _MESSAGE),
                        ("ctx", _P))
_Info = _sized(("name", _Text), ("dtype", _DType), ("ndim", _I32),
               ("shape", ctypes.POINTER(_I64)), ("batch_dim", _I32),
               ("trained", _I32))
_Module = _sized(("name", _Text), ("type", _Text), ("own_parameters", _I64),
                 ("parameters", _I64), ("calls", ctypes.c_uint32),
                 ("n_stages", _I32), ("stages", ctypes.POINTER(_I32)))
_Step = _sized(("step", ctypes.c_uint64), ("loss", ctypes.c_double),
               ("grad_norm", ctypes.c_double), ("lr", ctypes.c_double),
               ("applied", _I32))
_Copies = _sized(("in_place", ctypes.c_uint64), ("read", ctypes.c_uint64),
                 ("written", ctypes.c_uint64))
_CallInfo = _sized(("results", _Size), ("copied", _Size), ("passed", _Size),
                   ("bases", _Size), ("plans", _Size), ("is_new", _I32),
                   ("in_place", _Size))
# struct penstock_tensor
_Result = _sized(("tensor", _Tensor), ("operand", _I32), ("moved", _I32))


_PyBuffer = _P * 10  # Py_buffer; the first word is the address
_FULL_RO = 0x11c  # PyBUF_FULL_RO
_READ_ONLY, _COPIED = 1, 2  # flags of _Managed
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
        i, text = ctypes.c_int, _Text
        handle, e, config, info, module, step, tensor, tensors, result = (
            ctypes.POINTER(kind) for kind in
            (_P, _Error, _OpenConfig, _Info, _Module, _Step, _Tensor,
             ctypes.POINTER(_Tensor), _Result))
        number, count = (ctypes.POINTER(kind) for kind in
                         (ctypes.c_double, ctypes.c_uint64))
        for names, returns, args in (
                ("version", text, []),
                ("open", i, [text, config, handle, e]),
                ("close session_free program_close", None, [_P]),
                ("count session_count", _Size, [_P, i]),
                ("describe session_describe", i, [_P, i, _Size, info, e]),
                ("module_count", _Size, [_P]),
                ("describe_module", i, [_P, _Size, module, e]),
                ("session_new", i,
                 [_P, ctypes.POINTER(_SessionConfig), handle, e]),
                ("comm_from_fortran", i, [i, _P, _Size, e]),
                ("train_step forward_backward", i,
                 [_P, tensors, _Size, step, e]),
                ("train_step_fill forward_backward_fill", i,
                 [_P, _FILL, _P, step, e]),
                ("update", i, [_P, step, e]),
                ("set_gradient", i, [_P, text, tensor, i, e]),
                ("forward evaluate", i, [_P, tensors, _Size, number, e]),
                ("output input_gradient", i, [_P, _Size, tensor, e]),
                ("get gradient set", i, [_P, text, tensor, e]),
                ("save", i, [_P, text, e]), ("load", i, [_P, text, count, e]),
                ("view", i, [_P, i, _Size, tensor, e]),
                ("swap", i, [_P, text, text, ctypes.POINTER(_Option), _Size,
                             e]),
                ("session_bytes", _Size, [_P]),
                ("session_copies", i, [_P, ctypes.POINTER(_Copies), e]),
                ("program_open", i, [text, _Size, config, handle, e]),
                ("call_flags", i, [_P, ctypes.POINTER(_Operand), count, _Size,
                                   ctypes.POINTER(_CallInfo), e]),
                ("result", i, [_P, _Size, result, e]),
                ("result_operand result_gradient", i, [_P, text, result, e])):
            for name in names.split():
                function = getattr(library, "penstock_" + name)
                function.restype, function.argtypes = returns, args
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


def _infos(of, handle):
    """Returns the lists of inputs, outputs, parameters and buffers."""
    def info(kind, i):
        info = _Info()
        _call(of + "describe", handle, kind, i, ctypes.byref(info))
        return Info(info.name.decode(),
                    _NAMES[info.dtype.code, info.dtype.bits],
                    tuple(info.shape[:info.ndim]), info.batch_dim,
                    bool(info.trained))

    count = getattr(_library, f"penstock_{of}count")
    return [[info(kind, i) for i in range(count(handle, kind))]
            for kind in range(4)]


# --- arrays -------------------------------------------------------------------

def _can_write(array):
    """Whether an array may be written whose DLPack tensor, of a version before
    1.0, does not say so."""
    flags = getattr(array, "flags", None)
    if hasattr(flags, "writeable"):  # NumPy
        return flags.writeable
    try:
        return not memoryview(array).readonly
    except (TypeError, ValueError, BufferError):
        return type(array).__module__.partition(".")[0] == "torch"


def _dlpack_tensor(capsule):
    """Returns the tensor in a capsule of DLPack, and its flags; None: the
    tensor is of a version before 1.0, and has none."""
    function = ctypes.PYFUNCTYPE(_P, ctypes.py_object, ctypes.c_char_p)
    get = function(("PyCapsule_GetPointer", ctypes.pythonapi))
    if "dltensor_versioned" not in repr(capsule):
        return _Tensor.from_address(get(capsule, b"dltensor")), None
    managed = _Managed.from_address(get(capsule, b"dltensor_versioned"))
    if managed.major != 1:
        raise BufferError(f"version {managed.major} of DLPack is not supported")
    return managed.tensor, managed.flags


class _Array:
    """A DLTensor of a caller's array; close() releases the array. info: name
    and shape that are wanted; without a shape, any is right. readonly: None, or
    why the array must not be written."""

    def __init__(self, array, info, writes):
        self.held, self.buffer, self.tensor = None, None, _Tensor()
        self.readonly = None
        if array is None:
            self.pointer = None
            return
        if isinstance(array, Tensor):
            self.readonly = "is read-only" if array.readonly else None
            self.tensor, self.held = array._describe(), array
        elif not self.by_dlpack(array):
            self.by_buffer(array)
        if writes and self.readonly:
            raise Error(-5, "library.tensor", f"the array for '{info.name}' "
                        f"{self.readonly}, and the call writes to it", "Give "
                        "an array that can be written, such as a copy of it.")
        self.pointer = ctypes.pointer(self.tensor)
        if info.shape is not None:
            self.reshape(info.shape)

    def by_dlpack(self, array):
        if not hasattr(array, "__dlpack__"):
            return False
        if getattr(array, "requires_grad", False):
            array = array.detach()
        try:
            try:
                capsule = array.__dlpack__(max_version=(1, 0))
            except TypeError:  # it has DLPack before 1.0
                capsule = array.__dlpack__()
        except (BufferError, TypeError):
            return False
        # The capsule stays unconsumed, so it frees the tensor when it is freed.
        self.held = (array, capsule)
        tensor, flags = _dlpack_tensor(capsule)
        self.tensor = _Tensor.from_buffer_copy(tensor)
        if flags is None:
            flags = 0 if _can_write(array) else _READ_ONLY
        if flags & (_READ_ONLY | _COPIED):
            self.readonly = "is read-only" if flags & _READ_ONLY else \
                "gives a copy of its memory"
        return True

    def by_buffer(self, array):
        get, self.buffer = ctypes.pythonapi.PyObject_GetBuffer, _PyBuffer()
        get.argtypes = [ctypes.py_object, _P, ctypes.c_int]
        view = memoryview(array)
        form = view.format.lstrip("@=<")
        if form not in _FORMATS or \
                any(step % view.itemsize for step in view.strides):
            raise TypeError(f"an array of format {form!r} is no tensor")
        self.readonly = "is read-only" if view.readonly else None
        get(view, self.buffer, _FULL_RO)
        sizes = _I64 * max(view.ndim, 1)
        self.held = view, sizes(*view.shape), sizes(
            *(step // view.itemsize for step in view.strides))
        self.tensor = _Tensor(
            self.buffer[0], 1, 0, view.ndim, _DType(*_FORMATS[form], 1),
            *(ctypes.cast(one, ctypes.POINTER(_I64)) for one in self.held[1:]),
            0)

    def reshape(self, shape):
        """Gives a flat array the shape that is wanted; None: any size."""
        t = self.tensor
        if t.ndim == 1 and None in shape:
            rest = math.prod(size for size in shape if size is not None)
            shape = [t.shape[0] // rest if size is None else size
                     for size in shape]
        if t.ndim != 1 or len(shape) == 1 or t.shape[0] != math.prod(shape) or \
                t.strides and t.strides[0] != 1 and t.shape[0] > 1:
            return
        self.held = (self.held, (_I64 * max(len(shape), 1))(*shape))
        t.ndim, t.strides = len(shape), None
        t.shape = ctypes.cast(self.held[1], ctypes.POINTER(_I64))

    def close(self):
        if self.buffer is not None:
            ctypes.pythonapi.PyBuffer_Release(self.buffer)
        self.held = self.buffer = None

    def __del__(self):
        self.close()


def _any(name):
    """The Info of an array of any dtype and shape."""
    return Info(name, None, None, -1, False)


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


class Tensor:
    """A tensor on the CPU that a call has returned: dtype, shape, and strides
    in elements. numpy.asarray, torch.from_dlpack and whatever else takes arrays
    share its memory; for __dlpack__ NumPy must be installed. operand: the name
    of the operand whose memory it is a view of, or None. readonly: what
    Session.view() gives is.

    view is a memoryview of it, and indices and other attributes are those of
    view: bfloat16 and float16 are 16 bits each, complex numbers are pairs, and
    a tensor without dimensions or elements is flat. flat has one dimension. A
    tensor with gaps has neither."""

    def __init__(self, dtype, shape, strides=None, at=None, owner=None,
                 operand=None, readonly=False):
        """at, owner: the first element's address, and what keeps it valid; by
        default, new memory."""
        self.dtype, self.shape, self.operand = dtype, tuple(shape), operand
        self.readonly = readonly
        dense = tuple(math.prod(self.shape[d + 1:]) for d in
                      range(len(self.shape)))
        self.strides = dense if strides is None else tuple(strides)
        _, bits, self._form = _DTYPES[dtype]
        self._size = bits // 8
        self._dense = not math.prod(self.shape) or all(
            size == 1 or a == b for size, a, b in
            zip(self.shape, self.strides, dense))
        if at is None:  # aligned, as JAX wants it
            owner = (ctypes.c_char * (self._nbytes() + 63))()
            at = -(-ctypes.addressof(owner) // 64) * 64
        self._at, self._owner = at, owner

    def _nbytes(self):
        """Bytes from the first to the last element."""
        n = 1 + sum((size - 1) * stride for size, stride in
                    zip(self.shape, self.strides))
        return n * self._size if math.prod(self.shape) else 0

    def _describe(self):
        sizes = _I64 * max(len(self.shape), 1)
        return _Tensor(self._at, 1, 0, len(self.shape),
                       _DType(*_DTYPES[self.dtype][:2], 1),
                       ctypes.cast(sizes(*self.shape), ctypes.POINTER(_I64)),
                       ctypes.cast(sizes(*self.strides), ctypes.POINTER(_I64)),
                       0)

    @property
    def flat(self):
        if not self._dense:
            raise BufferError("a tensor with gaps has no memoryview: take "
                              "numpy.asarray, torch.from_dlpack or tolist()")
        raw = (ctypes.c_char * self._nbytes()).from_address(self._at)
        raw.owner = self._owner  # the memoryview keeps raw
        view = memoryview(raw).cast("B").cast(
            {"e": "H", "Zf": "f", "Zd": "d"}.get(self._form, self._form))
        return view.toreadonly() if self.readonly else view

    @property
    def view(self):
        shape = [*self.shape, 2] if "Z" in self._form else [*self.shape]
        flat = self.flat
        return flat.cast("B").cast(flat.format, shape) if shape and \
            flat.nbytes else flat

    def tolist(self):
        if self._dense:
            return self.view.tolist()
        parts = [Tensor(self.dtype, self.shape[1:], self.strides[1:],
                        self._at + i * self.strides[0] * self._size,
                        self._owner).tolist() for i in range(self.shape[0])]
        return parts if len(self.shape) > 1 or "Z" in self._form else \
            [part for part, in parts]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.view, name)

    def __getitem__(self, index):
        return self.view[index]

    def __len__(self):
        return len(self.view)

    def __eq__(self, other):
        return self.view == (other.view if isinstance(other, Tensor) else other)

    @property
    def __array_interface__(self):
        kind = "iuf?ucb"[_DTYPES[self.dtype][0]]  # bfloat16: 16 bits
        return {"version": 3, "shape": self.shape,
                "data": (self._at, self.readonly),
                "typestr": f"{'|' if self._size == 1 else '<'}{kind}"
                           f"{self._size}",
                "strides": tuple(n * self._size for n in self.strides)}

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        """NumPy lends the memory, since what it returns may be released in any
        thread and while an exception is raised, which Python code may not."""
        try:
            import numpy
        except ImportError as e:
            raise BufferError("__dlpack__ needs NumPy") from e
        capsule = numpy.asarray(self).__dlpack__(**options)
        if self.dtype == "bfloat16":  # NumPy has none: 16 bits without a sign
            _dlpack_tensor(capsule)[0].dtype.code = 4
        return capsule


def _write(info, out, call):
    """Calls call(tensor) with the array `out`, or with a new Tensor, and
    returns it."""
    out = Tensor(info.dtype, info.shape) if out is None else out
    with _Arrays([(out, info)], writes=True) as (tensors, _):
        call(tensors[0])
    return out


# --- models and sessions ------------------------------------------------------

class _Closes:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Model(_Closes):
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
        self.inputs, self.outputs, self.parameters, self.buffers = \
            _infos("", self._handle)

    def modules(self):
        """Returns a list of Module: the model (name ""), its modules, those
        in them ..."""
        found = []
        for i in range(_library.penstock_module_count(self._handle)):
            m = _Module()
            _call("describe_module", self._handle, i, ctypes.byref(m))
            found.append(Module(
                m.name.decode(), m.type.decode(), m.own_parameters,
                m.parameters, m.calls, tuple(m.stages[:m.n_stages])))
        return found

    def session(self, *, comm=None, message=None, **options):
        """Makes the session of the model; see Session."""
        return Session(self, comm=comm, message=message, **options)

    def close(self):
        if self._session is not None:
            self._session.close()
        _library.penstock_close(self._handle)
        self._handle = _P()


class Session(_Closes):
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
        self.inputs, self.outputs, self.parameters, self.buffers = \
            _infos("session_", self._handle)

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
                t = tensor.contents
                with Tensor(_NAMES[t.dtype.code, t.dtype.bits],
                            t.shape[:t.ndim], at=t.data + t.offset).flat as \
                        view:
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
        new Tensor, and returns it. With MPI: on rank 0."""
        if not 0 <= index < len(self.outputs):
            raise IndexError(f"the model has {len(self.outputs)} outputs")
        return _write(self.outputs[index], out, lambda tensor: _call(
            "output", self._handle, index, tensor))

    def gradient(self, name, out=None):
        """Copies the gradient of a parameter in the last step of training to
        the array `out`, or to a new Tensor, and returns it."""
        return _write(self._named(name), out, lambda tensor: _call(
            "gradient", self._handle, name.encode(), tensor))

    def input_gradient(self, index, out=None):
        """Copies the gradient of an input in the last train_step(), one that
        the option input_gradients names, to the array `out`, or to a new
        Tensor, and returns it. With MPI: on rank 0."""
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
        Tensor, and returns it."""
        return _write(self._named(name), out, lambda tensor: _call(
            "get", self._handle, name.encode(), tensor))

    def view(self, which):
        """Returns a parameter or buffer by its name, or an output of the last
        forward() by its number: a read-only Tensor in the session's memory,
        which is not copied. It is valid until swap() or close(), and an output
        also until the next forward() or evaluate(); nothing keeps it longer."""
        for kind, infos in ((OUTPUT, range(len(self.outputs))),
                            (PARAMETER, [p.name for p in self.parameters]),
                            (BUFFER, [b.name for b in self.buffers])):
            if which in infos:
                t = _Tensor()
                _call("view", self._handle, kind, [*infos].index(which),
                      ctypes.byref(t))
                return Tensor(_NAMES[t.dtype.code, t.dtype.bits],
                              t.shape[:t.ndim], None, t.data + t.offset, self,
                              readonly=True)
        raise KeyError(which)

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

    def copies(self):
        """Returns Copies: bytes that the last call read in place, copied from
        arrays, and copied to arrays."""
        c = _Copies()
        _call("session_copies", self._handle, ctypes.byref(c))
        return Copies(c.in_place, c.read, c.written)

    def close(self):
        _library.penstock_session_free(self._handle)
        self._handle, self._model._session = _P(), None


# --- programs on arrays that share memory -------------------------------------

class Program(_Closes):
    """A list of operators on arrays that may share memory, as a dict or as JSON
    (docs/library.md, "Programs"). Options: those of an optimizer. last: what
    the last call did, a Call."""

    def __init__(self, text, *, message=None, **options):
        load()
        self._handle, self._arrays, self.last = _P(), {}, None
        self._config = _OpenConfig()
        _set_options(self._config, options)
        _set_message(self._config, message)
        if not isinstance(text, (str, bytes)):
            text = json.dumps(text)
        text = text.encode() if isinstance(text, str) else text
        _call("program_open", text, len(text), ctypes.byref(self._config),
              ctypes.byref(self._handle))

    def call(self, operands, storages=None):
        """Runs the program on arrays by name; those that it writes must not be
        read-only. Two names with one array are one tensor. storages: by name, an array
        without gaps that is the whole memory which an operand is a view of; by
        default, that which the operands cover. Returns a list of Tensors: views
        of the operands' memory (`operand` is a name), or copies."""
        arrays, self._arrays = {}, {}
        rows = (_Operand * max(len(operands), 1))()
        flags = (ctypes.c_uint64 * len(rows))()
        for i, (row, (name, array)) in enumerate(zip(rows, operands.items())):
            if id(array) not in arrays:
                arrays[id(array)] = _Array(array, _any(name), False)
            one = self._arrays[name] = arrays[id(array)]
            row.name, row.tensor = name.encode(), one.pointer
            flags[i] = bool(one.readonly)
            if name in (storages or {}):
                whole = _Array(storages[name], _any(name), False)
                t, one.held = whole.tensor, (one.held, whole)
                row.storage = t.data + t.offset
                row.storage_bytes = t.dtype.bits // 8 * math.prod(
                    t.shape[d] for d in range(t.ndim))
        info = _CallInfo()
        _call("call_flags", self._handle, rows, flags, len(operands),
              ctypes.byref(info))
        self.last = Call(info.copied, info.passed, info.bases, info.plans,
                         bool(info.is_new), info.in_place)
        return [self._result("result", i) for i in range(info.results)]

    def operand(self, name):
        """Returns an operand after the last call, which may have changed its
        geometry; None: set_() has moved it to new memory."""
        return self._result("result_operand", name.encode())

    def gradient(self, name):
        """Returns the gradient of a leaf in the last call."""
        return self._result("result_gradient", name.encode())

    def _result(self, call, *words):
        result = _Result()
        _call(call, self._handle, *words, ctypes.byref(result))
        t, name = result.tensor, None
        if not t.data:
            return None
        if result.operand >= 0:
            name = [*self._arrays][result.operand]
        made = Tensor(_NAMES[t.dtype.code, t.dtype.bits], t.shape[:t.ndim],
                      t.strides[:t.ndim], t.data + t.offset,
                      self._arrays.get(name), name,
                      name is not None and bool(self._arrays[name].readonly))
        if name is None:  # the program's memory is valid until the next call
            made._owner = ctypes.create_string_buffer(
                ctypes.string_at(made._at, made._nbytes()), made._nbytes())
            made._at = ctypes.addressof(made._owner)
        return made

    def close(self):
        _library.penstock_program_close(self._handle)
        self._handle, self._arrays = _P(), {}


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
