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

Arrays are read and written in place. An array is anything with __dlpack__ (NumPy,
PyTorch, JAX, CuPy) on the CPU or, for a session with device="cuda", on the
session's GPU; or with the buffer protocol (array.array,
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
import functools
import json
import math
import threading

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


class _ManagedBefore(ctypes.Structure):
    """DLManagedTensor of earlier versions."""
    _fields_ = [("tensor", _Tensor), ("ctx", _P), ("deleter", _P)]


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
_CUDA = 2  # DLDeviceType
# Names of capsules, which these refer to: by whether they are _Managed, and of
# those that were used.
_CAPSULES = [ctypes.create_string_buffer(b"dltensor"),
             ctypes.create_string_buffer(b"dltensor_versioned")]
_USED = ctypes.create_string_buffer(b"used_dltensor")
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


def _text(value):
    """Encodes a text, which ends for the library at the first NUL."""
    text = str(value).encode()
    if b"\0" in text:
        raise ValueError(f"there is a NUL in {value!r}")
    return text


def _set_options(config, options):
    rows = []
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one is not False:
                rows.append(_Option(_text(name.replace("_", "-")),
                                    b"yes" if one is True else _text(one)))
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
