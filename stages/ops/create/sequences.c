// SPDX-License-Identifier: Apache-2.0
/* linspace, logspace, windows, and indices of triangles. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

#define OPTIONS                                                                \
    "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "    \
    "bool? pin_memory=None) -> Tensor"
#define FACTORY(id, schema, formula) PST_COMPOSE(id, schema OPTIONS, formula)

/* --- linspace, logspace --------------------------------------------------- */

/* Returns argument k, which is a number or a tensor without dimensions. */
static double end_of(const struct pst_call *c, unsigned k)
{
    const struct pst_operand *x = &c->in[0];

    if (c->args[k].kind != PST_ARG_VALUE)
        return pst_pw_number(&c->args[k]);
    if (k > 0 && c->args[0].kind == PST_ARG_VALUE)
        x = &c->in[1];
    return pst_load_f64(x->meta->dtype, x->data, 0);
}

/* Returns element i of n, computed from the nearer end in the precision of the
 * dtype. */
static double linspace_element(const struct pst_call *c, double start,
                               double end, int64_t i, int64_t n)
{
    const enum pst_dtype dtype = c->out[0].meta->dtype;
    double step;

    if (n == 1)
        return start;
    step = (end - start) / (double)(n - 1);
    if (pst_dtype_kind(dtype) == PST_KIND_FLOAT && dtype != PST_F64)
        step = (double)(float)step;
    return i < n / 2 ? start + step * (double)i
                     : end - step * (double)(n - 1 - i);
}

static void linspace_ref(const struct pst_call *c)
{
    const struct pst_operand *out = &c->out[0];
    const bool whole = pst_dtype_kind(out->meta->dtype) != PST_KIND_FLOAT;
    const double from = end_of(c, 0), to = end_of(c, 1);
    const double start = whole ? trunc(from) : from;
    const double end = whole ? trunc(to) : to;
    const int64_t n = c->args[2].i;

    for (int64_t i = 0; i < n; i++)
        pst_store_f64(out->meta->dtype, out->data, i,
                      linspace_element(c, start, end, i, n));
}

static void logspace_ref(const struct pst_call *c)
{
    const struct pst_operand *out = &c->out[0];
    const double start = end_of(c, 0), end = end_of(c, 1);
    const double base = c->args[3].f;
    const int64_t n = c->args[2].i;

    for (int64_t i = 0; i < n; i++)
        pst_store_f64(out->meta->dtype, out->data, i,
                      pow(base, linspace_element(c, start, end, i, n)));
}

static enum pst_status set_steps(struct pst_infer *c, unsigned dtype)
{
    const int64_t n = c->args[2].i;

    if (n < 0)
        return pst_infer_fail(c, "%lld steps", (long long)n);
    for (unsigned k = 0; k < 2; k++)
        if (c->args[k].kind == PST_ARG_VALUE &&
            c->args[k].value->meta.rank != 0)
            return pst_infer_fail(c, "an end has dimensions");
    return pst_infer_set(
        c, 0,
        pst_infer_dtype(c, dtype, c->hint < PST_N_DTYPES ? c->hint : PST_F32),
        1, &n);
}

static enum pst_status infer_linspace(struct pst_infer *c)
{
    return set_steps(c, 3);
}

static enum pst_status infer_logspace(struct pst_infer *c)
{
    return set_steps(c, 4);
}

static const struct pst_kernel linspace_kernels[] = {
    {"linspace_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, linspace_ref, 0.0},
};
static const struct pst_kernel logspace_kernels[] = {
    {"logspace_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, logspace_ref, 0.0},
};

#define STEPS(id, text, how, table)                                            \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text OPTIONS,                                       \
        .infer = (how),                                                        \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, table)
STEPS(linspace, "linspace(Scalar start, Scalar end, int steps, ",
      infer_linspace, linspace_kernels);
STEPS(linspace_Tensor_Tensor,
      "linspace.Tensor_Tensor(Tensor start, Tensor end, int steps, ",
      infer_linspace, linspace_kernels);
STEPS(linspace_Tensor_Scalar,
      "linspace.Tensor_Scalar(Tensor start, Scalar end, int steps, ",
      infer_linspace, linspace_kernels);
STEPS(linspace_Scalar_Tensor,
      "linspace.Scalar_Tensor(Scalar start, Tensor end, int steps, ",
      infer_linspace, linspace_kernels);
STEPS(logspace,
      "logspace(Scalar start, Scalar end, int steps, float base=10., ",
      infer_logspace, logspace_kernels);

/* --- range: includes its end ---------------------------------------------- */

/* Returns x as an argument. Its expression is unknown if one of arguments first
 * to last is symbolic. */
static struct pst_arg make_arg(struct pst_rewrite *w, unsigned first,
                               unsigned last, double x)
{
    struct pst_arg ret = pst_f(x);

    for (unsigned i = first; i <= last; i++)
        if (w->args[i].exprs != NULL)
            ret = pst_extent_fold(w->build, NULL, &w->args[i], NULL, ret);
    return ret;
}

static enum pst_status rewrite_range(struct pst_rewrite *w, double step,
                                     unsigned arg)
{
    const enum pst_dtype dtype = w->args[arg].kind == PST_ARG_DTYPE
                                     ? (enum pst_dtype)w->args[arg].i
                                     : PST_F32;
    const double start = pst_pw_number(&w->args[0]);
    const double n = floor((pst_pw_number(&w->args[1]) - start) / step) + 1.0;
    /* The end of a float range is half a step beyond its last element, so that
     * rounding neither adds nor drops one; integer ranges are exact. */
    const double end = pst_dtype_kind(dtype) == PST_KIND_FLOAT ? n - 0.5 : n;

    if (!(n >= 0.0 && n < 1e15))
        return pst_rewrite_fail(w, "the end is on the wrong side");
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_arange_start_step,
               PST_ARGS(make_arg(w, 0, 0, start),
                        make_arg(w, 0, arg - 1, start + end * step),
                        make_arg(w, 2, 2, step), pst_dtype_arg(dtype))));
}

static enum pst_status range_rewrite(struct pst_rewrite *w)
{
    return rewrite_range(w, 1.0, 2);
}

static enum pst_status range_step_rewrite(struct pst_rewrite *w)
{
    return rewrite_range(w, pst_pw_number(&w->args[2]), 3);
}

PST_REWRITE(range, "aten::range(Scalar start, Scalar end, " OPTIONS,
            range_rewrite);
PST_REWRITE(
    range_step,
    "aten::range.step(Scalar start, Scalar end, Scalar step=1, " OPTIONS,
    range_step_rewrite);

/* --- windows -------------------------------------------------------------- */

/* A window is a function of i / n, where n is the last index or, if the window
 * is periodic, its length. */

#define WINDOW(name, formula)                                                  \
    FACTORY(name##_window, #name "_window(int window_length, ",                \
            #name "_window.periodic(window_length, True, dtype=dtype)");       \
    FACTORY(name##_window_periodic,                                            \
            #name "_window.periodic(int window_length, bool periodic, ",       \
            formula)
/* Windows of length 1 are 1, as in NumPy; those of length 0 are empty. */
#define ANGLES                                                                 \
    "to = is(dtype) ? dtype : f32;"                                            \
    "n = periodic ? window_length : window_length - 1;"                        \
    "at = arange(window_length, dtype=to); u = at * (2 * pi / n);"
#define SMALL(formula)                                                         \
    ANGLES "window_length < 2 ? ones([window_length], dtype=to) : (" formula ")"

WINDOW(hann, SMALL("0.5 - cos(u) * 0.5"));
WINDOW(hamming, SMALL("0.54 - cos(u) * 0.46"));
WINDOW(blackman, SMALL("cos(u * 2) * 0.08 - cos(u) * 0.5 + 0.42"));
WINDOW(bartlett, SMALL("1 - abs(at * (2 / n) - 1)"));
FACTORY(hamming_window_periodic_alpha,
        "hamming_window.periodic_alpha(int window_length, bool periodic, "
        "float alpha, ",
        SMALL("alpha - cos(u) * 0.46"));
FACTORY(hamming_window_periodic_alpha_beta,
        "hamming_window.periodic_alpha_beta(int window_length, bool periodic, "
        "float alpha, float beta, ",
        SMALL("alpha - cos(u) * beta"));
FACTORY(kaiser_window_beta,
        "kaiser_window.beta(int window_length, bool periodic, float beta, ",
        SMALL("i0(sqrt(1 - square(at * (2 / n) - 1)) * beta) / "
              "i0(full([], beta, dtype=to))"));
WINDOW(kaiser,
       "kaiser_window.beta(window_length, periodic, 12.0, dtype=dtype)");

/* --- triangles ------------------------------------------------------------ */

/* Writes to out, unless it is NULL, the positions (row, column) with side *
 * (column - row - offset) >= 0, row by row; returns their number. */
static int64_t list_triangle(const struct pst_arg *args, int side,
                             const struct pst_operand *out)
{
    const int64_t rows = args[0].i, cols = args[1].i, offset = args[2].i;
    const int64_t n = out != NULL ? out->meta->size[1] : 0;
    int64_t count = 0;

    for (int64_t r = 0; r < rows; r++) {
        const int64_t edge = PST_MIN(PST_MAX(r + offset, -1), cols);
        const int64_t from = side > 0 ? PST_MAX(edge, 0) : 0;
        const int64_t to = side > 0 ? cols : PST_MIN(edge + 1, cols);

        for (int64_t k = from; out != NULL && k < to; k++) {
            pst_store_i64(out->meta->dtype, out->data, count + k - from, r);
            pst_store_i64(out->meta->dtype, out->data, n + count + k - from, k);
        }
        count += PST_MAX(to - from, 0);
    }
    return count;
}

static enum pst_status infer_triangle(struct pst_infer *c, int side)
{
    int64_t size[2] = {2, 0};

    for (unsigned k = 0; k < 3; k++)
        if (c->args[k].i > INT32_MAX || c->args[k].i < (k < 2 ? 0 : -INT32_MAX))
            return pst_infer_fail(c, "argument %u is out of range", k);
    size[1] = list_triangle(c->args, side, NULL);
    return pst_infer_set(c, 0, pst_infer_dtype(c, 3, PST_I64), 2, size);
}

static enum pst_status infer_tril_indices(struct pst_infer *c)
{
    return infer_triangle(c, -1);
}

static enum pst_status infer_triu_indices(struct pst_infer *c)
{
    return infer_triangle(c, 1);
}

static void tril_indices_ref(const struct pst_call *c)
{
    (void)list_triangle(c->args, -1, &c->out[0]);
}

static void triu_indices_ref(const struct pst_call *c)
{
    (void)list_triangle(c->args, 1, &c->out[0]);
}

#define TRIANGLE(name)                                                         \
    static const struct pst_kernel name##_kernels[] = {                        \
        {#name "_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, name##_ref,      \
         0.0},                                                                 \
    };                                                                         \
    const struct pst_op pst_op_##name = {                                      \
        .schema = "aten::" #name                                               \
                  "(int row, int col, int offset=0, *, ScalarType? dtype=4, "  \
                  "Layout? layout=None, Device? device=None, "                 \
                  "bool? pin_memory=None) -> Tensor",                          \
        .infer = infer_##name,                                                 \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(name, name##_kernels)
TRIANGLE(tril_indices);
TRIANGLE(triu_indices);

/* --- empty: requested strides are ignored --------------------------------- */

FACTORY(empty_permuted, "empty_permuted(SymInt[] size, int[] physical_layout, ",
        "zeros(size, dtype=dtype)");
FACTORY(empty_strided, "empty_strided(SymInt[] size, SymInt[] stride, ",
        "zeros(size, dtype=dtype)");
FACTORY(new_empty_strided,
        "new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, ",
        "new_zeros(self, size, dtype=dtype)");
