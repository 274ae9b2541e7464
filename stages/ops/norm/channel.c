// SPDX-License-Identifier: Apache-2.0
/* Norms over channels: reference kernels, and the calls of the fast loops. */
#include "stages/ops/norm/channel.h"

#include <math.h>

/* --- reference ---------------------------------------------------------- */

static double element_at(const struct pst_operand *x, int64_t i)
{
    /* Checks for contiguity first, because pst_meta_offset() has to divide. */
    return pst_load_f64(
        x->meta->dtype, x->data,
        pst_meta_is_contiguous(x->meta) ? i : pst_meta_offset(x->meta, i));
}

static double at_or(const struct pst_operand *x, int64_t i, double otherwise)
{
    return x == NULL || x->data == NULL ? otherwise : element_at(x, i);
}

static void store_at(struct pst_operand *y, int64_t i, double value)
{
    pst_store_f64(y->meta->dtype, y->data, i, value);
}

static int64_t element_index(const struct pst_norm_channels *p, int64_t n,
                             int64_t c, int64_t s)
{
    return pst_norm_channels_at(p, n, c) + s;
}

/* Returns the mean over group i of (x - centre)^power. */
static double moment(const struct pst_norm_channels *p, int64_t i,
                     double centre, int power)
{
    const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
    double sum = 0.0;

    for (int64_t n = r.n0; n < r.n1; n++)
        for (int64_t c = r.c0; c < r.c1; c++)
            for (int64_t s = 0; s < p->s; s++) {
                const double d =
                    element_at(p->x, element_index(p, n, c, s)) - centre;

                sum += power == 1 ? d : d * d;
            }
    return sum / (double)pst_norm_channels_count(p);
}

void pst_norm_channels_ref_stats(const struct pst_norm_channels *p,
                                 struct pst_operand *mean,
                                 struct pst_operand *rstd,
                                 struct pst_operand *var)
{
    for (int64_t i = 0; i < p->blocks * p->g; i++) {
        const double m = moment(p, i, 0.0, 1), v = moment(p, i, m, 2);

        store_at(mean, i, m);
        store_at(rstd, i, 1.0 / sqrt(v + p->eps));
        store_at(var, i, v);
    }
}

void pst_norm_channels_ref_apply(const struct pst_norm_channels *p,
                                 struct pst_operand *y)
{
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t c = 0; c < p->c; c++) {
            const int64_t i = pst_norm_channels_group(p, n, c);
            const double mean = element_at(p->mean, i),
                         rstd = element_at(p->rstd, i);
            const double w = at_or(p->w, c, 1.0), b = at_or(p->b, c, 0.0);

            for (int64_t s = 0; s < p->s; s++) {
                const int64_t e = element_index(p, n, c, s);

                store_at(y, e, (element_at(p->x, e) - mean) * rstd * w + b);
            }
        }
}

void pst_norm_channels_ref_sums(const struct pst_norm_channels *p,
                                struct pst_operand *a, struct pst_operand *b)
{
    const int64_t images = p->n / p->blocks;

    for (int64_t i = 0; i < p->blocks * p->c; i++) {
        const int64_t c = i % p->c, first = i / p->c * images;
        double sum_a = 0.0, sum_b = 0.0;

        for (int64_t n = first; n < first + images; n++) {
            const int64_t k = pst_norm_channels_group(p, n, c);
            const double mean = element_at(p->mean, k),
                         rstd = element_at(p->rstd, k);

            for (int64_t s = 0; s < p->s; s++) {
                const int64_t e = element_index(p, n, c, s);
                const double dy = element_at(p->dy, e);

                sum_a += dy;
                sum_b += dy * (element_at(p->x, e) - mean) * rstd;
            }
        }
        store_at(a, i, sum_a);
        store_at(b, i, sum_b);
    }
}

double pst_norm_channels_group_mean(const struct pst_norm_channels *p,
                                    int64_t i, const struct pst_operand *sums)
{
    const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
    double sum = 0.0;

    for (int64_t c = r.c0; c < r.c1; c++)
        sum += at_or(p->w, c, 1.0) * at_or(sums, i / p->g * p->c + c, 0.0);
    return sum / (double)pst_norm_channels_count(p);
}

void pst_norm_channels_ref_input(const struct pst_norm_channels *p,
                                 struct pst_operand *dx)
{
    for (int64_t i = 0; i < p->blocks * p->g; i++) {
        const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
        const double mean = element_at(p->mean, i),
                     rstd = element_at(p->rstd, i);
        const double of_a = pst_norm_channels_group_mean(p, i, p->sum_a);
        const double of_b = pst_norm_channels_group_mean(p, i, p->sum_b);

        for (int64_t n = r.n0; n < r.n1; n++)
            for (int64_t c = r.c0; c < r.c1; c++)
                for (int64_t s = 0; s < p->s; s++) {
                    const int64_t e = element_index(p, n, c, s);
                    const double xhat = (element_at(p->x, e) - mean) * rstd;

                    store_at(dx, e,
                             rstd *
                                 (element_at(p->dy, e) * at_or(p->w, c, 1.0) -
                                  of_a - xhat * of_b));
                }
    }
}

/* --- fast kernels ------------------------------------------------------- */

/* Fewer elements are processed without waking the thread pool. */
#define SERIAL 32768

struct job {
    const struct pst_call *call;
    const struct pst_norm_channels *p;
    const struct pst_channel_loops *loops;
};

static const float *data_of(const struct pst_operand *x)
{
    return x == NULL ? NULL : x->data;
}

static float value_or(const struct pst_operand *x, int64_t i, float otherwise)
{
    const float *data = data_of(x);

    return data == NULL ? otherwise : data[i];
}

static void run_parts(const struct pst_call *call,
                      const struct pst_norm_channels *p,
                      const struct pst_channel_loops *loops, pst_pool_fn fn)
{
    struct job job = {call, p, loops};

    pst_pool_run(pst_pool_if(call->pool, p->n * p->c * p->s >= SERIAL), fn,
                 &job);
}

static void stats_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const double count = (double)pst_norm_channels_count(p);
    int64_t i, end;

    pst_pool_share(p->blocks * p->g, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
        const int64_t run = (r.c1 - r.c0) * p->s;
        const float *x = data_of(p->x);
        double mean = 0.0, var = 0.0;

        for (int64_t n = r.n0; n < r.n1; n++)
            mean += j->loops->sum(run, x + element_index(p, n, r.c0, 0));
        mean /= count;
        for (int64_t n = r.n0; n < r.n1; n++)
            var += j->loops->squares(run, x + element_index(p, n, r.c0, 0),
                                     (float)mean);
        var /= count;
        ((float *)j->call->out[0].data)[i] = (float)mean;
        ((float *)j->call->out[1].data)[i] = (float)(1.0 / sqrt(var + p->eps));
        ((float *)j->call->out[2].data)[i] = (float)var;
    }
}

void pst_norm_channels_run_stats(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops)
{
    run_parts(c, p, loops, stats_part);
}

static void apply_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const float *x = data_of(p->x), *mean = data_of(p->mean);
    const float *rstd = data_of(p->rstd);
    float *y = j->call->out[0].data;
    int64_t i, end;

    pst_pool_share(p->n * p->c, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const int64_t c = i % p->c, k = pst_norm_channels_group(p, i / p->c, c);

        j->loops->apply(p->s, x + i * p->s, mean[k],
                        rstd[k] * value_or(p->w, c, 1.0f),
                        value_or(p->b, c, 0.0f), y + i * p->s);
    }
}

void pst_norm_channels_run_apply(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops)
{
    run_parts(c, p, loops, apply_part);
}

static void sums_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const int64_t images = p->n / p->blocks;
    const float *x = data_of(p->x), *dy = data_of(p->dy);
    const float *mean = data_of(p->mean), *rstd = data_of(p->rstd);
    int64_t i, end;

    pst_pool_share(p->blocks * p->c, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const int64_t c = i % p->c, first = i / p->c * images;
        const int64_t k = pst_norm_channels_group(p, first, c);
        double a = 0.0, b = 0.0;

        for (int64_t n = first; n < first + images; n++) {
            const int64_t e = element_index(p, n, c, 0);

            j->loops->sums(p->s, dy + e, x + e, mean[k], &a, &b);
        }
        ((float *)j->call->out[0].data)[i] = (float)a;
        ((float *)j->call->out[1].data)[i] = (float)(b * (double)rstd[k]);
    }
}

void pst_norm_channels_run_sums(const struct pst_call *c,
                                const struct pst_norm_channels *p,
                                const struct pst_channel_loops *loops)
{
    run_parts(c, p, loops, sums_part);
}

static void input_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const float *x = data_of(p->x), *dy = data_of(p->dy);
    const float *mean = data_of(p->mean), *rstd = data_of(p->rstd);
    float *dx = j->call->out[0].data;
    int64_t i, end;

    pst_pool_share(p->blocks * p->g, 1, part, parts, &i, &end);
    for (; i < end; i++) {
        const struct pst_norm_channels_range r = pst_norm_channels_range(p, i);
        const float of_a = (float)pst_norm_channels_group_mean(p, i, p->sum_a);
        const float of_b = (float)pst_norm_channels_group_mean(p, i, p->sum_b);

        for (int64_t n = r.n0; n < r.n1; n++)
            for (int64_t c = r.c0; c < r.c1; c++) {
                const int64_t e = element_index(p, n, c, 0);

                j->loops->input(p->s, dy + e, x + e, mean[i],
                                rstd[i] * value_or(p->w, c, 1.0f),
                                -rstd[i] * rstd[i] * of_b, -rstd[i] * of_a,
                                dx + e);
            }
    }
}

void pst_norm_channels_run_input(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops)
{
    run_parts(c, p, loops, input_part);
}
