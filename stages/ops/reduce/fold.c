// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/fold.h"

#include <math.h>

struct job {
    const struct pst_call *call;
    const struct pst_folding *how;
    struct pst_reduce r;
    /* Operands of kept: the result, the tensor; of gone: the tensor. */
    struct pst_nd kept, gone;
    bool along;
    bool best, values; /* pst_fold_run_best */
};

/* --- how the tensor is walked --------------------------------------------- */

static void walk_init(struct job *k, const struct pst_call *call, int arg)
{
    struct pst_meta out;
    const struct pst_meta *kept[2] = {&out, &k->r.kept}, *gone = &k->r.gone;

    pst_reduce_init(&k->r, call, arg);
    out = k->r.kept;
    pst_meta_set_contiguous(&out);
    pst_nd_init(&k->kept, 2, kept);
    pst_nd_init(&k->gone, 1, &gone);
    k->call = call;
    k->along = k->gone.stride[0][k->gone.rank - 1] == 1;
}

static bool across_fits(const struct job *k)
{
    return k->kept.stride[1][k->kept.rank - 1] == 1;
}

bool pst_fold_fits(const struct pst_call *call, int arg)
{
    struct job k;

    if (call->in[0].meta->dtype != PST_F32 ||
        call->out[0].meta->dtype != PST_F32)
        return false;
    walk_init(&k, call, arg);
    return k.r.n_in > 0 && k.r.n_out > 0 && (k.along || across_fits(&k));
}

bool pst_fold_fits_best(const struct pst_call *call, int arg)
{
    struct job k;

    if (call->in[0].meta->dtype != PST_F32)
        return false;
    walk_init(&k, call, arg);
    return k.r.n_in > 0 && k.r.n_out > 0 && k.gone.rank == 1 &&
           (k.along || across_fits(&k));
}

/* --- along memory --------------------------------------------------------- */

struct line {
    const struct pst_fold *fold;
    const float *x;
    float m;
    double total;
};

static void line_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                     int64_t n)
{
    struct line *l = ctx;

    (void)nd;
    l->total =
        l->fold->join(l->total, l->fold->along(n, l->x + offset[0], l->m));
}

static double line_run(const struct job *k, const struct pst_fold *fold,
                       const float *x, float m)
{
    struct line l = {fold, x, m, fold->empty};

    pst_nd_range(&k->gone, 0, k->r.n_in, line_row, &l);
    return l.total;
}

static bool is_at(float x, float best)
{
    return x == best || (x != x && best != best);
}

static void put(const struct pst_call *c, int64_t o, double y)
{
    float *to = (float *)c->out[0].data + o;

    *to = c->accumulate ? *to + (float)y : (float)y;
}

/* Result number o, whose elements begin at x. */
static void one_along(const struct job *k, int64_t o, const float *x)
{
    const struct pst_folding *how = k->how;
    const struct pst_call *c = k->call;
    double first = line_run(k, how->first, x, 0.0f), second = 0.0;
    float m = 0.0f;

    if (k->best) {
        int64_t i = 0;

        while (i + 1 < k->r.n_in && !is_at(x[i], (float)first))
            i++;
        ((int64_t *)c->out[c->n_out - 1].data)[o] = i;
        if (k->values)
            ((float *)c->out[0].data)[o] = (float)first;
        return;
    }
    if (how->second != NULL) {
        m = how->between(first, k->r.n_in);
        second = line_run(k, how->second, x, m);
    }
    if (how->end != NULL)
        first = how->end(c, first, (double)m, second, k->r.n_in);
    put(c, o, first);
}

static void along_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct job *k = ctx;
    const int64_t step = nd->stride[1][nd->rank - 1];

    for (int64_t i = 0; i < n; i++)
        one_along(k, offset[0] + i,
                  (const float *)k->call->in[0].data + offset[1] + i * step);
}

/* --- across --------------------------------------------------------------- */

struct sheet {
    const struct pst_fold *fold;
    const float *x, *m;
    int64_t cols;
    double *total;
};

static void sheet_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct sheet *s = ctx;

    s->fold->across(n, s->cols, nd->stride[0][nd->rank - 1], s->x + offset[0],
                    s->m, s->total);
}

static void sheet_run(const struct job *k, const struct pst_fold *fold,
                      const float *x, int64_t cols, const float *m,
                      double *total)
{
    struct sheet s = {fold, x, m, cols, total};

    for (int64_t j = 0; j < cols; j++)
        total[j] = fold->empty;
    pst_nd_range(&k->gone, 0, k->r.n_in, sheet_row, &s);
}

/* The last row first, so that the first of equals is what remains. */
static void find_across(const struct job *k, const float *x, int64_t cols,
                        const double *best, int64_t *at)
{
    const int64_t stride = k->gone.stride[0][k->gone.rank - 1];

    for (int64_t r = k->r.n_in; r-- > 0;)
        for (int64_t j = 0; j < cols; j++)
            at[j] = is_at(x[r * stride + j], (float)best[j]) ? r : at[j];
}

/* Results o..o+cols-1, whose elements begin at x. */
static void some_across(const struct job *k, int64_t o, const float *x,
                        int64_t cols)
{
    const struct pst_folding *how = k->how;
    const struct pst_call *c = k->call;
    double first[PST_FOLD_COLS], second[PST_FOLD_COLS];
    float m[PST_FOLD_COLS] = {0}, *y = (float *)c->out[0].data + o;

    sheet_run(k, how->first, x, cols, m, first);
    if (k->best) {
        find_across(k, x, cols, first,
                    (int64_t *)c->out[c->n_out - 1].data + o);
        for (int64_t j = 0; k->values && j < cols; j++)
            y[j] = (float)first[j];
        return;
    }
    if (how->second != NULL) {
        for (int64_t j = 0; j < cols; j++)
            m[j] = how->between(first[j], k->r.n_in);
        sheet_run(k, how->second, x, cols, m, second);
    }
    for (int64_t j = 0; j < cols; j++) {
        if (how->end != NULL)
            first[j] =
                how->end(c, first[j], (double)m[j],
                         how->second != NULL ? second[j] : 0.0, k->r.n_in);
        put(c, o + j, first[j]);
    }
}

static void across_row(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct job *k = ctx;

    (void)nd;
    for (int64_t done = 0; done < n; done += PST_FOLD_COLS)
        some_across(k, offset[0] + done,
                    (const float *)k->call->in[0].data + offset[1] + done,
                    PST_MIN(n - done, PST_FOLD_COLS));
}

/* --- everything ----------------------------------------------------------- */

static void part_run(void *ctx, unsigned part, unsigned parts)
{
    struct job *k = ctx;
    int64_t begin, end;

    pst_pool_share(k->r.n_out, k->along ? 1 : 64, part, parts, &begin, &end);
    pst_nd_range(&k->kept, begin, end, k->along ? along_row : across_row, k);
}

static void run(struct job *k)
{
    pst_pool_run(
        pst_pool_if(k->call->pool,
                    pst_meta_numel(k->call->in[0].meta) >= PST_ND_SERIAL),
        part_run, k);
}

void pst_fold_run(const struct pst_call *call, int arg,
                  const struct pst_folding *how)
{
    struct job k = {.how = how};

    walk_init(&k, call, arg);
    run(&k);
}

void pst_fold_run_best(const struct pst_call *call, int arg, bool values,
                       const struct pst_fold *fold)
{
    const struct pst_folding how = {.first = fold};
    struct job k = {.how = &how, .best = true, .values = values};

    walk_init(&k, call, arg);
    run(&k);
}
