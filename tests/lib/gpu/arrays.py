#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks penstock.py with arrays in the memory of a GPU: arrays.py LIBRARY
TINY.pt2. PENSTOCK_LIBCUDA is the driver of tests. No package has arrays on it, so
that the arrays here are made of its memory, with capsules of DLPack as CuPy and
PyTorch give them.
"""
import array
import ctypes
import gc
import math
import os
import sys
import tempfile

NAME, VERSIONED = b"dltensor", b"dltensor_versioned"
USED, USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"
driver = ctypes.CDLL(os.environ["PENSTOCK_LIBCUDA"])
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
FORMATS = {"float32": "f", "int64": "q"}


def cuda(name, *words):
    assert getattr(driver, name)(*words) == 0, name


def enter(gpu):
    context = ctypes.c_void_p()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
    cuda("cuCtxSetCurrent", context)


def bytes_free(gpu):
    enter(gpu)
    found = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", *map(ctypes.byref, found))
    return found[0].value


class OnGpu:
    """An array on a GPU. before: its DLPack is of a version before 1.0. asked:
    the streams for which it was asked."""
    flags = type("Flags", (), {"writeable": True})

    def __init__(self, penstock, info, values, gpu=0, before=False):
        self.penstock, self.info, self.gpu = penstock, info, gpu
        self.before, self.asked, self.kept = before, [], []
        self.host = array.array(FORMATS[info.dtype], values)
        self.nbytes = len(self.host) * self.host.itemsize
        self.at = ctypes.c_uint64()
        enter(gpu)
        cuda("cuMemAlloc_v2", ctypes.byref(self.at),
             ctypes.c_size_t(self.nbytes))
        # In the default stream, and not waited for.
        cuda("cuMemcpyHtoDAsync_v2", self.at,
             ctypes.c_void_p(self.host.buffer_info()[0]),
             ctypes.c_size_t(self.nbytes), None)

    def __dlpack_device__(self):
        return 2, self.gpu

    def __dlpack__(self, **words):
        if self.before and "max_version" in words:
            raise TypeError("unexpected keyword argument 'max_version'")
        assert words.pop("max_version", (1, 0)) == (1, 0)
        self.asked.append(words.pop("stream"))
        assert not words
        p, n = self.penstock, len(self.info.shape)
        managed = p._ManagedBefore() if self.before else p._Managed(major=1)
        sizes = (ctypes.c_int64 * max(n, 1))(*self.info.shape)
        managed.tensor = p._Tensor(
            self.at.value, 2, self.gpu, n, p._DType(
                *p._DTYPES[self.info.dtype][:2], 1), ctypes.cast(
                    sizes, ctypes.POINTER(ctypes.c_int64)), None, 0)
        self.kept.append((managed, sizes))
        return api.PyCapsule_New(ctypes.addressof(managed),
                                 NAME if self.before else VERSIONED, None)

    def read(self):
        return fetch(self.gpu, self.at.value, self.host)

    def free(self):
        enter(self.gpu)
        cuda("cuStreamSynchronize", None)
        cuda("cuMemFree_v2", self.at)


def fetch(gpu, at, like):
    """Returns what the GPU has at an address."""
    found = array.array(like.typecode, bytes(len(like) * like.itemsize))
    enter(gpu)
    cuda("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(found.buffer_info()[0]),
         ctypes.c_uint64(at), ctypes.c_size_t(len(found) * found.itemsize),
         None)
    cuda("cuStreamSynchronize", None)
    return found


def values_of(info, step):
    draw = ((7 * k + 3 * step) % 11 for k in range(math.prod(info.shape)))
    return [k if info.dtype == "int64" else k / 8 for k in draw]


def fails(kind, call, *words, **options):
    try:
        call(*words, **options)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} from {call}{words}")


def train(penstock, path, on_gpu):
    """Returns losses, gradients, outputs and parameters of three steps."""
    seen, arrays = [], []

    def results(call, info):
        if not on_gpu:
            seen.append(call(None).flat.tolist())
            return
        out = OnGpu(penstock, info, [0] * math.prod(info.shape))
        arrays.append(out)
        assert call(out) is out and out.asked == [1]
        seen.append(out.read().tolist())

    with penstock.Model(path) as model:
        session = model.session(device="cuda:0", microbatches=2, threads=1,
                                optimizer="adamw", lr=.01)
        for k in range(3):
            given = [array.array(FORMATS[i.dtype], values_of(i, k))
                     for i in session.inputs]
            if on_gpu:
                given = [OnGpu(penstock, i, values_of(i, k), before=k == 1)
                         for i in session.inputs]
                arrays += given
            seen.append(session.train_step(*given).loss)
            copies = session.copies()
            assert copies.read == 0 < copies.in_place if on_gpu else \
                copies.in_place == 0 < copies.read, copies
            seen.append(session.forward(*given))
            for i, info in enumerate(session.outputs):
                results(lambda out, i=i: session.output(i, out), info)
            for info in session.parameters:
                if info.trained and info.dtype in FORMATS:
                    results(lambda out, info=info: session.gradient(
                        info.name, out), info)
                    results(lambda out, info=info: session.get(
                        info.name, out), info)
    for one in arrays:
        one.free()
    return seen


def changes(penstock, path, on_gpu):
    """Returns losses around steps in two calls with a gradient that is set, a
    checkpoint, and a module that is replaced."""
    folder, seen, arrays = os.path.dirname(path), [], []

    def give(info, values):
        if not on_gpu:
            return array.array(FORMATS[info.dtype], values)
        arrays.append(OnGpu(penstock, info, values))
        return arrays[-1]

    def step(call):
        given = [give(i, [k % 8 for k in range(math.prod(i.shape))])
                 for i in session.inputs]
        seen.append(call(*given).loss)

    with penstock.Model(os.path.join(folder, "order.pt2"), stages=2) as model, \
            tempfile.TemporaryDirectory() as saved:
        session = model.session(device="cuda:0,cuda:1", lr=.01, threads=1)
        weight = session.parameters[0]
        step(session.forward_backward)
        session.set_gradient(weight.name, give(
            weight, [k / 64 for k in range(math.prod(weight.shape))]), add=True)
        seen.append(session.update().grad_norm)
        session.save(saved)
        step(session.train_step)
        session.load(saved)
        step(session.train_step)
        assert seen[-1] == seen[-2]
        session.swap("mid", os.path.join(folder, "order-more.pt2"), at_call=0)
        for _ in range(3):
            step(session.train_step)
        session.set(weight.name, give(weight, [.5] * math.prod(weight.shape)))
        step(session.train_step)
    for one in arrays:
        one.free()
    return seen


def views(penstock, path):
    """Tensors of view(): memory of the GPU, which only DLPack gives."""
    with penstock.Model(path) as model:
        session = model.session(device="cuda:1", threads=1)
        want = session.get("fc.weight").flat
        tensor = session.view("fc.weight")
        assert tensor.device == tensor.__dlpack_device__() == (2, 1)
        assert not hasattr(tensor, "__array_interface__")
        fails(BufferError, tensor.tolist)
        fails(BufferError, lambda: tensor[0])
        fails(BufferError, tensor.__dlpack__)  # before 1.0: is not read-only
        fails(BufferError, tensor.__dlpack__, max_version=(1, 0), copy=True)
        fails(BufferError, tensor.__dlpack__, max_version=(1, 0),
              dl_device=(1, 0))
        for stream in None, 1, 2, -1:
            capsule = tensor.__dlpack__(stream=stream, max_version=(1, 1),
                                        dl_device=(2, 1))
            at = api.PyCapsule_GetPointer(capsule, VERSIONED)
            managed = penstock._Managed.from_address(at)
            t = managed.tensor
            assert (managed.major, managed.flags) == (1, 1)
            assert (t.device, t.device_id, t.ndim) == (2, 1, 2)
            assert t.shape[:2] == [8, 8] and t.strides[:2] == [8, 1]
            assert fetch(1, t.data, array.array("f", want)).tolist() == \
                want.tolist()
            # A consumer renames the capsule and calls the deleter later.
            api.PyCapsule_SetName(capsule, USED_VERSIONED)
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(at)
        assert len(tensor._exports) == 1  # those that were consumed are not kept
        left = tensor.__dlpack__(max_version=(1, 0))  # is not consumed
        del tensor
        gc.collect()
        assert "used_dltensor" in repr(left)
        # A view is an array for the next call, and is read-only.
        session.set("fc.weight", session.view("fc.weight"))
        assert session.get("fc.weight").flat == want
        error = fails(penstock.Error, session.get, "fc.weight",
                      out=session.view("fc.weight"))
        assert error.id == "library.tensor" and "read-only" in error.text


class Consumed(OnGpu):
    """Gives the same capsule twice, as if a consumer had taken it before."""

    def __dlpack__(self, **words):
        capsule = super().__dlpack__(**words)
        api.PyCapsule_SetName(capsule, USED_VERSIONED)
        return capsule


def refusals(penstock, path):
    program = penstock.Program({
        "tensors": {"a": {"dtype": "float32"}}, "args": ["a"],
        "ops": [{"op": "aten.mul_.Scalar", "args": ["%a", 10]}],
        "returns": []})
    info = penstock.Info("a", "float32", (4,), -1, False)
    one = OnGpu(penstock, info, range(4))
    error = fails(penstock.Error, program.call, {"a": one})
    assert error.id == "library.device" and "run on the CPU" in error.text
    assert one.read().tolist() == [0, 1, 2, 3]
    program.close()
    one.free()
    with penstock.Model(path) as model, \
            model.session(device="cuda:0", threads=1) as session:
        weight = session.parameters[[p.name for p in session.parameters].index(
            "fc.weight")]
        for gpu, kind, word in (1, OnGpu, "computes on GPU 0"), \
                (0, Consumed, "used before"):
            one = kind(penstock, weight, range(64), gpu=gpu)
            error = fails((penstock.Error, BufferError), session.set,
                          "fc.weight", one)
            assert word in str(error), error
            one.free()
        one = OnGpu(penstock, weight, range(64))
        one.free()
        error = fails(penstock.Error, session.set, "fc.weight", one)
        assert error.id == "library.device" and "was freed" in error.text


def main():
    library, path = (os.path.abspath(word) for word in sys.argv[1:])
    sys.path.insert(0, os.path.join(os.path.dirname(library), "python"))
    sys.dont_write_bytecode = True
    import penstock

    penstock.load(library)
    cuda("cuInit", 0)
    before = bytes_free(0), bytes_free(1)
    assert train(penstock, path, True) == train(penstock, path, False)
    assert changes(penstock, path, True) == changes(penstock, path, False)
    views(penstock, path)
    refusals(penstock, path)
    assert (bytes_free(0), bytes_free(1)) == before


main()
