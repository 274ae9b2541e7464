// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/norm.h"

#include <float.h>
#include <math.h>
#include <string.h>

double pst_norm_eps(const struct pst_arg *arg, enum pst_dtype dtype)
{
    if (arg->kind == PST_ARG_FLOAT)
        return arg->f;
    if (arg->kind == PST_ARG_INT)
        return (double)arg->i;
    return dtype == PST_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

static bool is_shape(const struct pst_meta *m, const struct pst_arg *shape)
{
    if (m->rank != shape->n)
        return false;
    for (unsigned d = 0; d < shape->n; d++)
        if (m->size[d] != shape->ints[d])
            return false;
    return true;
}

enum pst_status pst_norm_check(const struct pst_infer *c, unsigned i,
                               const struct pst_meta *x,
                               const struct pst_meta *w,
                               const struct pst_meta *b)
{
    const struct pst_arg *shape = &c->args[i];
    struct pst_meta tail = *x;
    char text[PST_META_TEXT];

    if (pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "the input is %s", pst_meta_text(x, text));
    if (shape->n < 1 || shape->n > x->rank)
        return pst_infer_fail(c, "%u dimensions of %s cannot be normalised",
                              shape->n, pst_meta_text(x, text));
    tail.rank = shape->n;
    for (unsigned d = 0; d < shape->n; d++)
        tail.size[d] = x->size[x->rank - shape->n + d];
    if (!is_shape(&tail, shape))
        return pst_infer_fail(c, "normalized_shape does not fit input %s",
                              pst_meta_text(x, text));
    if (w != NULL && !is_shape(w, shape))
        return pst_infer_fail(c, "weight %s is not of normalized_shape",
                              pst_meta_text(w, text));
    if (b != NULL && !is_shape(b, shape))
        return pst_infer_fail(c, "bias %s is not of normalized_shape",
                              pst_meta_text(b, text));
    return PST_OK;
}

void pst_norm_rows(struct pst_norm *p, const struct pst_meta *x,
                   unsigned normalised)
{
    p->n = 1;
    p->rows = 1;
    for (unsigned d = 0; d < x->rank; d++)
        *(d + normalised < x->rank ? &p->rows : &p->n) *= x->size[d];
}

/* --- reference ---------------------------------------------------------- */

static double element_at(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
}

/* Returns element j of an optional weight or bias; `otherwise` if it is
 * absent. */
static double at_or(const struct pst_operand *x, int64_t j, double otherwise)
{
    return x == NULL || x->data == NULL ? otherwise : element_at(x, j);
}

static void row_stats(const struct pst_norm *p, int64_t r, double *ret_mean,
                      double *ret_rstd)
{
    double mean = 0.0, var = 0.0;

    for (int64_t j = 0; p->centre && j < p->n; j++)
        mean += element_at(p->x, r * p->n + j);
    mean /= (double)p->n;
    for (int64_t j = 0; j < p->n; j++) {
        const double d = element_at(p->x, r * p->n + j) - mean;

        var += d * d;
    }
    *ret_mean = mean;
    *ret_rstd = 1.0 / sqrt(var / (double)p->n + p->eps);
}

static void store_at(struct pst_operand *y, int64_t i, double value)
{
    pst_store_f64(y->meta->dtype, y->data, i, value);
}

void pst_norm_ref(const struct pst_norm *p, struct pst_operand *y,
                  struct pst_operand *mean, struct pst_operand *rstd)
{
    for (int64_t r = 0; r < p->rows; r++) {
        double m, s;

        row_stats(p, r, &m, &s);
        for (int64_t j = 0; j < p->n; j++)
            store_at(y, r * p->n + j,
                     (element_at(p->x, r * p->n + j) - m) * s *
                             at_or(p->w, j, 1.0) +
                         at_or(p->b, j, 0.0));
        if (mean != NULL)
            store_at(mean, r, m);
        if (rstd != NULL)
            store_at(rstd, r, s);
    }
}

/* dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), where gw = g w; RMS norm
 * lacks the middle term. */
void pst_norm_input_ref(const struct pst_norm *p, struct pst_operand *dx)
{
    for (int64_t r = 0; r < p->rows; r++) {
        double m, s, sum = 0.0, dot = 0.0;

        row_stats(p, r, &m, &s);
        for (int64_t j = 0; j < p->n; j++) {
            const double gw =
                element_at(p->g, r * p->n + j) * at_or(p->w, j, 1.0);

            sum += gw;
            dot += gw * (element_at(p->x, r * p->n + j) - m) * s;
        }
        sum = p->centre ? sum / (double)p->n : 0.0;
        dot /= (double)p->n;
        for (int64_t j = 0; j < p->n; j++) {
            const double gw =
                element_at(p->g, r * p->n + j) * at_or(p->w, j, 1.0);
            const double xhat = (element_at(p->x, r * p->n + j) - m) * s;

            store_at(dx, r * p->n + j, s * (gw - sum - xhat * dot));
        }
    }
}

/* Number of columns that are summed in one pass over the rows. */
#define COLUMNS 256

void pst_norm_weight_ref(const struct pst_norm *p, struct pst_operand *dw,
                         bool accumulate)
{
    for (int64_t first = 0; first < p->n; first += COLUMNS) {
        const int64_t m = PST_MIN(p->n - first, COLUMNS);
        double sum[COLUMNS] = {0};

        for (int64_t j = 0; accumulate && j < m; j++)
            sum[j] = pst_load_f64(dw->meta->dtype, dw->data, first + j);
        for (int64_t r = 0; r < p->rows; r++) {
            double mean, rstd;

            row_stats(p, r, &mean, &rstd);
            for (int64_t j = 0; j < m; j++) {
                const int64_t i = r * p->n + first + j;

                sum[j] +=
                    element_at(p->g, i) * (element_at(p->x, i) - mean) * rstd;
            }
        }
        for (int64_t j = 0; j < m; j++)
            store_at(dw, first + j, sum[j]);
    }
}

void pst_norm_bias_ref(const struct pst_norm *p, struct pst_operand *db)
{
    for (int64_t j = 0; j < p->n; j++) {
        double sum = 0.0;

        for (int64_t r = 0; r < p->rows; r++)
            sum += element_at(p->g, r * p->n + j);
        store_at(db, j, sum);
    }
}

/* --- fast kernels ------------------------------------------------------- */

/* Fewer elements are processed without waking the thread pool. */
#define SERIAL 32768

struct job {
    const struct pst_norm *p;
    const struct pst_norm_loops *loops;
    struct pst_norm_rows rows;
    int64_t size; /* bytes of an element */
    const char *x, *g;
    char *y, *stats;
};

static struct job job_of(const struct pst_call *c, const struct pst_norm *p,
                         const struct pst_norm_loops *const *loops)
{
    const enum pst_dtype dtype = p->x->meta->dtype;

    return (struct job){
        .p = p,
        .loops = loops[dtype == PST_F64],
        .size = (int64_t)pst_dtype_size(dtype),
        .rows = {.centre = p->centre,
                 .eps = p->eps,
                 .n = p->n,
                 .w = p->w == NULL ? NULL : p->w->data,
                 .b = p->b == NULL ? NULL : p->b->data},
        .x = p->x->data,
        .g = p->g == NULL ? NULL : p->g->data,
        .y = c->out[0].data,
    };
}

static void run_parts(const struct pst_call *c, pst_pool_fn fn, struct job *job)
{
    pst_pool_run(pst_pool_if(c->pool, job->p->rows * job->p->n >= SERIAL), fn,
                 job);
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *k = ctx;
    const int64_t n = k->p->n * k->size;
    int64_t a, b;

    pst_pool_share(k->p->rows, 1, part, parts, &a, &b);
    k->loops->forward(&k->rows, b - a, k->x + a * n, k->y + a * n,
                      k->stats == NULL ? NULL : k->stats + 2 * a * k->size);
}

void pst_norm_run(const struct pst_call *c, const struct pst_norm *p,
                  const struct pst_norm_loops *const *loops)
{
    struct job job = job_of(c, p, loops);

    job.stats = c->n_out == 3 ? c->scratch : NULL;
    run_parts(c, forward_part, &job);
    for (int64_t r = 0; job.stats != NULL && r < p->rows; r++)
        for (int64_t k = 0; k < 2; k++)
            memcpy((char *)c->out[1 + k].data + r * job.size,
                   job.stats + (2 * r + k) * job.size, (size_t)job.size);
}

static void input_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *k = ctx;
    const int64_t n = k->p->n * k->size;
    int64_t a, b;

    pst_pool_share(k->p->rows, 1, part, parts, &a, &b);
    k->loops->input(&k->rows, b - a, k->g + a * n, k->x + a * n, k->y + a * n);
}

void pst_norm_run_input(const struct pst_call *c, const struct pst_norm *p,
                        const struct pst_norm_loops *const *loops)
{
    struct job job = job_of(c, p, loops);

    run_parts(c, input_part, &job);
}

/* Number of rows whose statistics are computed just before their sums, while
 * the rows are in the cache. Each partial sum has this many rows, so the bits
 * do not depend on the number of threads. */
#define BLOCK 32

/* Returns the scratch for the sums dw and db, followed by the statistics of all
 * rows. */
size_t pst_norm_weight_scratch(const struct pst_norm *p)
{
    return (size_t)(p->rows + p->n) * 2 * pst_dtype_size(p->x->meta->dtype);
}

static void stats_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *k = ctx;
    int64_t a, b;

    pst_pool_share(k->p->rows, 1, part, parts, &a, &b);
    k->loops->stats(&k->rows, b - a, k->x + a * k->p->n * k->size,
                    k->stats + 2 * a * k->size);
}

static void weight_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *k = ctx;
    int64_t a, b;

    pst_pool_share(k->p->n, 64, part, parts, &a, &b);
    k->loops->affine(k->p->rows, k->p->n, a, b, k->g, k->x, k->stats, k->y,
                     k->y + k->p->n * k->size);
}

static void weight_serial(const struct job *k)
{
    const int64_t n = k->p->n, row = n * k->size;

    for (int64_t r = 0; r < k->p->rows; r += BLOCK) {
        const int64_t rows = PST_MIN(k->p->rows - r, BLOCK);

        k->loops->stats(&k->rows, rows, k->x + r * row, k->stats);
        k->loops->affine(rows, n, 0, n, k->g + r * row, k->x + r * row,
                         k->stats, k->y, k->y + row);
    }
}

void pst_norm_run_weight(const struct pst_call *c, const struct pst_norm *p,
                         const struct pst_norm_loops *const *loops)
{
    struct job job = job_of(c, p, loops);
    const int64_t n = p->n * job.size;

    job.y = c->scratch;
    job.stats = job.y + 2 * n;
    memset(job.y, 0, (size_t)(2 * n));
    if (p->rows * p->n < SERIAL || pst_pool_threads(c->pool) == 1) {
        weight_serial(&job);
    } else {
        pst_pool_run(c->pool, stats_part, &job);
        pst_pool_run(c->pool, weight_part, &job);
    }
    job.loops->put(p->n, job.y, c->out[0].data, c->accumulate);
    if (c->n_out == 2)
        job.loops->put(p->n, job.y + n, c->out[1].data, false);
}
