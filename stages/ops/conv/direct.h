// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_DIRECT_H
#define PENSTOCK_STAGES_OPS_CONV_DIRECT_H
/*
 * Convolutions without a column matrix, for groups of few channels, where GEMM
 * is inefficient (depthwise convolutions, the first layer of a network).
 *
 * The channels of a group are copied once with zero padding; a stride s along a
 * dimension divides the copy into s phases. If positions i of a result plane
 * are counted along rows as long as those of the copy, the result at i is
 *     sum over taps t of w[t] copy[offset[t] + i],
 * a sum of shifted whole planes, without special cases for edges, strides and
 * windows. Positions between the end of a row and the next are computed and
 * discarded. The gradient of x is such a sum for each phase of x; that of w
 * consists of dot products of the copy and the output gradient spread to the
 * same rows.
 *
 * Order of additions: y and the gradient of x go over the taps in order. The
 * gradient of w is summed in lanes, which are added up after each image or,
 * with many channels, after all images.
 */
#include "stages/ops/conv/conv.h"
#include "stages/ops/conv/direct_plan.h"
#include "stages/ops/conv/dnnl.h"
#include "stages/ops/cpu/simd/simd.h"

struct pst_conv_tile {
    int64_t n;    /* positions, rounded up to whole vectors */
    int64_t taps; /* x[offset[t] + i] is the input of tap t at position i */
    const int64_t *offset;
    const float *x;
    int rows;          /* 1 or PST_CONV_ROWS channels */
    const float *w;    /* (taps, rows) */
    const float *bias; /* (rows) */
    float *y; /* (rows, ldy): results of sums(); output gradients for dots() */
    int64_t ldy;
    float *lanes; /* (taps, rows, PST_CONV_LANES) */
};

struct pst_conv_loops {
    /* Computes y = bias + sum over taps of w x. */
    void (*sums)(const struct pst_conv_tile *t);
    /* Adds y x to lanes: position i to lane i % (floats per vector). */
    void (*dots)(const struct pst_conv_tile *t);
};
extern const struct pst_conv_loops pst_conv_loops_any, pst_conv_loops_avx2,
    pst_conv_loops_avx512;

bool pst_conv_direct_preferred(const struct pst_conv *c,
                               enum pst_conv_fill fill);
size_t pst_conv_direct_scratch(const struct pst_conv *c,
                               enum pst_conv_fill fill, unsigned threads);
void pst_conv_direct_run(const struct pst_conv *c, enum pst_conv_fill fill,
                         struct pst_pool *pool, void *scratch,
                         const struct pst_conv_loops *loops);

#endif
