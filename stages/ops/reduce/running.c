// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/running.h"

#include "stages/ops/pointwise/nd.h"
#include "stages/ops/reduce/lane.h"

/* --- sums and products: accumulated in f64, rounded once each ------------- */

#define NUMBER(wide, x) (wide)(x)
#define TRUTH(wide, x)  (wide)((x) != 0)
#define FOLD(name, from, wide, to, start, op, as)                              \
    static void name(const struct pst_call *c,                                 \
                     const struct pst_running_piece *p)                        \
    {                                                                          \
        const from *x = (const from *)c->in[0].data + p->first;                \
        to *y = (to *)c->out[0].data + p->first;                               \
        wide sum[PST_RUNNING_COLUMNS];                                         \
                                                                               \
        for (int64_t k = 0; k < p->lanes; k++)                                 \
            sum[k] = (start);                                                  \
        if (p->apart == 1)                                                     \
            for (int64_t i = 0; i < p->n; i++)                                 \
                for (int64_t k = 0; k < p->lanes; k++) {                       \
                    sum[k] op as(wide, x[i * p->step + k]);                    \
                    y[i * p->step + k] = (to)sum[k];                           \
                }                                                              \
        else if (p->lanes == PST_RUNNING_ROWS)                                 \
            for (int64_t i = 0; i < p->n; i++)                                 \
                for (int64_t k = 0; k < PST_RUNNING_ROWS; k++) {               \
                    sum[k] op as(wide, x[i + k * p->apart]);                   \
                    y[i + k * p->apart] = (to)sum[k];                          \
                }                                                              \
        else                                                                   \
            for (int64_t k = 0; k < p->lanes; k++)                             \
                for (int64_t i = 0; i < p->n; i++) {                           \
                    sum[k] op as(wide, x[i + k * p->apart]);                   \
                    y[i + k * p->apart] = (to)sum[k];                          \
                }                                                              \
    }
#define FOLDS(name, start, op)                                                 \
    FOLD(name##_f32, float, double, float, start, op, NUMBER)                  \
    FOLD(name##_f64, double, double, double, start, op, NUMBER)                \
    FOLD(name##_i64, uint64_t, uint64_t, uint64_t, start, op, NUMBER)          \
    FOLD(name##_i32, int32_t, uint64_t, uint64_t, start, op, NUMBER)           \
    FOLD(name##_bool, uint8_t, uint64_t, uint64_t, start, op, TRUTH)           \
    static pst_running_fn find_##name(const struct pst_call *c)                \
    {                                                                          \
        const enum pst_dtype from = c->in[0].meta->dtype,                      \
                             to = c->out[0].meta->dtype;                       \
                                                                               \
        if (from == PST_F32 && to == PST_F32)                                  \
            return name##_f32;                                                 \
        if (from == PST_F64 && to == PST_F64)                                  \
            return name##_f64;                                                 \
        if (to != PST_I64)                                                     \
            return NULL;                                                       \
        return from == PST_I64    ? name##_i64                                 \
               : from == PST_I32  ? name##_i32                                 \
               : from == PST_BOOL ? name##_bool                                \
                                  : NULL;                                      \
    }
FOLDS(sum, 0, +=)
FOLDS(product, 1, *=)

/* --- extrema: the last of equal elements; NaN propagates ------------------ */

/* Defines a running maximum or minimum of lanes, with indices; a NaN (x != x)
 * beats all numbers. */
#define EXTREME(name, type, beats)                                             \
    static void name(const struct pst_call *c,                                 \
                     const struct pst_running_piece *p)                        \
    {                                                                          \
        const type *x = (const type *)c->in[0].data + p->first;                \
        type *y = (type *)c->out[0].data + p->first;                           \
        int64_t *at = (int64_t *)c->out[1].data + p->first;                    \
        type best[PST_RUNNING_COLUMNS];                                        \
        int64_t where[PST_RUNNING_COLUMNS] = {0};                              \
                                                                               \
        for (int64_t k = 0; k < p->lanes; k++)                                 \
            best[k] = x[k * p->apart];                                         \
        if (p->apart == 1)                                                     \
            for (int64_t i = 0; i < p->n; i++)                                 \
                for (int64_t k = 0; k < p->lanes; k++) {                       \
                    const type a = x[i * p->step + k], b = best[k];            \
                    const bool better = a != a || (b == b && a beats b);       \
                                                                               \
                    best[k] = better ? a : b;                                  \
                    where[k] = better ? i : where[k];                          \
                    y[i * p->step + k] = best[k];                              \
                    at[i * p->step + k] = where[k];                            \
                }                                                              \
        else                                                                   \
            for (int64_t k = 0; k < p->lanes; k++) {                           \
                type b = best[k];                                              \
                int64_t found = 0;                                             \
                                                                               \
                for (int64_t i = 0; i < p->n; i++) {                           \
                    const type a = x[i + k * p->apart];                        \
                                                                               \
                    if (a != a || (b == b && a beats b)) {                     \
                        b = a;                                                 \
                        found = i;                                             \
                    }                                                          \
                    y[i + k * p->apart] = b;                                   \
                    at[i + k * p->apart] = found;                              \
                }                                                              \
            }                                                                  \
    }
EXTREME(max_f32, float, >=)
EXTREME(max_f64, double, >=)
EXTREME(max_i64, int64_t, >=)
EXTREME(min_f32, float, <=)
EXTREME(min_f64, double, <=)
EXTREME(min_i64, int64_t, <=)

/* --- lanes ---------------------------------------------------------------- */

struct job {
    const struct pst_call *c;
    pst_running_fn fn;
    struct pst_lane l;
    int64_t blocks; /* number of blocks of lanes (PST_RUNNING_COLUMNS or
                       PST_RUNNING_ROWS each) */
    size_t scratch;
};

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_lane *l = &j->l;
    const bool rows = l->inner == 1;
    int64_t begin, end;

    pst_pool_share(rows ? j->blocks : l->outer * j->blocks, 1, part, parts,
                   &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first =
            rows ? i * PST_RUNNING_ROWS : i % j->blocks * PST_RUNNING_COLUMNS;
        struct pst_running_piece p = {.n = l->size, .step = l->inner};

        if (j->scratch > 0)
            p.scratch = (char *)j->c->scratch + part * j->scratch;
        if (rows) {
            p.first = first * l->size;
            p.lanes = PST_MIN(l->outer - first, PST_RUNNING_ROWS);
            p.apart = l->size;
        } else {
            p.first = i / j->blocks * l->size * l->inner + first;
            p.lanes = PST_MIN(l->inner - first, PST_RUNNING_COLUMNS);
            p.apart = 1;
        }
        j->fn(j->c, &p);
    }
}

void pst_running(const struct pst_call *c, int64_t dim, pst_running_fn fn,
                 size_t scratch)
{
    struct job j = {.c = c,
                    .fn = fn,
                    .l = pst_lane_of(c->in[0].meta, dim),
                    .scratch = scratch};
    const int64_t n = pst_meta_numel(c->in[0].meta);

    if (n == 0)
        return;
    j.blocks =
        j.l.inner == 1
            ? (j.l.outer + PST_RUNNING_ROWS - 1) / PST_RUNNING_ROWS
            : (j.l.inner + PST_RUNNING_COLUMNS - 1) / PST_RUNNING_COLUMNS;
    pst_pool_run(pst_pool_if(c->pool, n >= PST_ND_SERIAL), run_part, &j);
}

bool pst_running_sum_supports(const struct pst_call *c)
{
    return find_sum(c) != NULL;
}

void pst_running_sum(const struct pst_call *c)
{
    pst_running(c, c->args[1].i, find_sum(c), 0);
}

bool pst_running_product_supports(const struct pst_call *c)
{
    return find_product(c) != NULL;
}

void pst_running_product(const struct pst_call *c)
{
    pst_running(c, c->args[1].i, find_product(c), 0);
}

bool pst_running_extreme_supports(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;

    return dtype == PST_F32 || dtype == PST_F64 || dtype == PST_I64;
}

static void run_extreme(const struct pst_call *c, pst_running_fn f32,
                        pst_running_fn f64, pst_running_fn i64)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;

    pst_running(c, c->args[1].i,
                dtype == PST_F32   ? f32
                : dtype == PST_F64 ? f64
                                   : i64,
                0);
}

void pst_running_max(const struct pst_call *c)
{
    run_extreme(c, max_f32, max_f64, max_i64);
}

void pst_running_min(const struct pst_call *c)
{
    run_extreme(c, min_f32, min_f64, min_i64);
}
