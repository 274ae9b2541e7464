// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows_lines.h"

#define BLOCK 8 /* floats that are copied at a time */

float *pst_windows_plane(const struct pst_windows_job *j, int64_t image,
                         int64_t group, int64_t row)
{
    const bool of_x = j->fill == PST_CONV_X;
    const struct pst_operand *to = of_x ? j->c->x : j->c->y;

    return (float *)to->data +
           ((image * j->c->groups + group) * j->rows + row) *
               pst_conv_volume(of_x ? j->c->in : j->c->out);
}

float pst_windows_bias(const struct pst_windows_job *j, int64_t group,
                       int64_t row)
{
    return j->c->bias == NULL
               ? 0.0f
               : ((const float *)j->c->bias->data)[group * j->rows + row];
}

int64_t pst_windows_count_paired(const struct pst_windows_job *j, int64_t pass)
{
    const struct pst_direct_pass *a = &j->shared.passes[pass], *b = a + 1;
    const bool alternate =
        j->pairs && pass + 1 < j->passes && a->phase[0] == b->phase[0] &&
        a->phase[1] == b->phase[1] && (j->flat || a->count[2] == b->count[2]) &&
        (a->first[2] - b->first[2] == 1 || b->first[2] - a->first[2] == 1);

    return alternate ? 2 : 1;
}

/* Computes to = from + bias; the last block may overlap the one before it. */
static inline void copy_line(int64_t n, float bias, const float *restrict from,
                             float *restrict to)
{
    int64_t i = 0;

    if (n < BLOCK) {
        for (; i < n; i++)
            to[i] = from[i] + bias;
        return;
    }
    for (; i < n; i += BLOCK) {
        i = PST_MIN(i, n - BLOCK);
        for (int64_t e = i; e < i + BLOCK; e++)
            to[e] = from[e] + bias;
    }
}

/* Stores or adds a line of n results `from` to elements to, to + step, ... */
static inline void store_line(const struct pst_windows_job *j, int64_t n,
                              int64_t step, float bias,
                              const float *restrict from, float *restrict to)
{
    if (j->c->accumulate)
        for (int64_t i = 0; i < n; i++)
            to[i * step] += from[i] + bias;
    else if (step == 1)
        copy_line(n, bias, from, to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i * step] = from[i] + bias;
}

/* Stores or adds two lines whose elements alternate, beginning with a[0]. */
static inline void store_pair(const struct pst_windows_job *j, int64_t n,
                              float bias, const float *restrict a,
                              const float *restrict b, float *restrict to)
{
    if (j->c->accumulate)
        for (int64_t i = 0; i < n; i++) {
            to[2 * i] += a[i] + bias;
            to[2 * i + 1] += b[i] + bias;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            to[2 * i] = a[i] + bias;
            to[2 * i + 1] = b[i] + bias;
        }
}

/* n positions of a line from column col on: line l1 of slab l0 of an image. */
struct line {
    int64_t image, l0, l1, col, n;
};

/* Returns the index, in a plane of the result, of the element that the pass
 * computes at column l->col of the line. */
static int64_t place_of(const struct pst_direct_pass *p, const struct line *l,
                        const int64_t size[PST_CONV_DIMS])
{
    return ((p->first[0] + l->l0 * p->step[0]) * size[1] + p->first[1] +
            l->l1 * p->step[1]) *
               size[2] +
           p->first[2] + l->col * p->step[2];
}

/* Stores a line of the results of all passes of the range. from: the line's
 * results of the first pass. */
static void store_at(const struct pst_windows_job *j,
                     const struct pst_windows_range *r, const struct line *l,
                     float bias, const float *from, float *to)
{
    const struct pst_direct_pass *a = &j->shared.passes[r->pass], *b = a + 1;
    const float *other = from + j->rows * j->ld;
    const int64_t n = PST_MIN(l->n, a->count[2] - l->col);
    int64_t m, both, apart;

    if (r->passes == 1) {
        store_line(j, n, a->step[2], bias, from, to);
        return;
    }
    apart = b->first[2] - a->first[2];
    m = PST_MIN(l->n, b->count[2] - l->col);
    both = PST_MAX(PST_MIN(n, m), 0);
    if (apart > 0)
        store_pair(j, both, bias, from, other, to);
    else
        store_pair(j, both, bias, other, from, to - 1);
    store_line(j, n - both, 2, bias, from + both, to + 2 * both);
    store_line(j, m - both, 2, bias, other + both, to + apart + 2 * both);
}

/* Advances to the next line, which may be in the next slab or image. */
static void next_line(struct line *l, const int64_t size[PST_CONV_DIMS],
                      bool flat)
{
    l->col = 0;
    if (++l->l1 < size[1])
        return;
    l->l1 = 0;
    if (++l->l0 < size[0] || flat)
        return;
    l->l0 = 0;
    l->image++;
}

/* Stores n results from position `at` on. If flat, positions are those of the
 * copy, and results between its lines and slabs are dropped. */
void pst_windows_scatter(const struct pst_windows_job *j,
                         const struct pst_windows_range *r, int64_t at,
                         int64_t n, const float *from)
{
    const struct pst_direct_pass *p = &j->shared.passes[r->pass];
    const int64_t *size = j->flat ? j->plan.copy.size : p->count;
    const int64_t *whole = j->fill == PST_CONV_X ? j->c->in : j->c->out;
    const int64_t channels = j->rows * j->c->groups;
    const int64_t plane = pst_conv_volume(whole);
    const int64_t line = at / size[2], slab = line / size[1];
    const struct line first = {.l1 = line % size[1],
                               .l0 = j->flat ? slab : slab % size[0],
                               .image = j->flat ? 0 : slab / size[0],
                               .col = at % size[2]};

    for (int64_t row = r->row[0]; row < r->row[1]; row++, from += j->ld) {
        const float bias = pst_windows_bias(j, r->group, row);
        float *to = pst_windows_plane(j, r->set * j->each, r->group, row);
        struct line l = first;

        for (int64_t i = 0; i < n; i += l.n, next_line(&l, size, j->flat)) {
            l.n = PST_MIN(size[2] - l.col, n - i);
            if (l.l1 < p->count[1])
                store_at(j, r, &l, bias, from + i,
                         to + l.image * channels * plane +
                             place_of(p, &l, whole));
        }
    }
}
