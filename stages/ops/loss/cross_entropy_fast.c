// SPDX-License-Identifier: Apache-2.0
/* Cross entropy of f32, by rows of classes or by planes of positions. */
#include "stages/ops/loss/cross_entropy.h"

/* True for f32 operands; `first` is the index of argument self. */
static bool fits(const struct pst_call *c, unsigned first)
{
    const struct pst_classes p = pst_entropy_classes(c, first);

    return p.x->meta->dtype == PST_F32 &&
           (!p.probabilities || p.target->meta->dtype == PST_F32);
}

/* True if several classes contribute at a position. */
static bool is_soft(const struct pst_classes *p)
{
    return p->probabilities || p->smoothing != 0.0;
}

bool pst_entropy_forward_fits(const struct pst_call *c)
{
    return fits(c, 0);
}

bool pst_entropy_backward_fits(const struct pst_call *c)
{
    return fits(c, 1) && c->in[0].meta->dtype == PST_F32;
}

struct job {
    const struct pst_call *c;
    const struct pst_classes *p;
    const struct pst_loss_loops *loops;
    double divisor;
    float *losses;  /* one per position */
    float *weights; /* contiguous class weights for soft targets, or NULL */
    float *rows;    /* a row of weighted targets for each thread */
};

/* Returns the scratch size of weights and rows, in bytes. */
static size_t scratch_size(const struct pst_classes *p, unsigned threads)
{
    return p->weight != NULL && is_soft(p)
               ? (1 + (size_t)threads) * (size_t)p->classes * sizeof(float)
               : 0;
}

static void divide_scratch(struct job *j, float *scratch)
{
    const struct pst_classes *p = j->p;

    if (scratch_size(p, 1) == 0)
        return;
    j->weights = scratch;
    j->rows = scratch + p->classes;
    for (int64_t k = 0; k < p->classes; k++)
        j->weights[k] = (float)pst_classes_weight(p, k);
}

/* Returns the target of position i. y: class of the position, if targets are
 * indices. */
static struct pst_soft_target soft_target(const struct job *j, int64_t i,
                                          int64_t y)
{
    const struct pst_classes *p = j->p;
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
    if (j->weights == NULL)
        return t;
    j->loops->weighted(p->classes, &t, j->weights, j->rows);
    return (struct pst_soft_target){.q = j->rows, .a = 1.0f, .y = -1};
}

static float row_loss(const struct job *j, int64_t i)
{
    const struct pst_classes *p = j->p;
    const float *x = (const float *)p->x->data + i * p->classes;
    const int64_t y = p->probabilities ? 0 : pst_classes_target(j->c, p, i);
    struct pst_soft_target t;

    if (y < 0)
        return 0.0f;
    if (!is_soft(p))
        return (float)pst_classes_weight(p, y) *
               j->loops->nll(p->classes, x, y);
    t = soft_target(j, i, y);
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
    g = pst_entropy_incoming(j->c, p, i, j->divisor);
    if (!is_soft(p)) {
        const float scale = (float)(g * pst_classes_weight(p, y));

        j->loops->softmax_scaled(p->classes, x, scale, dx);
        dx[y] -= scale;
    } else {
        const struct pst_soft_target t = soft_target(j, i, y);

        j->loops->soft_grad(p->classes, x, &t, (float)g, dx);
    }
}

/* Returns the offset of the first class of position i. */
static int64_t class_at(const struct pst_classes *p, int64_t i)
{
    return i / p->d * p->classes * p->d + i % p->d;
}

/* Computes the losses of `cols` positions from i on, which are adjacent in
 * every plane of classes. */
static void plane_losses(const struct job *j, int64_t i, int64_t cols)
{
    const struct pst_classes *p = j->p;
    const float *x = (const float *)p->x->data + class_at(p, i);
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
    const int64_t at = class_at(p, i);
    float *dx = (float *)j->c->out[0].data + at;
    float scale[PST_LOSS_COLS] = {0};
    int64_t classes[PST_LOSS_COLS];

    for (int64_t k = 0; k < cols; k++) {
        const int64_t y = classes[k] = pst_classes_target(j->c, p, i + k);

        scale[k] =
            y < 0 ? 0.0f
                  : (float)(pst_entropy_incoming(j->c, p, i + k, j->divisor) *
                            pst_classes_weight(p, y));
    }
    j->loops->columns_scaled(p->classes, cols, p->d,
                             (const float *)p->x->data + at, scale, dx);
    for (int64_t k = 0; k < cols; k++) {
        if (classes[k] >= 0)
            dx[classes[k] * p->d + k] -= scale[k];
        /* An ignored position has gradient 0 even if x is NaN, for which 0 * x
         * is NaN. */
        for (int64_t r = 0; classes[k] < 0 && r < p->classes; r++)
            dx[r * p->d + k] = 0.0f;
    }
}

/* Returns the part of the coefficients t_k that does not depend on a class
 * index, for the columns from position i on. Sets classes[] to each column's
 * class (-1: ignored) and more[] to the amount to add to that class's
 * coefficient; for probabilities both are 0. */
static struct pst_soft_columns soft_columns(const struct job *j, int64_t i,
                                            int64_t cols, int64_t *classes,
                                            float *more)
{
    const struct pst_classes *p = j->p;
    const float kept = (float)(1.0 - p->smoothing);

    for (int64_t k = 0; k < cols; k++) {
        classes[k] = p->probabilities ? 0 : pst_classes_target(j->c, p, i + k);
        more[k] = 0.0f;
        if (!p->probabilities && classes[k] >= 0)
            more[k] = j->weights != NULL ? kept * j->weights[classes[k]] : kept;
    }
    return (struct pst_soft_columns){
        .q = p->probabilities ? (const float *)p->target->data + class_at(p, i)
                              : NULL,
        .w = j->weights,
        .a = kept,
        .b = (float)(p->smoothing / (double)p->classes)};
}

static void soft_losses(const struct job *j, int64_t i, int64_t cols)
{
    const struct pst_classes *p = j->p;
    const float *x = (const float *)p->x->data + class_at(p, i);
    float max[PST_LOSS_COLS], log_sum[PST_LOSS_COLS], more[PST_LOSS_COLS];
    int64_t classes[PST_LOSS_COLS];
    const struct pst_soft_columns t = soft_columns(j, i, cols, classes, more);

    j->loops->columns_log_sum(p->classes, cols, p->d, x, max, log_sum);
    j->loops->columns_soft(p->classes, cols, p->d, x, &t, max, log_sum,
                           j->losses + i);
    for (int64_t k = 0; k < cols; k++)
        if (classes[k] < 0)
            j->losses[i + k] = 0.0f;
        else if (more[k] != 0.0f)
            j->losses[i + k] -=
                more[k] * (x[classes[k] * p->d + k] - max[k] - log_sum[k]);
}

static void soft_grads(const struct job *j, int64_t i, int64_t cols)
{
    const struct pst_classes *p = j->p;
    float *dx = (float *)j->c->out[0].data + class_at(p, i);
    float more[PST_LOSS_COLS], g[PST_LOSS_COLS];
    int64_t classes[PST_LOSS_COLS];
    const struct pst_soft_columns t = soft_columns(j, i, cols, classes, more);

    for (int64_t k = 0; k < cols; k++)
        g[k] = classes[k] < 0
                   ? 0.0f
                   : (float)pst_entropy_incoming(j->c, p, i + k, j->divisor);
    j->loops->columns_soft_grad(p->classes, cols, p->d,
                                (const float *)p->x->data + class_at(p, i), &t,
                                more, g, dx);
    for (int64_t k = 0; k < cols; k++) {
        if (classes[k] >= 0)
            dx[classes[k] * p->d + k] -= g[k] * more[k];
        for (int64_t r = 0; classes[k] < 0 && r < p->classes; r++)
            dx[r * p->d + k] = 0.0f;
    }
}

/* Calls `each` for a part of the positions, divided into rows or into pieces of
 * planes. */
static void run_part(const struct job *j, unsigned part, unsigned parts,
                     void (*each)(const struct job *, int64_t, int64_t))
{
    const struct pst_classes *p = j->p;
    const int64_t pieces = (p->d + PST_LOSS_COLS - 1) / PST_LOSS_COLS;
    struct job mine = *j;
    int64_t begin, end;

    if (j->weights != NULL)
        mine.rows += (int64_t)part * p->classes;
    pst_pool_share(p->n * pieces, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % pieces * PST_LOSS_COLS;

        each(&mine, i / pieces * p->d + first,
             PST_MIN(p->d - first, PST_LOSS_COLS));
    }
}

static void compute_losses(const struct job *j, int64_t i, int64_t cols)
{
    if (j->p->d == 1)
        j->losses[i] = row_loss(j, i);
    else if (is_soft(j->p))
        soft_losses(j, i, cols);
    else
        plane_losses(j, i, cols);
}

static void compute_grads(const struct job *j, int64_t i, int64_t cols)
{
    if (j->p->d == 1)
        row_grad(j, i);
    else if (is_soft(j->p))
        soft_grads(j, i, cols);
    else
        plane_grads(j, i, cols);
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    run_part(ctx, part, parts, compute_losses);
}

static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    run_part(ctx, part, parts, compute_grads);
}

size_t pst_entropy_forward_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_classes p = pst_entropy_classes(c, 0);

    return (size_t)(p.n * p.d) * sizeof(float) + scratch_size(&p, threads);
}

size_t pst_entropy_backward_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_classes p = pst_entropy_classes(c, 1);

    return scratch_size(&p, threads);
}

static void run_positions(const struct pst_call *c, const struct pst_classes *p,
                          pst_pool_fn fn, struct job *job)
{
    pst_pool_run(pst_pool_if(c->pool, p->n * p->d * p->classes >= 8192), fn,
                 job);
}

static void forward_f32(const struct pst_call *c,
                        const struct pst_loss_loops *loops)
{
    const struct pst_classes p = pst_entropy_classes(c, 0);
    const bool none = p.reduction == PST_REDUCE_NONE;
    float *scratch = c->scratch; /* losses, weights, rows */
    struct job job = {.c = c,
                      .p = &p,
                      .loops = loops,
                      .divisor = 1.0,
                      .losses = none ? c->out[0].data : scratch};
    double sum = 0.0;

    divide_scratch(&job, scratch + p.n * p.d);
    run_positions(c, &p, forward_part, &job);
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
    const struct pst_classes p = pst_entropy_classes(c, 1);
    struct job job = {
        .c = c, .p = &p, .loops = loops, .divisor = pst_entropy_divisor(c, &p)};

    divide_scratch(&job, c->scratch);
    run_positions(c, &p, backward_part, &job);
}

#define RUN(suffix, set)                                                       \
    void pst_entropy_forward_##suffix(const struct pst_call *c)                \
    {                                                                          \
        forward_f32(c, &pst_loss_loops_##suffix);                              \
    }                                                                          \
    void pst_entropy_backward_##suffix(const struct pst_call *c)               \
    {                                                                          \
        backward_f32(c, &pst_loss_loops_##suffix);                             \
    }
PST_SIMD_EACH(RUN)
