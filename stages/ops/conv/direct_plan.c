// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/direct_plan.h"

#include <string.h>

#define SLACK     256 /* floats after a copy, which vectors may read */
#define ALIGNMENT 16  /* in floats; scratch areas begin at multiples of it */
#define BLOCK     16  /* floats that are moved at a time */

static int64_t round_up(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain * grain;
}

/* Returns the first and the last m >= 0 with 0 <= m * s + phase - pad < n; s,
 * pad and n are stride, padding and input size in dimension d. */
static void range_of(const struct pst_conv *c, unsigned d, int64_t phase,
                     int64_t *first, int64_t *last)
{
    const int64_t s = c->stride[d], high = c->in[d] - 1 + c->pad[d] - phase;

    *first = PST_MAX(c->pad[d] - phase + s - 1, 0) / s;
    *last = high < 0 ? -1 : high / s;
}

static void copy_of_x(const struct pst_conv *c, struct pst_direct_copy *ret)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        ret->from[d] = c->in[d];
        ret->step[d] = c->stride[d];
        ret->phases[d] = PST_MIN(c->stride[d], (c->k[d] - 1) * c->dil[d] + 1);
        ret->lead[d] = c->pad[d];
        ret->size[d] = c->out[d] + (c->k[d] - 1) * c->dil[d] / c->stride[d];
    }
}

static void copy_of_y(const struct pst_conv *c, struct pst_direct_copy *ret)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        int64_t low = INT64_MAX, high = -1;

        for (int64_t r = 0; r < c->stride[d]; r++) {
            int64_t first, last;

            range_of(c, d, r, &first, &last);
            low = PST_MIN(low, first);
            high = PST_MAX(high, last);
        }
        ret->from[d] = c->out[d];
        ret->step[d] = ret->phases[d] = 1;
        ret->lead[d] = (c->k[d] - 1) * c->dil[d] / c->stride[d] - low;
        ret->size[d] = high + ret->lead[d] + 1;
    }
}

int64_t pst_direct_plane(const struct pst_direct_copy *p)
{
    return pst_conv_volume(p->size) * pst_conv_volume(p->phases);
}

struct pst_direct_job pst_direct_job(const struct pst_conv *c,
                                     enum pst_conv_fill fill)
{
    const int64_t window = pst_conv_volume(c->k);
    struct pst_direct_job j = {.c = c, .fill = fill, .passes = 1};

    if (fill == PST_CONV_X) {
        copy_of_y(c, &j.copy);
        j.copy.channels = c->co / c->groups;
        j.out = c->ci / c->groups;
        j.row_step = window;
        j.passes = pst_conv_volume(c->stride);
    } else {
        copy_of_x(c, &j.copy);
        j.copy.channels = c->ci / c->groups;
        j.out = c->co / c->groups;
        j.row_step = j.copy.channels * window;
    }
    j.late =
        fill == PST_CONV_W && PST_MIN(j.out, j.copy.channels) >= PST_CONV_FEW;
    j.rows = j.out == 1 ? 1 : PST_CONV_ROWS;
    j.blocks = round_up(j.out, j.rows) / j.rows;
    j.strip = PST_DIRECT_STRIP / j.rows;
    return j;
}

int64_t pst_direct_scratch(const struct pst_direct_job *j, unsigned part,
                           struct pst_direct_scratch *ret)
{
    const int64_t taps = j->copy.channels * pst_conv_volume(j->c->k);
    const int64_t per = sizeof(int64_t) / sizeof(float);
    float *at = j->scratch == NULL ? NULL : j->scratch + part * j->each;
    int64_t n = 0;

#define TAKE(field, floats)                                                    \
    do {                                                                       \
        if (at != NULL)                                                        \
            ret->field = (void *)(at + n);                                     \
        n += round_up(floats, ALIGNMENT);                                      \
    } while (0)
    TAKE(passes,
         j->passes * (int64_t)(sizeof(struct pst_direct_pass) / sizeof(float)));
    TAKE(taps, taps * 2 * per);
    TAKE(copy, j->copy.channels * pst_direct_plane(&j->copy) + SLACK);
    TAKE(strip, PST_DIRECT_STRIP);
    if (j->fill == PST_CONV_W) {
        TAKE(lanes,
             taps * j->rows * PST_CONV_LANES * (j->late ? j->blocks : 1));
        TAKE(sums, taps * j->rows * j->blocks * per);
    } else {
        TAKE(w, taps * j->rows);
    }
#undef TAKE
    return n;
}

/* --- copies ------------------------------------------------------------- */

/* Copies phase r of the line `from`; if from is NULL, the line is in the
 * padding and becomes zeros. */
static void copy_line(const struct pst_direct_copy *p, int64_t r,
                      const float *from, float *to)
{
    const int64_t n = p->size[2], s = p->step[2], low = p->lead[2] - r;
    const int64_t high = p->from[2] + low;
    int64_t a = low <= 0 ? 0 : (low + s - 1) / s;
    int64_t b = high <= 0 ? 0 : (high + s - 1) / s;

    a = from == NULL ? n : PST_MIN(a, n);
    b = PST_MAX(PST_MIN(b, n), a);
    for (int64_t e = 0; e < a; e++)
        to[e] = 0.0f;
    if (s == 1 && a < b)
        memcpy(to + a, from + (a - low), (size_t)(b - a) * sizeof(float));
    else if (s == 2)
        for (int64_t e = a; e < b; e++)
            to[e] = from[e * 2 - low];
    else
        for (int64_t e = a; e < b; e++)
            to[e] = from[e * s - low];
    for (int64_t e = b; e < n; e++)
        to[e] = 0.0f;
}

/* Copies n floats in whole blocks: writes up to BLOCK - 1 floats beyond n. */
static inline void copy_blocks(const float *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += BLOCK)
        memcpy(to + i, from + i, BLOCK * sizeof(float));
}

static inline void zero_blocks(int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += BLOCK)
        memset(to + i, 0, BLOCK * sizeof(float));
}

static bool is_plain(const struct pst_direct_copy *p)
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        if (p->step[d] != 1 || p->lead[d] < 0)
            return false;
    return p->lead[2] + p->from[2] <= p->size[2];
}

/* Copies a channel without strides whose lines are not cropped. Each piece is
 * written with some floats beyond its end, which the next piece overwrites.
 * Reads nothing from `end` on. */
static float *copy_plain(const struct pst_direct_copy *p, const float *from,
                         const float *end, float *to)
{
    const int64_t *size = p->size, n = p->from[2], lead = p->lead[2];
    int64_t zeros = 0; /* zeros before `to` that are not yet written */

    for (int64_t e0 = 0; e0 < size[0]; e0++)
        for (int64_t e1 = 0; e1 < size[1]; e1++, to += size[2]) {
            const int64_t a = e0 - p->lead[0], b = e1 - p->lead[1];
            const float *line;

            if (a < 0 || a >= p->from[0] || b < 0 || b >= p->from[1]) {
                zeros += size[2];
                continue;
            }
            line = from + (a * p->from[1] + b) * n;
            zero_blocks(zeros + lead, to - zeros);
            if (end - line >= n + BLOCK)
                copy_blocks(line, n, to + lead);
            else
                memcpy(to + lead, line, (size_t)n * sizeof(float));
            zeros = size[2] - lead - n;
        }
    zero_blocks(zeros, to - zeros);
    return to;
}

/* Copies a channel into all its phases. */
static float *copy_channel(const struct pst_direct_copy *p, const float *from,
                           float *to)
{
    const int64_t phases = pst_conv_volume(p->phases);

    for (int64_t r = 0; r < phases; r++) {
        const int64_t r2 = r % p->phases[2];
        const int64_t r1 = r / p->phases[2] % p->phases[1];
        const int64_t r0 = r / p->phases[2] / p->phases[1];

        for (int64_t e0 = 0; e0 < p->size[0]; e0++)
            for (int64_t e1 = 0; e1 < p->size[1]; e1++, to += p->size[2]) {
                const int64_t a = e0 * p->step[0] + r0 - p->lead[0];
                const int64_t b = e1 * p->step[1] + r1 - p->lead[1];
                const bool in =
                    a >= 0 && a < p->from[0] && b >= 0 && b < p->from[1];

                copy_line(p, r2,
                          in ? from + (a * p->from[1] + b) * p->from[2] : NULL,
                          to);
            }
    }
    return to;
}

void pst_direct_fill(const struct pst_direct_job *j, int64_t image,
                     int64_t group, float *to)
{
    const struct pst_conv *c = j->c;
    const struct pst_direct_copy *p = &j->copy;
    const float *from = j->fill == PST_CONV_X ? c->y->data : c->x->data;
    const int64_t volume = pst_conv_volume(p->from);
    const float *end = from + c->n * c->groups * p->channels * volume;
    const bool plain = is_plain(p);

    from += (image * c->groups + group) * p->channels * volume;
    for (int64_t i = 0; i < p->channels; i++, from += volume)
        to = plain ? copy_plain(p, from, end, to) : copy_channel(p, from, to);
    memset(to, 0, SLACK * sizeof(float));
}

/* --- taps --------------------------------------------------------------- */

/* Describes pass i of the result; returns false if the pass has no elements. */
static bool pass_of(const struct pst_direct_job *j, int64_t i,
                    struct pst_direct_pass *ret)
{
    const struct pst_conv *c = j->c;
    bool any = true;

    for (unsigned d = PST_CONV_DIMS; d-- > 0;) {
        int64_t last;

        if (j->fill != PST_CONV_X) {
            ret->first[d] = 0;
            ret->step[d] = 1;
            ret->count[d] = c->out[d];
            continue;
        }
        ret->phase[d] = i % c->stride[d];
        i /= c->stride[d];
        range_of(c, d, ret->phase[d], &ret->first[d], &last);
        ret->count[d] = last - ret->first[d] + 1;
        ret->place[d] = ret->first[d] + j->copy.lead[d];
        ret->first[d] =
            ret->first[d] * c->stride[d] + ret->phase[d] - c->pad[d];
        ret->step[d] = c->stride[d];
        any = any && ret->count[d] > 0;
    }
    return any;
}

/* Returns the index, along dimension d of the copy, of window element `at`, and
 * sets *phase to its phase. Returns -1 if the element does not contribute to
 * this pass. */
static int64_t place_of(const struct pst_direct_job *j,
                        const struct pst_direct_pass *p, unsigned d, int64_t at,
                        int64_t *phase)
{
    const int64_t u = at * j->c->dil[d], s = j->c->stride[d];

    *phase = 0;
    if (j->fill == PST_CONV_X)
        return u % s == p->phase[d] ? p->place[d] - u / s : -1;
    *phase = u % s;
    return u / s;
}

/* Returns the offset of a window element in a channel's copy; -1 if the element
 * does not contribute to this pass. */
static int64_t window_place(const struct pst_direct_job *j,
                            const struct pst_direct_pass *p, int64_t element)
{
    const struct pst_direct_copy *copy = &j->copy;
    int64_t place = 0, phases = 0, step[PST_CONV_DIMS];

    step[2] = element % j->c->k[2];
    step[1] = element / j->c->k[2] % j->c->k[1];
    step[0] = element / j->c->k[2] / j->c->k[1];
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        int64_t phase;
        const int64_t at = place_of(j, p, d, step[d], &phase);

        if (at < 0)
            return -1;
        place = place * copy->size[d] + at;
        phases = phases * copy->phases[d] + phase;
    }
    return phases * pst_conv_volume(copy->size) + place;
}

/* Lists the taps of a pass: the window elements that contribute to it in the
 * first channel, then those in each other channel. */
static int64_t list_taps(const struct pst_direct_job *j,
                         const struct pst_direct_pass *p, int64_t *offset_of,
                         int64_t *weight_of)
{
    const int64_t window = pst_conv_volume(j->c->k), n = j->copy.channels;
    const int64_t plane = pst_direct_plane(&j->copy);
    const int64_t per = (j->fill == PST_CONV_X ? j->out : 1) * window;
    int64_t taps = 0;

    for (int64_t k = 0; k < window; k++) {
        const int64_t place = window_place(j, p, k);

        if (place >= 0) {
            offset_of[taps] = place;
            weight_of[taps++] = k;
        }
    }
    for (int64_t i = taps; i < n * taps; i++) {
        offset_of[i] = offset_of[i - taps] + plane;
        weight_of[i] = weight_of[i - taps] + per;
    }
    return n * taps;
}

int64_t pst_direct_passes(const struct pst_direct_job *j,
                          const struct pst_direct_scratch *scratch)
{
    const int64_t all = pst_conv_volume(j->c->k) * j->copy.channels;
    int64_t *at = scratch->taps, passes = 0;

    for (int64_t i = 0; i < j->passes; i++) {
        struct pst_direct_pass *p = &scratch->passes[passes];

        if (!pass_of(j, i, p))
            continue;
        passes++;
        p->offset_of = at;
        p->weight_of = at + all;
        p->taps = list_taps(j, p, at, at + all);
        at += p->taps;
    }
    return passes;
}

void pst_direct_pack(const struct pst_direct_job *j,
                     const struct pst_direct_pass *p, int64_t group,
                     int64_t block, float *to)
{
    const float *w =
        (const float *)j->c->w->data +
        group * j->out * j->copy.channels * pst_conv_volume(j->c->k) +
        block * j->rows * j->row_step;
    const int64_t rows = PST_MIN(j->rows, j->out - block * j->rows);

    for (int64_t t = 0; t < p->taps; t++, to += j->rows)
        for (int64_t r = 0; r < j->rows; r++)
            to[r] = r < rows ? w[p->weight_of[t] + r * j->row_step] : 0.0f;
}

int64_t pst_direct_length(const struct pst_direct_job *j,
                          const struct pst_direct_pass *p)
{
    const int64_t *size = j->copy.size, *n = p->count;

    return ((n[0] - 1) * size[1] + n[1] - 1) * size[2] + n[2];
}
