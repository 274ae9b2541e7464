// SPDX-License-Identifier: Apache-2.0
/* Norms over channels for contiguous f64, the dtype of pst_verify. */
#include "stages/ops/norm/channel.h"

#include <math.h>

/* Fewer elements are processed without waking the thread pool. */
#define SERIAL 32768
/* Number of partial sums: a single sum would be limited by the latency of
 * additions. */
#define SUMS 8

struct job {
    const struct pst_call *call;
    const struct pst_norm_channels *p;
};

static const double *data_of(const struct pst_operand *x)
{
    return x == NULL ? NULL : x->data;
}

static double value_or(const struct pst_operand *x, int64_t i, double otherwise)
{
    const double *data = data_of(x);

    return data == NULL ? otherwise : data[i];
}

static void run_parts(const struct pst_call *call,
                      const struct pst_norm_channels *p, pst_pool_fn fn)
{
    struct job job = {call, p};

    pst_pool_run(pst_pool_if(call->pool, p->n * p->c * p->s >= SERIAL), fn,
                 &job);
}

static double total(const double *part)
{
    return ((part[0] + part[4]) + (part[2] + part[6])) +
           ((part[1] + part[5]) + (part[3] + part[7]));
}

static double sum(int64_t n, const double *restrict x)
{
    double part[SUMS] = {0.0};
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            part[k] += x[i + k];
    for (; i < n; i++)
        part[0] += x[i];
    return total(part);
}

static double sum_squares(int64_t n, const double *restrict x, double mean)
{
    double part[SUMS] = {0.0};
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            part[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (; i < n; i++)
        part[0] += (x[i] - mean) * (x[i] - mean);
    return total(part);
}

/* Returns the sum of g (x - mean). */
static double sum_products(int64_t n, const double *restrict g,
                           const double *restrict x, double mean)
{
    double part[SUMS] = {0.0};
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            part[k] += g[i + k] * (x[i + k] - mean);
    for (; i < n; i++)
        part[0] += g[i] * (x[i] - mean);
    return total(part);
}

static void stats_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const double count = (double)pst_norm_channels_count(p);
    const double *x = data_of(p->x);
    int64_t i, end;

    pst_pool_share(p->blocks * p->g, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
        const int64_t run = (r.c1 - r.c0) * p->s;
        double mean = 0.0, var = 0.0;

        for (int64_t n = r.n0; n < r.n1; n++)
            mean += sum(run, x + pst_norm_channels_at(p, n, r.c0));
        mean /= count;
        for (int64_t n = r.n0; n < r.n1; n++)
            var += sum_squares(run, x + pst_norm_channels_at(p, n, r.c0), mean);
        var /= count;
        ((double *)j->call->out[0].data)[i] = mean;
        ((double *)j->call->out[1].data)[i] = 1.0 / sqrt(var + p->eps);
        ((double *)j->call->out[2].data)[i] = var;
    }
}

void pst_norm_channels_f64_stats(const struct pst_call *c,
                                 const struct pst_norm_channels *p)
{
    run_parts(c, p, stats_part);
}

/* Pool function: computes a share of y, which may be x (in place). */
static void apply_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    int64_t i, end;

    pst_pool_share(p->n * p->c, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const int64_t c = i % p->c, k = pst_norm_channels_group(p, i / p->c, c);
        const double mean = data_of(p->mean)[k];
        const double scale = data_of(p->rstd)[k] * value_or(p->w, c, 1.0);
        const double shift = value_or(p->b, c, 0.0);
        const double *x = data_of(p->x) + i * p->s;
        double *y = (double *)j->call->out[0].data + i * p->s;

        PST_INDEPENDENT
        for (int64_t s = 0; s < p->s; s++)
            y[s] = (x[s] - mean) * scale + shift;
    }
}

void pst_norm_channels_f64_apply(const struct pst_call *c,
                                 const struct pst_norm_channels *p)
{
    run_parts(c, p, apply_part);
}

static void sums_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const int64_t images = p->n / p->blocks;
    int64_t i, end;

    pst_pool_share(p->blocks * p->c, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const int64_t c = i % p->c, first = i / p->c * images;
        const int64_t k = pst_norm_channels_group(p, first, c);
        double a = 0.0, b = 0.0;

        for (int64_t n = first; n < first + images; n++) {
            const double *g = data_of(p->dy) + pst_norm_channels_at(p, n, c);
            const double *x = data_of(p->x) + pst_norm_channels_at(p, n, c);

            a += sum(p->s, g);
            b += sum_products(p->s, g, x, data_of(p->mean)[k]);
        }
        ((double *)j->call->out[0].data)[i] = a;
        ((double *)j->call->out[1].data)[i] = b * data_of(p->rstd)[k];
    }
}

void pst_norm_channels_f64_sums(const struct pst_call *c,
                                const struct pst_norm_channels *p)
{
    run_parts(c, p, sums_part);
}

/* Pool function: computes a share of dx, which may be dy (in place). */
static void input_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    int64_t i, end;

    pst_pool_share(p->blocks * p->g, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
        const double mean = data_of(p->mean)[i], rstd = data_of(p->rstd)[i];
        const double by =
            -rstd * rstd * pst_norm_channels_group_mean(p, i, p->sum_b);
        const double shift =
            -rstd * pst_norm_channels_group_mean(p, i, p->sum_a);

        for (int64_t n = r.n0; n < r.n1; n++)
            for (int64_t c = r.c0; c < r.c1; c++) {
                const int64_t at = pst_norm_channels_at(p, n, c);
                const double scale = rstd * value_or(p->w, c, 1.0);
                const double *g = data_of(p->dy) + at;
                const double *x = data_of(p->x) + at;
                double *dx = (double *)j->call->out[0].data + at;

                PST_INDEPENDENT
                for (int64_t s = 0; s < p->s; s++)
                    dx[s] = g[s] * scale + ((x[s] - mean) * by + shift);
            }
    }
}

void pst_norm_channels_f64_input(const struct pst_call *c,
                                 const struct pst_norm_channels *p)
{
    run_parts(c, p, input_part);
}
