# SPDX-License-Identifier: Apache-2.0
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
        return type(array).__module__.partition(".")[0] in ("torch", "cupy")


def _dlpack_tensor(capsule):
    """Returns the tensor in a capsule of DLPack, and its flags; None: the
    tensor is of a version before 1.0, and has none."""
    function = ctypes.PYFUNCTYPE(_P, ctypes.py_object, ctypes.c_char_p)
    get = function(("PyCapsule_GetPointer", ctypes.pythonapi))
    if "used_dltensor" in repr(capsule):
        raise BufferError("the capsule of DLPack was used before")
    if "dltensor_versioned" not in repr(capsule):
        return _Tensor.from_address(get(capsule, b"dltensor")), None
    managed = _Managed.from_address(get(capsule, b"dltensor_versioned"))
    if managed.major != 1:
        raise BufferError(f"version {managed.major} of DLPack is not supported")
    return managed.tensor, managed.flags


def _export(tensor, flags, versioned):
    """Returns a new capsule of DLPack with a copy of the tensor, whose memory is
    not freed with it, and the address that free() frees if nothing uses the
    capsule. The consumer may release it in any thread and while an exception is
    raised, which Python code may not: it calls free() of C."""
    c, n = ctypes.CDLL(None), tensor.ndim
    c.malloc.restype, c.malloc.argtypes, c.free.argtypes = _P, [_Size], [_P]
    kind = _Managed if versioned else _ManagedBefore
    at = c.malloc(ctypes.sizeof(kind) + 16 * max(n, 1))
    if not at:
        raise MemoryError
    managed = kind.from_address(at)
    ctypes.memset(at, 0, ctypes.sizeof(kind))
    managed.tensor = tensor
    managed.deleter = ctypes.cast(c.free, _P)
    sizes = (_I64 * (2 * n)).from_address(at + ctypes.sizeof(kind))
    sizes[:] = tensor.shape[:n] + tensor.strides[:n]
    managed.tensor.shape = ctypes.cast(sizes, ctypes.POINTER(_I64))
    managed.tensor.strides = ctypes.cast(
        ctypes.addressof(sizes) + 8 * n, ctypes.POINTER(_I64))
    if versioned:
        managed.major, managed.flags = 1, flags
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [_P, _P, _P]
    return new(at, _CAPSULES[versioned], None), at


def _withdraw(capsule, at):
    """Frees what _export() has made, unless a consumer has taken it."""
    if "used_dltensor" in repr(capsule):
        return
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, _P]
    rename(capsule, _USED)
    ctypes.CDLL(None).free(_P(at))


def _resolve(array, name, in_place):
    """Returns a tensor of PyTorch without its negative or conjugate bit, which
    DLPack does not have: values of a tensor with one, such as c.conj().imag,
    are not those in its memory. That is a copy, so in_place refuses it."""
    for bit, word in ("neg", "negative"), ("conj", "conjugate"):
        # Asks the class: a view of this library looks up other names in its
        # memory, which may be a GPU's.
        if not hasattr(type(array), f"resolve_{bit}") or \
                not getattr(array, f"is_{bit}")():
            continue
        if in_place:
            raise Error(-5, "library.tensor", f"the array for '{name}' has "
                        f"PyTorch's {word} bit, and the call uses its "
                        "memory in place", f"Give its resolve_{bit}(), a copy "
                        "without that bit.")
        array = getattr(array, f"resolve_{bit}")()
    return array


def _refuse_mask(array, name):
    """Refuses a masked array of NumPy: neither DLPack nor the buffer protocol
    has its mask, so masked elements would be numbers like all others."""
    for kind in type(array).__mro__:
        if kind.__name__ == "MaskedArray" and \
                kind.__module__.partition(".")[0] == "numpy":
            raise Error(-5, "library.tensor", f"the array for '{name}' is a "
                        "masked array of NumPy, whose mask would be ignored",
                        "Give its filled(VALUE), or its data if the mask does "
                        "not matter.")


class _Array:
    """A DLTensor of a caller's array; close() releases the array. info: name
    and shape that are wanted; without a shape, any is right. readonly: None, or
    why the array must not be written. shares: the call uses its memory as that
    of other arrays, too."""

    def __init__(self, array, info, writes, shares=False):
        self.held, self.buffer, self.tensor = None, None, _Tensor()
        self.readonly = None
        if array is None:
            self.pointer = None
            return
        _refuse_mask(array, info.name)
        array = _resolve(array, info.name, writes or shares)
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
        device = getattr(array, "__dlpack_device__", lambda: (1, 0))()
        # On a GPU the library waits for work in the legacy default stream.
        words = {"stream": 1} if device[0] == _CUDA else {}
        try:
            try:
                capsule = array.__dlpack__(max_version=(1, 0), **words)
            except TypeError:  # it has DLPack before 1.0
                capsule = array.__dlpack__(**words)
        except (BufferError, TypeError):
            if device[0] != 1:
                raise
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
    """A tensor that a call has returned: dtype, shape, strides in elements, and
    device as __dlpack_device__ has it, (1, 0) for the CPU and (2, N) for GPU N.
    What is in the memory of a GPU has __dlpack__, for packages with arrays
    there, and no other access to its elements. numpy.asarray, torch.from_dlpack and whatever else takes arrays
    share its memory; for __dlpack__ NumPy must be installed. operand: the name
    of the operand whose memory it is a view of, or None. readonly: what
    Session.view() gives is.

    view is a memoryview of it, and indices and other attributes are those of
    view: bfloat16 and float16 are 16 bits each, complex numbers are pairs, and
    a tensor without dimensions or elements is flat. flat has one dimension. A
    tensor with gaps has neither."""

    def __init__(self, dtype, shape, strides=None, at=None, owner=None,
                 operand=None, readonly=False, device=(1, 0)):
        """at, owner: the first element's address, and what keeps it valid; by
        default, new memory."""
        self.dtype, self.shape, self.operand = dtype, tuple(shape), operand
        self.readonly, self.device, self._exports = readonly, device, []
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
        return _Tensor(self._at, *self.device, len(self.shape),
                       _DType(*_DTYPES[self.dtype][:2], 1),
                       ctypes.cast(sizes(*self.shape), ctypes.POINTER(_I64)),
                       ctypes.cast(sizes(*self.strides), ctypes.POINTER(_I64)),
                       0)

    @property
    def flat(self):
        if self.device[0] != 1:
            raise BufferError("a tensor in the memory of a GPU has no "
                              "memoryview: take __dlpack__ or Session.get()")
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

    def _lend(self, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.device):
            raise BufferError("a tensor in the memory of a GPU is not copied")
        versioned = max_version is not None and max_version[0] >= 1
        if self.readonly and not versioned:
            raise BufferError("a read-only tensor needs DLPack 1.0")
        self._exports = [one for one in self._exports
                         if "used_dltensor" not in repr(one[0])]
        self._exports.append(_export(
            self._describe(), _READ_ONLY if self.readonly else 0, versioned))
        return self._exports[-1][0]

    def __del__(self):
        for one in getattr(self, "_exports", ()):
            _withdraw(*one)

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
        if self.device[0] != 1:
            raise AttributeError("it is in the memory of a GPU")
        kind = "iuf?ucb"[_DTYPES[self.dtype][0]]  # bfloat16: 16 bits
        return {"version": 3, "shape": self.shape,
                "data": (self._at, self.readonly),
                "typestr": f"{'|' if self._size == 1 else '<'}{kind}"
                           f"{self._size}",
                "strides": tuple(n * self._size for n in self.strides)}

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        """On the CPU NumPy lends the memory, since what it returns may be
        released in any thread and while an exception is raised, which Python
        code may not. On a GPU the content is there for every stream, and the
        capsule can be taken while this Tensor exists."""
        if self.device[0] != 1:
            return self._lend(**options)
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
