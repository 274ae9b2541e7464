// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/index/places.h"

#include <string.h>

/* --- offsets -------------------------------------------------------------- */

/* Computes in unsigned integers, so that an index out of range does not
 * overflow. */
#define LOAD(name, type)                                                       \
    static bool name(const void *data, int64_t first, int64_t step, int64_t n, \
                     int64_t size, int64_t stride, bool wrap,                  \
                     const int64_t *before, int64_t *at)                       \
    {                                                                          \
        const type *index = (const type *)data + first;                        \
        const uint64_t end = (uint64_t)size, lift = wrap ? end : 0;            \
        bool wrong = false;                                                    \
                                                                               \
        for (int64_t k = 0; k < n; k++) {                                      \
            const uint64_t raw = (uint64_t)index[k * step];                    \
            const uint64_t i = raw + (lift & (0 - (raw >> 63)));               \
                                                                               \
            wrong |= i >= end;                                                 \
            at[k] = (int64_t)(i * (uint64_t)stride);                           \
        }                                                                      \
        for (int64_t k = 0; k < n && before != NULL; k++)                      \
            at[k] = (int64_t)((uint64_t)at[k] + (uint64_t)before[k]);          \
        return !wrong;                                                         \
    }
LOAD(load_i64, int64_t)
LOAD(load_i32, int32_t)

bool pst_places_load(const struct pst_call *c, const struct pst_operand *index,
                     int64_t first, int64_t step, int64_t n, int64_t size,
                     int64_t stride, bool wrap, const int64_t *before,
                     int64_t *at)
{
    const enum pst_dtype dtype = index->meta->dtype;

    if ((dtype == PST_I64 && load_i64(index->data, first, step, n, size, stride,
                                      wrap, before, at)) ||
        (dtype == PST_I32 &&
         load_i32(index->data, first, step, n, size, stride, wrap, before, at)))
        return true;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = pst_load_i64(dtype, index->data, first + k * step);

        if (wrap && i < 0 && i >= -size)
            i += size;
        if (pst_index_check(c, i, size))
            at[k] = i * stride + (before != NULL ? before[k] : 0);
        else
            at[k] = PST_PLACES_NONE;
    }
    return false;
}

/* --- elements ------------------------------------------------------------- */

/* Separate loops for the usual strides: the list is contiguous, and the table
 * is contiguous or has stride 0. */
#define EACH(statement)                                                        \
    do {                                                                       \
        if (apart == 1 && step == 0)                                           \
            for (int64_t k = 0, i = 0, t = 0; k < n; k++, i = k)               \
                statement;                                                     \
        else if (apart == 1 && step == 1)                                      \
            for (int64_t k = 0, i = 0, t = 0; k < n; k++, i = t = k)           \
                statement;                                                     \
        else                                                                   \
            for (int64_t k = 0, i = 0, t = 0; k < n;                           \
                 k++, i += apart, t += step)                                   \
                statement;                                                     \
    } while (0)

#define ARGUMENTS                                                              \
    enum pst_dtype dtype PST_UNUSED, char *table, const int64_t *at,           \
        int64_t step, char *list, int64_t apart, int64_t n

#define MOVERS(name, type)                                                     \
    static void read_##name(ARGUMENTS)                                         \
    {                                                                          \
        const type *x = (const type *)(const void *)table;                     \
        type *y = (type *)(void *)list;                                        \
                                                                               \
        EACH(y[i] = x[at[k] + t]);                                             \
    }                                                                          \
    static void write_##name(ARGUMENTS)                                        \
    {                                                                          \
        const type *x = (const type *)(const void *)list;                      \
        type *y = (type *)(void *)table;                                       \
                                                                               \
        EACH(y[at[k] + t] = x[i]);                                             \
    }

#define ADDER(name, type, wide)                                                \
    static void add_##name(ARGUMENTS)                                          \
    {                                                                          \
        const type *x = (const type *)(const void *)list;                      \
        type *y = (type *)(void *)table;                                       \
                                                                               \
        EACH(y[at[k] + t] = (type)((wide)y[at[k] + t] + (wide)x[i]));          \
    }

MOVERS(1, uint8_t)
MOVERS(2, uint16_t)
MOVERS(4, uint32_t)
MOVERS(8, uint64_t)
ADDER(f32, float, float)
ADDER(f64, double, double)
ADDER(i64, uint64_t, uint64_t)
ADDER(i32, uint32_t, uint32_t)
ADDER(i16, uint16_t, uint32_t)
ADDER(i8, uint8_t, uint32_t)

static void add_any(ARGUMENTS)
{
    EACH(pst_store_f64(dtype, table, at[k] + t,
                       pst_load_f64(dtype, table, at[k] + t) +
                           pst_load_f64(dtype, list, i)));
}

pst_places_fn pst_places_mover(enum pst_dtype dtype, enum pst_places_mode mode)
{
    static const pst_places_fn movers[2][4] = {
        {read_1, read_2, read_4, read_8},
        {write_1, write_2, write_4, write_8},
    };
    static const pst_places_fn adders[PST_N_DTYPES] = {
        [PST_F32] = add_f32, [PST_F64] = add_f64, [PST_I64] = add_i64,
        [PST_I32] = add_i32, [PST_I16] = add_i16, [PST_I8] = add_i8,
        [PST_U8] = add_i8,
    };
    const size_t size = pst_dtype_size(dtype);

    if (mode == PST_PLACES_ADD)
        return adders[dtype] != NULL ? adders[dtype] : add_any;
    return movers[mode][size == 8 ? 3 : size == 4 ? 2 : size - 1];
}

/* --- windows -------------------------------------------------------------- */

/* The work of a thread on places [begin, end): some rows of their windows, and
 * some elements of each row. */
struct job {
    const struct pst_places *p;
    pst_places_fn fn;
    int64_t run;         /* contiguous elements of a window, or 1 */
    int64_t outer;       /* rows of a window */
    int64_t first, last; /* rows of this thread */
    int64_t from, to;    /* elements of each row for this thread */
};

/* Moves n contiguous elements. */
static void move_row(const struct job *j, char *table, char *list, int64_t n)
{
    static const int64_t zeros[PST_PLACES];
    const enum pst_dtype dtype = j->p->dtype;
    const size_t size = pst_dtype_size(dtype);

    if (j->p->mode == PST_PLACES_READ) {
        memcpy(list, table, (size_t)n * size);
        return;
    }
    if (j->p->mode == PST_PLACES_WRITE) {
        memcpy(table, list, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i += PST_PLACES)
        j->fn(dtype, table + (size_t)i * size, zeros, 1,
              list + (size_t)i * size, 1, PST_MIN(n - i, PST_PLACES));
}

/* Moves one row of the windows of n places, whose offsets are known. */
static void move_block(const struct job *j, const int64_t *at, bool good,
                       char *table, char *list, int64_t apart, int64_t n)
{
    const enum pst_dtype dtype = j->p->dtype;
    const int64_t size = (int64_t)pst_dtype_size(dtype);
    const int64_t length = j->to - j->from;

    if (j->run == 1 && good) {
        j->fn(dtype, table, at, 0, list, apart, n);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        char *there = list + (k * apart + j->from) * size;

        if (at[k] >= 0)
            move_row(j, table + (at[k] + j->from) * size, there, length);
        else if (j->p->mode == PST_PLACES_READ)
            memset(there, 0, (size_t)(length * size));
    }
}

/* Moves all rows of the windows, one block of places at a time. */
static void move_rows(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct job *j = ctx;
    const struct pst_places *p = j->p;
    const struct pst_nd *w = &p->window;
    const int64_t size = (int64_t)pst_dtype_size(p->dtype);
    const unsigned inner = nd->rank - 1, depth = w->rank - (j->run > 1);
    const int64_t apart = nd->stride[0][inner];

    for (int64_t i = 0; i < n; i += PST_PLACES) {
        const int64_t m = PST_MIN(n - i, PST_PLACES);
        int64_t buffers[2][PST_PLACES], *at = NULL;
        bool good = true;

        for (unsigned t = 0; t < p->n; t++) {
            const int64_t step = nd->stride[1 + t][inner];

            good &= pst_places_load(p->c, p->index[t], offset[1 + t] + i * step,
                                    step, m, p->size[t], p->stride[t], p->wrap,
                                    at, buffers[t % 2]);
            at = buffers[t % 2];
        }
        for (int64_t row = j->first; row < j->last; row++) {
            int64_t rest = row, list = offset[0] + i * apart, table = 0;

            for (unsigned d = depth; d-- > 0;) {
                list += rest % w->size[d] * w->stride[0][d];
                table += rest % w->size[d] * w->stride[1][d];
                rest /= w->size[d];
            }
            move_block(j, at, good, p->table + table * size,
                       p->list + list * size, apart, m);
        }
    }
}

/* If the table is only read, places are divided among the threads. Otherwise
 * each thread handles a part of all windows, so that each element is written in
 * the order of the list. */
static void run_part(void *ctx, unsigned part, unsigned parts)
{
    struct job j = *(const struct job *)ctx;
    const struct pst_nd *places = &j.p->places;
    int64_t begin = 0, end = places->numel;

    if (j.p->mode == PST_PLACES_READ)
        pst_pool_share(places->numel, 1, part, parts, &begin, &end);
    else if (j.run > 1)
        pst_pool_share(j.run, 16, part, parts, &j.from, &j.to);
    else
        pst_pool_share(j.outer, 1, part, parts, &j.first, &j.last);
    if (j.from < j.to && j.first < j.last)
        pst_nd_range(places, begin, end, move_rows, &j);
}

void pst_places_run(struct pst_places *p, struct pst_pool *pool)
{
    const struct pst_nd *w = &p->window;
    const unsigned last = w->rank - 1;
    struct job j = {.p = p, .fn = pst_places_mover(p->dtype, p->mode)};

    if (w->numel == 0 || p->places.numel == 0)
        return;
    j.run =
        w->stride[0][last] == 1 && w->stride[1][last] == 1 ? w->size[last] : 1;
    j.outer = w->numel / j.run;
    j.last = j.outer;
    j.to = j.run;
    pst_pool_run(pst_pool_if(pool, w->numel * p->places.numel >= PST_ND_SERIAL),
                 run_part, &j);
}
