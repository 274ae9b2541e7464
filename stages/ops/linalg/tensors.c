// SPDX-License-Identifier: Apache-2.0
/* tensorinv and tensorsolve: treat a tensor as a matrix by merging the
 * dimensions of each side. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

/* Writes sizes first..end - 1 of x to ret and returns their product. */
static struct pst_extent sizes_between(struct pst_rewrite *w,
                                       const struct pst_value *x,
                                       unsigned first, unsigned end,
                                       struct pst_extent *ret)
{
    struct pst_extent product = pst_extent(1);

    for (unsigned d = first; d < end; d++) {
        ret[d - first] = pst_rw_size(w, x, d);
        product = pst_extent_mul(w->build, product, ret[d - first]);
    }
    return product;
}

static struct pst_value *as_square(struct pst_rewrite *w, struct pst_value *x,
                                   struct pst_extent n)
{
    return pst_rw_reshape(w, x, 2, (struct pst_extent[]){n, n});
}

/* Inverts A as a matrix: its first `ind` dimensions are merged to rows. */
static enum pst_status tensorinv_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const unsigned rank = x->meta.rank;
    const int64_t ind = w->args[1].i;
    struct pst_extent sizes[2 * PST_MAX_RANK], rows, columns;
    unsigned first;

    if (ind <= 0)
        return pst_rewrite_fail(w, "ind is %lld, which is not positive",
                                (long long)ind);
    first = ind < rank ? (unsigned)ind : rank;
    columns = sizes_between(w, x, first, rank, sizes);
    rows = sizes_between(w, x, 0, first, sizes + rank - first);
    if (!pst_extent_is(w->build, rows, columns))
        return pst_rewrite_fail(w, "not square: %lld times %lld",
                                (long long)rows.value,
                                (long long)columns.value);
    x = as_square(w, x, rows);
    x = pst_rw(w, &pst_op_linalg_inv, PST_ARGS(pst_v(x)));
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, x, rank, sizes));
}

PST_REWRITE(linalg_tensorinv,
            "aten::linalg_tensorinv(Tensor self, int ind=2) -> Tensor",
            tensorinv_rewrite);

/* Solves A x = B, where A has the dimensions of B and then those of x; the
 * dimensions `dims` of A are moved to its end first. */
static enum pst_status tensorsolve_rewrite(struct pst_rewrite *w)
{
    struct pst_value *a = pst_rewrite_in(w, 0), *b = pst_rewrite_in(w, 1);
    const unsigned rank = a->meta.rank, first = b->meta.rank;
    struct pst_extent sizes[PST_MAX_RANK], n;
    int64_t last[PST_MAX_RANK];

    if (w->args[2].kind == PST_ARG_INTS) {
        if (w->args[2].n > rank)
            return pst_rewrite_fail(w, "%u dims of %u", w->args[2].n, rank);
        for (unsigned k = 0; k < w->args[2].n; k++)
            last[k] = (int64_t)k - w->args[2].n;
        a = pst_rw(
            w, &pst_op_movedim_intlist,
            PST_ARGS(pst_v(a), w->args[2], pst_ints(last, w->args[2].n)));
        if (a == NULL)
            return w->build->status;
    }
    if (first > rank)
        return pst_rewrite_fail(w, "B has more dimensions than A");
    n = sizes_between(w, a, first, rank, sizes);
    if (!pst_extent_is(w->build, n, pst_extent_numel(w->build, b)))
        return pst_rewrite_fail(w, "%lld unknowns for %lld equations",
                                (long long)n.value,
                                (long long)pst_meta_numel(&b->meta));
    a = as_square(w, a, n);
    b = pst_rw_reshape(w, b, 1, &n);
    a = pst_rw(w, &pst_op_linalg_solve,
               PST_ARGS(pst_v(a), pst_v(b), pst_b(true)));
    return pst_rewrite_out(w, 0, pst_rw_reshape(w, a, rank - first, sizes));
}

PST_REWRITE(linalg_tensorsolve,
            "aten::linalg_tensorsolve(Tensor self, Tensor other, "
            "int[]? dims=None) -> Tensor",
            tensorsolve_rewrite);
