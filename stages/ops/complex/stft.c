// SPDX-License-Identifier: Apache-2.0
/* Short-time Fourier transform of a real signal, and its inverse; complex.c
 * describes the layout. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

enum {
    SELF,
    N_FFT,
    HOP_LENGTH,
    WIN_LENGTH,
    WINDOW,
};

/* Returns the window, zero-padded on both sides to n numbers. Returns NULL
 * without a window (all ones) or after a failure. */
static struct pst_value *window_of(struct pst_rewrite *w, struct pst_value *x,
                                   int64_t n)
{
    const struct pst_arg *length = &w->args[WIN_LENGTH];
    struct pst_value *window = pst_rewrite_in(w, WINDOW);
    int64_t wide = length->kind == PST_ARG_INT ? length->i : n;

    if (window != NULL && (window->meta.rank != 1 || wide > n ||
                           !pst_extent_is(w->build, pst_rw_size(w, window, 0),
                                          pst_extent(wide)))) {
        (void)pst_rewrite_fail(w,
                               "the window is not a vector of %lld numbers, "
                               "or of more than a piece",
                               (long long)wide);
        return NULL;
    }
    if (window == NULL && wide < n)
        window =
            pst_rw(w, &pst_op_new_ones, PST_ARGS(pst_v(x), pst_ints(&wide, 1)));
    if (window != NULL && wide < n) {
        const int64_t pad[] = {(n - wide) / 2, n - wide - (n - wide) / 2};

        window = pst_rw(w, &pst_op_constant_pad_nd,
                        PST_ARGS(pst_v(window), pst_ints(pad, 2)));
    }
    return window;
}

static bool get_flag(const struct pst_rewrite *w, const char *name,
                     bool otherwise)
{
    const struct pst_arg *arg = &w->args[pst_schema_arg(w->schema, name)];

    return arg->kind == PST_ARG_BOOL ? arg->b : otherwise;
}

/* return_complex has no effect, since the last dimension of a complex result
 * holds the two parts. */
static enum pst_status rewrite_stft(struct pst_rewrite *w)
{
    const struct pst_arg *hop = &w->args[HOP_LENGTH];
    const int64_t n = w->args[N_FFT].i;
    struct pst_value *x = pst_rewrite_in(w, SELF), *window;
    int64_t step = hop->kind == PST_ARG_INT ? hop->i : n / 4;
    const unsigned rank = x->meta.rank;
    int64_t last;

    if (rank < 1 || rank > 2 || n < 1 || step < 1 || n > x->meta.size[rank - 1])
        return pst_rewrite_fail(w, "pieces of %lld numbers at steps of %lld",
                                (long long)n, (long long)step);
    window = window_of(w, x, n);
    x = pst_rw(w, &pst_op_unfold,
               PST_ARGS(pst_v(x), pst_i(-1), pst_i(n), pst_i(step)));
    if (window != NULL)
        x = pst_rw_mul(w, x, window);
    last = rank; /* (..., frames, n) */
    x = pst_rw(w, &pst_op_from_real__fft_r2c,
               PST_ARGS(pst_v(x), pst_ints(&last, 1),
                        pst_i(get_flag(w, "normalized", false)),
                        pst_b(get_flag(w, "onesided", true))));
    return pst_rewrite_out(w, 0,
                           pst_rw(w, &pst_op_transpose_int,
                                  PST_ARGS(pst_v(x), pst_i(-2), pst_i(-3))));
}

#define STFT                                                                   \
    "::stft(Tensor self, int n_fft, int? hop_length=None, "                    \
    "int? win_length=None, Tensor? window=None, bool normalized=False, "       \
    "bool? onesided=None, bool? return_complex=None, "                         \
    "bool? align_to_window=None) -> Tensor"

PST_REWRITE(stft, "aten" STFT, rewrite_stft);
PST_REWRITE(from_real_stft, "from_real" STFT, rewrite_stft);

/* --- inverse -------------------------------------------------------------- */

struct inverse {
    struct pst_rewrite *w;
    int64_t n, hop;
    bool onesided;                   /* only half of the bins are present */
    struct pst_extent frames, whole; /* `whole`: signal length with its
                                      * padding */
};

/* Adds up the frames (batch, frames, n) at their positions in the signal;
 * returns (batch, whole). */
static struct pst_value *add_frames(const struct inverse *v,
                                    struct pst_value *x)
{
    const struct pst_extent size[] = {pst_extent(1), v->whole};
    static const int64_t ones[] = {1, 1}, zeros[] = {0, 0};
    const int64_t piece[] = {1, v->n}, step[] = {1, v->hop};
    struct pst_rewrite *w = v->w;

    x = pst_rw(w, &pst_op_transpose_int,
               PST_ARGS(pst_v(x), pst_i(1), pst_i(2)));
    x = pst_rw(w, &pst_op_col2im,
               PST_ARGS(pst_v(x), pst_rw_ints(w, size, 2), pst_ints(piece, 2),
                        pst_ints(ones, 2), pst_ints(zeros, 2),
                        pst_ints(step, 2)));
    for (int i = 0; i < 2; i++)
        x = pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(x), pst_i(1)));
    return x;
}

/* Returns the sum of the squared windows of all frames: (1, whole). */
static struct pst_value *sum_windows(const struct inverse *v,
                                     struct pst_value *window)
{
    const struct pst_extent size[] = {pst_extent(1), v->frames,
                                      pst_extent(v->n)};

    window = pst_rw_mul(v->w, window, window);
    window = pst_rw(
        v->w, &pst_op_expand,
        PST_ARGS(pst_v(window), pst_rw_ints(v->w, size, 3), pst_b(false)));
    return add_frames(v, window);
}

/* Transforms spectra (batch, bins, frames, 2) to frames (batch, frames, n),
 * before the window is applied. */
static struct pst_value *pieces_of(const struct inverse *v, struct pst_value *x)
{
    static const int64_t last = 2;
    struct pst_rewrite *w = v->w;

    x = pst_rw(w, &pst_op_transpose_int,
               PST_ARGS(pst_v(x), pst_i(1), pst_i(2)));
    if (!v->onesided)
        x = pst_rw(w, &pst_op_slice_Tensor,
                   PST_ARGS(pst_v(x), pst_i(2), pst_i(0), pst_i(v->n / 2 + 1),
                            pst_i(1)));
    return pst_rw(w, &pst_op_complex__fft_c2r,
                  PST_ARGS(pst_v(x), pst_ints(&last, 1),
                           pst_i(get_flag(w, "normalized", false) ? 1 : 2),
                           pst_i(v->n)));
}

/* Removes the padding before and after the signal from (batch, whole), up to
 * argument `length`. */
static struct pst_value *remove_padding(const struct inverse *v,
                                        struct pst_value *x)
{
    const struct pst_arg *length =
        &v->w->args[pst_schema_arg(v->w->schema, "length")];
    struct pst_rewrite *w = v->w;
    const int64_t half = get_flag(w, "center", true) ? v->n / 2 : 0;
    struct pst_extent end =
        pst_extent_sub(w->build, v->whole, pst_extent(half));

    if (length->kind == PST_ARG_INT)
        end =
            pst_extent_min(w->build, v->whole,
                           pst_extent_add(w->build, pst_extent(half),
                                          pst_extent_in(w->build, length, 0)));
    return pst_rw(w, &pst_op_slice_Tensor,
                  PST_ARGS(pst_v(x), pst_i(1), pst_i(half), pst_rw_int(w, end),
                           pst_i(1)));
}

/* Appends zeros up to argument `length`. */
static struct pst_value *fill_up(const struct inverse *v, struct pst_value *x)
{
    const struct pst_arg *length =
        &v->w->args[pst_schema_arg(v->w->schema, "length")];
    struct pst_rewrite *w = v->w;
    struct pst_extent pad[2] = {{0}};

    if (length->kind != PST_ARG_INT || x == NULL)
        return x;
    pad[1] = pst_extent_sub(w->build, pst_extent_in(w->build, length, 0),
                            pst_rw_size(w, x, 1));
    if (pst_extent_is(w->build, pad[1], pst_extent(0)))
        return x;
    return pst_rw(w, &pst_op_constant_pad_nd,
                  PST_ARGS(pst_v(x), pst_rw_ints(w, pad, 2)));
}

static enum pst_status read_spectra(struct inverse *v)
{
    struct pst_rewrite *w = v->w;
    const struct pst_value *x = pst_rewrite_in(w, SELF);
    const unsigned rank = x->meta.rank;
    struct pst_extent bins;

    if (get_flag(w, "return_complex", false))
        return pst_rewrite_refuse(w, "signals of complex numbers");
    if (rank < 3 || rank > 4 || v->n < 1 || v->hop < 1)
        return pst_rewrite_fail(w, "pieces of %lld numbers at steps of %lld",
                                (long long)v->n, (long long)v->hop);
    bins = pst_rw_size(w, x, rank - 3);
    v->onesided = get_flag(w, "onesided",
                           !pst_extent_is(w->build, bins, pst_extent(v->n)));
    if (!pst_extent_is(w->build, bins,
                       pst_extent(v->onesided ? v->n / 2 + 1 : v->n)))
        return pst_rewrite_fail(w, "%lld bins of pieces of %lld numbers",
                                (long long)bins.value, (long long)v->n);
    return PST_OK;
}

/* PyTorch rejects windows that leave a position of the signal uncovered; here
 * such positions are NaN. */
static enum pst_status rewrite_istft(struct pst_rewrite *w)
{
    const struct pst_arg *hop = &w->args[HOP_LENGTH];
    const int64_t n = w->args[N_FFT].i;
    struct inverse v = {
        .w = w, .n = n, .hop = hop->kind == PST_ARG_INT ? hop->i : n / 4};
    struct pst_value *x = pst_rewrite_in(w, SELF), *window, *y;
    enum pst_status status = read_spectra(&v);
    const bool single = x->meta.rank == 3;

    if (status != PST_OK)
        return status;
    if (single)
        x = pst_rw(w, &pst_op_unsqueeze, PST_ARGS(pst_v(x), pst_i(0)));
    if (x == NULL)
        return w->build->status;
    v.frames = pst_rw_size(w, x, 2);
    v.whole = pst_extent_sub(w->build, v.frames, pst_extent(1));
    v.whole = pst_extent_mul(w->build, pst_extent(v.hop), v.whole);
    v.whole = pst_extent_add(w->build, pst_extent(n), v.whole);
    y = pieces_of(&v, x);
    if (y == NULL)
        return w->build->status;
    window = window_of(w, y, n);
    if (window == NULL && w->build->status == PST_OK)
        window =
            pst_rw(w, &pst_op_new_ones, PST_ARGS(pst_v(y), pst_ints(&n, 1)));
    y = remove_padding(&v, add_frames(&v, pst_rw_mul(w, y, window)));
    y = pst_rw(
        w, &pst_op_div_Tensor,
        PST_ARGS(pst_v(y), pst_v(remove_padding(&v, sum_windows(&v, window)))));
    y = fill_up(&v, y);
    if (single)
        y = pst_rw(w, &pst_op_squeeze_dim, PST_ARGS(pst_v(y), pst_i(0)));
    return pst_rewrite_out(w, 0, y);
}

PST_REWRITE(complex_istft,
            "complex::istft(Tensor self, int n_fft, int? hop_length=None, "
            "int? win_length=None, Tensor? window=None, bool center=True, "
            "bool normalized=False, bool? onesided=None, int? length=None, "
            "bool return_complex=False) -> Tensor",
            rewrite_istft);
