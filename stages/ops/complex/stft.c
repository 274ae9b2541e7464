// SPDX-License-Identifier: Apache-2.0
/* Spectra of short pieces of a real signal. Pairs: complex.c. */
#include "stages/ops/rewrite.h"
#include "stages/ops/rows.h"

enum {
    SELF,
    N_FFT,
    HOP_LENGTH,
    WIN_LENGTH,
    WINDOW,
};

/* Pieces of n numbers, (..., frames, n), times the window in the middle of
 * them. */
static struct pst_value *pieces(struct pst_rewrite *w, struct pst_value *x,
                                int64_t n, int64_t hop)
{
    const struct pst_arg *length = &w->args[WIN_LENGTH];
    struct pst_value *window = pst_rewrite_in(w, WINDOW);
    int64_t wide = length->kind == PST_ARG_INT ? length->i : n;

    x = pst_rw(w, &pst_op_unfold,
               PST_ARGS(pst_v(x), pst_i(-1), pst_i(n), pst_i(hop)));
    if (window == NULL && wide < n)
        window = pst_rw(
            w, &pst_op_new_ones,
            PST_ARGS(pst_v(pst_rewrite_in(w, SELF)), pst_ints(&wide, 1)));
    if (window != NULL && wide < n) {
        const int64_t pad[] = {(n - wide) / 2, n - wide - (n - wide) / 2};

        window = pst_rw(w, &pst_op_constant_pad_nd,
                        PST_ARGS(pst_v(window), pst_ints(pad, 2)));
    }
    return window == NULL ? x : pst_rw_mul(w, x, window);
}

static bool flag(const struct pst_rewrite *w, const char *name, bool otherwise)
{
    const struct pst_arg *arg = &w->args[pst_schema_arg(w->schema, name)];

    return arg->kind == PST_ARG_BOOL ? arg->b : otherwise;
}

/* Real results have the two parts as their last dimension: the same numbers. */
static enum pst_status stft(struct pst_rewrite *w)
{
    const struct pst_arg *hop = &w->args[HOP_LENGTH];
    const int64_t n = w->args[N_FFT].i;
    const struct pst_value *window = pst_rewrite_in(w, WINDOW);
    struct pst_value *x = pst_rewrite_in(w, SELF);
    int64_t step = hop->kind == PST_ARG_INT ? hop->i : n / 4;
    const unsigned rank = x->meta.rank;
    int64_t last;

    if (rank < 1 || rank > 2 || n < 1 || step < 1 || n > x->meta.size[rank - 1])
        return pst_rewrite_fail(w, "pieces of %lld numbers at steps of %lld",
                                (long long)n, (long long)step);
    if (window != NULL && window->meta.rank != 1)
        return pst_rewrite_fail(w, "the window is no vector");
    x = pieces(w, x, n, step);
    last = rank; /* (..., frames, n) */
    x = pst_rw(w, &pst_op_from_real__fft_r2c,
               PST_ARGS(pst_v(x), pst_ints(&last, 1),
                        pst_i(flag(w, "normalized", false)),
                        pst_b(flag(w, "onesided", true))));
    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_transpose_int,
                                  PST_ARGS(pst_v(x), pst_i(-2), pst_i(-3))));
}

#define STFT                                                                   \
    "::stft(Tensor self, int n_fft, int? hop_length=None, "                    \
    "int? win_length=None, Tensor? window=None, bool normalized=False, "       \
    "bool? onesided=None, bool? return_complex=None, "                         \
    "bool? align_to_window=None) -> Tensor"

PST_REWRITE(stft, "aten" STFT, stft);
PST_REWRITE(from_real_stft, "from_real" STFT, stft);
