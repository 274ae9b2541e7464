#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests --on-nan in runs of several ranks and replicas.

usage: on_nan_ranks.py PENSTOCK TINY.pt2 ROOTS.pt2 self|mpi

A run that leaves steps out must end with the parameters of a run whose data
never contained these batches, bit by bit. So the bias correction of AdamW and
the learning rate schedule may count only updates, wherever optimizer states
are sharded and however long a parameter has been trained. The step that is
repeated to find the fault must report the same origin as on one rank.
"""
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import job  # noqa: E402
import tensor_file  # noqa: E402

STEPS, BAD = 9, {3, 7}


def write_data(path, steps, bad=(), large=()):
    """Writes a batch of 4 rows for each of `steps`. Batches in `bad` have a
    NaN in the last two rows; those in `large` have a number whose square
    overflows."""
    scale = [[1 + .05 * ((i + step) % 16) for i in range(16)] for step in steps]
    for row, step in zip(scale, steps):
        if step in bad:
            row[11] = float("nan")
        if step in large:
            row[11] = 1e25
    tensor_file.save(path, {
        "tokens": ("I64", [4 * len(steps), 3], b"".join(struct.pack(
            "<12q", *[(i + step) % 16 for i in range(12)]) for step in steps)),
        "labels": ("I64", [4 * len(steps), 3], b"".join(struct.pack(
            "<12q", *[(3 * i + step) % 16 for i in range(12)])
            for step in steps)),
        "extra.scale": ("F32", [16 * len(steps)], b"".join(
            struct.pack("<16f", *row) for row in scale)),
        "extra.pair.0": ("F32", [32 * len(steps)], struct.pack(
            "<32f", *[.25 + .1 * (i % 7) for i in range(32)]) * len(steps))})


class Bench(job.Bench):
    def __init__(self, penstock, tiny, roots, transport, folder):
        super().__init__(penstock, folder)
        self.transport, self.n = transport, 0
        os.symlink(tiny, f"{folder}/tiny.pt2")
        os.symlink(roots, f"{folder}/roots.pt2")
        every = range(1, STEPS + 1)
        write_data(f"{folder}/bad.safetensors", every, BAD)
        write_data(f"{folder}/good.safetensors", [s for s in every
                                                  if s not in BAD])
        write_data(f"{folder}/large.safetensors", range(1, 5), (), {2})
        rows = [[.1 * (i + 1) * (-1) ** i, .2, .3 - .05 * i]
                for i in range(16)]
        rows[6] = [0, 0, 0]
        tensor_file.save(f"{folder}/zeros.safetensors", {
            "x": ("F32", [16, 3], b"".join(struct.pack("<3f", *row)
                                           for row in rows))})

    def words(self, data, steps, folder, *more):
        self.n += 1
        return ["run", "tiny.pt2", "--data", f"{data}.safetensors", "--lr",
                "0.01", "--optimizer", "adamw", "--lr-schedule", "cosine",
                "--warmup", "2", "--lr-steps", "8", "--steps", steps,
                "--transport", self.transport, "--checkpoint", folder,
                "--log-dir", f"log{self.n}", "--quiet", *more]

    def trained(self, folder, data, steps, *more):
        said = self.done(*self.words(data, steps, folder, *more)).stderr
        self.weights(folder)
        return tensor_file.load(self.path(folder + ".safetensors"))[0], said

    def skipped(self):
        return [job.field(x, "step") for x in self.events(
            f"log{self.n}", "step_skipped", "rank-0")]


def layouts(transport):
    """Returns options for two microbatches per step: on one rank, a pipeline,
    and replicas with and without sharding."""
    two = ("-n", "2x1", "-m", "2")
    return {
        "one": ("-n", "1", "-m", "2"),
        "pipeline": ("-n", "2", "-m", "2"),
        "replicas": two,
        "zero1": (*two, "--shard", "zero1"),
        "zero3": (*two, "--shard", "zero3"),
        "square": ("-n", "2x2", "-m", "2", "--shard", "zero1"),
    } if transport == "self" else {
        "pipeline": ("-n", "2", "-m", "2"),
        "zero1": (*two, "--shard", "zero1"),
    }


def left_out(b, name, ranks):
    """Checks that a run that skips steps has the parameters of a run without
    these batches, and reports the fault. Returns the parameters."""
    want, _ = b.trained(f"{name}-good", "good", STEPS - len(BAD), *ranks)
    have, said = b.trained(f"{name}-bad", "bad", STEPS, *ranks, "--on-nan",
                           "skip", "--dump-fault", f"{name}.safetensors")
    assert b.skipped() == [str(s) for s in sorted(BAD)], name
    assert have == want, f"{name}: a step that was left out is not nothing"
    # The fault is in microbatch 1, counted over the step or within the
    # replica.
    assert "the data of input 'extra.scale' has NaN in 1 of 8 numbers, the " \
        "first at [3]" in said, (name, said)
    assert f"is rows {4 * max(BAD) - 2} to {4 * max(BAD) - 1} of 'tokens'" in \
        said, (name, said)
    alone = b.done("run", "tiny.pt2", "-n", "1", "-m", "1", "--data",
                   f"{name}.safetensors", "--steps", "1", "--quiet",
                   "--transport", "self", code=65).stderr
    assert "step 1 was not applied" in alone, (name, alone)
    return have


def rolled_back(b, name, ranks, want):
    """Checks that a run that repeats the steps since a checkpoint has the same
    result."""
    have, _ = b.trained(f"{name}-back", "bad", STEPS, *ranks, "--on-nan",
                        "rollback", "--checkpoint-every", "2")
    assert b.skipped() == [str(s) for s in sorted(BAD)], name
    assert have == want, f"{name}: rollback"


def unfrozen(b, name, ranks):
    """Checks that AdamW's bias correction of a parameter that is trained from
    update 4 on counts the updates since then, not the steps."""
    ends = []
    for data, first, last, more in (
            ("good", 4, STEPS - len(BAD), ()),
            ("bad", 5, STEPS, ("--on-nan", "skip"))):
        folder = f"{name}-{data}-late"
        before, _ = b.trained(folder, data, first, *ranks, *more, "--freeze",
                              "fc")
        after, _ = b.trained(folder, data, last, *ranks, *more, "--resume")
        ends.append((before, after))
    assert ends[0][0] == ends[1][0], f"{name}: while frozen"
    assert ends[0][1] == ends[1][1], f"{name}: since unfrozen"
    return ends[0][1]


def partial(b, name, ranks):
    """Checks that parameters whose squared gradients are not finite keep their
    values and states, whichever rank updates them."""
    ret, said = b.trained(f"{name}-large", "large", 4, *ranks, "--on-nan",
                          "skip")
    assert "the update of step 2 left" in said and not b.skipped(), said
    return ret


def named(b, name, ranks):
    """Checks that the origin of a NaN gradient is found by repeating the
    backward passes. Step 2 of roots.pt2 has a row of zeros in its second
    microbatch."""
    b.n += 1
    said = b.done("run", "roots.pt2", "--data", "zeros.safetensors", "--steps",
                  "4", "--quiet", "--transport", b.transport, "--optimizer",
                  "adamw", "--log-dir", f"log{b.n}", "--dump-fault",
                  f"{name}-zeros.safetensors", *ranks, code=65).stderr
    message = re.sub(r"rank \d, ", "", said)
    assert "step 2 was not applied: stage 0: the gradient of 'first.weight' is " \
        "not a number; the first number that is not finite: stage 0, " \
        "microbatch 1, the backward of aten.sqrt.default at make_roots.py:26 " \
        "gives infinity in 4 of 8 numbers, the first at [0, 0]; the first " \
        "NaN: stage 0, microbatch 1, the backward of aten.mul.Tensor" in \
        message, (name, said)
    assert "microbatch 1 is rows 6 to 7 of " in message, (name, said)
    # The rank that computed the gradient repeats the passes.
    replicas, stages = map(int, ("1x" + ranks[1]).split("x")[-2:])
    where = re.findall(r"rank (\d), stage 0, microbatch 1, the backward", said)
    assert set(where) == {str((replicas - 1) * stages)}, (name, said)
    dumped = tensor_file.load(b.path(f"{name}-zeros.safetensors"))[0]
    assert struct.unpack("<6f", dumped["x"][2])[:3] == (0, 0, 0), name


def parameters(tensors):
    """Returns the tensors without the count of microbatches, which differs
    between replicas."""
    return {n: t for n, t in tensors.items() if n != "steps"}


def main():
    penstock, tiny, roots = map(os.path.abspath, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, tiny, roots, sys.argv[4], folder) as b:
        ends = []
        for name, ranks in layouts(sys.argv[4]).items():
            end = left_out(b, name, ranks)
            if name == "zero1":
                rolled_back(b, name, ranks, end)
            if b.transport == "self" or name == "zero1":
                late = unfrozen(b, name, ranks)
                assert late != end, name
            else:
                late = {}
            named(b, name, ranks)
            large = partial(b, name, ranks)
            found = [parameters(x) for x in (end, large, late)]
            ends.append(found if late else found[:2])
            assert ends[-1][:len(ends[0])] == ends[0], name
    print("ok")


if __name__ == "__main__":
    main()
