// SPDX-License-Identifier: Apache-2.0
/* fftshift and ifftshift; complex.c describes the layout. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

/* Rolls each dimension so that element 0 moves to index n / 2, or back. For
 * complex operands the importer lists the dimensions. */
static enum pst_status emit_shift(struct pst_rewrite *w, bool back)
{
    const struct pst_arg *dim = &w->args[1];
    struct pst_value *x = pst_rewrite_in(w, 0);
    struct pst_extent by[PST_MAX_RANK];
    int64_t at[PST_MAX_RANK];
    unsigned n = dim->kind == PST_ARG_INTS ? dim->n : x->meta.rank;

    if (n > PST_MAX_RANK)
        return pst_rewrite_fail(w, "%u dimensions are too many", n);
    for (unsigned i = 0; i < n; i++) {
        const int d = pst_meta_dim(
            &x->meta, dim->kind == PST_ARG_INTS ? dim->ints[i] : (int64_t)i);

        if (d < 0)
            return pst_rewrite_fail(w, "a dimension is out of range");
        at[i] = d;
        if (x->meta.rank == 0) {
            n = 0;
            break;
        }
        by[i] = pst_rw_size(w, x, (unsigned)d);
        if (back)
            by[i] = pst_extent_add(w->build, by[i], pst_extent(1));
        by[i] = pst_extent_floordiv(w->build, by[i], pst_extent(2));
    }
    if (n > 0)
        x = pst_rw(w, &pst_op_roll,
                   PST_ARGS(pst_v(x), pst_rw_ints(w, by, n), pst_ints(at, n)));
    else
        x = pst_rw(w, &pst_op_clone, PST_ARGS(pst_v(x)));
    return pst_rewrite_out(w, 0, x);
}

static enum pst_status shift_there(struct pst_rewrite *w)
{
    return emit_shift(w, false);
}

static enum pst_status shift_back(struct pst_rewrite *w)
{
    return emit_shift(w, true);
}

PST_REWRITE(fft_fftshift,
            "aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor",
            shift_there);
PST_REWRITE(fft_ifftshift,
            "aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor",
            shift_back);
