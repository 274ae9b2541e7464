// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POOL_RESAMPLE_H
#define PENSTOCK_STAGES_OPS_POOL_RESAMPLE_H
/*
 * Common implementation of average pooling, adaptive average pooling and
 * resizing: each result is a weighted sum of a range of inputs along every
 * spatial dimension, with weights that are products over these dimensions
 * ("taps"). The gradient is the transposed sum. Leading dimensions are planes.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

#define PST_SPACE 3 /* maximum number of spatial dimensions */

enum pst_axis_kind {
    PST_AXIS_COPY,     /* a missing dimension */
    PST_AXIS_AVERAGE,  /* windows of a pool */
    PST_AXIS_ADAPTIVE, /* windows that divide the input evenly */
    PST_AXIS_NEAREST,
    PST_AXIS_EXACT, /* nearest-exact */
    PST_AXIS_LINEAR,
    PST_AXIS_CUBIC,
    PST_AXIS_LINEAR_AA, /* antialiased: wider filters for downsampling */
    PST_AXIS_CUBIC_AA,
};

struct pst_axis {
    enum pst_axis_kind kind;
    int64_t in, out;
    int64_t k, stride, pad; /* for AVERAGE only */
    bool include_pad, unweighted;
    double divisor; /* divides all weights: divisor_override, or 1 */
    double scale;   /* resizing: input steps for one output step */
    bool align;
};

/* Result o is the weighted sum of `count` inputs from `first` on, with indices
 * clamped to 0..in-1. */
struct pst_taps {
    int64_t first, count;
    double even;      /* weight of every input, unless it is 0 */
    double weight[4]; /* if `even` is 0: the weights, if there are up to four */
    /* if there are more than four: weight i is norm * filter((first + i + 0.5 -
     * center) * invscale) */
    double invscale, center, norm;
    bool cubic;
};
void pst_axis_taps(const struct pst_axis *axis, int64_t o,
                   struct pst_taps *ret);
double pst_taps_weight(const struct pst_taps *t, int64_t i);
/* Returns the size of an average or maximum pool's result. */
int64_t pst_pool_size(int64_t n, int64_t k, int64_t stride, int64_t pad,
                      int64_t dil, bool ceil);
/* Returns the step in the input for one step in the output, as PyTorch computes
 * it. given: the user's scale factor; 0 if there is none. */
double pst_axis_scale(int64_t in, int64_t out, bool align, double given,
                      bool single);

struct pst_resample {
    int64_t planes;
    struct pst_axis axis[PST_SPACE];
    const struct pst_operand *x, *y; /* source and result of the forward sum */
    bool accumulate;
};
/* Returns the bytes of scratch, for the forward sum and for the transposed
 * one. */
size_t pst_resample_scratch(const struct pst_resample *r, unsigned threads);
/* Compute y or, if `transposed`, x. The reference accepts any strides and
 * floating dtypes; the fast kernels contiguous f32. */
void pst_resample_ref(const struct pst_resample *r, bool transposed,
                      double *scratch);

/* y += a x (simd/layers/resample.c). */
typedef void (*pst_axpy_fn)(int64_t n, float a, const float *x, float *y);
PST_SIMD_DECL(void, pst_simd_axpy,
              (int64_t n, float a, const float *x, float *y));

/* Updates maxima and their positions (-1: none yet) with x[i * step], at
 * position place + i * step; NaN counts as the largest. */
typedef void (*pst_max_tap_fn)(int64_t n, int64_t step, const float *x,
                               int32_t place, float *best, int32_t *at);
PST_SIMD_DECL(void, pst_simd_max_tap,
              (int64_t n, int64_t step, const float *x, int32_t place,
               float *best, int32_t *at));

void pst_resample_run(const struct pst_resample *r, bool transposed,
                      struct pst_pool *pool, void *scratch, pst_axpy_fn axpy);

#endif
