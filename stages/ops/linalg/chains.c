// SPDX-License-Identifier: Apache-2.0
/* Matrix products whose number of operands or of dimensions depends on the
 * arguments. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

static struct pst_value *matmul(struct pst_rewrite *w, struct pst_value *a,
                                struct pst_value *b)
{
    return pst_rw(w, &pst_op_matmul, PST_ARGS(pst_v(a), pst_v(b)));
}

static enum pst_status chain_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[0];
    struct pst_value *y = in->n > 0 ? in->values[0] : NULL;

    if (y == NULL)
        return pst_rewrite_fail(w, "needs a factor");
    for (unsigned k = 1; k < in->n && y != NULL; k++)
        y = matmul(w, y, in->values[k]);
    return pst_rewrite_out(w, 0, y);
}

PST_REWRITE(chain_matmul, "aten::chain_matmul(Tensor[] matrices) -> Tensor",
            chain_rewrite);
PST_REWRITE(linalg_multi_dot,
            "aten::linalg_multi_dot(Tensor[] tensors) -> Tensor",
            chain_rewrite);

/* Computes powers by repeated squaring; a negative power is one of the inverse,
 * and power 0 is the identity. */
static enum pst_status matrix_power_rewrite(struct pst_rewrite *w)
{
    struct pst_value *x = pst_rewrite_in(w, 0), *y = NULL;
    const unsigned rank = x->meta.rank;
    int64_t n = w->args[1].i;

    if (rank < 2 || !pst_extent_is(w->build, pst_rw_size(w, x, rank - 1),
                                   pst_rw_size(w, x, rank - 2)))
        return pst_rewrite_fail(w, "wants square matrices");
    if (n == 0) {
        y = pst_rw(w, &pst_op_eye,
                   PST_ARGS(pst_rw_int(w, pst_rw_size(w, x, rank - 1)),
                            pst_dtype_arg(x->meta.dtype)));
        y = pst_rw(w, &pst_op_expand,
                   PST_ARGS(pst_v(y), pst_extents_of(w->build, x)));
        return pst_rewrite_out(w, 0,
                               pst_rw(w, &pst_op_clone, PST_ARGS(pst_v(y))));
    }
    if (n < 0)
        x = pst_rw(w, &pst_op_linalg_inv, PST_ARGS(pst_v(x)));
    for (; n != 0 && w->build->status == PST_OK; n /= 2) {
        if (n % 2 != 0)
            y = y == NULL ? x : matmul(w, y, x);
        if (n / 2 != 0)
            x = matmul(w, x, x);
    }
    if (w->args[1].i == 1)
        y = pst_rw(w, &pst_op_clone, PST_ARGS(pst_v(y)));
    return pst_rewrite_out(w, 0, y);
}

PST_REWRITE(matrix_power, "aten::matrix_power(Tensor self, int n) -> Tensor",
            matrix_power_rewrite);

/* Multiplies (a0, 1, a1, 1, ...) by (1, b0, 1, b1, ...) and merges each pair of
 * dimensions. */
static enum pst_status kron_rewrite(struct pst_rewrite *w)
{
    struct pst_value *a = pst_rewrite_in(w, 0), *b = pst_rewrite_in(w, 1);
    const unsigned rank = PST_MAX(a->meta.rank, b->meta.rank);
    struct pst_extent left[PST_MAX_RANK], right[PST_MAX_RANK], to[PST_MAX_RANK];

    if (2 * rank > PST_MAX_RANK)
        return pst_rewrite_refuse(w, "rank %u", rank);
    for (unsigned d = 0; d < rank; d++) {
        const unsigned in_a = rank - a->meta.rank, in_b = rank - b->meta.rank;

        left[2 * d] = d < in_a ? pst_extent(1) : pst_rw_size(w, a, d - in_a);
        right[2 * d + 1] =
            d < in_b ? pst_extent(1) : pst_rw_size(w, b, d - in_b);
        left[2 * d + 1] = right[2 * d] = pst_extent(1);
        to[d] = pst_extent_mul(w->build, left[2 * d], right[2 * d + 1]);
    }
    a = pst_rw_reshape(w, a, 2 * rank, left);
    b = pst_rw_reshape(w, b, 2 * rank, right);
    return pst_rewrite_out(w, 0,
                           pst_rw_reshape(w, pst_rw_mul(w, a, b), rank, to));
}

PST_REWRITE(kron, "aten::kron(Tensor self, Tensor other) -> Tensor",
            kron_rewrite);

/* Computes the cross product along the first dimension of size 3. */
static enum pst_status cross_rewrite(struct pst_rewrite *w)
{
    const struct pst_value *x = pst_rewrite_in(w, 0);
    unsigned dim = 0;

    if (w->args[2].kind == PST_ARG_NONE)
        while (dim < x->meta.rank &&
               !pst_extent_is(w->build, pst_rw_size(w, x, dim), pst_extent(3)))
            dim++;
    if (dim == x->meta.rank)
        return pst_rewrite_fail(w, "no dimension has 3 elements");
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_linalg_cross,
               PST_ARGS(w->args[0], w->args[1],
                        w->args[2].kind == PST_ARG_NONE ? pst_i(dim)
                                                        : w->args[2])));
}

PST_REWRITE(cross,
            "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor",
            cross_rewrite);

/* Unsqueezes the operands, multiplies them and sums. */
static enum pst_status trilinear_rewrite(struct pst_rewrite *w)
{
    struct pst_value *y = NULL;

    for (unsigned k = 0; k < 3; k++) {
        const struct pst_arg *expand = &w->args[3 + k];
        struct pst_value *x = pst_rewrite_in(w, k);

        for (unsigned i = 0; i < expand->n && x != NULL; i++)
            x = pst_rw(w, &pst_op_unsqueeze,
                       PST_ARGS(pst_v(x), pst_i(expand->ints[i])));
        if (x == NULL)
            return w->build->status;
        y = y == NULL ? x : pst_rw_mul(w, y, x);
    }
    if (w->args[6].n > 0)
        y = pst_rw(w, &pst_op_sum_dim_IntList, PST_ARGS(pst_v(y), w->args[6]));
    return pst_rewrite_out(w, 0, y);
}

PST_REWRITE(_trilinear,
            "aten::_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, "
            "int[] expand2, int[] expand3, int[] sumdim, int unroll_dim=1) -> "
            "Tensor",
            trilinear_rewrite);
