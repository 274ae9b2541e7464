// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_DIRECT_PLAN_H
#define PENSTOCK_STAGES_OPS_CONV_DIRECT_PLAN_H
/*
 * Layout of a convolution as copies, passes and lists of taps, for direct.h and
 * windows.h. Pointers are borrowed from the call and its scratch.
 */
#include "stages/ops/conv/dnnl.h"

struct pst_conv_loops;

#define PST_CONV_ROWS    4 /* output channels at a time, or 1 */
#define PST_CONV_LANES   16
#define PST_CONV_FEW     8 /* a group with fewer channels has few (direct.h) */
#define PST_DIRECT_STRIP 2048 /* results at a time, for the cache */

/* The copy of a source (x, or y if x is computed) for one image and group:
 * (channels, phases..., size...). Element e of phase r along a dimension is
 * element e * step + r - lead of the source, or 0. Phases that no window
 * touches, because it is smaller than its step, are left out. */
struct pst_direct_copy {
    int64_t channels, from[PST_CONV_DIMS];
    int64_t step[PST_CONV_DIMS], phases[PST_CONV_DIMS];
    int64_t lead[PST_CONV_DIMS], size[PST_CONV_DIMS];
};

/* Results that share a list of taps: element j along a dimension, of `count`,
 * is element first + j * step of the result. */
struct pst_direct_pass {
    int64_t first[PST_CONV_DIMS], step[PST_CONV_DIMS], count[PST_CONV_DIMS];
    /* PST_CONV_X: position in the copy that element 0 of the pass reads with
     * element 0 of the window */
    int64_t place[PST_CONV_DIMS];
    int64_t phase[PST_CONV_DIMS]; /* PST_CONV_X: phase of k * dil */
    int64_t taps;
    const int64_t *offset_of; /* per tap: offset in the copy for position 0 */
    /* per tap: offset in a group's weights for row 0 */
    const int64_t *weight_of;
};

struct pst_direct_job {
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    const struct pst_conv_loops *loops;
    struct pst_direct_copy copy;
    /* rows of a tile, rows of a group, tiles of a group */
    int64_t rows, out, blocks;
    int64_t strip; /* positions in a tile */
    bool late; /* PST_CONV_W with many channels: lanes are added up once, after
                  all images, not once per image */
    int64_t row_step; /* stride between rows of a group's weights */
    int64_t passes;
    float *scratch;
    int64_t each; /* floats of scratch per thread */
};

/* Parts of a thread's scratch. */
struct pst_direct_scratch {
    struct pst_direct_pass *passes;
    int64_t *taps; /* (2, taps of all passes) */
    float *copy, *w, *strip, *lanes;
    double *sums;
};

/* Describes a convolution: sets all members except loops, scratch and each. */
struct pst_direct_job pst_direct_job(const struct pst_conv *c,
                                     enum pst_conv_fill fill);
/* Returns the number of floats of one channel's copy. */
int64_t pst_direct_plane(const struct pst_direct_copy *p);
/* Divides the scratch of a thread (number `part`) among the members of *ret;
 * returns its size in floats. */
int64_t pst_direct_scratch(const struct pst_direct_job *j, unsigned part,
                           struct pst_direct_scratch *ret);
/* Fills `to` with the padded copy of the channels of a group of an image. */
void pst_direct_fill(const struct pst_direct_job *j, int64_t image,
                     int64_t group, float *to);
/* Makes all passes with their taps; returns how many of them have results. */
int64_t pst_direct_passes(const struct pst_direct_job *j,
                          const struct pst_direct_scratch *scratch);
/* Packs the weights (taps, rows) of a block; missing rows are 0. */
void pst_direct_pack(const struct pst_direct_job *j,
                     const struct pst_direct_pass *p, int64_t group,
                     int64_t block, float *to);
/* Returns the number of positions of a pass, counted along lines of the copy.
 */
int64_t pst_direct_length(const struct pst_direct_job *j,
                          const struct pst_direct_pass *p);

#endif
