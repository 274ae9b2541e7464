// SPDX-License-Identifier: Apache-2.0
#include "stages/run/data/mean.h"

#include <math.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/run/data/tokens.h"
#include "stages/split/bind/bind.h"

#define TAG PST_TAG_EXEC

/* The rows of the file that one microbatch evaluates. */
struct group {
    uint64_t first, n; /* n 0: none, the microbatch does not count */
};

struct pst_mean {
    struct pst_mean_source source;
    /* counts targets; NULL: microbatches are weighted by rows */
    struct pst_tokens *tokens;
    unsigned microbatches;
    /* Numbers of rows of the source. each: rows of a full microbatch; rows:
     * rows that are evaluated; left: rows that are left out. */
    uint64_t each, rows, left;
    uint64_t plan_rows; /* rows of a microbatch in the plan */
    uint64_t full;      /* number of full microbatches, which come first */
    struct PST_VEC(struct group) rest; /* rows of each later microbatch */
    double *weights;                   /* weights of the newest step */
    /* sum of weighted losses so far; sum of their weights */
    double sum, weight;
    double *counts; /* rows of each microbatch of the newest step */
    /* sum of weighted values of pst_mean_add_metric; sum of their weights */
    double metric, metric_weight;
    double *bytes; /* bytes of targets of the newest step; or NULL */
    double sum_bytes;
};

/* Divides the remaining rows into groups whose sizes divide a microbatch. For
 * example, 5 remaining rows become groups of 4 and 1 if a microbatch has 8. */
static enum pst_status divide_rest(struct pst_mean *m, struct pst_diag *diag)
{
    uint64_t first = m->full * m->each;

    for (uint64_t n = m->each; n > 0 && first < m->rows; n--) {
        while (m->each % n == 0 && m->rows - first >= n) {
            const struct group g = {first, n};

            if (!pst_vec_push(TAG, &m->rest, g))
                return pst_diag_nomem(diag, sizeof(g));
            first += n;
        }
    }
    return PST_OK;
}

static enum pst_status divide_rows(struct pst_mean *m, uint64_t wanted,
                                   struct pst_diag *diag)
{
    const struct pst_data_extent x = m->source.extent;

    m->each = x.each;
    m->rows = x.rows;
    if (wanted > 0 && wanted / m->plan_rows <= x.rows / m->each)
        m->rows = PST_MIN(wanted / m->plan_rows * m->each +
                              wanted % m->plan_rows * m->each / m->plan_rows,
                          x.rows);
    m->full = m->rows / m->each;
    m->left = x.whole ? m->rows % m->each : 0;
    m->rows -= m->left;
    if (m->rows == 0)
        return pst_diag_set(diag, PST_E_DATA_SHAPE,
                            "%llu rows do not fill a microbatch of %llu, as "
                            "they have to where inputs differ in their rows",
                            (unsigned long long)m->left,
                            (unsigned long long)m->each);
    return divide_rest(m, diag);
}

static enum pst_status count_targets(struct pst_mean *m, struct pst_plan *plan,
                                     enum pst_mean_by by, struct pst_diag *diag)
{
    struct pst_diag why;
    enum pst_status status;

    if (by == PST_MEAN_BY_ROWS)
        return PST_OK;
    pst_diag_init(&why);
    status = pst_tokens_new(plan, NULL, m->microbatches, 0, pst_mean_fill, m,
                            &m->tokens, &why);
    if (status == PST_OK ||
        (by == PST_MEAN_BY_EITHER && why.error == PST_E_LOSS_TOKENS))
        return PST_OK;
    *diag = why;
    return status;
}

static enum pst_status read_file(void *ctx, uint64_t first, uint64_t n,
                                 unsigned input, void *dst,
                                 struct pst_diag *diag)
{
    return pst_data_read(ctx, first, n, input, dst, diag);
}

struct pst_mean_source pst_mean_source_of(struct pst_data *data)
{
    return (struct pst_mean_source){
        .extent = pst_data_extent(data), .read = read_file, .ctx = data};
}

enum pst_status pst_mean_new(struct pst_plan *plan,
                             const struct pst_mean_source *source,
                             const struct pst_mean_options *options,
                             struct pst_mean **ret, struct pst_diag *diag)
{
    struct pst_mean *m = pst_calloc(TAG, 1, sizeof(*m));
    enum pst_status status;

    if (m == NULL)
        return pst_diag_nomem(diag, sizeof(*m));
    m->source = *source;
    m->microbatches = options->microbatches;
    m->plan_rows = (uint64_t)PST_MAX(pst_plan_rows(plan), 1);
    m->weights = pst_calloc(TAG, m->microbatches, sizeof(*m->weights));
    m->counts = pst_calloc(TAG, m->microbatches, sizeof(*m->counts));
    status = m->weights == NULL || m->counts == NULL
                 ? pst_diag_nomem(diag, m->microbatches)
                 : divide_rows(m, options->rows, diag);
    if (status == PST_OK)
        status = count_targets(m, plan, options->by, diag);
    if (status != PST_OK) {
        pst_mean_free(m);
        return status;
    }
    *ret = m;
    return PST_OK;
}

void pst_mean_free(struct pst_mean *mean)
{
    if (mean == NULL)
        return;
    pst_tokens_free(mean->tokens);
    pst_vec_fini(&mean->rest);
    pst_free(mean->weights);
    pst_free(mean->counts);
    pst_free(mean->bytes);
    pst_free(mean);
}

uint64_t pst_mean_steps(const struct pst_mean *mean)
{
    const uint64_t n = mean->full + mean->rest.n;

    return n / mean->microbatches + (n % mean->microbatches > 0);
}

uint64_t pst_mean_rows(const struct pst_mean *mean, uint64_t *ret_left)
{
    const uint64_t p = mean->plan_rows, e = mean->each;

    *ret_left = mean->left / e * p + mean->left % e * p / e;
    return mean->rows / e * p + mean->rows % e * p / e;
}

static struct group group_of(const struct pst_mean *m, uint64_t step,
                             unsigned microbatch)
{
    const uint64_t k = step * m->microbatches + microbatch;

    if (k < m->full)
        return (struct group){k * m->each, m->each};
    return k - m->full < m->rest.n ? m->rest.at[k - m->full]
                                   : (struct group){0, 0};
}

enum pst_status pst_mean_fill(void *ctx, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_mean *m = ctx;
    const struct group g = group_of(m, step, microbatch);

    return m->source.read(m->source.ctx, g.first, g.n > 0 ? g.n : m->each,
                          input, dst, diag);
}

const void *pst_mean_lend(const struct pst_mean *m, uint64_t step,
                          unsigned microbatch, unsigned input)
{
    const struct group g = group_of(m, step, microbatch);

    return m->source.lend != NULL && g.n == m->each
               ? m->source.lend(m->source.ctx, g.first, g.n, input)
               : NULL;
}

enum pst_status pst_mean_weigh(void *ctx, uint64_t step, double *ret,
                               struct pst_diag *diag)
{
    struct pst_mean *m = ctx;
    double sum = 0;
    enum pst_status status =
        m->tokens != NULL ? pst_tokens_weigh(m->tokens, step, m->weights, diag)
                          : PST_OK;

    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < m->microbatches; k++) {
        const struct group g = group_of(m, step, k);

        m->counts[k] = (double)g.n;
        /* The number of tokens includes all repetitions of the group. */
        m->weights[k] = m->tokens != NULL
                            ? m->weights[k] * (double)g.n / (double)m->each
                            : (double)g.n;
        if (m->bytes != NULL)
            m->bytes[k] =
                pst_tokens_bytes(m->tokens)[k] * (double)g.n / (double)m->each;
        sum += m->weights[k];
    }
    /* The engine needs a positive weight; m->weights stays zero for such a
     * step. */
    for (unsigned k = 0; k < m->microbatches; k++)
        ret[k] = sum > 0 ? m->weights[k] : 1;
    return PST_OK;
}

void pst_mean_begin(struct pst_mean *mean)
{
    mean->sum = mean->weight = mean->sum_bytes = 0;
    mean->metric = mean->metric_weight = 0;
}

/* Adds up microbatches one by one, so that their division into steps does not
 * change the sum. */
void pst_mean_take(struct pst_mean *mean, const struct pst_step_result *result)
{
    for (unsigned k = 0; k < mean->microbatches; k++) {
        if (!(mean->weights[k] > 0)) /* nothing counts: the loss may be NaN */
            continue;
        mean->sum += mean->weights[k] * result->losses[k];
        mean->weight += mean->weights[k];
        mean->sum_bytes += mean->bytes != NULL ? mean->bytes[k] : 0;
    }
}

void pst_mean_add_metric(struct pst_mean *mean, const double *values,
                         enum pst_mean_by by)
{
    const double *weights =
        by == PST_MEAN_BY_ROWS ? mean->counts : mean->weights;

    for (unsigned k = 0; k < mean->microbatches; k++) {
        if (!(weights[k] > 0))
            continue;
        mean->metric += weights[k] * values[k];
        mean->metric_weight += weights[k];
    }
}

double pst_mean_metric(const struct pst_mean *mean)
{
    return mean->metric / mean->metric_weight;
}

enum pst_status pst_mean_count_bytes(struct pst_mean *mean,
                                     const unsigned char *bytes, size_t n,
                                     bool *ret, struct pst_diag *diag)
{
    enum pst_status status;

    *ret = false;
    if (mean->tokens == NULL)
        return PST_OK;
    status = pst_tokens_count_bytes(mean->tokens, bytes, n, diag);
    if (status != PST_OK)
        return status;
    pst_free(mean->bytes);
    mean->bytes = pst_calloc(TAG, mean->microbatches, sizeof(*mean->bytes));
    *ret = mean->bytes != NULL;
    return *ret ? PST_OK : pst_diag_nomem(diag, mean->microbatches);
}

double pst_mean_bits_per_byte(const struct pst_mean *mean)
{
    return mean->sum_bytes > 0 ? mean->sum / log(2) / mean->sum_bytes : NAN;
}

enum pst_status pst_mean_end(const struct pst_mean *mean, double *ret,
                             struct pst_diag *diag)
{
    if (!(mean->weight > 0))
        return pst_diag_set(diag, PST_E_BATCH_WEIGHTS,
                            "the loss ignores all targets of the %llu rows",
                            (unsigned long long)mean->rows);
    *ret = mean->sum / mean->weight;
    return PST_OK;
}
