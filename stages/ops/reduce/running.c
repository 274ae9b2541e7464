// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/running.h"

#include "stages/ops/pointwise/nd.h"
#include "stages/ops/reduce/lane.h"

/* Number of lanes that are computed together, so that additions of different
 * lanes overlap: contiguous lanes (ROWS), or adjacent columns (COLUMNS). */
#define ROWS    8
#define COLUMNS 64

/* `lanes` lanes of n elements: `step` is the stride between the elements of a
 * lane, `apart` the stride between lanes. */
struct piece {
    int64_t first, n, step, lanes, apart;
};

typedef void (*running_fn)(const struct pst_call *c, const struct piece *p);

/* --- sums and products: accumulated in f64, rounded once each ------------- */

#define NUMBER(wide, x) (wide)(x)
#define TRUTH(wide, x)  (wide)((x) != 0)
#define FOLD(name, from, wide, to, start, op, as)                              \
    static void name(const struct pst_call *c, const struct piece *p)          \
    {                                                                          \
        const from *x = (const from *)c->in[0].data + p->first;                \
        to *y = (to *)c->out[0].data + p->first;                               \
        wide sum[COLUMNS];                                                     \
                                                                               \
        for (int64_t k = 0; k < p->lanes; k++)                                 \
            sum[k] = (start);                                                  \
        if (p->apart == 1)                                                     \
            for (int64_t i = 0; i < p->n; i++)                                 \
                for (int64_t k = 0; k < p->lanes; k++) {                       \
                    sum[k] op as(wide, x[i * p->step + k]);                    \
                    y[i * p->step + k] = (to)sum[k];                           \
                }                                                              \
        else if (p->lanes == ROWS)                                             \
            for (int64_t i = 0; i < p->n; i++)                                 \
                for (int64_t k = 0; k < ROWS; k++) {                           \
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
    static running_fn find_##name(const struct pst_call *c)                    \
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

/* --- lanes ---------------------------------------------------------------- */

struct job {
    const struct pst_call *c;
    running_fn fn;
    struct pst_lane l;
    int64_t blocks; /* number of blocks of lanes (COLUMNS or
                       ROWS each) */
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
        const int64_t first = rows ? i * ROWS : i % j->blocks * COLUMNS;
        struct piece p = {.n = l->size, .step = l->inner};

        if (rows) {
            p.first = first * l->size;
            p.lanes = PST_MIN(l->outer - first, ROWS);
            p.apart = l->size;
        } else {
            p.first = i / j->blocks * l->size * l->inner + first;
            p.lanes = PST_MIN(l->inner - first, COLUMNS);
            p.apart = 1;
        }
        j->fn(j->c, &p);
    }
}

static void run_lanes(const struct pst_call *c, running_fn fn)
{
    struct job j = {
        .c = c, .fn = fn, .l = pst_lane_of(c->in[0].meta, c->args[1].i)};
    const int64_t n = pst_meta_numel(c->in[0].meta);

    if (n == 0)
        return;
    j.blocks = j.l.inner == 1 ? (j.l.outer + ROWS - 1) / ROWS
                              : (j.l.inner + COLUMNS - 1) / COLUMNS;
    pst_pool_run(pst_pool_if(c->pool, n >= PST_ND_SERIAL), run_part, &j);
}

bool pst_running_sum_supports(const struct pst_call *c)
{
    return find_sum(c) != NULL;
}

void pst_running_sum(const struct pst_call *c)
{
    run_lanes(c, find_sum(c));
}

bool pst_running_product_supports(const struct pst_call *c)
{
    return find_product(c) != NULL;
}

void pst_running_product(const struct pst_call *c)
{
    run_lanes(c, find_product(c));
}
