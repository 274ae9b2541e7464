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
#define PST_CONV_FEW     8    /* groups with fewer channels use direct.h */
#define PST_DIRECT_STRIP 2048 /* results at a time, which stay in the cache */

/* The zero-padded copy of the source (x, or y if x is computed) for one image
 * and group: (channels, phases..., size...). Element e of phase r along a
 * dimension is element e * step + r - lead of the source, or 0 outside of it.
 * If the window is smaller than the step, phases without window elements are
 * left out. */
struct pst_direct_copy {
    int64_t channels, from[PST_CONV_DIMS];
    int64_t step[PST_CONV_DIMS], phases[PST_CONV_DIMS];
    int64_t lead[PST_CONV_DIMS], size[PST_CONV_DIMS];
};

/* The results that share a list of taps: `count` elements along each dimension;
 * the j-th is element first + j * step of the result. */
struct pst_direct_pass {
    int64_t first[PST_CONV_DIMS], step[PST_CONV_DIMS], count[PST_CONV_DIMS];
    /* PST_CONV_X: index in the copy that result 0 of the pass reads for window
     * element 0 */
    int64_t place[PST_CONV_DIMS];
    int64_t phase[PST_CONV_DIMS]; /* PST_CONV_X: phase of the pass's window
                                   * elements k, k * dil % stride */
    int64_t taps;
    const int64_t *offset_of; /* per tap: offset in the copy of the input for
                               * position 0 */
    /* per tap: offset of the weight for row 0 in a group's weights */
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

/* The areas of a thread's scratch. */
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
/* Describes all passes and lists their taps; returns how many passes have
 * results. */
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
