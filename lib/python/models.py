# SPDX-License-Identifier: Apache-2.0
# --- models and sessions ------------------------------------------------------

def _alone(names):
    """Refuses other threads in methods of an object: close() while another
    method uses the library, and calls between one and the reading of its
    results, when the library does not know of the first thread."""
    def guard(method):
        @functools.wraps(method)
        def guarded(self, *words, **named):
            if not self._lock.acquire(blocking=False):
                raise Error(-14, "library.busy", "another call uses the object "
                            "at this moment", "Let one thread at a time use an "
                            "object, for instance with a lock.")
            try:
                return method(self, *words, **named)
            finally:
                self._lock.release()
        return guarded

    def guard_all(kind):
        for name in names.split():
            setattr(kind, name, guard(getattr(kind, name)))
        return kind
    return guard_all


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
        _call("open", _text(path), ctypes.byref(self._config),
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


@_alone("train_step forward_backward train_step_fill forward_backward_fill "
        "update forward evaluate output gradient input_gradient set_gradient "
        "get view set swap save load close")
class Session(_Closes):
    """A model with memory, an optimizer and ranks. Options: those of
    `penstock run` that shape a step. comm: a communicator of mpi4py, or its
    Fortran handle; None: all ranks are in this process. inputs and outputs are
    lists of Info, with the shapes of a whole step; parameters and buffers are
    those of the model, which swap() changes, and load() where it says so."""

    def __init__(self, model, *, comm=None, message=None, **options):
        self._model, self._handle = model, _P()
        self._lock = threading.Lock()
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
        # Whether this process has rank 0, which results are copied to; None:
        # no call has shown it yet.
        self._first = True if comm is None else None
        self._describe()

    def _describe(self):
        self.inputs, self.outputs, self.parameters, self.buffers = \
            _infos("session_", self._handle)

    def _inputs(self, given, infos=None):
        if len(given) != len(self.inputs):
            raise TypeError(f"{len(given)} inputs were given, and the model "
                            f"has {len(self.inputs)}")
        return _Arrays(zip(given, infos or self.inputs))

    def _result(self, info, out, *call):
        """Returns what a call copies to rank 0; None on other ranks."""
        out = _write(info, out, lambda tensor: _call(
            call[0], self._handle, *call[1:], tensor))
        # Only rank 0 writes, and an empty tensor has nothing to write.
        if self._first is None and math.prod(info.shape):
            self._first = self.copies().written > 0
        return out if self._first is not False else None

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
        new Tensor, and returns it. With MPI: on rank 0; other ranks
        return None."""
        if not 0 <= index < len(self.outputs):
            raise IndexError(f"the model has {len(self.outputs)} outputs")
        return self._result(self.outputs[index], out, "output", index)

    def gradient(self, name, out=None):
        """Copies the gradient of a parameter in the last step of training to
        the array `out`, or to a new Tensor, and returns it. With MPI: on
        rank 0; other ranks return None."""
        return self._result(self._named(name), out, "gradient", _text(name))

    def input_gradient(self, index, out=None):
        """Copies the gradient of an input in the last train_step(), one that
        the option input_gradients names, to the array `out`, or to a new
        Tensor, and returns it. With MPI: on rank 0; other ranks return None."""
        if not 0 <= index < len(self.inputs):
            raise IndexError(f"the model has {len(self.inputs)} inputs")
        return self._result(self.inputs[index], out, "input_gradient", index)

    def set_gradient(self, name, array, add=False):
        """Sets the gradient of a parameter between forward_backward() and
        update(), or adds to it."""
        with _Arrays([(array, self._named(name))]) as (tensors, _):
            _call("set_gradient", self._handle, _text(name), tensors[0],
                  int(add))

    def _named(self, name):
        for info in self.parameters + self.buffers:
            if info.name == name:
                return info
        raise KeyError(name)

    def get(self, name, out=None):
        """Copies a parameter or buffer to the array `out`, or to a new
        Tensor, and returns it. With MPI: on rank 0; other ranks return
        None."""
        return self._result(self._named(name), out, "get", _text(name))

    def view(self, which):
        """Returns a parameter or buffer by its name, or an output of the last
        forward() by its number: a read-only Tensor in the session's memory,
        which is not copied. It is valid until swap(), load() or close(), and an
        output also until the next forward() or evaluate(); nothing keeps it
        longer."""
        for kind, infos in ((OUTPUT, range(len(self.outputs))),
                            (PARAMETER, [p.name for p in self.parameters]),
                            (BUFFER, [b.name for b in self.buffers])):
            if which in infos:
                t = _Tensor()
                _call("view", self._handle, kind, [*infos].index(which),
                      ctypes.byref(t))
                return Tensor(_NAMES[t.dtype.code, t.dtype.bits],
                              t.shape[:t.ndim], None, t.data + t.offset, self,
                              readonly=True, device=(t.device, t.device_id))
        raise KeyError(which)

    def set(self, name, array):
        """Sets a parameter or buffer."""
        with _Arrays([(array, self._named(name))]) as (tensors, _):
            _call("set", self._handle, _text(name), tensors[0])

    def swap(self, module, path, **options):
        """Replaces a module of the model by another one, in a file. Options:
        at_call, aliases, state."""
        given = _SessionConfig()
        _set_options(given, options)
        _call("swap", self._handle, _text(module), _text(path),
              given.options, given.n_options)
        self._describe()

    def save(self, folder):
        """Writes a checkpoint."""
        _call("save", self._handle, _text(folder))

    def load(self, folder):
        """Loads a checkpoint. Returns the number of its finished steps."""
        step = ctypes.c_uint64()
        _call("load", self._handle, _text(folder), ctypes.byref(step))
        self._describe()
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
        self._handle = _P()
        # After an earlier close the model may have another session.
        if self._model._session is self:
            self._model._session = None
