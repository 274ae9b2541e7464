// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows_weights.h"

#include "stages/ops/conv/windows_lines.h"

#include <string.h>

#define GRAIN 32 /* taps in a panel of GEMM */

/* Copies y of the images of a set to one matrix (rows, positions of all these
 * images). */
static void join_images(const struct pst_windows_job *j, int64_t set,
                        int64_t group, float *to)
{
    const int64_t p = pst_conv_volume(j->c->out);
    const int64_t images = pst_windows_images(j, set);

    for (int64_t row = 0; row < j->rows; row++)
        for (int64_t i = 0; i < images; i++, to += p)
            memcpy(to, pst_windows_plane(j, set * j->each + i, group, row),
                   (size_t)p * sizeof(*to));
}

/* Computes the gradients of taps [a, b) of a group. */
static void multiply_taps(const struct pst_windows_job *j, int64_t group,
                          int64_t a, int64_t b, float *copy, float *side)
{
    const struct pst_conv *c = j->c;
    float *w = (float *)c->w->data + group * j->rows * j->taps + a;

    for (int64_t set = 0; set < j->sets; set++) {
        const int64_t k = pst_windows_images(j, set) * pst_conv_volume(c->out);
        struct pst_windows windows =
            pst_windows_of(j, j->shared.passes, set, group, copy);
        const struct pst_gemm g = {.tb = true,
                                   .m = j->rows,
                                   .n = b - a,
                                   .k = k,
                                   .lda = k,
                                   .ldc = j->taps,
                                   .alpha = 1.0,
                                   .beta =
                                       c->accumulate || set > 0 ? 1.0 : 0.0};

        windows.taps += a;
        pst_windows_fill(j, set, group, copy);
        if (j->each > 1)
            join_images(j, set, group, side);
        j->product(&g,
                   j->each > 1 ? side
                               : pst_windows_plane(j, set * j->each, group, 0),
                   &windows, w, pst_windows_scratch(j, side));
    }
}

void pst_windows_taps(void *job, unsigned part, unsigned parts)
{
    const struct pst_windows_job *j = job;
    int64_t a, b;

    pst_pool_share(j->c->groups * j->pieces, 1, part, parts, &a, &b);
    for (; a < b; a++) {
        int64_t first, last;

        pst_pool_share(j->taps, GRAIN, (unsigned)(a % j->pieces),
                       (unsigned)j->pieces, &first, &last);
        if (first < last)
            multiply_taps(j, a / j->pieces, first, last,
                          pst_windows_copy(j, part),
                          pst_windows_side_buffer(j, part));
    }
}
