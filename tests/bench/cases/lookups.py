# SPDX-License-Identifier: Apache-2.0
"""Defines cases of embedding, gather, scatter, sorting and copies."""
import torch
import torch.nn.functional as F

from .case import case, with_gradient

M, N = 512, 768  # rows and columns of most cases


def embedding(m, v, n, padding=-1, classes=None):
    # Upper bound of the indices: a small bound gives many duplicates.
    top = classes or v
    indices = torch.randint(0, top, (m,))
    name = f"embedding forward + backward {m} of {v}x{n}"
    name += f", {top} in use" if top < v else ""
    name += ", padding" if padding >= 0 else ""

    def run():
        return with_gradient(
            lambda w: F.embedding(indices, w,
                                  padding if padding >= 0 else None),
            torch.randn(v, n))
    return case(name, 0.0,
                [f"input %w: F[{v}, {n}]; input %i{top}: i64[{m}]; "
                 f"%r = aten.embedding.default(%w, %i{top}, {padding})",
                 f"input %g: F[{m}, {n}]; input %i{top}: i64[{m}]; "
                 f"%r = aten.embedding_dense_backward.default(%g, %i{top}, "
                 f"{v}, {padding}, False)"], run)


def bags(m, each, v, n):
    at, to = torch.randint(0, v, (m * each,)), torch.arange(0, m * each, each)
    lists = (f"input %x: F[{v}, {n}]; input %i{v}: i64[{m * each}]; "
             f"%a = aten.arange.default({m * each}); "
             f"%t = aten.floor_divide.Scalar(%a, {each}); ")
    w = torch.randn(v, n)
    ret = []
    for mode, node in (("sum", "%r = penstock.add_rows.default"),
                       ("max", "%r, %k = penstock.max_rows.default")):
        ret.append(case(f"embedding_bag {mode} {m}x{each} of {v}x{n}", 0.0,
                        [f"{lists}{node}(%x, %i{v}, %t, {m})"],
                        lambda mode=mode: lambda: F.embedding_bag(
                            at, w, to, mode=mode)))
    return ret


def one(name, inputs, node, run, *tensors):
    """Returns a case that compares one node with run(*tensors) in PyTorch."""
    return case(name, 0.0, [f"{inputs}; {node}"], lambda: lambda: run(*tensors))


def indices():
    x, y = torch.randn(M, N), torch.randn(M, N)
    rows, columns = torch.randint(0, M, (M,)), torch.randint(0, N, (M,))
    at0, at1 = torch.randint(0, M, (M, N)), torch.randint(0, N, (M, N))
    mask = torch.randint(0, 2, (M, N)) > 0
    tx, ty = f"input %x: F[{M}, {N}]", f"input %y: F[{M}, {N}]"
    i0, i1 = f"input %i{M}: i64[{M}, {N}]", f"input %i{N}: i64[{M}, {N}]"
    ri, ci = f"input %i{M}: i64[{M}]", f"input %i{N}: i64[{M}]"
    mi = f"input %m: bool[{M}, {N}]"
    ret = []

    def add(name, inputs, node, run, *tensors):
        ret.append(one(f"{name} {M}x{N}", "; ".join(inputs), node, run,
                       *tensors))

    for dim, i, at in ((0, i0, at0), (1, i1, at1)):
        n = (M, N)[dim]
        add(f"gather dim {dim}", [tx, i],
            f"%r = aten.gather.default(%x, {dim}, %i{n})",
            lambda at, d: x.gather(d, at), at, dim)
        add(f"scatter_add dim {dim}", [tx, i, ty],
            f"%r = aten.scatter_add.default(%x, {dim}, %i{n}, %y)",
            lambda at, d: x.scatter_add(d, at, y), at, dim)
        add(f"scatter dim {dim}", [tx, i, ty],
            f"%r = aten.scatter.src(%x, {dim}, %i{n}, %y)",
            lambda at, d: x.scatter(d, at, y), at, dim)
    add("index_select rows", [tx, ri],
        f"%r = aten.index_select.default(%x, 0, %i{M})",
        lambda: x.index_select(0, rows))
    add("index_select columns", [tx, ci],
        f"%r = aten.index_select.default(%x, 1, %i{N})",
        lambda: x.index_select(1, columns))
    add("index rows", [tx, ri], f"%r = aten.index.Tensor(%x, [%i{M}])",
        lambda: x[rows])
    add("index columns", [tx, ci],
        f"%r = aten.index.Tensor(%x, [None, %i{N}])", lambda: x[:, columns])
    add("index rows, columns", [tx, ri, ci],
        f"%r = aten.index.Tensor(%x, [%i{M}, %i{N}])",
        lambda: x[rows, columns])
    add("index all, all", [tx, i0, i1],
        f"%r = aten.index.Tensor(%x, [%i{M}, %i{N}])", lambda: x[at0, at1])
    add("index_put rows", [tx, ri, ty],
        f"%r = aten.index_put.default(%x, [%i{M}], %y)",
        lambda: x.index_put((rows,), y))
    add("index_put rows, accumulate", [tx, ri, ty],
        f"%r = aten.index_put.default(%x, [%i{M}], %y, True)",
        lambda: x.index_put((rows,), y, True))
    add("index_put all, accumulate", [tx, i0, i1, ty],
        f"%r = aten.index_put.default(%x, [%i{M}, %i{N}], %y, True)",
        lambda: x.index_put((at0, at1), y, True))
    add("masked_scatter", [tx, mi, ty],
        "%r = aten.masked_scatter.default(%x, %m, %y)",
        lambda: x.masked_scatter(mask, y))
    add("where", [mi, tx, ty], "%r = aten.where.self(%m, %x, %y)",
        lambda: torch.where(mask, x, y))
    add("masked_fill", [tx, mi],
        "%r = aten.masked_fill.Scalar(%x, %m, -1e9)",
        lambda: x.masked_fill(mask, -1e9))
    add("masked_fill rows", [tx, f"input %m: bool[{M}, 1]"],
        "%r = aten.masked_fill.Scalar(%x, %m, -1e9)",
        lambda: x.masked_fill(mask[:, :1], -1e9))
    add("one_hot", [f"input %i64: i64[{M}, 64]"],
        "%r = aten.one_hot.default(%i64, 64)",
        lambda i: F.one_hot(i, 64), torch.randint(0, 64, (M, 64)))
    return ret


def order():
    x, bins = torch.randn(M, N), torch.randn(1000).sort()[0]
    few = torch.randint(0, 1000, (M, N))
    tx, ti = f"input %x: F[{M}, {N}]", f"input %i1000: i64[{M}, {N}]"
    ret = []

    def add(name, inputs, node, run):
        ret.append(one(f"{name} {M}x{N}", inputs, node, run))

    for dim in (1, 0):
        add(f"sort dim {dim}", tx, f"%r, %i = aten.sort.default(%x, {dim})",
            lambda d=dim: x.sort(d))
        add(f"cumsum dim {dim}", tx, f"%r = aten.cumsum.default(%x, {dim})",
            lambda d=dim: x.cumsum(d))
        add(f"topk 10 dim {dim}", tx,
            f"%r, %i = aten.topk.default(%x, 10, {dim})",
            lambda d=dim: x.topk(10, d))
        add(f"cummax dim {dim}", tx,
            f"%r, %i = aten.cummax.default(%x, {dim})",
            lambda d=dim: x.cummax(d))
        add(f"kthvalue dim {dim}", tx,
            f"%r, %i = aten.kthvalue.default(%x, 10, {dim})",
            lambda d=dim: x.kthvalue(10, d))
    add("sort i64", ti, "%r, %i = aten.sort.default(%i1000, 1)",
        lambda: few.sort(1))
    ret.append(one("sort 1000000", "input %x: F[1000000]",
                   "%r, %i = aten.sort.default(%x)",
                   lambda a: a.sort(), torch.randn(1000000)))
    ret.append(one("topk 50 of 8x50257", "input %x: F[8, 50257]",
                   "%r, %i = aten.topk.default(%x, 50)",
                   lambda a: a.topk(50), torch.randn(8, 50257)))
    add("median dim 1", tx, "%r, %i = aten.median.dim(%x, 1)",
        lambda: x.median(1))
    add("searchsorted in 1000", f"input %b: F[1000]; {tx}",
        "%r = aten.searchsorted.Tensor(%b, %x)",
        lambda: torch.searchsorted(bins, x))
    add("histc 100", tx, "%r = aten.histc.default(%x, 100, -3, 3)",
        lambda: x.histc(100, -3, 3))
    add("isin 1000", f"{ti}; input %t: i64[1000]",
        "%r = penstock.is_in.default(%i1000, %t)",
        lambda t=torch.randint(0, 9999, (1000,)): torch.isin(few, t))
    return ret


def copies():
    x, y = torch.randn(M, N), torch.randn(M, N)
    q = torch.randn(8, 128, 12, 64)
    tx, ty = f"input %x: F[{M}, {N}]", f"input %y: F[{M}, {N}]"
    ret = []

    def add(name, inputs, node, run):
        ret.append(one(name, inputs, node, run))

    for dims in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)):
        add(f"permute {dims} of 8x128x12x64", "input %q: F[8, 128, 12, 64]",
            f"%t = aten.permute.default(%q, {list(dims)}); "
            "%r = aten.clone.default(%t)",
            lambda d=dims: q.permute(d).contiguous())
    add(f"transpose {M}x{N}", tx,
        "%t = aten.t.default(%x); %r = aten.clone.default(%t)",
        lambda: x.t().contiguous())
    add(f"transpose bf16 {M}x{N}", f"input %x: bf16[{M}, {N}]",
        "%t = aten.t.default(%x); %r = aten.clone.default(%t)",
        lambda a=x.bfloat16(): a.t().contiguous())
    add(f"clone {M}x{N}", tx, "%r = aten.clone.default(%x)", x.clone)
    add(f"expand 12 times {M}x64", f"input %x: F[{M}, 1, 64]",
        f"%t = aten.expand.default(%x, [{M}, 12, 64]); "
        "%r = aten.clone.default(%t)",
        lambda a=torch.randn(M, 1, 64): a.expand(M, 12, 64).contiguous())
    for dim in (0, 1):
        add(f"cat dim {dim} {M}x{N}", f"{tx}; {ty}",
            f"%r = aten.cat.default([%x, %y], {dim})",
            lambda d=dim: torch.cat([x, y], d))
        add(f"flip dim {dim} {M}x{N}", tx,
            f"%r = aten.flip.default(%x, [{dim}])", lambda d=dim: x.flip(d))
        add(f"roll dim {dim} {M}x{N}", tx,
            f"%r = aten.roll.default(%x, [7], [{dim}])",
            lambda d=dim: x.roll(7, d))
    add(f"stack last {M}x{N}", f"{tx}; {ty}",
        "%r = aten.stack.default([%x, %y], -1)",
        lambda: torch.stack([x, y], -1))
    add(f"split, copied {M}x{N}", tx,
        "%a, %b, %c = aten.split.Tensor(%x, 256, 1); "
        "%r = aten.clone.default(%b)",
        lambda: x.split(256, 1)[1].contiguous())
    add(f"pad {M}x{N}", tx,
        "%r = aten.constant_pad_nd.default(%x, [3, 5, 1, 1], 0.5)",
        lambda: F.pad(x, (3, 5, 1, 1), value=0.5))
    add("pad 8x64x56x56", "input %x: F[8, 64, 56, 56]",
        "%r = aten.constant_pad_nd.default(%x, [1, 1, 1, 1])",
        lambda a=torch.randn(8, 64, 56, 56): F.pad(a, (1, 1, 1, 1)))
    add(f"repeat 2, 3 {M}x{N}", tx, "%r = aten.repeat.default(%x, [2, 3])",
        lambda: x.repeat(2, 3))
    add(f"tril {M}x{N}", tx, "%r = aten.tril.default(%x)", x.tril)
    add(f"to bf16 {M}x{N}", tx,
        "%r = aten._to_copy.default(%x, dtype=bf16)",
        lambda: x.bfloat16())
    add(f"to i64 {M}x{N}", tx, "%r = aten._to_copy.default(%x, dtype=i64)",
        lambda: x.long())
    add("arange 400000", "", "%r = aten.arange.default(400000)",
        lambda: torch.arange(400000))
    add("rand 400000", "", "%r = aten.rand.default([400000])",
        lambda: torch.rand(400000))
    add("randn 400000", "", "%r = aten.randn.default([400000])",
        lambda: torch.randn(400000))
    return ret


def cases():
    return ([embedding(512, 50257, 768), embedding(4096, 50257, 768, 0),
             embedding(4096, 1000, 64, classes=8),
             embedding(4096, 1000, 64, 3)] + bags(2048, 16, 10000, 64) +
            indices() + order() + copies())
