// SPDX-License-Identifier: Apache-2.0
/* Scans along one dimension, which is kept: cumsum, diff. */
#include "stages/ops/core/rows.h"
#include "stages/ops/reduce/lane.h"
#include "stages/ops/reduce/reduce.h"
#include "stages/ops/reduce/running.h"

/* --- cumsum --------------------------------------------------------------- */

/* The inputs are contiguous. Every output is rounded once. */
static void cumsum_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const struct pst_lane l = pst_lane_of(x->meta, c->args[1].i);
    const bool whole = pst_dtype_kind(out->meta->dtype) != PST_KIND_FLOAT;

    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        const int64_t first = k / l.inner * l.size * l.inner + k % l.inner;
        double sum = 0.0;
        uint64_t bits = 0;

        for (int64_t i = 0; i < l.size; i++) {
            const int64_t at = first + i * l.inner;

            if (whole) {
                bits +=
                    (uint64_t)pst_reduce_load_whole(out->meta->dtype, x, at);
                pst_store_i64(out->meta->dtype, out->data, at, (int64_t)bits);
            } else {
                sum += pst_reduce_load(out->meta->dtype, x, at);
                pst_store_f64(out->meta->dtype, out->data, at, sum);
            }
        }
    }
}

enum pst_status pst_infer_running(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_dtype to;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    to = pst_dtype_kind(x->dtype) == PST_KIND_FLOAT ? x->dtype : PST_I64;
    return pst_infer_set_like(c, 0, pst_infer_dtype(c, 2, to), x);
}

static struct pst_value *flipped(struct pst_vjp *v, struct pst_value *g,
                                 int64_t dim)
{
    if (g == NULL || g->meta.rank == 0)
        return g;
    return pst_vjp_emit(v, &pst_op_flip, PST_ARGS(pst_v(g), pst_ints(&dim, 1)));
}

/* Element i is part of all later sums, so the gradient is a reversed cumsum. */
static enum pst_status cumsum_vjp(struct pst_vjp *v)
{
    const int64_t dim = v->node->args[1].i;
    struct pst_value *g = flipped(v, pst_vjp_grad(v, 0), dim);

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(v, &pst_op_cumsum, PST_ARGS(pst_v(g), pst_i(dim)));
    return pst_vjp_set(
        v, 0,
        pst_vjp_cast(v, flipped(v, g, dim), pst_vjp_in(v, 0)->meta.dtype));
}

static const struct pst_kernel cumsum_kernels[] = {
    {"cumsum_lanes", PST_ISA_ANY, PST_D_ANY, 0, pst_running_sum_supports, NULL,
     pst_running_sum, 0.0},
    {"cumsum_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, cumsum_ref, 0.0},
};

const struct pst_op pst_op_cumsum = {
    .schema = "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) "
              "-> Tensor",
    .infer = pst_infer_running,
    .vjp = cumsum_vjp,
};
PST_CPU_KERNELS(cumsum, cumsum_kernels);

/* --- diff ----------------------------------------------------------------- */

/* The tensors prepend, self and append (NULL: absent), which diff joins along
 * its dimension, in this order. */
struct joined {
    const struct pst_operand *part[3];
    struct pst_lane lane[3];
    int64_t size; /* elements of a joined lane */
};

static void join_parts(const struct pst_call *c, struct joined *ret)
{
    const struct pst_operand *order[3] = {&c->in[1], &c->in[0], &c->in[2]};

    *ret = (struct joined){.size = 0};
    for (unsigned k = 0; k < 3; k++) {
        if (order[k]->data == NULL)
            continue;
        ret->part[k] = order[k];
        ret->lane[k] = pst_lane_of(order[k]->meta, c->args[2].i);
        ret->size += ret->lane[k].size;
    }
}

/* Finds element i of joined row (outer, inner): sets *ret to the tensor that
 * has it, and returns its offset there. */
static int64_t locate_element(const struct joined *j, int64_t outer,
                              int64_t inner, int64_t i,
                              const struct pst_operand **ret)
{
    unsigned k = 0;

    for (; k < 2 && (j->part[k] == NULL || i >= j->lane[k].size); k++)
        i -= j->part[k] == NULL ? 0 : j->lane[k].size;
    *ret = j->part[k];
    return (outer * j->lane[k].size + i) * j->lane[k].inner + inner;
}

/* out[i] = sum over k of (-1)^(n-k) C(n, k) x[i + k]. For bool, n is 1 and the
 * difference is xor. */
static void diff_ref(const struct pst_call *c)
{
    const struct pst_operand *out = &c->out[0];
    const struct pst_lane l = pst_lane_of(out->meta, c->args[2].i);
    const int64_t n = c->args[1].i;
    const enum pst_dtype dtype = out->meta->dtype;
    struct joined j;

    join_parts(c, &j);
    for (int64_t at = 0; at < l.outer * l.size * l.inner; at++) {
        const int64_t inner = at % l.inner, i = at / l.inner % l.size;
        const int64_t outer = at / l.inner / l.size;
        double sum = 0.0, binomial = 1.0;
        uint64_t whole = 0;

        for (int64_t k = 0; k <= n; k++) {
            const double sign = (n - k) % 2 == 0 ? binomial : -binomial;
            const struct pst_operand *x;
            const int64_t from = locate_element(&j, outer, inner, i + k, &x);

            if (pst_dtype_kind(dtype) == PST_KIND_FLOAT)
                sum += sign * pst_load_f64(x->meta->dtype, x->data, from);
            else if (dtype == PST_BOOL)
                whole ^= (uint64_t)pst_load_i64(x->meta->dtype, x->data, from);
            else
                whole += (uint64_t)(int64_t)sign *
                         (uint64_t)pst_load_i64(x->meta->dtype, x->data, from);
            binomial = binomial * (double)(n - k) / (double)(k + 1);
        }
        if (pst_dtype_kind(dtype) == PST_KIND_FLOAT)
            pst_store_f64(dtype, out->data, at, sum);
        else
            pst_store_i64(dtype, out->data, at, (int64_t)whole);
    }
}

static enum pst_status infer_diff(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta to;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == 0)
        return pst_infer_fail(c, "needs a dimension");
    if (c->args[1].i < (c->args[3].kind == PST_ARG_VALUE ||
                                c->args[4].kind == PST_ARG_VALUE
                            ? 1
                            : 0) ||
        (x->dtype == PST_BOOL && c->args[1].i > 1) || c->args[1].i > 16)
        return pst_infer_refuse(c, "differences of order %lld",
                                (long long)c->args[1].i);
    to = *x;
    for (unsigned k = 3; k < 5; k++) {
        const struct pst_meta *more = pst_infer_in(c, k);
        char text[2][PST_META_TEXT];

        if (more == NULL)
            continue;
        for (unsigned d = 0; d < x->rank; d++)
            if (more->rank != x->rank || more->dtype != x->dtype ||
                (d != dim && more->size[d] != x->size[d]))
                return pst_infer_fail(c, "%s does not fit to %s",
                                      pst_meta_text(more, text[0]),
                                      pst_meta_text(x, text[1]));
        to.size[dim] += more->size[dim];
    }
    to.size[dim] =
        to.size[dim] > c->args[1].i ? to.size[dim] - c->args[1].i : 0;
    return pst_infer_set_like(c, 0, x->dtype, &to);
}

/* Returns the gradient of one difference: element i gets g[i - 1] - g[i]. */
static struct pst_value *diff_gradient(struct pst_vjp *v, struct pst_value *g,
                                       unsigned dim)
{
    int64_t pad[2 * PST_MAX_RANK] = {0};
    const unsigned at = 2 * (g->meta.rank - 1 - dim);
    struct pst_value *late, *early;

    pad[at] = 1;
    late = pst_vjp_emit(v, &pst_op_constant_pad_nd,
                        PST_ARGS(pst_v(g), pst_ints(pad, at + 2)));
    pad[at] = 0;
    pad[at + 1] = 1;
    early = pst_vjp_emit(v, &pst_op_constant_pad_nd,
                         PST_ARGS(pst_v(g), pst_ints(pad, at + 2)));
    return pst_vjp_sub(v, late, early);
}

static enum pst_status diff_vjp(struct pst_vjp *v)
{
    const struct pst_arg *args = v->node->args;
    const unsigned order[3] = {3, 0, 4};
    struct pst_value *g = pst_vjp_grad(v, 0);
    const unsigned dim =
        (unsigned)pst_meta_dim(&pst_vjp_in(v, 0)->meta, args[2].i);
    int64_t at = 0;

    if (pst_meta_numel(&g->meta) == 0) {
        for (unsigned k = 0; k < 3; k++)
            if (pst_vjp_in(v, order[k]) != NULL)
                (void)pst_vjp_set(
                    v, pst_vjp_flat(v, order[k]),
                    pst_vjp_zeros_like(v, pst_vjp_in(v, order[k])));
        return v->build.status;
    }
    for (int64_t k = 0; k < args[1].i && g != NULL; k++)
        g = diff_gradient(v, g, dim);
    for (unsigned k = 0; k < 3 && g != NULL; k++) {
        const struct pst_value *x = pst_vjp_in(v, order[k]);

        if (x == NULL)
            continue;
        if (pst_vjp_needs(v, order[k]))
            (void)pst_vjp_set(
                v, pst_vjp_flat(v, order[k]),
                pst_vjp_emit(v, &pst_op_narrow,
                             PST_ARGS(pst_v(g), pst_i(dim), pst_i(at),
                                      pst_i(x->meta.size[dim]))));
        at += x->meta.size[dim];
    }
    return v->build.status;
}

/* The kernels need contiguous inputs; in[1] and in[2] (prepend and append) may
 * be absent. */
static const struct pst_kernel diff_kernels[] = {
    {"diff_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, diff_ref, 0.0},
};

const struct pst_op pst_op_diff = {
    .schema = "aten::diff(Tensor self, int n=1, int dim=-1, "
              "Tensor? prepend=None, Tensor? append=None) -> Tensor",
    .infer = infer_diff,
    .vjp = diff_vjp,
};
PST_CPU_KERNELS(diff, diff_kernels);
