#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks penstock.py with JAX: with_jax.py ROOT LIBRARY.

JAX's arrays are inputs, with its losses and gradients; its jax.numpy takes
results; and as they are immutable, nothing writes to them. Ends with 77 if JAX
is not installed.
"""
import os
import sys

try:
    import jax
    import jax.numpy as jnp
    import numpy
except ImportError:
    sys.exit(77)

ROOT, LIBRARY = sys.argv[1:]
sys.path.insert(0, os.path.join(os.path.dirname(LIBRARY), "python"))
sys.dont_write_bytecode = True
import penstock  # noqa: E402


def refused(name, call, *words, **options):
    try:
        call(*words, **options)
    except penstock.Error as e:
        assert e.id == name and "read-only" in e.text, e
        return
    raise AssertionError("an immutable array was written")


def loss(weights, x, y):
    """examples/fortran/export.py"""
    for layer in "inner.0", "inner.2", "last":
        x = x @ weights[layer + ".weight"].T + weights[layer + ".bias"]
        x = x if layer == "last" else jnp.tanh(x)
    return ((x - y) ** 2).mean()


def main():
    penstock.load(LIBRARY)
    x = jax.random.normal(jax.random.key(1), (64, 5), jnp.float32)
    y = jnp.sin(x[:, :1])
    path = os.path.join(ROOT, "examples", "fortran", "closure.pt2")
    with penstock.Model(path) as model:
        session = model.session(microbatches=2, threads=1, optimizer="sgd",
                                lr=.1)
        for _ in range(3):
            weights = {p.name: jnp.from_dlpack(session.get(p.name))
                       for p in model.parameters}
            wanted, grads = jax.value_and_grad(loss)(weights, x, y)
            step = session.train_step(x, y)
            assert abs(step.loss / float(wanted) - 1) < 1e-5, (step, wanted)
            for name, grad in grads.items():
                numpy.testing.assert_allclose(
                    jnp.from_dlpack(session.gradient(name)), grad, rtol=1e-4,
                    atol=1e-7)
        name = model.parameters[0].name
        out = jnp.zeros(model.parameters[0].shape, jnp.float32)
        refused("library.tensor", session.get, name, out=out)
        assert not out.any()
        half = jnp.zeros(8, jnp.bfloat16)
        info = penstock.Info("half", "bfloat16", (8,), -1, False)
        refused("library.tensor", penstock._write, info, half, None)
    with penstock.Program({
            "tensors": {"a": {}}, "args": ["a"], "returns": [],
            "ops": [{"op": "aten.zero_", "args": ["%a"]}]}) as program:
        ones = jnp.ones(4)
        refused("alias.read-only", program.call, {"a": ones})
        assert ones.all()


main()
