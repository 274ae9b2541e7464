// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/distance.h"

#include "stages/ops/pointwise/nd.h"

#include <math.h>
#include <string.h>

/* ROWS rows of x that a thread handles at a time, and OTHERS rows of y with
 * which they are paired; both stay in the cache. */
#define ROWS   16
#define OTHERS 64

/* --- one coordinate at a time --------------------------------------------- */

double pst_distance_add(double sum, double d, double p)
{
    d = fabs(d);
    if (p == 0.0)
        return sum + (isnan(d) ? d : d != 0.0);
    if (isinf(p))
        return d > sum || isnan(d) ? d : sum;
    return sum + pow(d, p);
}

double pst_distance_of(double sum, double p)
{
    return p == 0.0 || isinf(p) ? sum : pow(sum, 1.0 / p);
}

double pst_distance_slope(enum pst_dtype dtype, double d, double r, double p)
{
    double s;

    pst_store_f64(dtype, &s, 0, d);
    d = pst_load_f64(dtype, &s, 0);
    s = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : d;
    if (p == 0.0 || r == 0.0 || (d == 0.0 && p < 1.0))
        return 0.0;
    if (isinf(p))
        return isnan(fabs(d) - r) ? NAN : fabs(d) == r ? s : 0.0;
    return s * pow(fabs(d) / r, p - 1.0);
}

/* --- rows ----------------------------------------------------------------- */

enum pst_distance_kind pst_distance_kind(double p)
{
    return p == 0.0   ? PST_DISTANCE_0
           : p == 1.0 ? PST_DISTANCE_1
           : p == 2.0 ? PST_DISTANCE_2
           : isinf(p) ? PST_DISTANCE_MAX
                      : PST_DISTANCE_P;
}

struct job {
    const struct pst_distances *d;
    enum pst_distance_kind kind;
    bool f64;
    size_t size;    /* bytes of an element */
    int64_t blocks; /* blocks of rows in a batch */
    const void *g, *r;
    void *out, *scratch;
};

static double load(const struct job *j, const void *x, int64_t i)
{
    return j->f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void store(const struct job *j, void *x, int64_t i, double y)
{
    if (j->f64)
        ((double *)x)[i] = y;
    else
        ((float *)x)[i] = (float)y;
}

static const void *row(const struct job *j, const void *x, int64_t i)
{
    return (const char *)x + (size_t)(i * j->d->m) * j->size;
}

static const void *batch_of_x(const struct job *j, int64_t b)
{
    const struct pst_distances *d = j->d;

    return row(j, d->x,
               (d->batch_x != NULL ? d->batch_x(d->ctx, b) : b) * d->n);
}

static const void *batch_of_y(const struct job *j, int64_t b)
{
    const struct pst_distances *d = j->d;

    return row(j, d->y,
               (d->batch_y != NULL ? d->batch_y(d->ctx, b) : b) * d->k);
}

/* Returns the index of the distance between i and k. */
static int64_t pair_index(const struct pst_distances *d, int64_t i, int64_t k)
{
    const int64_t a = PST_MIN(i, k), b = PST_MAX(i, k);

    if (d->half)
        return a * (2 * d->n - a - 1) / 2 + b - a - 1;
    return d->swapped ? k * d->n + i : i * d->k + k;
}

/* --- distances ------------------------------------------------------------ */

/* Returns the sum of |d|^p over the differences d of two rows. */
static double sum_powers(const struct job *j, const void *a, const void *b,
                         double p)
{
    double sum = 0.0;

    for (int64_t i = 0; i < j->d->m; i++) {
        const double d = load(j, a, i) - load(j, b, i);

        sum += p == 2.0 ? d * d : pow(fabs(d), p);
    }
    return sum;
}

/* Computes the distances between a row and the next `others` rows. */
static void compute_distances(const struct job *j, const void *a, const void *b,
                              int64_t others, double *ret)
{
    const double p = j->d->p;

    if (j->kind == PST_DISTANCE_P) {
        for (int64_t k = 0; k < others; k++)
            ret[k] = pow(sum_powers(j, a, row(j, b, k), p), 1.0 / p);
        return;
    }
    j->d->loops->measure[j->f64][j->kind](j->d->m, a, others, b, ret);
    if (j->kind != PST_DISTANCE_2)
        return;
    for (int64_t k = 0; k < others; k++) {
        /* Squares of f32 that overflowed or underflowed are summed again in
         * f64. */
        if (!j->f64 && !(ret[k] > 1e-28 && ret[k] < 1e37))
            ret[k] = sum_powers(j, a, row(j, b, k), 2.0);
        ret[k] = sqrt(ret[k]);
    }
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_distances *d = j->d;
    double r[OTHERS];

    for (int64_t t = part; t < d->batches * j->blocks; t += parts) {
        const int64_t b = t / j->blocks, first = t % j->blocks * ROWS;
        const int64_t last = PST_MIN(first + ROWS, d->n);
        const void *x = batch_of_x(j, b), *y = batch_of_y(j, b);

        for (int64_t k0 = d->half ? first : 0; k0 < d->k; k0 += OTHERS)
            for (int64_t i = first; i < last; i++) {
                const int64_t from = d->half ? PST_MAX(k0, i + 1) : k0;
                const int64_t others = PST_MIN(k0 + OTHERS, d->k) - from;
                const int64_t out = b * d->n * d->k + pair_index(d, i, from);

                if (others <= 0)
                    continue;
                compute_distances(j, row(j, x, i), row(j, y, from), others, r);
                for (int64_t k = 0; k < others; k++)
                    store(j, j->out, out + k, r[k]);
            }
    }
}

static bool is_parallel(const struct pst_distances *d)
{
    return d->batches * d->n * d->k >= PST_ND_SERIAL / PST_MAX(d->m, 1);
}

static struct job make_job(const struct pst_distances *d)
{
    return (struct job){
        .d = d,
        .kind = pst_distance_kind(d->p),
        .f64 = d->dtype == PST_F64,
        .size = pst_dtype_size(d->dtype),
        .blocks = (d->n + ROWS - 1) / ROWS,
    };
}

void pst_distance_forward(const struct pst_distances *d, struct pst_pool *pool,
                          void *out)
{
    struct job j = make_job(d);

    j.out = out;
    pst_pool_run(pst_pool_if(pool, is_parallel(d)), forward_part, &j);
}

/* --- gradients ------------------------------------------------------------ */

bool pst_distance_fits(const struct pst_call *c)
{
    const enum pst_dtype dtype = c->out[0].meta->dtype;

    for (unsigned k = 0; k < c->n_in; k++)
        if (c->in[k].meta->dtype != dtype)
            return false;
    return dtype == PST_F32 || dtype == PST_F64;
}

size_t pst_distance_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_meta *x = c->in[1].meta;
    const int64_t m = x->size[x->rank - 1];

    return threads * (size_t)((ROWS + 1) * m) * sizeof(double);
}

/* Adds w s (|d| / r)^(p-1) to acc for each coordinate's difference d, whose
 * sign is s; adds 0 at d = 0 if p < 1. */
static void add_powers(const struct job *j, const void *a, const void *b,
                       double w, double r, void *acc)
{
    for (int64_t i = 0; i < j->d->m; i++) {
        double d = load(j, a, i) - load(j, b, i), s;

        d = j->f64 ? d : (double)(float)d;
        s = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : d;
        if (d != 0.0 || j->d->p >= 1.0)
            s *= w * pow(fabs(d) / r, j->d->p - 1.0);
        store(j, acc, i, load(j, acc, i) + s);
    }
}

/* The distances r of a block of pairs, and the factors w of their
 * derivatives. */
struct pair_block {
    double r[ROWS][OTHERS], w[ROWS][OTHERS];
};

/* Loads the distances of a block of pairs and the factors of their derivatives.
 * A distance of 0 has no derivative, nor has the distance of a row to itself.
 * The outer loop is over k, because distances are stored by columns: each cache
 * line is read once. */
static void load_pairs(const struct job *j, struct pair_block *t, int64_t base,
                       int64_t first, int64_t rows, int64_t k0, int64_t others)
{
    for (int64_t k = 0; k < others; k++)
        for (int64_t i = 0; i < rows; i++) {
            const bool same = j->d->half && first + i == k0 + k;
            const int64_t at =
                same ? 0 : base + pair_index(j->d, first + i, k0 + k);
            const double r = same ? 0.0 : load(j, j->r, at);

            t->r[i][k] = r;
            if (r == 0.0)
                continue;
            t->w[i][k] = load(j, j->g, at);
            if (j->kind == PST_DISTANCE_2)
                t->w[i][k] /= r;
        }
}

static void add_row(const struct job *j, const void *x, const void *y,
                    const double *w, const double *r, int64_t others, void *acc)
{
    if (j->kind != PST_DISTANCE_P)
        j->d->loops->add[j->f64][j->kind](j->d->m, x, others, y, w, r, acc);
    else
        for (int64_t k = 0; k < others; k++)
            if (r[k] != 0.0)
                add_powers(j, x, row(j, y, k), w[k], r[k], acc);
}

/* Computes the gradient of rows [first, first + rows) of x in batch b. The
 * terms of the rows of y are added in order: in the dtype of x within a block
 * of OTHERS rows, in double over the blocks. */
static void row_gradients(const struct job *j, int64_t b, int64_t first,
                          int64_t rows, double *sums)
{
    const struct pst_distances *d = j->d;
    const void *x = batch_of_x(j, b), *y = batch_of_y(j, b);
    void *acc = sums + ROWS * d->m;
    struct pair_block t;

    memset(sums, 0, (size_t)(rows * d->m) * sizeof(double));
    for (int64_t k0 = 0; k0 < d->k; k0 += OTHERS) {
        const int64_t others = PST_MIN(d->k - k0, OTHERS);

        load_pairs(j, &t, b * d->n * d->k, first, rows, k0, others);
        for (int64_t i = 0; i < rows; i++) {
            memset(acc, 0, (size_t)d->m * j->size);
            add_row(j, row(j, x, first + i), row(j, y, k0), t.w[i], t.r[i],
                    others, acc);
            for (int64_t e = 0; e < d->m; e++)
                sums[i * d->m + e] += load(j, acc, e);
        }
    }
}

static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_distances *d = j->d;
    double *sums = (double *)j->scratch + part * (ROWS + 1) * d->m;

    for (int64_t t = part; t < d->batches * j->blocks; t += parts) {
        const int64_t b = t / j->blocks, first = t % j->blocks * ROWS;
        const int64_t rows = PST_MIN(d->n - first, ROWS);

        row_gradients(j, b, first, rows, sums);
        for (int64_t e = 0; e < rows * d->m; e++)
            store(j, j->out, (b * d->n + first) * d->m + e, sums[e]);
    }
}

void pst_distance_backward(const struct pst_distances *d, struct pst_pool *pool,
                           void *scratch, const void *g, const void *r,
                           void *dx)
{
    struct job j = make_job(d);

    j.g = g;
    j.r = r;
    j.out = dx;
    j.scratch = scratch;
    if (j.kind == PST_DISTANCE_0)
        memset(dx, 0, (size_t)(d->batches * d->n * d->m) * j.size);
    else
        pst_pool_run(pst_pool_if(pool, is_parallel(d)), backward_part, &j);
}
