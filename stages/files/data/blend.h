// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_BLEND_H
#define PENSTOCK_STAGES_FILES_DATA_BLEND_H
/*
 * Draws samples from several sources in proportion to weights: the order of the
 * sources repeats after a period, in which source k has its share of samples,
 * spread as evenly as possible. So the source of sample n, and the number of
 * samples that it had before, are functions of n and the weights. The period is
 * the shortest of up to 65536 samples in which all shares are whole numbers; if
 * there is none it is 65536, shares are rounded, and none becomes 0.
 *
 * Pure functions; memory of the caller's arena; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"

struct pst_blend {
    unsigned n; /* number of sources */
    uint64_t period;
    uint64_t *share;       /* per source: samples in a period */
    unsigned char *source; /* per sample of a period: its source */
    /* per sample of a period: its source's samples before it */
    uint32_t *before;
};

struct pst_blend_sample {
    unsigned source;
    uint64_t index; /* number of the sample within its source */
};

/* Weights are 0 or more, and not all 0. */
enum pst_status pst_blend_make(const double *weights, unsigned n,
                               struct pst_arena *arena, struct pst_blend *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
struct pst_blend_sample pst_blend_at(const struct pst_blend *blend, uint64_t n);
/* Returns how many of the first n samples are of the source. */
uint64_t pst_blend_count(const struct pst_blend *blend, unsigned source,
                         uint64_t n);

#endif
