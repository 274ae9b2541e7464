# SPDX-License-Identifier: Apache-2.0
# --- programs on arrays that share memory -------------------------------------

@_alone("call operand gradient close")
class Program(_Closes):
    """A list of operators on arrays that may share memory, as a dict or as JSON
    (docs/library.md, "Programs"). Options: those of an optimizer. last: what
    the last call did, a Call."""

    def __init__(self, text, *, message=None, **options):
        load()
        self._handle, self._arrays, self.last = _P(), {}, None
        self._lock = threading.Lock()
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
        read-only. Two names with one array are one tensor. storages: by name,
        an array from whose first to whose last byte the whole memory reaches
        which an operand is a view of; by default, that which the operands
        cover. Returns a list of
        Tensors: views of the operands' memory (`operand` is a name), or
        copies."""
        arrays, self._arrays = {}, {}
        rows = (_Operand * max(len(operands), 1))()
        flags = (ctypes.c_uint64 * len(rows))()
        for i, (row, (name, array)) in enumerate(zip(rows, operands.items())):
            if id(array) not in arrays:
                arrays[id(array)] = _Array(array, _any(name), False, True)
            one = self._arrays[name] = arrays[id(array)]
            row.name, row.tensor = _text(name), one.pointer
            flags[i] = bool(one.readonly)
            if name in (storages or {}):
                whole = _Array(storages[name], _any(name), False, True)
                one.held = one.held, whole
                row.storage, row.storage_bytes = _memory(whole.tensor)
                flags[i] |= bool(whole.readonly)
        info = _CallInfo()
        _call("call_flags", self._handle, rows, flags, len(operands),
              ctypes.byref(info))
        self.last = Call(info.copied, info.passed, info.bases, info.plans,
                         bool(info.is_new), info.in_place)
        return [self._result("result", i) for i in range(info.results)]

    def operand(self, name):
        """Returns an operand after the last call, which may have changed its
        geometry; None: set_() has moved it to new memory."""
        return self._result("result_operand", _text(name))

    def gradient(self, name):
        """Returns the gradient of a leaf in the last call."""
        return self._result("result_gradient", _text(name))

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


def _memory(t):
    """Returns the address and the number of the bytes from the first to the last
    one of a tensor, whose strides may be negative or 0."""
    item, shape = t.dtype.bits // 8, t.shape[:t.ndim]
    if 0 in shape:
        return t.data + t.offset, 0
    strides = t.strides[:t.ndim] if t.strides else [
        math.prod(shape[d + 1:]) for d in range(t.ndim)]
    reach = [(n - 1) * stride for n, stride in zip(shape, strides)]
    return (t.data + t.offset + item * sum(min(r, 0) for r in reach),
            item * (sum(map(abs, reach)) + 1))

