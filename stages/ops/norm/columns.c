// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/norm/columns.h"

#include <math.h>
#include <string.h>

/* Columns of a strip, whose sums fit into the L1 cache. */
#define STRIP 512
/* With at least so many positions, the loops along positions (channel.c) are
 * fast enough. */
#define FEW 16
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

/* Returns the number of adjacent columns that share a statistic. */
static int64_t stats_run(const struct pst_norm_channels *p)
{
    return p->c / p->g * p->s;
}

static bool run_parts(const struct pst_call *call,
                      const struct pst_norm_channels *p,
                      const struct pst_channel_loops *loops, pst_pool_fn fn)
{
    struct job job = {call, p, loops};

    pst_pool_run(pst_pool_if(call->pool, p->n * p->c * p->s >= SERIAL), fn,
                 &job);
    return true;
}

static double total(const double *sums, int64_t n)
{
    double ret = 0.0;

    for (int64_t i = 0; i < n; i++)
        ret += sums[i];
    return ret;
}

/* --- statistics ----------------------------------------------------------- */

/* Computes the statistics of groups k to k + groups - 1 of a block. */
static void strip_stats(const struct job *j, int64_t block, int64_t k,
                        int64_t groups)
{
    const struct pst_norm_channels *p = j->p;
    const int64_t images = p->n / p->blocks, row = p->c * p->s;
    const int64_t run = stats_run(p), columns = groups * run;
    const float *x = data_of(p->x) + block * images * row + k * run;
    const double count = (double)pst_norm_channels_count(p);
    const int64_t at = block * p->g + k;
    float *mean = (float *)j->call->out[0].data + at;
    float *rstd = (float *)j->call->out[1].data + at;
    float *var = (float *)j->call->out[2].data + at;
    double sums[STRIP] = {0.0};
    float means[STRIP];

    for (int64_t n = 0; n < images; n++)
        j->loops->column_sums(columns, x + n * row, sums);
    for (int64_t g = 0; g < groups; g++) {
        mean[g] = (float)(total(sums + g * run, run) / count);
        for (int64_t i = 0; i < run; i++)
            means[g * run + i] = mean[g];
    }
    memset(sums, 0, sizeof(sums));
    for (int64_t n = 0; n < images; n++)
        j->loops->column_squares(columns, x + n * row, means, sums);
    for (int64_t g = 0; g < groups; g++) {
        const double v = total(sums + g * run, run) / count;

        rstd[g] = (float)(1.0 / sqrt(v + p->eps));
        var[g] = (float)v;
    }
}

static void stats_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const int64_t most = STRIP / stats_run(j->p);
    int64_t first, end;

    pst_pool_share(j->p->g, 1, part, parts, &first, &end);
    for (int64_t block = 0; block < j->p->blocks; block++)
        for (int64_t k = first; k < end; k += most)
            strip_stats(j, block, k, PST_MIN(most, end - k));
}

bool pst_columns_run_stats(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops)
{
    const int64_t run = stats_run(p);

    return run > 0 && run < FEW && p->n > p->blocks &&
           run_parts(c, p, loops, stats_part);
}

/* --- operators split by channels ------------------------------------------ */

/* Columns of channels c0 to c1 - 1 in the images of a block, with the factors
 * and summands of each column. */
struct strip {
    int64_t block, c0, c1;
    int64_t columns, images, row;
    int64_t at; /* offset of the first element */
    float mean[STRIP], scale[STRIP], by[STRIP], shift[STRIP];
};

typedef void (*strip_fn)(const struct job *j, struct strip *s);

static void each_strip(void *ctx, unsigned part, unsigned parts, strip_fn fn)
{
    const struct job *j = ctx;
    const struct pst_norm_channels *p = j->p;
    const int64_t most = STRIP / p->s;
    struct strip s = {.images = p->n / p->blocks, .row = p->c * p->s};
    int64_t first, end;

    pst_pool_share(p->c, 1, part, parts, &first, &end);
    for (s.block = 0; s.block < p->blocks; s.block++)
        for (s.c0 = first; s.c0 < end; s.c0 = s.c1) {
            s.c1 = PST_MIN(s.c0 + most, end);
            s.columns = (s.c1 - s.c0) * p->s;
            s.at = s.block * s.images * s.row + s.c0 * p->s;
            fn(j, &s);
        }
}

/* Returns the index of the statistic of channel c. */
static int64_t group_of(const struct pst_norm_channels *p,
                        const struct strip *s, int64_t c)
{
    return s->block * p->g + (p->g == p->c ? c : c / (p->c / p->g));
}

static void fill_channel(const struct pst_norm_channels *p,
                         const struct strip *s, float *to, int64_t c,
                         float value)
{
    for (int64_t i = 0; i < p->s; i++)
        to[(c - s->c0) * p->s + i] = value;
}

static void strip_apply(const struct job *j, struct strip *s)
{
    const struct pst_norm_channels *p = j->p;
    const float *mean = data_of(p->mean), *rstd = data_of(p->rstd);
    const float *w = data_of(p->w), *b = data_of(p->b);
    const float *x = data_of(p->x) + s->at;
    float *y = (float *)j->call->out[0].data + s->at;

    for (int64_t c = s->c0; c < s->c1; c++) {
        const int64_t k = group_of(p, s, c);

        fill_channel(p, s, s->mean, c, mean[k]);
        fill_channel(p, s, s->scale, c, rstd[k] * (w == NULL ? 1.0f : w[c]));
        fill_channel(p, s, s->shift, c, b == NULL ? 0.0f : b[c]);
    }
    for (int64_t n = 0; n < s->images; n++)
        j->loops->column_apply(s->columns, x + n * s->row, s->mean, s->scale,
                               s->shift, y + n * s->row);
}

static void apply_part(void *ctx, unsigned part, unsigned parts)
{
    each_strip(ctx, part, parts, strip_apply);
}

bool pst_columns_run_apply(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops)
{
    return p->s > 0 && p->s < FEW && run_parts(c, p, loops, apply_part);
}

static void strip_sums(const struct job *j, struct strip *s)
{
    const struct pst_norm_channels *p = j->p;
    const float *mean = data_of(p->mean), *rstd = data_of(p->rstd);
    const float *x = data_of(p->x) + s->at, *dy = data_of(p->dy) + s->at;
    float *out_a = (float *)j->call->out[0].data + s->block * p->c;
    float *out_b = (float *)j->call->out[1].data + s->block * p->c;
    double a[STRIP] = {0.0}, b[STRIP] = {0.0};

    for (int64_t c = s->c0; c < s->c1; c++)
        fill_channel(p, s, s->mean, c, mean[group_of(p, s, c)]);
    for (int64_t n = 0; n < s->images; n++)
        j->loops->column_products(s->columns, dy + n * s->row, x + n * s->row,
                                  s->mean, a, b);
    for (int64_t c = s->c0; c < s->c1; c++) {
        const int64_t i = (c - s->c0) * p->s;

        out_a[c] = (float)total(a + i, p->s);
        out_b[c] =
            (float)(total(b + i, p->s) * (double)rstd[group_of(p, s, c)]);
    }
}

static void sums_part(void *ctx, unsigned part, unsigned parts)
{
    each_strip(ctx, part, parts, strip_sums);
}

bool pst_columns_run_sums(const struct pst_call *c,
                          const struct pst_norm_channels *p,
                          const struct pst_channel_loops *loops)
{
    return p->s > 0 && p->s < FEW && run_parts(c, p, loops, sums_part);
}

/* Returns the mean over the strip's group k of w_c times the sums. */
static float group_mean(const struct pst_norm_channels *p,
                        const struct strip *s, int64_t k,
                        const struct pst_operand *of)
{
    const int64_t channels = p->c / p->g, c0 = k % p->g * channels;
    const float *sums = data_of(of), *w = data_of(p->w);
    double sum = 0.0;

    if (sums == NULL)
        return 0.0f;
    sums += s->block * p->c;
    for (int64_t c = c0; c < c0 + channels; c++)
        sum += (w == NULL ? 1.0 : (double)w[c]) * (double)sums[c];
    return (float)(sum / (double)pst_norm_channels_count(p));
}

static void strip_input(const struct job *j, struct strip *s)
{
    const struct pst_norm_channels *p = j->p;
    const float *mean = data_of(p->mean), *rstd = data_of(p->rstd);
    const float *x = data_of(p->x) + s->at, *dy = data_of(p->dy) + s->at;
    const float *w = data_of(p->w);
    float *dx = (float *)j->call->out[0].data + s->at;
    float of_a = 0.0f, of_b = 0.0f;
    int64_t last = -1;

    for (int64_t c = s->c0; c < s->c1; c++) {
        const int64_t k = group_of(p, s, c);

        if (k != last) {
            of_a = group_mean(p, s, k, p->sum_a);
            of_b = group_mean(p, s, k, p->sum_b);
            last = k;
        }
        fill_channel(p, s, s->mean, c, mean[k]);
        fill_channel(p, s, s->scale, c, rstd[k] * (w == NULL ? 1.0f : w[c]));
        fill_channel(p, s, s->by, c, -rstd[k] * rstd[k] * of_b);
        fill_channel(p, s, s->shift, c, -rstd[k] * of_a);
    }
    for (int64_t n = 0; n < s->images; n++)
        j->loops->column_input(s->columns, dy + n * s->row, x + n * s->row,
                               s->mean, s->scale, s->by, s->shift,
                               dx + n * s->row);
}

static void input_part(void *ctx, unsigned part, unsigned parts)
{
    each_strip(ctx, part, parts, strip_input);
}

bool pst_columns_run_input(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops)
{
    return p->s > 0 && p->s < FEW && run_parts(c, p, loops, input_part);
}
