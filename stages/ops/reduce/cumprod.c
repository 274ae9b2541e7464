// SPDX-License-Identifier: Apache-2.0
/* Running products along a dimension and their gradient. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/reduce/lane.h"
#include "stages/ops/reduce/reduce.h"
#include "stages/ops/reduce/running.h"

#include <math.h>

static double load(const struct pst_operand *x, int64_t at)
{
    return pst_load_f64(x->meta->dtype, x->data, at);
}

static void store(const struct pst_operand *out, int64_t at, double y)
{
    pst_store_f64(out->meta->dtype, out->data, at, y);
}

/* --- reference ------------------------------------------------------------ */

static void cumprod_lane(const struct pst_call *c, int64_t first, int64_t inner,
                         int64_t n)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const bool whole = pst_dtype_kind(out->meta->dtype) != PST_KIND_FLOAT;
    double y = 1.0;
    uint64_t bits = 1;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i * inner;

        if (whole) {
            bits *= (uint64_t)pst_reduce_load_whole(out->meta->dtype, x, at);
            pst_store_i64(out->meta->dtype, out->data, at, (int64_t)bits);
        } else {
            y *= pst_reduce_load(out->meta->dtype, x, at);
            store(out, at, y);
        }
    }
}

static void cumprod_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[1].i);

    for (int64_t k = 0; k < pst_lane_count(&l); k++)
        cumprod_lane(c, pst_lane_first(&l, k, l.size), l.inner, l.size);
}

/*
 * Computes the gradient of a lane with NaN or infinities by division, as
 * PyTorch does. Before the first zero, dx_i is the sum of g_j y_j for j >= i,
 * divided by x_i; at the zero it is the sum of g_j times the product without
 * that zero; after it dx_i is 0.
 */
static void by_division(const struct pst_call *c, int64_t first, int64_t inner,
                        int64_t n)
{
    const struct pst_operand *g = &c->in[0], *x = &c->in[1], *dx = &c->out[0];
    double y = 1.0, product = 1.0, sum = 0.0;
    int64_t zero = 0, i;

    if (n == 1) {
        store(dx, first, load(g, first));
        return;
    }
    for (; zero < n && load(x, first + zero * inner) != 0.0; zero++) {
        y *= load(x, first + zero * inner);
        store(dx, first + zero * inner, y * load(g, first + zero * inner));
    }
    for (i = zero - 1; i >= 0; i--) {
        sum += load(dx, first + i * inner);
        store(dx, first + i * inner, sum / load(x, first + i * inner));
    }
    if (zero == n)
        return;
    sum = load(g, first + zero * inner);
    for (i = zero + 1; i < n && load(x, first + i * inner) != 0.0; i++) {
        product *= load(x, first + i * inner);
        sum += product * load(g, first + i * inner);
    }
    if (i < n)
        sum += product * 0.0; /* NaN if the product is infinite */
    store(dx, first + zero * inner, sum * y);
    for (i = zero + 1; i < n; i++)
        store(dx, first + i * inner, 0.0);
}

/* dx_i = sum over j >= i of g_j times the product of the others up to j; exact
 * where an element is 0. */
static void cumprod_backward_lane(const struct pst_call *c, int64_t first,
                                  int64_t inner, int64_t n)
{
    const struct pst_operand *g = &c->in[0], *x = &c->in[1];
    double before = 1.0;
    bool finite = true;

    for (int64_t i = 0; i < n; i++) {
        double product = before, sum = 0.0;

        for (int64_t j = i; j < n; j++) {
            if (j > i)
                product *= load(x, first + j * inner);
            sum += load(g, first + j * inner) * product;
        }
        store(&c->out[0], first + i * inner, sum);
        finite = finite && isfinite(sum);
        before *= load(x, first + i * inner);
    }
    if (!finite)
        by_division(c, first, inner, n);
}

static void cumprod_backward_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[2].i);

    for (int64_t k = 0; k < pst_lane_count(&l); k++)
        cumprod_backward_lane(c, pst_lane_first(&l, k, l.size), l.inner,
                              l.size);
}

/* --- several lanes at a time ---------------------------------------------- */

/*
 * dx_i = p_i s_i, where p_i is the product of the elements before i and s_i =
 * g_i + x_(i+1) s_(i+1). There is no division, so zeros need no special case.
 * Products run forwards and sums backwards: only the product at the start of
 * each stretch is kept, the others are recomputed when the sums reach that
 * stretch.
 */
#define STRETCH 128

static size_t backward_part(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[2].i);
    const size_t lanes = l.inner == 1 ? PST_RUNNING_ROWS : PST_RUNNING_COLUMNS;

    return lanes * (size_t)(STRETCH + l.size / STRETCH + 1) * sizeof(double);
}

static size_t backward_scratch(const struct pst_call *c, unsigned threads)
{
    return threads * backward_part(c);
}

/* For full pieces the compiler sees a constant number of lanes. */
#define BACKWARD(type)                                                         \
    static PST_ALWAYS_INLINE void slopes_##type(                               \
        const struct pst_call *c, const struct pst_running_piece *p,           \
        int64_t lanes, int64_t step, int64_t apart)                            \
    {                                                                          \
        const type *g = (const type *)c->in[0].data + p->first;                \
        const type *x = (const type *)c->in[1].data + p->first;                \
        type *dx = (type *)c->out[0].data + p->first;                          \
        double *before = p->scratch, *starts = before + STRETCH * lanes;       \
        double y[PST_RUNNING_COLUMNS], sum[PST_RUNNING_COLUMNS] = {0};         \
        double odd[PST_RUNNING_COLUMNS] = {0}; /* NaN: not all are finite */   \
                                                                               \
        for (int64_t k = 0; k < lanes; k++)                                    \
            y[k] = 1.0;                                                        \
        for (int64_t i = 0; i < p->n; i++)                                     \
            for (int64_t k = 0; k < lanes; k++) {                              \
                if (i % STRETCH == 0)                                          \
                    starts[i / STRETCH * lanes + k] = y[k];                    \
                y[k] *= (double)x[i * step + k * apart];                       \
            }                                                                  \
        for (int64_t s = (p->n - 1) / STRETCH; s >= 0; s--) {                  \
            const int64_t from = s * STRETCH;                                  \
            const int64_t m = PST_MIN(p->n - from, STRETCH);                   \
                                                                               \
            for (int64_t k = 0; k < lanes; k++)                                \
                before[k] = starts[s * lanes + k];                             \
            for (int64_t i = 1; i < m; i++)                                    \
                for (int64_t k = 0; k < lanes; k++)                            \
                    before[i * lanes + k] =                                    \
                        before[(i - 1) * lanes + k] *                          \
                        (double)x[(from + i - 1) * step + k * apart];          \
            for (int64_t i = m - 1; i >= 0; i--)                               \
                for (int64_t k = 0; k < lanes; k++) {                          \
                    const int64_t at = (from + i) * step + k * apart;          \
                    double d;                                                  \
                                                                               \
                    sum[k] += (double)g[at];                                   \
                    d = before[i * lanes + k] * sum[k];                        \
                    dx[at] = (type)d;                                          \
                    odd[k] += d - d;                                           \
                    sum[k] *= (double)x[at];                                   \
                }                                                              \
        }                                                                      \
        for (int64_t k = 0; k < lanes; k++)                                    \
            if (odd[k] != 0.0)                                                 \
                by_division(c, p->first + k * apart, step, p->n);              \
    }                                                                          \
    static void backward_##type(const struct pst_call *c,                      \
                                const struct pst_running_piece *p)             \
    {                                                                          \
        if (p->apart == 1 && p->lanes == PST_RUNNING_COLUMNS)                  \
            slopes_##type(c, p, PST_RUNNING_COLUMNS, p->step, 1);              \
        else if (p->step == 1 && p->lanes == PST_RUNNING_ROWS)                 \
            slopes_##type(c, p, PST_RUNNING_ROWS, 1, p->apart);                \
        else                                                                   \
            slopes_##type(c, p, p->lanes, p->step, p->apart);                  \
    }
BACKWARD(float)
BACKWARD(double)

static bool backward_supports(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->in[1].meta->dtype;

    return dtype == c->in[0].meta->dtype && dtype == c->out[0].meta->dtype &&
           (dtype == PST_F32 || dtype == PST_F64);
}

static void backward_lanes(const struct pst_call *c)
{
    pst_running(c, c->args[2].i,
                c->in[1].meta->dtype == PST_F32 ? backward_float
                                                : backward_double,
                backward_part(c));
}

/* --- rows ----------------------------------------------------------------- */

static const struct pst_kernel cumprod_kernels[] = {
    {.name = "cumprod_lanes",
     .dtypes = PST_D_ANY,
     .supports = pst_running_product_supports,
     .run = pst_running_product},
    {.name = "cumprod_ref", .dtypes = PST_D_ANY, .run = cumprod_ref},
};
static const struct pst_kernel backward_kernels[] = {
    {.name = "cumprod_backward_lanes",
     .dtypes = PST_D(F32) | PST_D(F64),
     .supports = backward_supports,
     .scratch = backward_scratch,
     .run = backward_lanes,
     .tolerance = 1e-6},
    {.name = "cumprod_backward_ref",
     .dtypes = PST_D_ANY,
     .run = cumprod_backward_ref},
};

const struct pst_op pst_op_cumprod = {
    .schema = "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) "
              "-> Tensor",
    .infer = pst_infer_running,
    .vjp = pst_vjp_formula,
    .formula = "self: cumprod_backward(grad, cast(self, dtype(result)), dim)",
};
PST_CPU_KERNELS(cumprod, cumprod_kernels);

const struct pst_op pst_op_cumprod_backward = {
    .schema = "penstock::cumprod_backward(Tensor grad, Tensor self, int dim) "
              "-> Tensor",
    .infer = pst_infer_same_as_0,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(cumprod_backward, backward_kernels);
