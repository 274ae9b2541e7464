// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_DIRECT_PLAN_H
#define PENSTOCK_STAGES_OPS_CONV_DIRECT_PLAN_H
/*
 * Of direct.h and windows.h: how a convolution is laid out as copies, passes
 * and lists of taps. Pointers are borrowed from the call and its scratch.
 */
#include "stages/ops/conv/dnnl.h"

struct pst_conv_loops;

#define PST_CONV_ROWS    4 /* channels of the result at a time, or 1 */
#define PST_CONV_LANES   16
#define PST_CONV_FEW     8    /* channels of which there are few */
#define PST_DIRECT_STRIP 2048 /* results at a time: taps stay in the cache */

/* The copy of a source (x, or y where x is filled) of one image and group:
 * (channels, phases..., size...). Element e of phase r along a dimension is
 * element e * step + r - lead of the source, or 0. Phases that no window
 * touches, since it is smaller than its step, are not there. */
struct pst_direct_copy {
    int64_t channels, from[PST_CONV_DIMS];
    int64_t step[PST_CONV_DIMS], phases[PST_CONV_DIMS];
    int64_t lead[PST_CONV_DIMS], size[PST_CONV_DIMS];
};

/* Results that one list of taps makes: element j along a dimension, of
 * `count`, is element first + j * step of the result. */
struct pst_direct_pass {
    int64_t first[PST_CONV_DIMS], step[PST_CONV_DIMS], count[PST_CONV_DIMS];
    int64_t place[PST_CONV_DIMS]; /* X: in the copy for j = 0 and k = 0 */
    int64_t phase[PST_CONV_DIMS]; /* X: of k * dil */
    int64_t taps;
    const int64_t *offset_of; /* of each tap: place in the copy of position 0 */
    const int64_t *weight_of; /* and in a group's weights for row 0 */
};

struct pst_direct_job {
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    const struct pst_conv_loops *loops;
    struct pst_direct_copy copy;
    int64_t rows, out, blocks; /* of a tile, of a group, tiles of a group */
    int64_t strip;             /* positions of a tile */
    bool late; /* W, of more than a few channels: lanes are joined once */
    int64_t row_step; /* between rows of a group's weights */
    int64_t passes;
    float *scratch;
    int64_t each; /* floats of a thread's scratch */
};

/* Parts of a thread's scratch. */
struct pst_direct_room {
    struct pst_direct_pass *passes;
    int64_t *taps; /* (2, taps of all passes) */
    float *copy, *w, *strip, *lanes;
    double *sums;
};

/* All but loops, scratch and each. */
struct pst_direct_job pst_direct_job(const struct pst_conv *c,
                                     enum pst_conv_fill fill);
/* Floats of a channel's copy. */
int64_t pst_direct_plane(const struct pst_direct_copy *p);
/* Cuts a thread's scratch; returns its floats. */
int64_t pst_direct_room(const struct pst_direct_job *j, unsigned part,
                        struct pst_direct_room *ret);
/* Copies the channels of a group of an image. */
void pst_direct_fill(const struct pst_direct_job *j, int64_t image,
                     int64_t group, float *to);
/* All passes with their taps; returns the number of those with results. */
int64_t pst_direct_passes(const struct pst_direct_job *j,
                          const struct pst_direct_room *room);
/* Weights (taps, rows) of a block; 0 for rows that are not there. */
void pst_direct_pack(const struct pst_direct_job *j,
                     const struct pst_direct_pass *p, int64_t group,
                     int64_t block, float *to);
/* Positions of a pass, counted along lines of the copy. */
int64_t pst_direct_length(const struct pst_direct_job *j,
                          const struct pst_direct_pass *p);

#endif
