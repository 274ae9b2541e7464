// SPDX-License-Identifier: Apache-2.0
/* Compositions whose number of nodes depends on the arguments. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

static struct pst_value *emit_expand(struct pst_rewrite *w, struct pst_value *x,
                                     unsigned rank,
                                     const struct pst_extent *sizes)
{
    return pst_rw(w, &pst_op_expand,
                  PST_ARGS(pst_v(x), pst_rw_ints(w, sizes, rank)));
}

static struct pst_value *emit_cat(struct pst_rewrite *w,
                                  struct pst_value **parts, unsigned n,
                                  int64_t dim)
{
    return pst_rw(w, &pst_op_cat, PST_ARGS(pst_values(parts, n), pst_i(dim)));
}

/* Returns `dim` as a dimension of x; fails the builder if it is out of
 * range. */
static unsigned dim_of(struct pst_rewrite *w, const struct pst_value *x,
                       int64_t dim)
{
    const int d = x != NULL ? pst_meta_dim(&x->meta, dim) : -1;

    if (d >= 0)
        return (unsigned)d;
    (void)pst_rewrite_fail(w, "dimension %lld is out of range", (long long)dim);
    return 0;
}

/* --- meshgrid ------------------------------------------------------------- */

/* Expands tensor k along dimension k of the grid; indexing "xy" exchanges the
 * first two dimensions. */
static enum pst_status meshgrid(struct pst_rewrite *w, bool xy)
{
    struct pst_value *const *in = w->args[0].values;
    const unsigned n = w->args[0].n;
    struct pst_extent size[PST_MAX_RANK];

    if (n == 0 || n > PST_MAX_RANK)
        return pst_rewrite_refuse(w, "%u tensors", n);
    for (unsigned k = 0; k < n; k++) {
        const unsigned d = xy && n > 1 && k < 2 ? 1 - k : k;

        if (in[k]->meta.rank > 1)
            return pst_rewrite_fail(w, "tensor %u has several dimensions", k);
        size[d] = pst_extent_numel(w->build, in[k]);
    }
    w->n_outs = n;
    for (unsigned k = 0; k < n; k++) {
        const unsigned d = xy && n > 1 && k < 2 ? 1 - k : k;
        struct pst_extent one[PST_MAX_RANK];

        for (unsigned i = 0; i < n; i++)
            one[i] = i == d ? size[d] : pst_extent(1);
        w->outs[k] =
            emit_expand(w,
                        pst_rw(w, &pst_op_view,
                               PST_ARGS(pst_v(in[k]), pst_rw_ints(w, one, n))),
                        n, size);
    }
    return w->build->status;
}

static enum pst_status meshgrid_rewrite(struct pst_rewrite *w)
{
    return meshgrid(w, false);
}

static enum pst_status meshgrid_indexing_rewrite(struct pst_rewrite *w)
{
    return meshgrid(w, w->args[1].kind == PST_ARG_STRING &&
                           w->args[1].s[0] == 'x');
}

PST_REWRITE(meshgrid, "aten::meshgrid(Tensor[] tensors) -> Tensor[]",
            meshgrid_rewrite);
PST_REWRITE(meshgrid_indexing,
            "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> "
            "Tensor[]",
            meshgrid_indexing_rewrite);

/* --- repetitions ---------------------------------------------------------- */

/* If there are fewer repetitions than dimensions, the leading ones are 1. */
static enum pst_status tile_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *dims = &w->args[1];
    struct pst_extent repeats[PST_MAX_RANK];
    const unsigned rank = PST_MAX(x->meta.rank, dims->n);

    if (rank > PST_MAX_RANK)
        return pst_rewrite_refuse(w, "%u dimensions", rank);
    for (unsigned d = 0; d < rank; d++)
        repeats[d] = d + dims->n < rank
                         ? pst_extent(1)
                         : pst_extent_in(w->build, dims, d + dims->n - rank);
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_repeat,
               PST_ARGS(pst_v(x), pst_rw_ints(w, repeats, rank))));
}

/* Repeats elements: adds a dimension after dim, expands it, and merges it with
 * dim. */
static enum pst_status repeat_interleave_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_extent repeats = pst_extent_in(w->build, &w->args[1], 0);
    const struct pst_extent flat = pst_extent(-1);
    struct pst_extent size[PST_MAX_RANK + 1];
    unsigned dim = 0, rank;

    if (w->args[2].kind == PST_ARG_INT)
        dim = dim_of(w, x, w->args[2].i);
    if (w->args[2].kind != PST_ARG_INT || x->meta.rank == 0)
        x = pst_rw_reshape(w, x, 1, &flat);
    if (x == NULL)
        return w->build->status;
    rank = x->meta.rank;
    if (rank == PST_MAX_RANK || repeats.value < 0)
        return pst_rewrite_refuse(w, "rank %u, %lld repeats", rank,
                                  (long long)repeats.value);
    for (unsigned d = 0, k = 0; d < rank; d++) {
        size[k++] = pst_rw_size(w, x, d);
        if (d == dim)
            size[k++] = repeats;
    }
    x = pst_rw(w, &pst_op_unsqueeze,
               PST_ARGS(pst_v(x), pst_i((int64_t)dim + 1)));
    x = emit_expand(w, x, rank + 1, size);
    size[dim] = pst_extent_mul(w->build, size[dim], repeats);
    for (unsigned d = dim + 1; d < rank; d++)
        size[d] = size[d + 1];
    /* Copies, because the reshape would be a view if repeats is 1. */
    x = pst_rw(w, &pst_op_clone, PST_ARGS(pst_v(x)));
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, x, rank, size));
}

PST_REWRITE(tile, "aten::tile(Tensor self, SymInt[] dims) -> Tensor",
            tile_rewrite);
PST_REWRITE(repeat_interleave_self_int,
            "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, "
            "int? dim=None, *, SymInt? output_size=None) -> Tensor",
            repeat_interleave_rewrite);

/* --- tensor_split --------------------------------------------------------- */

static void emit_piece(struct pst_rewrite *w, unsigned k, unsigned dim,
                       struct pst_arg start, struct pst_arg end)
{
    w->outs[k] = pst_rw(w, &pst_op_slice_Tensor,
                        PST_ARGS(pst_v(pst_rewrite_in(w, 0)), pst_i(dim), start,
                                 end, pst_i(1)));
}

/* If the size is not a multiple of n, the first pieces are longer by 1. */
static enum pst_status sections_rewrite(struct pst_rewrite *w)
{
    const struct pst_value *x = pst_rewrite_in(w, 0);
    const int64_t n = w->args[1].i;
    const unsigned dim = dim_of(w, x, w->args[2].i);
    struct pst_extent at = pst_extent(0), size;

    if (w->build->status != PST_OK || x->meta.rank == 0 || n < 1 ||
        n > PST_MAX_OUTS ||
        !pst_extent_is(w->build, pst_extent_in(w->build, &w->args[1], 0),
                       pst_extent(n)))
        return pst_rewrite_refuse(w, "%lld sections", (long long)n);
    w->n_outs = (unsigned)n;
    size = pst_rw_size(w, x, dim);
    for (unsigned k = 0; k < w->n_outs; k++) {
        /* The length of piece k is ceil((size - k) / n). */
        const struct pst_extent rest =
            pst_extent_sub(w->build, size, pst_extent(k));
        const struct pst_extent end = pst_extent_add(
            w->build, at, pst_extent_ceildiv(w->build, rest, pst_extent(n)));

        emit_piece(w, k, dim, pst_rw_int(w, at), pst_rw_int(w, end));
        at = end;
    }
    return w->build->status;
}

static enum pst_status indices_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *at = &w->args[1];
    const unsigned dim = dim_of(w, pst_rewrite_in(w, 0), w->args[2].i);

    if (w->build->status != PST_OK || at->n >= PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%u indices", at->n);
    w->n_outs = at->n + 1;
    for (unsigned k = 0; k <= at->n; k++)
        emit_piece(w, k, dim,
                   k > 0 ? pst_rw_int(w, pst_extent_in(w->build, at, k - 1))
                         : pst_i(0),
                   k < at->n ? pst_rw_int(w, pst_extent_in(w->build, at, k))
                             : pst_none());
    return w->build->status;
}

PST_REWRITE(tensor_split_sections,
            "aten::tensor_split.sections(Tensor(a -> *) self, "
            "SymInt sections, int dim=0) -> Tensor(a)[]",
            sections_rewrite);
PST_REWRITE(tensor_split_indices,
            "aten::tensor_split.indices(Tensor(a -> *) self, "
            "SymInt[] indices, int dim=0) -> Tensor(a)[]",
            indices_rewrite);

/* --- movedim -------------------------------------------------------------- */

static enum pst_status movedim_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *from = &w->args[1], *to = &w->args[2];
    const unsigned rank = x->meta.rank;
    int64_t order[PST_MAX_RANK];
    bool used[PST_MAX_RANK] = {false};
    unsigned next = 0;

    for (unsigned d = 0; d < rank; d++)
        order[d] = -1;
    if (from->n != to->n)
        return pst_rewrite_fail(w, "%u sources, %u destinations", from->n,
                                to->n);
    for (unsigned k = 0; k < from->n; k++) {
        const unsigned a = dim_of(w, x, from->ints[k]);
        const unsigned b = dim_of(w, x, to->ints[k]);

        if (w->build->status != PST_OK || used[a] || order[b] >= 0)
            return pst_rewrite_fail(w, "a dimension is given twice");
        used[a] = true;
        order[b] = a;
    }
    for (unsigned d = 0; d < rank; d++) {
        while (next < rank && used[next])
            next++;
        if (order[d] < 0)
            order[d] = next++;
    }
    return pst_rewrite_out(w, 0, pst_rw_permute(w, x, order, rank));
}

PST_REWRITE(movedim_intlist,
            "aten::movedim.intlist(Tensor(a) self, int[] source, "
            "int[] destination) -> Tensor(a)",
            movedim_rewrite);

/* --- blocks, sequences ---------------------------------------------------- */

static struct pst_value *emit_pad(struct pst_rewrite *w, struct pst_value *x,
                                  const struct pst_extent *by, unsigned n,
                                  double value)
{
    return pst_rw(w, &pst_op_constant_pad_nd,
                  PST_ARGS(pst_v(x), pst_rw_ints(w, by, n), pst_f(value)));
}

/* Pads every block with zeros to the full width, then joins the rows. */
static enum pst_status block_diag_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[0];
    struct pst_value *rows[PST_MAX_OUTS];
    struct pst_extent width = pst_extent(0), left = width;

    if (in->n == 0 || in->n > PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%u tensors", in->n);
    for (unsigned k = 0; k < in->n; k++) {
        rows[k] = pst_rw(w, &pst_op_atleast_2d, PST_ARGS(pst_v(in->values[k])));
        if (rows[k] == NULL)
            return w->build->status;
        if (rows[k]->meta.rank > 2)
            return pst_rewrite_fail(w, "tensor %u has too many dimensions", k);
        width = pst_extent_add(w->build, width, pst_rw_size(w, rows[k], 1));
    }
    for (unsigned k = 0; k < in->n && w->build->status == PST_OK; k++) {
        const struct pst_extent own = pst_rw_size(w, rows[k], 1);
        const struct pst_extent end = pst_extent_add(w->build, left, own);
        const struct pst_extent by[2] = {left,
                                         pst_extent_sub(w->build, width, end)};

        left = end;
        rows[k] = emit_pad(w, rows[k], by, 2, 0.0);
    }
    return pst_rewrite_out(w, 0, emit_cat(w, rows, in->n, 0));
}

static enum pst_status pad_sequence_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[0];
    const bool left = strcmp(w->args[3].s, "left") == 0;
    struct pst_value *rows[PST_MAX_OUTS];
    struct pst_extent longest = pst_extent(0);

    if (in->n == 0 || in->n > PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%u tensors", in->n);
    for (unsigned k = 0; k < in->n; k++) {
        if (in->values[k]->meta.rank == 0)
            return pst_rewrite_fail(w, "tensor %u has no dimension", k);
        longest =
            pst_extent_max(w->build, longest, pst_rw_size(w, in->values[k], 0));
    }
    for (unsigned k = 0; k < in->n; k++) {
        const unsigned n = 2 * in->values[k]->meta.rank;
        struct pst_extent by[2 * PST_MAX_RANK] = {0};

        by[n - (left ? 2 : 1)] =
            pst_extent_sub(w->build, longest, pst_rw_size(w, in->values[k], 0));
        rows[k] = emit_pad(w, in->values[k], by, n, w->args[2].f);
    }
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_stack,
               PST_ARGS(pst_values(rows, in->n), pst_i(w->args[1].b ? 0 : 1))));
}

PST_REWRITE(block_diag, "aten::block_diag(Tensor[] tensors) -> Tensor",
            block_diag_rewrite);
PST_REWRITE(pad_sequence,
            "aten::pad_sequence(Tensor[] sequences, bool batch_first=False, "
            "float padding_value=0., str padding_side=\"right\") -> Tensor",
            pad_sequence_rewrite);

/* --- writes to windows ---------------------------------------------------- */

/* Emits a copy of x whose diagonal of dimensions a and b, shifted by `shift`,
 * is src. */
static struct pst_value *write_diagonal(struct pst_rewrite *w,
                                        struct pst_value *x,
                                        struct pst_value *src, int64_t shift,
                                        unsigned a, unsigned b)
{
    struct pst_extent flat[PST_MAX_RANK], stride[PST_MAX_RANK], offset;
    unsigned n = 0;

    pst_rw_strides(w, x, flat);
    for (unsigned d = 0; d < x->meta.rank; d++)
        if (d != a && d != b)
            stride[n++] = flat[d];
    stride[n++] = pst_extent_add(w->build, flat[a], flat[b]);
    offset = shift >= 0 ? pst_extent_mul(w->build, pst_extent(shift), flat[b])
                        : pst_extent_mul(w->build, pst_extent(-shift), flat[a]);
    if (n != src->meta.rank ||
        pst_extent_is(w->build, pst_extent_numel(w->build, src), pst_extent(0)))
        offset = pst_extent(0);
    return pst_rw(w, &pst_op_write_strided,
                  PST_ARGS(pst_v(x), pst_v(src), pst_extents_of(w->build, src),
                           pst_rw_ints(w, stride, n), pst_rw_int(w, offset)));
}

static enum pst_status diagonal_scatter_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *src = pst_rewrite_in(w, 1);
    const unsigned a = dim_of(w, x, w->args[3].i);
    const unsigned b = dim_of(w, x, w->args[4].i);
    const struct pst_value *window =
        pst_rw(w, &pst_op_diagonal,
               PST_ARGS(pst_v(x), w->args[2], w->args[3], w->args[4]));

    if (window == NULL)
        return w->build->status;
    if (!pst_meta_same_shape(&window->meta, &src->meta))
        return pst_rewrite_fail(w, "src does not fit the diagonal");
    return pst_rewrite_out(w, 0, write_diagonal(w, x, src, w->args[2].i, a, b));
}

static enum pst_status diag_embed_rewrite(struct pst_rewrite *w)
{
    struct pst_value *src = pst_rewrite_in(w, 0), *zeros;
    const int64_t shift = w->args[1].i;
    struct pst_value like = *src; /* a value with the rank of the result */
    struct pst_extent size[PST_MAX_RANK], side;
    unsigned a, b;

    if (src->meta.rank == 0 || src->meta.rank == PST_MAX_RANK ||
        shift > INT32_MAX || shift < -INT32_MAX)
        return pst_rewrite_fail(w, "rank %u, offset %lld", src->meta.rank,
                                (long long)shift);
    like.meta.rank++;
    a = dim_of(w, &like, w->args[2].i);
    b = dim_of(w, &like, w->args[3].i);
    if (w->build->status != PST_OK || a == b)
        return pst_rewrite_fail(w, "needs two different dimensions");
    side = pst_extent_add(w->build, pst_rw_size(w, src, src->meta.rank - 1),
                          pst_extent(shift < 0 ? -shift : shift));
    for (unsigned d = 0, k = 0; d < like.meta.rank; d++)
        size[d] = d == a || d == b ? side : pst_rw_size(w, src, k++);
    zeros = pst_rw(w, &pst_op_zeros,
                   PST_ARGS(pst_rw_ints(w, size, like.meta.rank),
                            pst_dtype_arg(src->meta.dtype)));
    if (zeros == NULL)
        return w->build->status;
    return pst_rewrite_out(w, 0, write_diagonal(w, zeros, src, shift, a, b));
}

/* Returns `value` as an extent: with an unknown expression for a view with
 * dynamic sizes, whose layout in its storage is unknown; else as a constant. */
static struct pst_extent of_storage(const struct pst_rewrite *w,
                                    const struct pst_value *v, int64_t value)
{
    for (unsigned d = 0; d < v->meta.rank; d++)
        if (pst_rw_size(w, v, d).expr != NULL)
            return (struct pst_extent){value, pst_expr_unknown};
    return pst_extent(value);
}

static struct pst_arg strides_of(struct pst_rewrite *w,
                                 const struct pst_value *v)
{
    struct pst_extent stride[PST_MAX_RANK];

    for (unsigned d = 0; d < v->meta.rank; d++)
        stride[d] = of_storage(w, v, v->meta.stride[d]);
    return pst_rw_ints(w, stride, v->meta.rank);
}

/* Writes src to a copy of the whole storage and returns the part of the copy
 * that self is. Elements that are written outside of self are lost. */
static enum pst_status as_strided_scatter_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *all = x, *owner;
    struct pst_arg offset = w->args[4];
    struct pst_extent n;
    const int64_t one = 1;

    if (x == NULL)
        return pst_rewrite_fail(w, "argument \"self\" must be a tensor");
    owner = pst_value_storage(x);
    n = pst_extent_numel(w->build, owner);
    if (!pst_meta_is_contiguous(&owner->meta))
        n = of_storage(w, owner,
                       (int64_t)(pst_meta_span(&owner->meta) /
                                 pst_dtype_size(owner->meta.dtype)));
    if (offset.kind != PST_ARG_INT)
        offset = x->base == NULL ? pst_i(0)
                                 : pst_rw_int(w, of_storage(w, x, x->offset));
    if (x->base != NULL || !pst_meta_is_contiguous(&x->meta))
        all = pst_rw(w, &pst_op_as_strided,
                     PST_ARGS(pst_v(x), pst_rw_ints(w, &n, 1),
                              pst_ints(&one, 1), pst_i(0)));
    all = pst_rw(
        w, &pst_op_write_strided,
        PST_ARGS(pst_v(all), w->args[1], w->args[2], w->args[3], offset));
    if (x->base != NULL || !pst_meta_is_contiguous(&x->meta))
        all = pst_rw(w, &pst_op_as_strided,
                     PST_ARGS(pst_v(all), pst_extents_of(w->build, x),
                              strides_of(w, x),
                              pst_rw_int(w, of_storage(w, x, x->offset))));
    return pst_rewrite_out(w, 0, all);
}

PST_REWRITE(diagonal_scatter,
            "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, "
            "int dim1=0, int dim2=1) -> Tensor",
            diagonal_scatter_rewrite);
PST_REWRITE(diag_embed,
            "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, "
            "int dim2=-1) -> Tensor",
            diag_embed_rewrite);
const struct pst_op pst_op_as_strided_scatter = {
    .schema = "aten::as_strided_scatter(Tensor self, Tensor src, "
              "SymInt[] size, SymInt[] stride, "
              "SymInt? storage_offset=None) -> Tensor",
    .flags = PST_OP_STORAGE,
    .rewrite = as_strided_scatter_rewrite,
};

/* Fills the diagonal of all dimensions. With `wrap`, the diagonal of a tall
 * matrix starts again below its end. */
static enum pst_status fill_diagonal_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *src;
    struct pst_extent flat[PST_MAX_RANK], n, stride = pst_extent(0), wide;
    struct pst_build *b = w->build;
    struct pst_arg sizes;

    if (x->meta.rank < 2)
        return pst_rewrite_fail(w, "needs 2 dimensions");
    n = pst_rw_size(w, x, 0);
    wide = pst_extent_add(b, pst_rw_size(w, x, 1), pst_extent(1));
    pst_rw_strides(w, x, flat);
    for (unsigned d = 0; d < x->meta.rank; d++) {
        n = pst_extent_min(b, n, pst_rw_size(w, x, d));
        stride = pst_extent_add(b, stride, flat[d]);
    }
    if (w->args[2].b && x->meta.rank == 2 &&
        pst_extent_less(b, wide, pst_rw_size(w, x, 0)))
        n = pst_extent_ceildiv(b, pst_extent_numel(b, x), stride);
    sizes = pst_rw_ints(w, &n, 1);
    src = pst_rw(w, &pst_op_full,
                 PST_ARGS(sizes, w->args[1], pst_dtype_arg(x->meta.dtype)));
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_write_strided,
               PST_ARGS(pst_v(x), pst_v(src), sizes, pst_rw_ints(w, &stride, 1),
                        pst_i(0))));
}

/* Used for fill_diagonal_ only. */
PST_REWRITE(fill_diagonal,
            "aten::fill_diagonal(Tensor self, Scalar fill_value, "
            "bool wrap=False) -> Tensor",
            fill_diagonal_rewrite);
