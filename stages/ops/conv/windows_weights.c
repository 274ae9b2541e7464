// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows_weights.h"

#include "stages/ops/conv/windows_lines.h"
#include "stages/ops/simd/tile.h"

#include <string.h>

#define GRAIN 32 /* taps, so that panels are whole */
#define ROW   16 /* floats; rows of what is turned are whole vectors */

static int64_t width_of(const struct pst_windows_job *j)
{
    return (j->rows + ROW - 1) / ROW * ROW;
}

/* --- windows are turned -------------------------------------------------- */

/* y of a set, (rows, positions of all its images). */
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

/* Taps [a, b) of a group. */
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
                   &windows, w, pst_windows_room(j, side));
    }
}

/* --- gradients are turned ------------------------------------------------- */

/* Of the copy that a result's positions take. */
static int64_t length_of(const struct pst_windows_job *j)
{
    const int64_t *size = j->plan.copy.size, *n = j->c->out;

    return ((n[0] - 1) * size[1] + n[1] - 1) * size[2] + n[2];
}

int64_t pst_windows_side(const struct pst_windows_job *j)
{
    return width_of(j) * (length_of(j) + j->taps);
}

/* y of an image, (positions, width); what is 0 stays so. */
static void turn_image(const struct pst_windows_job *j, int64_t image,
                       int64_t group, float *to)
{
    const int64_t *size = j->plan.copy.size, *n = j->c->out;
    const int64_t volume = pst_conv_volume(n), width = width_of(j);
    const float *from = pst_windows_plane(j, image, group, 0);

    for (int64_t l0 = 0; l0 < n[0]; l0++)
        for (int64_t l1 = 0; l1 < n[1]; l1++, from += n[2])
            pst_tile_transpose(j->rows, n[2], from, volume,
                               to + (l0 * size[1] + l1) * size[2] * width,
                               width);
}

/* w of the taps from a on is, or has added, what was summed of n of them. */
static void store_taps(const struct pst_windows_job *j, int64_t group,
                       int64_t a, int64_t n, const float *sums)
{
    float *w = (float *)j->c->w->data + group * j->rows * j->taps + a;
    const int64_t width = width_of(j);

    if (!j->c->accumulate) {
        pst_tile_transpose(n, j->rows, sums, width, w, j->taps);
        return;
    }
    for (int64_t row = 0; row < j->rows; row++, w += j->taps)
        for (int64_t t = 0; t < n; t++)
            w[t] += sums[t * width + row];
}

static void multiply_turned(const struct pst_windows_job *j, int64_t group,
                            int64_t a, int64_t b, float *copy, float *side)
{
    const int64_t length = length_of(j), width = width_of(j);
    float *turned = side, *sums = side + length * width;
    const struct pst_windows windows = {
        .copy = copy, .taps = j->shared.passes->offset_of + a, .of_a = true};
    struct pst_gemm g = {.m = b - a,
                         .n = width,
                         .k = length,
                         .ldb = width,
                         .ldc = width,
                         .alpha = 1.0};

    if (j->c->n == 0) /* nothing is added */
        return;
    memset(turned, 0, (size_t)(length * width) * sizeof(*turned));
    for (int64_t image = 0; image < j->c->n; image++, g.beta = 1.0) {
        pst_windows_fill(j, image, group, copy);
        turn_image(j, image, group, turned);
        j->product(&g, turned, &windows, sums, pst_windows_room(j, side));
    }
    store_taps(j, group, a, b - a, sums);
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
            (j->flat ? multiply_turned : multiply_taps)(
                j, a / j->pieces, first, last, pst_windows_copy(j, part),
                pst_windows_beside(j, part));
    }
}
