// SPDX-License-Identifier: Apache-2.0
/* prod of complex numbers; complex.c describes the layout. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

static struct pst_value *slice_part(struct pst_rewrite *w, struct pst_value *x,
                                    int64_t dim, int64_t from, int64_t to)
{
    return pst_rw(
        w, &pst_op_slice_Tensor,
        PST_ARGS(pst_v(x), pst_i(dim), pst_i(from), pst_i(to), pst_i(1)));
}

/* Multiplies one half by the other until one number is left; the elements left
 * over by odd sizes are multiplied last. */
static struct pst_value *emit_product(struct pst_rewrite *w,
                                      struct pst_value *x, int64_t dim,
                                      int64_t n)
{
    struct pst_value *odd = NULL;

    while (n > 1 && x != NULL) {
        const int64_t half = n / 2;

        if (n % 2 != 0) {
            struct pst_value *last = slice_part(w, x, dim, n - 1, n);

            odd = odd == NULL ? last
                              : pst_rw(w, &pst_op_complex_mul_Tensor,
                                       PST_ARGS(pst_v(odd), pst_v(last)));
        }
        x = pst_rw(w, &pst_op_complex_mul_Tensor,
                   PST_ARGS(pst_v(slice_part(w, x, dim, 0, half)),
                            pst_v(slice_part(w, x, dim, half, 2 * half))));
        n = half;
    }
    if (odd != NULL && x != NULL)
        x = pst_rw(w, &pst_op_complex_mul_Tensor,
                   PST_ARGS(pst_v(x), pst_v(odd)));
    return x;
}

/* Emits the product along a dimension. Its size must be a known number, since
 * it decides how many nodes are emitted. */
static enum pst_status prod_along(struct pst_rewrite *w, struct pst_value *x,
                                  int64_t dim, bool keepdim)
{
    const struct pst_extent n = pst_rw_size(w, x, (unsigned)dim);

    if (n.expr != NULL || n.value < 1)
        return pst_rewrite_refuse(
            w, "complex numbers along a dimension that is free or empty");
    x = emit_product(w, x, dim, n.value);
    if (x != NULL && !keepdim)
        x = pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(x), pst_i(dim)));
    return pst_rewrite_out(w, 0, x);
}

static struct pst_value *get_operand(struct pst_rewrite *w, unsigned dtype)
{
    struct pst_value *x = pst_rewrite_in(w, 0);

    if (w->args[dtype].kind == PST_ARG_DTYPE)
        x = pst_rw_cast(w, x, (enum pst_dtype)w->args[dtype].i);
    return x;
}

static enum pst_status prod_dim(struct pst_rewrite *w)
{
    struct pst_value *x = get_operand(w, 3);
    const int dim = x != NULL ? pst_meta_dim(&x->meta, w->args[1].i) : -1;

    if (x == NULL)
        return w->build->status;
    if (dim < 0)
        return pst_rewrite_fail(w, "a dimension is out of range");
    return prod_along(w, x, dim, w->args[2].b);
}

static enum pst_status prod(struct pst_rewrite *w)
{
    struct pst_value *x = get_operand(w, 1);

    if (x != NULL && x->meta.rank > 2)
        x = pst_rw(w, &pst_op_flatten_using_ints,
                   PST_ARGS(pst_v(x), pst_i(0), pst_i(-2)));
    if (x == NULL)
        return w->build->status;
    return x->meta.rank == 1 ? pst_rewrite_out(w, 0, x)
                             : prod_along(w, x, 0, false);
}

PST_REWRITE(complex_prod_dim_int,
            "complex::prod.dim_int(Tensor self, int dim, bool keepdim=False, "
            "*, ScalarType? dtype=None) -> Tensor",
            prod_dim);
PST_REWRITE(complex_prod,
            "complex::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            prod);
