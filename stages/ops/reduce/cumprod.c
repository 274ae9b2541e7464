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
 * PyTorch does. Before the first zero, dx_i is the sum of g_j y_j over j >= i,
 * divided by x_i. At the first zero, dx_i is the sum of g_j times the product
 * of the elements up to j without that zero. After it, dx_i is 0.
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

/*
 * dx_i = p_i s_i, where p_i is the product of the elements before i and s_i =
 * g_i + x_(i+1) s_(i+1). There is no division, so zeros need no special case.
 * before: buffer for n products.
 */
static void cumprod_backward_lane(const struct pst_call *c, int64_t first,
                                  int64_t inner, int64_t n, double *before)
{
    const struct pst_operand *g = &c->in[0], *x = &c->in[1];
    double product = 1.0, sum = 0.0;
    bool finite = true;

    for (int64_t i = 0; i < n; i++) {
        before[i] = product;
        product *= load(x, first + i * inner);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t at = first + i * inner;

        sum += load(g, at);
        store(&c->out[0], at, before[i] * sum);
        finite = finite && isfinite(before[i] * sum);
        sum *= load(x, at);
    }
    if (!finite)
        by_division(c, first, inner, n);
}

static size_t backward_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[2].i);

    return threads * (size_t)l.size * sizeof(double);
}

struct backward {
    const struct pst_call *call;
    struct pst_lane lane;
};

static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct backward *b = ctx;
    const struct pst_lane *l = &b->lane;
    double *before = (double *)b->call->scratch + part * l->size;
    int64_t k, end;

    pst_pool_share(pst_lane_count(l), 1, part, parts, &k, &end);
    for (; k < end; k++)
        cumprod_backward_lane(b->call, pst_lane_first(l, k, l->size), l->inner,
                              l->size, before);
}

static void cumprod_backward_ref(const struct pst_call *c)
{
    struct backward b = {c, pst_lane_of(c->in[0].meta, c->args[2].i)};

    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        backward_part, &b);
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
    {.name = "cumprod_backward_ref",
     .dtypes = PST_D_ANY,
     .scratch = backward_scratch,
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
