// SPDX-License-Identifier: Apache-2.0
/* All forms of Fourier transforms, composed of the complex 1-D transform
 * (transform.c) and a table for its length, which depends on the length alone
 * and is computed once. A real signal has no imaginary part, and only the first
 * half of its spectrum is kept; the inverse counts each bin that has a mirror
 * image twice. complex.c describes the layout of values. */
#include "stages/base/str.h"
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

/* A value as real and imaginary part; im is NULL if the value is real. */
struct signal {
    struct pst_value *re, *im;
};

enum form { C2C, R2C, C2R };

/* Emits 0, 1, ..., n - 1. */
static struct pst_value *emit_range(struct pst_rewrite *w, struct pst_extent n)
{
    return pst_rw(w, &pst_op_arange,
                  PST_ARGS(pst_rw_int(w, n), pst_dtype_arg(PST_I64)));
}

/* Returns the number of bins that are kept for a real signal of n numbers. */
static struct pst_extent bins_of(struct pst_rewrite *w, struct pst_extent n)
{
    return pst_extent_add(w->build,
                          pst_extent_floordiv(w->build, n, pst_extent(2)),
                          pst_extent(1));
}

/* Crops dimension dim to its first `to` elements, or pads it with zeros. */
static struct pst_value *emit_resized(struct pst_rewrite *w,
                                      struct pst_value *v, int64_t dim,
                                      struct pst_extent to)
{
    struct pst_extent have, pad[2 * PST_MAX_RANK] = {0};
    unsigned n;

    if (v == NULL)
        return NULL;
    have = pst_rw_size(w, v, (unsigned)dim);
    if (pst_extent_less(w->build, to, have))
        return pst_rw(
            w, &pst_op_narrow,
            PST_ARGS(pst_v(v), pst_i(dim), pst_i(0), pst_rw_int(w, to)));
    if (pst_extent_is(w->build, have, to))
        return v;
    n = 2 * (v->meta.rank - (unsigned)dim);
    pad[n - 1] = pst_extent_sub(w->build, to, have);
    return pst_rw(w, &pst_op_constant_pad_nd,
                  PST_ARGS(pst_v(v), pst_rw_ints(w, pad, n)));
}

/* Multiplies each kept bin of a real signal of n numbers by the number of times
 * that the whole spectrum contains it: 1 or 2. */
static struct pst_value *emit_doubled(struct pst_rewrite *w,
                                      struct pst_value *v, int64_t dim,
                                      struct pst_extent n)
{
    struct pst_value *k = emit_range(w, bins_of(w, n));
    struct pst_value *once, *weight;
    struct pst_extent size[PST_MAX_RANK] = {bins_of(w, n)};

    if (v == NULL)
        return NULL;
    for (unsigned d = 1; d < v->meta.rank - (unsigned)dim; d++)
        size[d] = pst_extent(1);
    once = pst_rw(w, &pst_op_eq_Tensor,
                  PST_ARGS(pst_v(pst_rw(w, &pst_op_remainder_Scalar,
                                        PST_ARGS(pst_v(pst_rw_scale(w, k, 2)),
                                                 pst_rw_int(w, n)))),
                           pst_v(pst_rw_scale(w, k, 0))));
    weight = pst_rw_shift(
        w, pst_rw_scale(w, pst_rw_cast(w, once, v->meta.dtype), -1), 2);
    weight = pst_rw_reshape(w, weight, v->meta.rank - (unsigned)dim, size);
    return pst_rw_mul(w, v, weight);
}

/* Emits one transform of n numbers along dimension dim. */
static struct signal one_dim(struct pst_rewrite *w, struct signal x,
                             int64_t dim, struct pst_extent n, enum form form,
                             bool inverse)
{
    const struct pst_extent bins = bins_of(w, n);
    struct pst_value *table;
    struct pst_node *node;

    if (form == C2R) {
        x.re = emit_doubled(w, emit_resized(w, x.re, dim, bins), dim, n);
        x.im = emit_doubled(w, emit_resized(w, x.im, dim, bins), dim, n);
    }
    x.re = emit_resized(w, x.re, dim, n);
    x.im = emit_resized(w, x.im, dim, n);
    table = pst_rw(w, &pst_op_fft_table, PST_ARGS(pst_rw_int(w, n)));
    node = pst_rw_node(w, &pst_op_fft,
                       PST_ARGS(pst_v(x.re), pst_v(x.im), pst_v(table),
                                pst_i(dim), pst_b(inverse)));
    x.re = pst_rw_nth(node, 0);
    x.im = form == C2R ? NULL : pst_rw_nth(node, 1);
    if (form == R2C) {
        x.re = emit_resized(w, x.re, dim, bins);
        x.im = emit_resized(w, x.im, dim, bins);
    }
    return x;
}

struct plan {
    unsigned n;
    int64_t dim[PST_MAX_RANK]; /* transformed dimensions; not negative */
    struct pst_extent size[PST_MAX_RANK];
    enum form form; /* form along the last dimension; the others are C2C */
    bool whole;     /* R2C: all bins, not only the first half */
    bool inverse;
    bool real;    /* the operand is real, not a pair */
    double power; /* the result is divided by (product of sizes) ^ power */
};

static struct signal split_parts(struct pst_rewrite *w, struct pst_value *v,
                                 bool real)
{
    struct signal x = {v, NULL};

    if (real)
        return x;
    x.re =
        pst_rw(w, &pst_op_select_int, PST_ARGS(pst_v(v), pst_i(-1), pst_i(0)));
    x.im =
        pst_rw(w, &pst_op_select_int, PST_ARGS(pst_v(v), pst_i(-1), pst_i(1)));
    return x;
}

/* Returns the operand; integers are converted to the default dtype. */
static struct pst_value *get_operand(struct pst_rewrite *w)
{
    struct pst_value *v = pst_rewrite_in(w, 0);

    return pst_dtype_kind(v->meta.dtype) == PST_KIND_FLOAT
               ? v
               : pst_rw_cast(w, v, PST_F32);
}

static enum pst_status emit_transform(struct pst_rewrite *w,
                                      const struct plan *p)
{
    struct signal x = split_parts(w, get_operand(w), p->real);
    const struct pst_arg one = pst_f(1);
    struct pst_arg total = pst_f(1), size;
    struct pst_value *y;

    for (unsigned i = 0; i < p->n; i++) {
        /* The dimension that is real is transformed first for R2C, last for
         * C2R. */
        const unsigned k = p->form == C2R ? i : p->n - 1 - i;
        const enum form form = k == p->n - 1 && !p->whole ? p->form : C2C;

        if (p->size[k].value < 1)
            return pst_rewrite_fail(w, "a size of %lld is not possible",
                                    (long long)p->size[k].value);
        if (w->build->status != PST_OK)
            return w->build->status;
        x = one_dim(w, x, p->dim[k], p->size[k], form, p->inverse);
        size = pst_rw_int(w, p->size[k]);
        total = pst_extent_fold(w->build, "Mul", &total, &size,
                                pst_f(total.f * (double)size.i));
    }
    y = x.re;
    if (p->form != C2R) {
        struct pst_value *both[] = {x.re, x.im};

        if (x.im == NULL && w->build->status == PST_OK)
            both[1] = pst_rw_scale(w, x.re, 0);
        y = pst_rw(w, &pst_op_stack, PST_ARGS(pst_values(both, 2), pst_i(-1)));
    }
    if (p->power == 0.5)
        total = pst_extent_fold(w->build, "OpaqueUnaryFn_sqrt", &total, NULL,
                                pst_f(__builtin_sqrt(total.f)));
    if (p->power != 0)
        y = pst_rw(
            w, &pst_op_mul_Scalar,
            PST_ARGS(pst_v(y), pst_extent_fold(w->build, "FloatTrueDiv", &one,
                                               &total, pst_f(1 / total.f))));
    return pst_rewrite_out(w, 0, y);
}

/* --- arguments ------------------------------------------------------------ */

static bool add_dim(struct pst_rewrite *w, struct plan *p, int64_t dim)
{
    const struct pst_value *v = pst_rewrite_in(w, 0);
    const int64_t rank = (int64_t)v->meta.rank - !p->real;
    const int64_t at = dim < 0 ? dim + rank : dim;

    if (p->n == PST_MAX_RANK || at < 0 || at >= rank) {
        pst_rewrite_fail(w, "there is no dimension %lld", (long long)dim);
        return false;
    }
    p->size[p->n] = pst_rw_size(w, v, (unsigned)at);
    p->dim[p->n++] = at;
    return true;
}

/* Runs the transform. `norm` selects the power of 1 / size by which this
 * direction is scaled. */
static enum pst_status emit_scaled(struct pst_rewrite *w, struct plan *p,
                                   const struct pst_arg *norm)
{
    const char *s = norm->kind == PST_ARG_STRING ? norm->s : "backward";

    if (strcmp(s, "ortho") == 0)
        p->power = 0.5;
    else if (strcmp(s, "backward") == 0 || strcmp(s, "forward") == 0)
        p->power = p->inverse == (s[0] == 'b') ? 1 : 0;
    else
        return pst_rewrite_fail(w, "norm \"%s\" is unknown", s);
    return emit_transform(w, p);
}

/* Computes the default size of a real result from its number of bins. */
static void size_of_real(struct pst_rewrite *w, struct plan *p)
{
    struct pst_extent *last = &p->size[p->n - 1];

    if (p->form == C2R && p->n > 0)
        *last = pst_extent_mul(w->build, pst_extent(2),
                               pst_extent_sub(w->build, *last, pst_extent(1)));
}

/* Rewrites operators with arguments (self, n, dim, norm). */
static enum pst_status rewrite_one_dim(struct pst_rewrite *w, struct plan p)
{
    if (!add_dim(w, &p, w->args[2].i))
        return w->build->status;
    size_of_real(w, &p);
    if (w->args[1].kind == PST_ARG_INT)
        p.size[0] = pst_extent_in(w->build, &w->args[1], 0);
    return emit_scaled(w, &p, &w->args[3]);
}

/* Rewrites operators with arguments (self, s, dim, norm). Without dim,
 * transforms the last dimensions, as many as s has entries, or all if s is
 * absent. */
static enum pst_status rewrite_dims(struct pst_rewrite *w, struct plan p)
{
    const struct pst_arg *s = &w->args[1], *dim = &w->args[2];
    const int64_t rank = pst_rewrite_in(w, 0)->meta.rank;
    int64_t n = rank - !p.real;

    if (dim->kind == PST_ARG_INTS)
        n = dim->n;
    else if (s->kind == PST_ARG_INTS)
        n = s->n;
    for (int64_t i = 0; i < n; i++)
        if (!add_dim(w, &p, dim->kind == PST_ARG_INTS ? dim->ints[i] : i - n))
            return w->build->status;
    size_of_real(w, &p);
    if (s->kind == PST_ARG_INTS && s->n != p.n)
        return pst_rewrite_fail(w, "%u sizes for %u dimensions", s->n, p.n);
    for (unsigned i = 0; i < p.n && s->kind == PST_ARG_INTS; i++)
        if (s->ints[i] != -1)
            p.size[i] = pst_extent_in(w->build, s, i);
    return emit_scaled(w, &p, &w->args[3]);
}

/* Rewrites operators with (self, dim, normalization, ...), where normalization
 * divides by: 0 nothing, 1 the root of the size, 2 the size. */
static enum pst_status rewrite_core(struct pst_rewrite *w, struct plan p)
{
    const struct pst_arg *dim = &w->args[1];

    p.whole = p.form == R2C && !w->args[3].b;
    for (unsigned i = 0; i < dim->n; i++)
        if (!add_dim(w, &p, dim->ints[i]))
            return w->build->status;
    if (p.form == C2R && p.n > 0)
        p.size[p.n - 1] = pst_extent_in(w->build, &w->args[3], 0);
    p.power = (double)w->args[2].i / 2;
    return emit_transform(w, &p);
}

static enum pst_status core_c2c(struct pst_rewrite *w)
{
    return rewrite_core(w,
                        (struct plan){.form = C2C, .inverse = !w->args[3].b});
}

static enum pst_status core_r2c(struct pst_rewrite *w)
{
    return rewrite_core(w, (struct plan){.form = R2C, .real = true});
}

static enum pst_status core_c2r(struct pst_rewrite *w)
{
    return rewrite_core(w, (struct plan){.form = C2R, .inverse = true});
}

#define REWRITE_ONE rewrite_one_dim
#define ONE                                                                    \
    "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"
#define REWRITE_TWO rewrite_dims
#define TWO                                                                    \
    "(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) "    \
    "-> Tensor"
#define REWRITE_MANY rewrite_dims
#define MANY                                                                   \
    "(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) "      \
    "-> Tensor"

/* Transforms: row, name, arguments, form, whether it is the inverse, whether
 * its operand is real. hfft is C2R like irfft, but forward; ihfft is R2C, but
 * inverse. */
#define TRANSFORMS(X)                                                          \
    X(complex_fft_fft, "complex::fft_fft", ONE, C2C, false, false)             \
    X(complex_fft_ifft, "complex::fft_ifft", ONE, C2C, true, false)            \
    X(from_real_fft_rfft, "from_real::fft_rfft", ONE, R2C, false, true)        \
    X(complex_fft_irfft, "complex::fft_irfft", ONE, C2R, true, false)          \
    X(complex_fft_fft2, "complex::fft_fft2", TWO, C2C, false, false)           \
    X(complex_fft_ifft2, "complex::fft_ifft2", TWO, C2C, true, false)          \
    X(from_real_fft_rfft2, "from_real::fft_rfft2", TWO, R2C, false, true)      \
    X(complex_fft_irfft2, "complex::fft_irfft2", TWO, C2R, true, false)        \
    X(complex_fft_fftn, "complex::fft_fftn", MANY, C2C, false, false)          \
    X(complex_fft_ifftn, "complex::fft_ifftn", MANY, C2C, true, false)         \
    X(from_real_fft_rfftn, "from_real::fft_rfftn", MANY, R2C, false, true)     \
    X(complex_fft_irfftn, "complex::fft_irfftn", MANY, C2R, true, false)       \
    X(complex_fft_hfft, "complex::fft_hfft", ONE, C2R, false, false)           \
    X(complex_fft_hfft2, "complex::fft_hfft2", TWO, C2R, false, false)         \
    X(complex_fft_hfftn, "complex::fft_hfftn", MANY, C2R, false, false)        \
    X(from_real_fft_ihfft, "from_real::fft_ihfft", ONE, R2C, true, true)       \
    X(from_real_fft_ihfft2, "from_real::fft_ihfft2", TWO, R2C, true, true)     \
    X(from_real_fft_ihfftn, "from_real::fft_ihfftn", MANY, R2C, true, true)    \
    X(fft_hfft, "aten::fft_hfft", ONE, C2R, false, true)                       \
    X(fft_hfft2, "aten::fft_hfft2", TWO, C2R, false, true)                     \
    X(fft_hfftn, "aten::fft_hfftn", MANY, C2R, false, true)                    \
    X(fft_irfft, "aten::fft_irfft", ONE, C2R, true, true)                      \
    X(fft_irfft2, "aten::fft_irfft2", TWO, C2R, true, true)                    \
    X(fft_irfftn, "aten::fft_irfftn", MANY, C2R, true, true)
#define TRANSFORM(id, name, args, form_, inverse_, real_)                      \
    static enum pst_status rewrite_##id(struct pst_rewrite *w)                 \
    {                                                                          \
        const struct plan p = {                                                \
            .form = form_, .inverse = inverse_, .real = real_};                \
                                                                               \
        return REWRITE_##args(w, p);                                           \
    }                                                                          \
    PST_REWRITE(id, name args, rewrite_##id);
TRANSFORMS(TRANSFORM)
PST_REWRITE(complex__fft_c2c,
            "complex::_fft_c2c(Tensor self, SymInt[] dim, int normalization, "
            "bool forward) -> Tensor",
            core_c2c);
PST_REWRITE(from_real__fft_r2c,
            "from_real::_fft_r2c(Tensor self, int[] dim, int normalization, "
            "bool onesided) -> Tensor",
            core_r2c);
PST_REWRITE(complex__fft_c2r,
            "complex::_fft_c2r(Tensor self, int[] dim, int normalization, "
            "SymInt last_dim_size) -> Tensor",
            core_c2r);
