// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data/blend.h"

#include <math.h>

#define MAX_PERIOD 65536u
/* A share that differs from a whole number by less is that number: decimal
 * weights are inexact. */
#define INEXACT 1e-9

/* Returns the shortest period in which all shares are whole numbers, and none
 * is rounded to 0; MAX_PERIOD if there is none. */
static uint64_t find_period(const double *weights, unsigned n, double sum)
{
    for (unsigned period = 1; period < MAX_PERIOD; period++) {
        unsigned k = 0;

        while (k < n) {
            const double share = weights[k] / sum * period;

            if (fabs(share - nearbyint(share)) > INEXACT ||
                (weights[k] > 0 && share < 0.5))
                break;
            k++;
        }
        if (k == n)
            return period;
    }
    return MAX_PERIOD;
}

/* Rounds the shares down, but not to 0, and then gives samples to the source
 * that lacks most, or takes them from the one that has most beyond its share,
 * until their sum is the period. */
static void divide_period(const double *weights, double sum,
                          struct pst_blend *b)
{
    const double period = (double)b->period;
    uint64_t all = 0;

    for (unsigned k = 0; k < b->n; k++) {
        const double share = weights[k] / sum * period;

        b->share[k] = (uint64_t)floor(share + INEXACT);
        if (weights[k] > 0 && b->share[k] == 0)
            b->share[k] = 1;
        all += b->share[k];
    }
    while (all != b->period) {
        const double sign = all < b->period ? 1 : -1;
        unsigned most = b->n;
        double most_lacking = 0;

        for (unsigned k = 0; k < b->n; k++) {
            const double lacking =
                sign * (weights[k] / sum * period - (double)b->share[k]);

            if (weights[k] > 0 && (sign > 0 || b->share[k] > 1) &&
                (most == b->n || lacking > most_lacking)) {
                most = k;
                most_lacking = lacking;
            }
        }
        b->share[most] += sign > 0 ? 1 : UINT64_MAX;
        all += sign > 0 ? 1 : UINT64_MAX;
    }
}

/* Gives each sample to the source that is furthest below its share so far, the
 * first one of several. */
static void order_samples(struct pst_blend *b, uint32_t *used)
{
    for (uint64_t i = 0; i < b->period; i++) {
        int64_t most = INT64_MIN;
        unsigned source = 0;

        for (unsigned k = 0; k < b->n; k++) {
            const int64_t lacking = (int64_t)((i + 1) * b->share[k]) -
                                    (int64_t)(used[k] * b->period);

            if (used[k] < b->share[k] && lacking > most) {
                most = lacking;
                source = k;
            }
        }
        b->source[i] = (unsigned char)source;
        b->before[i] = used[source]++;
    }
}

enum pst_status pst_blend_make(const double *weights, unsigned n,
                               struct pst_arena *arena, struct pst_blend *ret,
                               struct pst_diag *diag)
{
    uint32_t *used = pst_arena_calloc(arena, n, sizeof(*used));
    double largest = 0, sum = 0;
    double *scaled = pst_arena_calloc(arena, n, sizeof(*scaled));

    *ret = (struct pst_blend){.n = n};
    ret->share = pst_arena_calloc(arena, n, sizeof(*ret->share));
    if (used == NULL || scaled == NULL || ret->share == NULL)
        return pst_diag_nomem(diag, n * sizeof(*ret->share));
    for (unsigned k = 0; k < n; k++)
        largest = fmax(largest, weights[k]);
    for (unsigned k = 0; k < n; k++) /* so that the sum is finite */
        sum += scaled[k] = weights[k] / largest;
    ret->period = find_period(scaled, n, sum);
    ret->source = pst_arena_alloc(arena, ret->period);
    ret->before = pst_arena_calloc(arena, ret->period, sizeof(*ret->before));
    if (ret->source == NULL || ret->before == NULL)
        return pst_diag_nomem(diag, ret->period * sizeof(*ret->before));
    divide_period(scaled, sum, ret);
    order_samples(ret, used);
    return PST_OK;
}

struct pst_blend_sample pst_blend_at(const struct pst_blend *blend, uint64_t n)
{
    const uint64_t i = n % blend->period;
    const unsigned source = blend->source[i];

    return (struct pst_blend_sample){
        source, n / blend->period * blend->share[source] + blend->before[i]};
}

uint64_t pst_blend_count(const struct pst_blend *blend, unsigned source,
                         uint64_t n)
{
    const uint64_t rest = n % blend->period;
    uint64_t i = rest;

    /* find the next sample of the source in the period */
    while (i < blend->period && blend->source[i] != source)
        i++;
    return n / blend->period * blend->share[source] +
           (i < blend->period ? blend->before[i] : blend->share[source]);
}
