// SPDX-License-Identifier: Apache-2.0
/* Sums or maxima of table rows by two lists of indices: entry i adds row
 * from[i] of the table to row to[i] of the result (or takes the maximum),
 * unless keep[i] is false. The rows of a bag are never gathered in memory. */
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/index/places.h"

#include <math.h>
#include <string.h>

/* --- inference ------------------------------------------------------------ */

/* Checks that argument i, if given, is a vector of n elements. */
static enum pst_status check_list(struct pst_infer *c, unsigned i, int64_t n,
                                  bool right_dtype)
{
    const struct pst_meta *m = pst_infer_in(c, i);

    if (m != NULL && (m->rank != 1 || m->size[0] != n || !right_dtype))
        return pst_infer_fail(c, "a list does not fit the others");
    return PST_OK;
}

static bool is_index(const struct pst_meta *m)
{
    return m->dtype == PST_I64 || m->dtype == PST_I32;
}

/* Infers operators with the arguments table, from, to, rows, ...; keep: index
 * of the mask, which is the last one. */
static enum pst_status infer_rows(struct pst_infer *c, unsigned keep)
{
    const struct pst_meta *table, *from, *to, *kept = pst_infer_in(c, keep);
    enum pst_status status = pst_infer_tensor(c, 0, &table);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &from);
    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &to);
    if (status != PST_OK)
        return status;
    if (table->rank != 2 || pst_dtype_kind(table->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "the table is not a matrix of floats");
    status = check_list(c, 1, pst_meta_numel(from), is_index(from));
    if (status == PST_OK)
        status = check_list(c, 2, pst_meta_numel(from), is_index(to));
    if (status == PST_OK)
        status = check_list(c, keep, pst_meta_numel(from),
                            kept == NULL || kept->dtype == PST_BOOL);
    return status != PST_OK
               ? status
               : pst_infer_set(c, 0, table->dtype, 2,
                               (int64_t[]){c->args[3].i, table->size[1]});
}

static enum pst_status infer_add_rows(struct pst_infer *c)
{
    const struct pst_meta *scale = pst_infer_in(c, 4);
    enum pst_status status = infer_rows(c, 5);

    return status != PST_OK
               ? status
               : check_list(c, 4, pst_meta_numel(pst_infer_in(c, 1)),
                            scale == NULL ||
                                scale->dtype == pst_infer_in(c, 0)->dtype);
}

static enum pst_status infer_max_rows(struct pst_infer *c)
{
    enum pst_status status = infer_rows(c, 4);

    return status != PST_OK ? status
                            : pst_infer_set_like(c, 1, PST_I64, &c->out[0]);
}

/* --- reference ------------------------------------------------------------ */

struct lists {
    const struct pst_operand *table, *from, *to, *scale, *keep;
    int64_t n, rows, columns; /* rows and columns of the result */
};

static struct lists lists_of(const struct pst_call *c)
{
    const bool scaled = c->n_out == 1;

    return (struct lists){
        .table = &c->in[0],
        .from = &c->in[1],
        .to = &c->in[2],
        .scale = scaled && c->in[3].data != NULL ? &c->in[3] : NULL,
        .keep =
            c->in[scaled ? 4 : 3].data != NULL ? &c->in[scaled ? 4 : 3] : NULL,
        .n = pst_meta_numel(c->in[1].meta),
        .rows = c->out[0].meta->size[0],
        .columns = c->out[0].meta->size[1],
    };
}

/* Loads entry i; false if keep[i] is false, or if an index is out of range,
 * which is a fault. */
static bool load_entry(const struct pst_call *c, const struct lists *l,
                       int64_t i, int64_t *from, int64_t *to)
{
    *from = pst_load_i64(l->from->meta->dtype, l->from->data,
                         pst_meta_offset(l->from->meta, i));
    *to = pst_load_i64(l->to->meta->dtype, l->to->data,
                       pst_meta_offset(l->to->meta, i));
    return pst_index_check(c, *from, l->table->meta->size[0]) &&
           pst_index_check(c, *to, l->rows) &&
           (l->keep == NULL ||
            pst_load_i64(PST_BOOL, l->keep->data,
                         pst_meta_offset(l->keep->meta, i)) != 0);
}

static double table_at(const struct lists *l, int64_t row, int64_t column)
{
    const struct pst_meta *m = l->table->meta;

    return pst_load_f64(m->dtype, l->table->data,
                        row * m->stride[0] + column * m->stride[1]);
}

static size_t rows_scratch(const struct pst_call *c,
                           unsigned threads PST_UNUSED)
{
    return (size_t)pst_meta_numel(c->out[0].meta) * sizeof(double);
}

static void add_rows_ref(const struct pst_call *c)
{
    const struct lists l = lists_of(c);
    const struct pst_operand *out = &c->out[0];
    double *sum = c->scratch;
    int64_t from, to;

    for (int64_t k = 0; k < l.rows * l.columns; k++)
        sum[k] =
            c->accumulate ? pst_load_f64(out->meta->dtype, out->data, k) : 0.0;
    for (int64_t i = 0; i < l.n; i++) {
        if (!load_entry(c, &l, i, &from, &to))
            continue;
        for (int64_t k = 0; k < l.columns; k++)
            sum[to * l.columns + k] +=
                table_at(&l, from, k) *
                (l.scale == NULL
                     ? 1.0
                     : pst_load_f64(l.scale->meta->dtype, l.scale->data,
                                    pst_meta_offset(l.scale->meta, i)));
    }
    for (int64_t k = 0; k < l.rows * l.columns; k++)
        pst_store_f64(out->meta->dtype, out->data, k, sum[k]);
}

/* Sets a row of the result to its first entry, then takes larger elements. */
static void max_rows_ref(const struct pst_call *c)
{
    const struct lists l = lists_of(c);
    const struct pst_operand *out = &c->out[0];
    const int64_t all = l.rows * l.columns;
    int64_t *best = c->out[1].data, from, to;
    double *top = c->scratch;

    for (int64_t k = 0; k < all; k++)
        best[k] = -1;
    for (int64_t i = 0; i < l.n; i++) {
        if (!load_entry(c, &l, i, &from, &to))
            continue;
        for (int64_t k = 0; k < l.columns; k++) {
            const double x = table_at(&l, from, k);
            const int64_t at = to * l.columns + k;

            if (best[at] < 0 || x > top[at]) {
                best[at] = from;
                top[at] = x;
            }
        }
    }
    for (int64_t k = 0; k < all; k++)
        pst_store_f64(out->meta->dtype, out->data, k,
                      best[k] < 0 ? 0.0 : top[k]);
}

/* --- contiguous f32 and f64 ----------------------------------------------- */

struct job {
    const struct pst_call *c;
    struct lists l;
    int64_t begin, end; /* columns of a thread */
};

/* Loads entries first..first+n-1 as offsets into the table and the result; n is
 * at most PST_PLACES. Skipped entries get PST_PLACES_NONE in `to`. */
static void load_block(const struct job *j, int64_t first, int64_t n,
                       int64_t *from, int64_t *to)
{
    const struct lists *l = &j->l;
    const uint8_t *keep = l->keep != NULL ? l->keep->data : NULL;
    const bool good =
        pst_places_load(j->c, l->from, first, 1, n, l->table->meta->size[0],
                        l->columns, false, NULL, from);

    (void)pst_places_load(j->c, l->to, first, 1, n, l->rows, l->columns, false,
                          NULL, to);
    for (int64_t k = 0; k < n && (!good || keep != NULL); k++)
        if (from[k] < 0 || (keep != NULL && keep[first + k] == 0))
            to[k] = PST_PLACES_NONE;
}

#define LOOPS(name, type)                                                      \
    static void add_##name(const struct job *j, int64_t first, int64_t n)      \
    {                                                                          \
        const type *scale = j->l.scale != NULL ? j->l.scale->data : NULL;      \
        const type *table = j->l.table->data;                                  \
        type *out = j->c->out[0].data;                                         \
        int64_t from[PST_PLACES], to[PST_PLACES];                              \
                                                                               \
        load_block(j, first, n, from, to);                                     \
        for (int64_t i = 0; i < n; i++) {                                      \
            const type *x;                                                     \
            type *y;                                                           \
                                                                               \
            if (to[i] < 0)                                                     \
                continue;                                                      \
            x = table + from[i];                                               \
            y = out + to[i];                                                   \
            if (scale == NULL) {                                               \
                PST_INDEPENDENT                                                \
                for (int64_t k = j->begin; k < j->end; k++)                    \
                    y[k] += x[k];                                              \
            } else {                                                           \
                PST_INDEPENDENT                                                \
                for (int64_t k = j->begin; k < j->end; k++)                    \
                    y[k] += scale[first + i] * x[k];                           \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    static void max_##name(const struct job *j, int64_t first, int64_t n)      \
    {                                                                          \
        const type *table = j->l.table->data;                                  \
        type *out = j->c->out[0].data;                                         \
        int64_t *places = j->c->out[1].data;                                   \
        int64_t from[PST_PLACES], to[PST_PLACES];                              \
                                                                               \
        load_block(j, first, n, from, to);                                     \
        for (int64_t i = 0; i < n; i++) {                                      \
            const int64_t row = from[i] / j->l.columns;                        \
            const type *x;                                                     \
            int64_t *best;                                                     \
            type *y;                                                           \
                                                                               \
            if (to[i] < 0)                                                     \
                continue;                                                      \
            x = table + from[i];                                               \
            y = out + to[i];                                                   \
            best = places + to[i];                                             \
            for (int64_t k = j->begin; k < j->end; k++) {                      \
                const bool wins = (best[k] < 0) | (x[k] > y[k]);               \
                                                                               \
                y[k] = wins ? x[k] : y[k];                                     \
                best[k] = wins ? row : best[k];                                \
            }                                                                  \
        }                                                                      \
    }
LOOPS(f32, float)
LOOPS(f64, double)

/* Clears columns begin..end-1 of the result; if `best`, also sets their indices
 * to -1. */
static void clear_columns(const struct job *j, bool best)
{
    const size_t size = pst_dtype_size(j->c->out[0].meta->dtype);

    for (int64_t r = 0; r < j->l.rows; r++) {
        const int64_t at = r * j->l.columns + j->begin;

        memset((char *)j->c->out[0].data + (size_t)at * size, 0,
               (size_t)(j->end - j->begin) * size);
        if (best)
            memset((int64_t *)j->c->out[1].data + at, 0xff,
                   (size_t)(j->end - j->begin) * sizeof(int64_t));
    }
}

/* Pool function: handles a share of the columns, so that entries are added in
 * their order for any number of threads. */
static void run_part(void *ctx, unsigned part, unsigned parts)
{
    struct job j = *(const struct job *)ctx;
    const bool max = j.c->n_out == 2;
    const bool f32 = j.c->out[0].meta->dtype == PST_F32;

    pst_pool_share(j.l.columns, 16, part, parts, &j.begin, &j.end);
    if (j.begin >= j.end)
        return;
    if (!j.c->accumulate)
        clear_columns(&j, max);
    for (int64_t i = 0; i < j.l.n; i += PST_PLACES) {
        const int64_t n = PST_MIN(j.l.n - i, PST_PLACES);

        if (max)
            (f32 ? max_f32 : max_f64)(&j, i, n);
        else
            (f32 ? add_f32 : add_f64)(&j, i, n);
    }
}

static void rows_run(const struct pst_call *c)
{
    struct job j = {.c = c, .l = lists_of(c)};

    pst_pool_run(pst_pool_if(c->pool, j.l.n * j.l.columns >= PST_ND_SERIAL),
                 run_part, &j);
}

/* --- rows of the registry ------------------------------------------------- */

static const struct pst_kernel add_rows_kernels[] = {
    {"add_rows", PST_ISA_ANY, PST_D(F32) | PST_D(F64), PST_K_ACCUMULATE, NULL,
     NULL, rows_run, 1e-6},
    {"add_rows_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_STRIDED | PST_K_ACCUMULATE,
     NULL, rows_scratch, add_rows_ref, 0.0},
};

/* The gradient of add_rows is add_rows with `from` and `to` exchanged. */
const struct pst_op pst_op_add_rows = {
    .schema = "penstock::add_rows(Tensor table, Tensor from, Tensor to, "
              "SymInt rows, Tensor? scale=None, Tensor? keep=None) -> Tensor",
    .infer = infer_add_rows,
    .vjp = pst_vjp_formula,
    .formula = "dots = sum.dim_IntList(index_select(grad, 0, to) * "
               "index_select(table, 0, from), [1]);"
               "table: add_rows(grad, to, from, size(table, 0), scale, keep);"
               "scale: is(keep) ? (keep ? dots : 0) : dots",
};
PST_CPU_KERNELS(add_rows, add_rows_kernels);

static const struct pst_kernel max_rows_kernels[] = {
    {"max_rows", PST_ISA_ANY, PST_D(F32) | PST_D(F64), 0, NULL, NULL, rows_run,
     0.0},
    {"max_rows_ref", PST_ISA_ANY, PST_D_FLOAT, PST_K_STRIDED, NULL,
     rows_scratch, max_rows_ref, 0.0},
};

/* Returns the maximum of each column and the first table row that has it; a row
 * without entries gets 0 and -1. */
const struct pst_op pst_op_max_rows = {
    .schema = "penstock::max_rows(Tensor table, Tensor from, Tensor to, "
              "SymInt rows, Tensor? keep=None) -> (Tensor, Tensor)",
    .infer = infer_max_rows,
    .vjp = pst_vjp_formula,
    .formula = "table: scatter_add(zeros_like(table), 0, "
               "clamp_min(result1, 0), result1 < 0 ? 0 : grad)",
};
PST_CPU_KERNELS(max_rows, max_rows_kernels);
