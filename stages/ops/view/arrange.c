// SPDX-License-Identifier: Apache-2.0
/* Compositions whose number of parts depends on the arguments. */
#include "stages/ops/rewrite.h"

#include <string.h>

static struct pst_value *expand(struct pst_rewrite *w, struct pst_value *x,
                                unsigned rank, const int64_t *sizes)
{
    return pst_rw(w, "aten.expand.default",
                  PST_ARGS(pst_v(x), pst_ints(sizes, rank)));
}

static struct pst_value *cat(struct pst_rewrite *w, struct pst_value **parts,
                             unsigned n, int64_t dim)
{
    return pst_rw(w, "aten.cat.default",
                  PST_ARGS(pst_values(parts, n), pst_i(dim)));
}

/* Argument i as a dimension of x; fails the builder otherwise. */
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

/* Tensor k along dimension k; "xy" exchanges the first two. */
static enum pst_status meshgrid(struct pst_rewrite *w, bool xy)
{
    struct pst_value *const *in = w->args[0].values;
    const unsigned n = w->args[0].n;
    int64_t size[PST_MAX_RANK];

    if (n == 0 || n > PST_MAX_RANK)
        return pst_rewrite_refuse(w, "%u tensors", n);
    for (unsigned k = 0; k < n; k++) {
        const unsigned d = xy && n > 1 && k < 2 ? 1 - k : k;

        if (in[k]->meta.rank > 1)
            return pst_rewrite_fail(w, "tensor %u has several dimensions", k);
        size[d] = pst_meta_numel(&in[k]->meta);
    }
    w->n_outs = n;
    for (unsigned k = 0; k < n; k++) {
        const unsigned d = xy && n > 1 && k < 2 ? 1 - k : k;
        int64_t one[PST_MAX_RANK];

        for (unsigned i = 0; i < n; i++)
            one[i] = i == d ? size[d] : 1;
        w->outs[k] = expand(w,
                            pst_rw(w, "aten.view.default",
                                   PST_ARGS(pst_v(in[k]), pst_ints(one, n))),
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

/* Missing repetitions in front are 1. */
static enum pst_status tile_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const struct pst_arg *dims = &w->args[1];
    int64_t repeats[PST_MAX_RANK];
    const unsigned rank = PST_MAX(x->meta.rank, dims->n);

    if (rank > PST_MAX_RANK)
        return pst_rewrite_refuse(w, "%u dimensions", rank);
    for (unsigned d = 0; d < rank; d++)
        repeats[d] = d + dims->n < rank ? 1 : dims->ints[d + dims->n - rank];
    return pst_rewrite_out(w, 0,
                           pst_rw(w, "aten.repeat.default",
                                  PST_ARGS(pst_v(x), pst_ints(repeats, rank))));
}

/* A new dimension behind dim, expanded, and merged with it. */
static enum pst_status repeat_interleave_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const int64_t repeats = w->args[1].i, flat = -1;
    int64_t size[PST_MAX_RANK + 1];
    unsigned dim = 0, rank;

    if (w->args[2].kind == PST_ARG_INT)
        dim = dim_of(w, x, w->args[2].i);
    if (w->args[2].kind != PST_ARG_INT || x->meta.rank == 0)
        x = pst_rw_reshape(w, x, 1, &flat);
    if (x == NULL)
        return w->build->status;
    rank = x->meta.rank;
    if (rank == PST_MAX_RANK || repeats < 0)
        return pst_rewrite_refuse(w, "rank %u, %lld repeats", rank,
                                  (long long)repeats);
    for (unsigned d = 0, k = 0; d < rank; d++) {
        size[k++] = x->meta.size[d];
        if (d == dim)
            size[k++] = repeats;
    }
    x = pst_rw(w, "aten.unsqueeze.default",
               PST_ARGS(pst_v(x), pst_i((int64_t)dim + 1)));
    x = expand(w, x, rank + 1, size);
    size[dim] *= repeats;
    for (unsigned d = dim + 1; d < rank; d++)
        size[d] = size[d + 1];
    /* A reshape of nothing expanded would be a view: this is a copy. */
    x = pst_rw(w, "aten.clone.default", PST_ARGS(pst_v(x)));
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, x, rank, size));
}

PST_REWRITE(tile, "aten::tile(Tensor self, SymInt[] dims) -> Tensor",
            tile_rewrite);
PST_REWRITE(repeat_interleave_self_int,
            "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, "
            "int? dim=None, *, SymInt? output_size=None) -> Tensor",
            repeat_interleave_rewrite);

/* --- tensor_split --------------------------------------------------------- */

static void piece(struct pst_rewrite *w, unsigned k, unsigned dim,
                  struct pst_arg start, struct pst_arg end)
{
    w->outs[k] = pst_rw(w, "aten.slice.Tensor",
                        PST_ARGS(pst_v(pst_rewrite_in(w, 0)), pst_i(dim), start,
                                 end, pst_i(1)));
}

/* The first ones are longer by 1 where the size does not divide. */
static enum pst_status sections_rewrite(struct pst_rewrite *w)
{
    const struct pst_value *x = pst_rewrite_in(w, 0);
    const int64_t n = w->args[1].i;
    const unsigned dim = dim_of(w, x, w->args[2].i);
    int64_t at = 0;

    if (w->build->status != PST_OK || x->meta.rank == 0 || n < 1 ||
        n > PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%lld sections", (long long)n);
    w->n_outs = (unsigned)n;
    for (unsigned k = 0; k < w->n_outs; k++) {
        const int64_t size = x->meta.size[dim];
        const int64_t length = size / n + ((int64_t)k < size % n);

        piece(w, k, dim, pst_i(at), pst_i(at + length));
        at += length;
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
        piece(w, k, dim, k > 0 ? pst_i(at->ints[k - 1]) : pst_i(0),
              k < at->n ? pst_i(at->ints[k]) : pst_none());
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

static struct pst_value *pad(struct pst_rewrite *w, struct pst_value *x,
                             const int64_t *by, unsigned n, double value)
{
    return pst_rw(w, "aten.constant_pad_nd.default",
                  PST_ARGS(pst_v(x), pst_ints(by, n), pst_f(value)));
}

/* Every block is widened by zeros, then the rows are joined. */
static enum pst_status block_diag_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[0];
    struct pst_value *rows[PST_MAX_OUTS];
    int64_t width = 0, left = 0;

    if (in->n == 0 || in->n > PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%u tensors", in->n);
    for (unsigned k = 0; k < in->n; k++) {
        rows[k] = pst_rw(w, "aten.atleast_2d.default",
                         PST_ARGS(pst_v(in->values[k])));
        if (rows[k] == NULL)
            return w->build->status;
        if (rows[k]->meta.rank > 2)
            return pst_rewrite_fail(w, "tensor %u has too many dimensions", k);
        width += rows[k]->meta.size[1];
    }
    for (unsigned k = 0; k < in->n && w->build->status == PST_OK; k++) {
        const int64_t own = rows[k]->meta.size[1];
        const int64_t by[2] = {left, width - left - own};

        left += own;
        rows[k] = pad(w, rows[k], by, 2, 0.0);
    }
    return pst_rewrite_out(w, 0, cat(w, rows, in->n, 0));
}

static enum pst_status pad_sequence_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[0];
    const bool left = strcmp(w->args[3].s, "left") == 0;
    struct pst_value *rows[PST_MAX_OUTS];
    int64_t longest = 0;

    if (in->n == 0 || in->n > PST_MAX_OUTS)
        return pst_rewrite_refuse(w, "%u tensors", in->n);
    for (unsigned k = 0; k < in->n; k++) {
        if (in->values[k]->meta.rank == 0)
            return pst_rewrite_fail(w, "tensor %u has no dimension", k);
        longest = PST_MAX(longest, in->values[k]->meta.size[0]);
    }
    for (unsigned k = 0; k < in->n; k++) {
        const struct pst_meta *m = &in->values[k]->meta;
        int64_t by[2 * PST_MAX_RANK] = {0};

        by[2 * m->rank - (left ? 2 : 1)] = longest - m->size[0];
        rows[k] = pad(w, in->values[k], by, 2 * m->rank, w->args[2].f);
    }
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, "aten.stack.default",
               PST_ARGS(pst_values(rows, in->n), pst_i(w->args[1].b ? 0 : 1))));
}

PST_REWRITE(block_diag, "aten::block_diag(Tensor[] tensors) -> Tensor",
            block_diag_rewrite);
PST_REWRITE(pad_sequence,
            "aten::pad_sequence(Tensor[] sequences, bool batch_first=False, "
            "float padding_value=0., str padding_side=\"right\") -> Tensor",
            pad_sequence_rewrite);

/* --- windows written ------------------------------------------------------ */

/* The copy of x (or zeros of that shape) with src in the diagonal. */
static struct pst_value *write_diagonal(struct pst_rewrite *w,
                                        struct pst_value *x,
                                        struct pst_value *src, int64_t shift,
                                        unsigned a, unsigned b)
{
    struct pst_meta flat = x->meta;
    int64_t stride[PST_MAX_RANK], offset;
    unsigned n = 0;

    pst_meta_set_contiguous(&flat);
    for (unsigned d = 0; d < flat.rank; d++)
        if (d != a && d != b)
            stride[n++] = flat.stride[d];
    stride[n++] = flat.stride[a] + flat.stride[b];
    offset = shift >= 0 ? shift * flat.stride[b] : -shift * flat.stride[a];
    if (n != src->meta.rank || pst_meta_numel(&src->meta) == 0)
        offset = 0;
    return pst_rw(w, "penstock.write_strided.default",
                  PST_ARGS(pst_v(x), pst_v(src),
                           pst_ints(src->meta.size, src->meta.rank),
                           pst_ints(stride, n), pst_i(offset)));
}

static enum pst_status diagonal_scatter_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *src = pst_rewrite_in(w, 1);
    const unsigned a = dim_of(w, x, w->args[3].i);
    const unsigned b = dim_of(w, x, w->args[4].i);
    const struct pst_value *window =
        pst_rw(w, "aten.diagonal.default",
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
    struct pst_value like = *src; /* for the rank of the result */
    int64_t size[PST_MAX_RANK], side;
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
    side = src->meta.size[src->meta.rank - 1] + (shift < 0 ? -shift : shift);
    for (unsigned d = 0, k = 0; d < like.meta.rank; d++)
        size[d] = d == a || d == b ? side : src->meta.size[k++];
    zeros = pst_rw(w, "aten.zeros.default",
                   PST_ARGS(pst_ints(size, like.meta.rank),
                            pst_dtype_arg(src->meta.dtype)));
    if (zeros == NULL)
        return w->build->status;
    return pst_rewrite_out(w, 0, write_diagonal(w, zeros, src, shift, a, b));
}

/* A copy of the whole storage is written, of which the result is the window
 * that self has: what is written outside of it is not seen. */
static enum pst_status as_strided_scatter_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *all = x, *owner;
    struct pst_arg offset = w->args[4];
    const int64_t one = 1;
    int64_t n;

    if (x == NULL)
        return pst_rewrite_fail(w, "argument \"self\" must be a tensor");
    owner = pst_value_storage(x);
    n = (int64_t)(pst_meta_span(&owner->meta) /
                  pst_dtype_size(owner->meta.dtype));
    if (offset.kind != PST_ARG_INT)
        offset = pst_i(x->offset);
    if (x->base != NULL || !pst_meta_is_contiguous(&x->meta))
        all = pst_rw(
            w, "aten.as_strided.default",
            PST_ARGS(pst_v(x), pst_ints(&n, 1), pst_ints(&one, 1), pst_i(0)));
    all = pst_rw(
        w, "penstock.write_strided.default",
        PST_ARGS(pst_v(all), w->args[1], w->args[2], w->args[3], offset));
    if (x->base != NULL || !pst_meta_is_contiguous(&x->meta))
        all = pst_rw(w, "aten.as_strided.default",
                     PST_ARGS(pst_v(all), pst_ints(x->meta.size, x->meta.rank),
                              pst_ints(x->meta.stride, x->meta.rank),
                              pst_i(x->offset)));
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

/* The diagonal of all dimensions; wrap: of a tall matrix it begins again. */
static enum pst_status fill_diagonal_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *src;
    struct pst_meta flat = x->meta;
    int64_t n = x->meta.rank > 0 ? x->meta.size[0] : 0, stride = 0;

    if (x->meta.rank < 2)
        return pst_rewrite_fail(w, "needs 2 dimensions");
    pst_meta_set_contiguous(&flat);
    for (unsigned d = 0; d < flat.rank; d++) {
        n = PST_MIN(n, flat.size[d]);
        stride += flat.stride[d];
    }
    if (w->args[2].b && flat.rank == 2 && flat.size[0] > flat.size[1] + 1)
        n = (pst_meta_numel(&flat) + stride - 1) / stride;
    src = pst_rw(
        w, "aten.full.default",
        PST_ARGS(pst_ints(&n, 1), w->args[1], pst_dtype_arg(flat.dtype)));
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, "penstock.write_strided.default",
               PST_ARGS(pst_v(x), pst_v(src), pst_ints(&n, 1),
                        pst_ints(&stride, 1), pst_i(0))));
}

/* Stands for fill_diagonal_ alone. */
PST_REWRITE(fill_diagonal,
            "aten::fill_diagonal(Tensor self, Scalar fill_value, "
            "bool wrap=False) -> Tensor",
            fill_diagonal_rewrite);
