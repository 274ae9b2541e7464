// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/cross_entropy.h"
#include "stages/ops/core/rows.h"

#include <math.h>

/*
 * Every kind of target gives each position coefficients t_k >= 0 with
 *     loss = -sum_k t_k log p_k,    d loss / d x = p sum_k t_k - t
 * where p = softmax(x):
 *     index y:        t_k = (1 - e) w_y [k = y] + e / C w_k
 *     probabilities:  t_k = w_k ((1 - e) q_k + e / C)
 * and e is the label smoothing. Ignored positions have t = 0.
 */

static enum pst_status cross_entropy_infer(struct pst_infer *c)
{
    enum pst_status status = pst_classes_check(c, 0, 1, 2, 3);

    if (status == PST_OK && !(c->args[5].f >= 0.0 && c->args[5].f <= 1.0))
        return pst_infer_fail(c, "label_smoothing is not between 0 and 1");
    return status != PST_OK ? status : pst_classes_set(c, 0, c->args[3].i);
}

static enum pst_status backward_infer(struct pst_infer *c)
{
    const struct pst_meta *g;
    enum pst_status status = pst_classes_check(c, 1, 2, 3, 4);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 0, &g);
    if (status != PST_OK)
        return status;
    if (c->args[4].i != PST_REDUCE_NONE && pst_meta_numel(g) != 1)
        return pst_infer_fail(c, "the gradient is not a scalar");
    return pst_infer_set_like(c, 0, pst_infer_in(c, 1)->dtype,
                              pst_infer_in(c, 1));
}

struct pst_classes pst_entropy_classes(const struct pst_call *c, unsigned first)
{
    struct pst_classes p = {.x = &c->in[first],
                            .target = &c->in[first + 1],
                            .weight = pst_classes_optional(c, first + 2),
                            .reduction = c->args[first + 3].i,
                            .ignore = c->args[first + 4].i,
                            .smoothing = c->args[first + 5].f};

    pst_classes_shape(&p);
    return p;
}

/* --- reference ---------------------------------------------------------- */

static double x_at(const struct pst_classes *p, int64_t i, int64_t k)
{
    return pst_load_f64(p->x->meta->dtype, p->x->data, pst_classes_at(p, i, k));
}

/* Returns t_k of position i. y: class of the position, if targets are
 * indices. */
static double coefficient(const struct pst_classes *p, int64_t i, int64_t y,
                          int64_t k)
{
    const double smooth = p->smoothing / (double)p->classes;
    const struct pst_operand *t = p->target;
    const int64_t at = (i / p->d * p->classes + k) * p->d + i % p->d;
    double q;

    if (!p->probabilities)
        return (k == y ? (1.0 - p->smoothing) * pst_classes_weight(p, y)
                       : 0.0) +
               smooth * pst_classes_weight(p, k);
    q = pst_load_f64(t->meta->dtype, t->data, pst_meta_offset(t->meta, at));
    return pst_classes_weight(p, k) * ((1.0 - p->smoothing) * q + smooth);
}

static void log_partition(const struct pst_classes *p, int64_t i,
                          double *ret_max, double *ret_log)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t k = 0; k < p->classes; k++) {
        const double v = x_at(p, i, k);

        max = v > max || isnan(v) ? v : max;
    }
    for (int64_t k = 0; k < p->classes; k++)
        sum += exp(x_at(p, i, k) - max);
    *ret_max = max;
    *ret_log = log(sum);
}

static double position_loss(const struct pst_call *c,
                            const struct pst_classes *p, int64_t i)
{
    const int64_t y = p->probabilities ? 0 : pst_classes_target(c, p, i);
    double max, log_sum, loss = 0.0;

    if (y < 0)
        return 0.0;
    log_partition(p, i, &max, &log_sum);
    for (int64_t k = 0; k < p->classes; k++) {
        const double t = coefficient(p, i, y, k);

        /* A term with t = 0 is 0, even if its logarithm is infinite. */
        if (t != 0.0)
            loss -= t * (x_at(p, i, k) - max - log_sum);
    }
    return loss;
}

static void cross_entropy_ref(const struct pst_call *c)
{
    const struct pst_classes p = pst_entropy_classes(c, 0);
    struct pst_operand *y = &c->out[0];
    double sum = 0.0;

    for (int64_t i = 0; i < p.n * p.d; i++) {
        const double loss = position_loss(c, &p, i);

        if (p.reduction == PST_REDUCE_NONE)
            pst_store_f64(y->meta->dtype, y->data, i, loss);
        sum += loss;
    }
    if (p.reduction == PST_REDUCE_MEAN)
        sum /= pst_classes_divisor(c, &p);
    if (p.reduction != PST_REDUCE_NONE)
        pst_store_f64(y->meta->dtype, y->data, 0, sum);
}

/* Returns the incoming gradient of the loss at position i, divided by
 * `divisor`. */
double pst_entropy_incoming(const struct pst_call *c,
                            const struct pst_classes *p, int64_t i,
                            double divisor)
{
    const struct pst_operand *g = &c->in[0];
    const int64_t at = p->reduction == PST_REDUCE_NONE ? i : 0;

    return pst_load_f64(g->meta->dtype, g->data, pst_meta_offset(g->meta, at)) /
           divisor;
}

double pst_entropy_divisor(const struct pst_call *c,
                           const struct pst_classes *p)
{
    return p->reduction == PST_REDUCE_MEAN ? pst_classes_divisor(c, p) : 1.0;
}

static void cross_entropy_backward_ref(const struct pst_call *c)
{
    const struct pst_classes p = pst_entropy_classes(c, 1);
    const double divisor = pst_entropy_divisor(c, &p);
    struct pst_operand *dx = &c->out[0];

    for (int64_t i = 0; i < p.n * p.d; i++) {
        const int64_t y = p.probabilities ? 0 : pst_classes_target(c, &p, i);
        const double g = pst_entropy_incoming(c, &p, i, divisor);
        double max = 0.0, log_sum = 0.0, total = 0.0;

        if (y >= 0)
            log_partition(&p, i, &max, &log_sum);
        for (int64_t k = 0; y >= 0 && k < p.classes; k++)
            total += coefficient(&p, i, y, k);
        for (int64_t k = 0; k < p.classes; k++) {
            const int64_t at = (i / p.d * p.classes + k) * p.d + i % p.d;
            double d = 0.0;

            if (y >= 0)
                d = g * (exp(x_at(&p, i, k) - max - log_sum) * total -
                         coefficient(&p, i, y, k));
            pst_store_f64(dx->meta->dtype, dx->data, at, d);
        }
    }
}

/* --- kernels ------------------------------------------------------------- */

static const struct pst_kernel cross_entropy_kernels[] = {
    PST_SIMD_ROWS("cross_entropy_f32", pst_entropy_forward, PST_D(F32), 0,
                  pst_entropy_forward_fits, pst_entropy_forward_scratch, 1e-5),
    {.name = "cross_entropy_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = cross_entropy_ref},
};

/* The gradient in[0] may not share memory with the result, because in[0] is
 * read for every position. */
static const struct pst_kernel cross_entropy_backward_kernels[] = {
    PST_SIMD_ROWS("cross_entropy_backward_f32", pst_entropy_backward,
                  PST_D(F32), PST_K_INPLACE_1, pst_entropy_backward_fits,
                  pst_entropy_backward_scratch, 1e-5),
    {.name = "cross_entropy_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = cross_entropy_backward_ref},
};

/* --- rows --------------------------------------------------------------- */

/* Returns -log softmax(x) times the gradient of each position, for targets that
 * are probabilities. */
static struct pst_value *position_gradient(struct pst_vjp *v,
                                           struct pst_value *g)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *a = v->node->args;
    const int64_t dim = x->rank > 1;
    double scale = -1.0;
    struct pst_value *r;

    r = pst_vjp_emit(v, &pst_op_log_softmax_int, PST_ARGS(a[0], pst_i(dim)));
    if (a[3].i == PST_REDUCE_NONE)
        g = pst_vjp_unsqueeze(v, g, dim);
    if (a[3].i == PST_REDUCE_MEAN)
        scale *= (double)x->size[dim] / (double)pst_meta_numel(x);
    return pst_vjp_mul_scalar(v, pst_vjp_mul(v, r, g), scale);
}

/* Returns position_gradient() times (1 - e) w. */
static struct pst_value *target_gradient(struct pst_vjp *v, struct pst_value *g)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *a = v->node->args;
    struct pst_value *r = position_gradient(v, g);
    int64_t shape[PST_MAX_RANK];

    if (a[2].kind == PST_ARG_VALUE) {
        for (unsigned d = 0; d < x->rank; d++)
            shape[d] = d == (unsigned)(x->rank > 1) ? x->size[d] : 1;
        r = pst_vjp_mul(v, r, pst_vjp_reshape(v, a[2].value, x->rank, shape));
    }
    r = pst_vjp_mul_scalar(v, r, 1.0 - a[5].f);
    return pst_vjp_cast(v, r, pst_vjp_in(v, 1)->meta.dtype);
}

/* Returns position_gradient() times (1 - e) q + e / C, summed over
 * positions. */
static struct pst_value *weight_gradient(struct pst_vjp *v, struct pst_value *g)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *a = v->node->args;
    const unsigned dim = x->rank > 1;
    const double smoothing = a[5].f;
    struct pst_value *q = pst_vjp_mul_scalar(v, a[1].value, 1.0 - smoothing);
    int64_t dims[PST_MAX_RANK];
    unsigned n = 0;

    if (smoothing != 0.0)
        q = pst_vjp_add_scalar(v, q, smoothing / (double)x->size[dim]);
    q = pst_vjp_mul(v, q, position_gradient(v, g));
    for (unsigned d = 0; d < x->rank; d++)
        if (d != dim)
            dims[n++] = d;
    if (n > 0)
        q = pst_vjp_sum_dims(v, q, dims, n, false);
    return pst_vjp_cast(v, q, pst_vjp_in(v, 2)->meta.dtype);
}

/* For class indices the weight has no gradient, as in PyTorch. */
static enum pst_status cross_entropy_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    const struct pst_arg *a = v->node->args;

    if (g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0,
                    pst_vjp_emit(v, &pst_op_cross_entropy_backward,
                                 PST_ARGS(pst_v(g), a[0], a[1], a[2], a[3],
                                          a[4], a[5])));
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1, target_gradient(v, g));
    if (pst_vjp_needs(v, 2) &&
        pst_dtype_kind(pst_vjp_in(v, 1)->meta.dtype) == PST_KIND_FLOAT)
        pst_vjp_set(v, 2, weight_gradient(v, g));
    return v->build.status;
}

const struct pst_op pst_op_cross_entropy_loss = {
    .schema = "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? "
              "weight=None, int reduction=1, SymInt ignore_index=-100, float "
              "label_smoothing=0.) -> Tensor",
    .infer = cross_entropy_infer,
    .vjp = cross_entropy_vjp,
};
PST_CPU_KERNELS(cross_entropy_loss, cross_entropy_kernels);

const struct pst_op pst_op_cross_entropy_backward = {
    .schema = "penstock::cross_entropy_backward(Tensor grad_output, Tensor "
              "self, Tensor target, Tensor? weight, int reduction, int "
              "ignore_index, float label_smoothing) -> Tensor",
    .infer = backward_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(cross_entropy_backward, cross_entropy_backward_kernels);
