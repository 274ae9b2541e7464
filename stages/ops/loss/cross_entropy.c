// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/loss.h"
#include "stages/ops/rows.h"

#include <math.h>

/*
 * Every form of the target gives each position coefficients t_k >= 0 with
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

/* Arguments first.. are self, target, weight, reduction, ignore, smoothing. */
static struct pst_classes classes_of(const struct pst_call *c, unsigned first)
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

/* t_k of position i, whose class is y (indices). */
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

        /* 0 * log 0 counts as 0. */
        if (t != 0.0)
            loss -= t * (x_at(p, i, k) - max - log_sum);
    }
    return loss;
}

static void cross_entropy_ref(const struct pst_call *c)
{
    const struct pst_classes p = classes_of(c, 0);
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

/* Gradient that arrives at position i, with the mean's divisor in it. */
static double arriving(const struct pst_call *c, const struct pst_classes *p,
                       int64_t i, double divisor)
{
    const struct pst_operand *g = &c->in[0];
    const int64_t at = p->reduction == PST_REDUCE_NONE ? i : 0;

    return pst_load_f64(g->meta->dtype, g->data, pst_meta_offset(g->meta, at)) /
           divisor;
}

static double divisor_of(const struct pst_call *c, const struct pst_classes *p)
{
    return p->reduction == PST_REDUCE_MEAN ? pst_classes_divisor(c, p) : 1.0;
}

static void cross_entropy_backward_ref(const struct pst_call *c)
{
    const struct pst_classes p = classes_of(c, 1);
    const double divisor = divisor_of(c, &p);
    struct pst_operand *dx = &c->out[0];

    for (int64_t i = 0; i < p.n * p.d; i++) {
        const int64_t y = p.probabilities ? 0 : pst_classes_target(c, &p, i);
        const double g = arriving(c, &p, i, divisor);
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

/* --- fast kernels: f32 -----------------------------------------------------
 */

/* Classes that are contiguous, with any target; or a plane of positions for
 * each class, with indices as targets. Weights of classes only where one class
 * counts. `first` is the argument self. */
static bool fits(const struct pst_call *c, unsigned first)
{
    const struct pst_classes p = classes_of(c, first);
    const bool one = !p.probabilities && p.smoothing == 0.0;

    return p.x->meta->dtype == PST_F32 &&
           (one || (p.d == 1 && p.weight == NULL)) &&
           (!p.probabilities || p.target->meta->dtype == PST_F32);
}

static bool forward_fits(const struct pst_call *c)
{
    return fits(c, 0);
}

static bool backward_fits(const struct pst_call *c)
{
    return fits(c, 1) && c->in[0].meta->dtype == PST_F32;
}

struct job {
    const struct pst_call *c;
    const struct pst_classes *p;
    const struct pst_loss_loops *loops;
    double divisor;
    float *losses; /* one per position */
};

/* Of position i of rows, whose class is y (indices). */
static struct pst_soft_target soft_target(const struct pst_classes *p,
                                          int64_t i, int64_t y)
{
    const float kept = (float)(1.0 - p->smoothing);
    const float *q = p->target->data;
    struct pst_soft_target t = {.b = (float)(p->smoothing / (double)p->classes),
                                .y = -1};

    if (p->probabilities) {
        t.q = q + i * p->classes;
        t.a = kept;
    } else {
        t.y = y;
        t.c = kept;
    }
    return t;
}

static float row_loss(const struct job *j, int64_t i)
{
    const struct pst_classes *p = j->p;
    const float *x = (const float *)p->x->data + i * p->classes;
    const int64_t y = p->probabilities ? 0 : pst_classes_target(j->c, p, i);
    struct pst_soft_target t;

    if (y < 0)
        return 0.0f;
    if (!p->probabilities && p->smoothing == 0.0)
        return (float)pst_classes_weight(p, y) *
               j->loops->nll(p->classes, x, y);
    t = soft_target(p, i, y);
    return j->loops->soft(p->classes, x, &t);
}

static void row_grad(const struct job *j, int64_t i)
{
    const struct pst_classes *p = j->p;
    const float *x = (const float *)p->x->data + i * p->classes;
    float *dx = (float *)j->c->out[0].data + i * p->classes;
    const int64_t y = p->probabilities ? 0 : pst_classes_target(j->c, p, i);
    double g;

    if (y < 0) {
        for (int64_t k = 0; k < p->classes; k++)
            dx[k] = 0.0f;
        return;
    }
    g = arriving(j->c, p, i, j->divisor);
    if (!p->probabilities && p->smoothing == 0.0) {
        const float scale = (float)(g * pst_classes_weight(p, y));

        j->loops->softmax_scaled(p->classes, x, scale, dx);
        dx[y] -= scale;
    } else {
        const struct pst_soft_target t = soft_target(p, i, y);

        j->loops->soft_grad(p->classes, x, &t, (float)g, dx);
    }
}

/* Positions from i on that are neighbours in each plane. */
static void plane_losses(const struct job *j, int64_t i, int64_t cols)
{
    const struct pst_classes *p = j->p;
    const float *x =
        (const float *)p->x->data + (i / p->d * p->classes) * p->d + i % p->d;
    float max[PST_LOSS_COLS], log_sum[PST_LOSS_COLS];

    j->loops->columns_log_sum(p->classes, cols, p->d, x, max, log_sum);
    for (int64_t k = 0; k < cols; k++) {
        const int64_t y = pst_classes_target(j->c, p, i + k);

        j->losses[i + k] = y < 0
                               ? 0.0f
                               : (float)pst_classes_weight(p, y) *
                                     (log_sum[k] - (x[y * p->d + k] - max[k]));
    }
}

static void plane_grads(const struct job *j, int64_t i, int64_t cols)
{
    const struct pst_classes *p = j->p;
    const int64_t at = (i / p->d * p->classes) * p->d + i % p->d;
    float *dx = (float *)j->c->out[0].data + at;
    float scale[PST_LOSS_COLS] = {0};
    int64_t classes[PST_LOSS_COLS];

    for (int64_t k = 0; k < cols; k++) {
        const int64_t y = classes[k] = pst_classes_target(j->c, p, i + k);

        scale[k] = y < 0 ? 0.0f
                         : (float)(arriving(j->c, p, i + k, j->divisor) *
                                   pst_classes_weight(p, y));
    }
    j->loops->columns_scaled(p->classes, cols, p->d,
                             (const float *)p->x->data + at, scale, dx);
    for (int64_t k = 0; k < cols; k++) {
        if (classes[k] >= 0)
            dx[classes[k] * p->d + k] -= scale[k];
        /* Not by 0 times a NaN. */
        for (int64_t r = 0; classes[k] < 0 && r < p->classes; r++)
            dx[r * p->d + k] = 0.0f;
    }
}

/* A part of the positions, by rows or by pieces of planes. */
static void run_part(const struct job *j, unsigned part, unsigned parts,
                     void (*each)(const struct job *, int64_t, int64_t))
{
    const struct pst_classes *p = j->p;
    const int64_t pieces = (p->d + PST_LOSS_COLS - 1) / PST_LOSS_COLS;
    int64_t begin, end;

    pst_pool_share(p->n * pieces, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % pieces * PST_LOSS_COLS;

        each(j, i / pieces * p->d + first,
             PST_MIN(p->d - first, PST_LOSS_COLS));
    }
}

static void losses(const struct job *j, int64_t i, int64_t cols)
{
    if (j->p->d == 1)
        j->losses[i] = row_loss(j, i);
    else
        plane_losses(j, i, cols);
}

static void grads(const struct job *j, int64_t i, int64_t cols)
{
    if (j->p->d == 1)
        row_grad(j, i);
    else
        plane_grads(j, i, cols);
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    run_part(ctx, part, parts, losses);
}

static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    run_part(ctx, part, parts, grads);
}

static size_t forward_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_classes p = classes_of(c, 0);

    (void)threads;
    return (size_t)(p.n * p.d) * sizeof(float);
}

static void start(const struct pst_call *c, const struct pst_classes *p,
                  pst_pool_fn fn, struct job *job)
{
    pst_pool_run(pst_pool_if(c->pool, p->n * p->d * p->classes >= 8192), fn,
                 job);
}

static void forward_f32(const struct pst_call *c,
                        const struct pst_loss_loops *loops)
{
    const struct pst_classes p = classes_of(c, 0);
    const bool none = p.reduction == PST_REDUCE_NONE;
    struct job job = {c, &p, loops, 1.0, none ? c->out[0].data : c->scratch};
    double sum = 0.0;

    start(c, &p, forward_part, &job);
    if (none)
        return;
    for (int64_t i = 0; i < p.n * p.d; i++)
        sum += job.losses[i];
    if (p.reduction == PST_REDUCE_MEAN)
        sum /= pst_classes_divisor(c, &p);
    *(float *)c->out[0].data = (float)sum;
}

static void backward_f32(const struct pst_call *c,
                         const struct pst_loss_loops *loops)
{
    const struct pst_classes p = classes_of(c, 1);
    struct job job = {c, &p, loops, divisor_of(c, &p), NULL};

    start(c, &p, backward_part, &job);
}

#define RUN(suffix, set)                                                       \
    static void cross_entropy_f32_##suffix(const struct pst_call *c)           \
    {                                                                          \
        forward_f32(c, &pst_loss_loops_##suffix);                              \
    }                                                                          \
    static void cross_entropy_backward_f32_##suffix(const struct pst_call *c)  \
    {                                                                          \
        backward_f32(c, &pst_loss_loops_##suffix);                             \
    }
PST_SIMD_EACH(RUN)

static const struct pst_kernel cross_entropy_kernels[] = {
    PST_SIMD_ROWS("cross_entropy_f32", cross_entropy_f32, PST_D(F32), 0,
                  forward_fits, forward_scratch, 1e-5),
    {.name = "cross_entropy_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = cross_entropy_ref},
};

/* in[0] is the gradient. It may not be out: it is read for every position. */
static const struct pst_kernel cross_entropy_backward_kernels[] = {
    PST_SIMD_ROWS("cross_entropy_backward_f32", cross_entropy_backward_f32,
                  PST_D(F32), PST_K_INPLACE_1, backward_fits, NULL, 1e-5),
    {.name = "cross_entropy_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = cross_entropy_backward_ref},
};

/* --- rows --------------------------------------------------------------- */

/* Of probabilities: -log softmax(x), times the gradient of each position. */
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

/* That times (1 - e) w. */
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

/* That times (1 - e) q + e / C, summed over the positions. */
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

/* Of classes PyTorch has no gradient of the weight either. */
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
