// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/pairs.h"

#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* Elements of a partial sum; a constant, so that sums do not depend on the
 * number of threads. */
#define BLOCK 1024

/* --- supported calls ------------------------------------------------------ */

static bool is_f32(const struct pst_meta *x)
{
    return x->dtype == PST_F32;
}

/* True if w is absent, or an f32 tensor that broadcasts to `shape`. */
static bool weight_fits(const struct pst_meta *w, const struct pst_meta *shape)
{
    struct pst_meta both;

    if (w == NULL)
        return true;
    return is_f32(w) && pst_meta_broadcast(shape, w, &both) &&
           pst_meta_same_shape(&both, shape);
}

bool pst_pairs_fits(const struct pst_call *c, const struct pst_pairs *f,
                    unsigned shift)
{
    const struct pst_meta *x = c->in[shift].meta;

    for (unsigned k = 2; k < f->n; k++)
        if (!weight_fits(c->in[shift + k].meta, x))
            return false;
    if (shift > 0 &&
        (c->args[f->n_args + 1].i > (f->odd ? 1 : 0) || !is_f32(c->in[0].meta)))
        return false;
    return is_f32(x) && is_f32(c->in[shift + 1].meta) &&
           is_f32(c->out[0].meta) &&
           pst_meta_same_shape(x, c->in[shift + 1].meta);
}

/* Returns the scratch of the forward pass for the sums of blocks. */
size_t pst_pairs_scratch(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    return (size_t)(pst_meta_numel(c->in[0].meta) / BLOCK + 1) * sizeof(double);
}

/* --- weights -------------------------------------------------------------- */

/* Weights of the elements, one per element (direct), a single number, or to be
 * broadcast. */
struct weight {
    const float *data; /* NULL: none */
    struct pst_nd nd;
    bool direct;
};

static void weight_init(struct weight *w, const struct pst_operand *x,
                        const struct pst_meta *shape)
{
    const struct pst_meta *const metas[2] = {shape, x->meta};

    w->data = x->meta != NULL ? x->data : NULL;
    if (w->data == NULL)
        return;
    pst_nd_init(&w->nd, 2, metas);
    w->direct = w->nd.rank == 1 && w->nd.stride[1][0] == 1;
}

struct gather {
    const float *from;
    float *to;
};

static void gather_row(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    struct gather *g = ctx;
    const int64_t stride = nd->stride[1][nd->rank - 1];
    const float *from = g->from + offset[1];

    if (stride == 1)
        memcpy(g->to, from, (size_t)n * sizeof(float));
    else
        for (int64_t i = 0; i < n; i++)
            g->to[i] = from[i * stride];
    g->to += n;
}

/* Returns the weights of elements [i, i + m), in place or in `scratch`. */
static const float *load_weights(const struct weight *w, int64_t i, int64_t m,
                                 float *scratch)
{
    struct gather g = {w->data, scratch};

    if (w->direct)
        return w->data + i;
    pst_nd_range(&w->nd, i, i + m, gather_row, &g);
    return scratch;
}

/* --- blocks --------------------------------------------------------------- */

struct job {
    const struct pst_call *c;
    const struct pst_pairs *f;
    const struct pst_fold *sum;
    pst_loop_fn loop, loop_with, mul;
    const float *a, *b, *g; /* g: gradient of each element, or NULL */
    float *y;               /* NULL: sums only */
    double *sums; /* for each block, the sum of its losses; NULL: not summed */
    float s[3];
    struct weight scale, with;
    int64_t n;
};

/* Computes elements [i, i + m) into y. */
static void compute_block(const struct job *j, int64_t i, int64_t m, float *y)
{
    float scratch[BLOCK];
    const void *x[3] = {j->a + i, j->b + i};

    if (j->with.data != NULL) {
        x[2] = load_weights(&j->with, i, m, scratch);
        j->loop_with(m, x, 0, j->s, y);
    } else {
        j->loop(m, x, 0, j->s, y);
    }
    if (j->scale.data != NULL) {
        const void *const operands[2] = {
            y, load_weights(&j->scale, i, m, scratch)};

        j->mul(m, operands, 0, j->s, y);
    }
    if (j->g != NULL) {
        const void *const operands[2] = {y, j->g + i};

        j->mul(m, operands, 0, j->s, y);
    }
}

static void check_unit(const struct job *j, int64_t i, int64_t m)
{
    const float *a = j->a + i;
    int64_t bad = 0;

    for (int64_t k = 0; k < m; k++)
        bad += !(a[k] >= 0.0f && a[k] <= 1.0f);
    for (int64_t k = 0; bad > 0 && k < m; k++)
        if (!(a[k] >= 0.0f && a[k] <= 1.0f)) {
            pst_call_fault(j->c, PST_FAULT_NOT_UNIT, {.g = a[k]});
            return;
        }
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t begin, end;
    float values[BLOCK];

    pst_pool_share((j->n + BLOCK - 1) / BLOCK, 1, part, parts, &begin, &end);
    for (int64_t k = begin; k < end; k++) {
        const int64_t i = k * BLOCK, m = PST_MIN(j->n - i, BLOCK);
        float *y = j->y != NULL ? j->y + i : values;

        if (j->f->unit && j->sums != NULL)
            check_unit(j, i, m);
        compute_block(j, i, m, y);
        if (j->sums != NULL)
            j->sums[k] = (double)j->sum->along(m, y, 0.0f);
    }
}

static void run(struct job *j, unsigned shift)
{
    const struct pst_operand *in = j->c->in + shift;

    j->a = in[0].data;
    j->b = in[1].data;
    j->n = pst_meta_numel(in[0].meta);
    if (j->f->n > 2)
        weight_init(&j->scale, &in[2], in[0].meta);
    if (j->f->n > 3)
        weight_init(&j->with, &in[3], in[0].meta);
    if (j->n > 0)
        pst_pool_run(pst_pool_if(j->c->pool, j->n >= PST_ND_SERIAL), run_part,
                     j);
}

void pst_pairs_forward_f32(const struct pst_call *c, const struct pst_pairs *f,
                           const struct pst_pairs_loops *l)
{
    const int64_t reduction = c->args[f->reduction].i;
    const bool none = reduction == PST_REDUCE_NONE;
    float *y = c->out[0].data;
    double total = 0.0;
    struct job j = {
        .c = c,
        .f = f,
        .sum = l->sum,
        .loop = l->value,
        .loop_with = l->value_with,
        .mul = l->mul,
        .y = none ? y : NULL,
        .sums = c->scratch,
        .s = {f->number > 0 ? (float)c->args[f->number].f : 0.0f},
    };

    run(&j, 0);
    if (none)
        return;
    for (int64_t k = 0; k * BLOCK < j.n; k++)
        total += j.sums[k];
    y[0] = (float)(reduction == PST_REDUCE_MEAN ? total / (double)j.n : total);
}

void pst_pairs_backward_f32(const struct pst_call *c, const struct pst_pairs *f,
                            const struct pst_pairs_loops *l)
{
    const int64_t reduction = c->args[f->reduction + 1].i;
    const int64_t n = pst_meta_numel(c->in[1].meta);
    const float sign = c->args[f->n_args + 1].i == 0 ? 1.0f : -1.0f;
    const float *g = c->in[0].data;
    struct job j = {
        .c = c,
        .f = f,
        .loop = l->slope,
        .loop_with = l->slope_with,
        .mul = l->mul,
        .y = c->out[0].data,
        .s = {f->number > 0 ? (float)c->args[f->number + 1].f : 0.0f, sign},
    };

    if (reduction == PST_REDUCE_NONE)
        j.g = g;
    else if (n > 0)
        j.s[1] = sign * (reduction == PST_REDUCE_MEAN
                             ? (float)((double)g[0] / (double)n)
                             : g[0]);
    run(&j, 1);
}
