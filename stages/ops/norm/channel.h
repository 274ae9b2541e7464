// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_NORM_CHANNEL_H
#define PENSTOCK_STAGES_OPS_NORM_CHANNEL_H
/*
 * Norms over channels. x is (N, C, S), S all spatial dimensions together; C
 * channels form G groups, and the images form blocks: one block of all images
 * (batch norm, G = C), or one block per image (group norm; instance norm with G
 * = C). Statistics are (blocks, G):
 *     y = (x - mean) rstd w_c + b_c,   rstd = 1 / sqrt(var + eps)
 * Sums for the gradients are (blocks, C):
 *     a = sum of g,   b = sum of g (x - mean) rstd
 * dw and db are b and a summed over the blocks, and
 *     dx = rstd (g w - mean of a w - (x - mean) rstd mean of b w)
 * with means over the M elements of a group in a block; without the means if
 * the statistics are not computed from x.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

struct pst_norm_channels {
    int64_t n, c, s;   /* images, channels, positions */
    int64_t blocks, g; /* blocks and groups of the statistics */
    double eps;
    const struct pst_operand *x, *dy, *w, *b; /* NULL or without data: absent */
    const struct pst_operand *mean, *rstd, *sum_a, *sum_b;
};

static inline int64_t pst_norm_channels_count(const struct pst_norm_channels *p)
{
    return p->n / p->blocks * (p->c / p->g) * p->s;
}

/* Returns the offset of the first position of a channel. */
static inline int64_t pst_norm_channels_at(const struct pst_norm_channels *p,
                                           int64_t n, int64_t c)
{
    return (n * p->c + c) * p->s;
}

/* Returns the index of the statistics of channel c of image n. */
static inline int64_t pst_norm_channels_group(const struct pst_norm_channels *p,
                                              int64_t n, int64_t c)
{
    const int64_t images = PST_MAX(p->n / p->blocks, 1);

    return n / images * p->g + c / (p->c / p->g);
}

/* The elements of group i of the statistics: images [n0, n1), channels [c0,
 * c1). */
struct pst_norm_channels_range {
    int64_t n0, n1, c0, c1;
};

static inline struct pst_norm_channels_range pst_norm_channels_range(
    const struct pst_norm_channels *p, int64_t i)
{
    const int64_t images = p->n / p->blocks, channels = p->c / p->g;
    const int64_t block = i / p->g, group = i % p->g;

    return (struct pst_norm_channels_range){
        block * images, (block + 1) * images, group * channels,
        (group + 1) * channels};
}

/* Describe calls of the operators of channel_norm.c. */
struct pst_norm_channels pst_norm_channels_of_stats(const struct pst_call *c);
struct pst_norm_channels pst_norm_channels_of_apply(const struct pst_call *c);
struct pst_norm_channels pst_norm_channels_of_sums(const struct pst_call *c);
struct pst_norm_channels pst_norm_channels_of_input(const struct pst_call *c);

/* Returns the mean over group i of w_c sums_c, over its channels c; 0 if sums
 * are absent. */
double pst_norm_channels_group_mean(const struct pst_norm_channels *p,
                                    int64_t i, const struct pst_operand *sums);

/* References: sum in double and accept any strides and floating dtypes. */
void pst_norm_channels_ref_stats(const struct pst_norm_channels *p,
                                 struct pst_operand *mean,
                                 struct pst_operand *rstd,
                                 struct pst_operand *var);
void pst_norm_channels_ref_apply(const struct pst_norm_channels *p,
                                 struct pst_operand *y);
void pst_norm_channels_ref_sums(const struct pst_norm_channels *p,
                                struct pst_operand *a, struct pst_operand *b);
void pst_norm_channels_ref_input(const struct pst_norm_channels *p,
                                 struct pst_operand *dx);

/* --- loops over contiguous f32 (simd/layers/channel.c) -------------------- */

struct pst_channel_loops {
    double (*sum)(int64_t n, const float *x);
    /* Returns the sum of (x - mean)^2. */
    double (*squares)(int64_t n, const float *x, float mean);
    /* y = (x - mean) * scale + shift; y may be x. */
    void (*apply)(int64_t n, const float *x, float mean, float scale,
                  float shift, float *y);
    /* Adds g to the sum a, and g (x - mean) to the sum b. */
    void (*sums)(int64_t n, const float *g, const float *x, float mean,
                 double *a, double *b);
    /* dx = g * scale + (x - mean) * by + shift; dx may be g. */
    void (*input)(int64_t n, const float *g, const float *x, float mean,
                  float scale, float by, float shift, float *dx);
    /* Do the same for columns, each with its own mean, scale, ...; sums,
     * squares and products are added to the given ones. */
    void (*column_sums)(int64_t n, const float *x, double *sums);
    void (*column_squares)(int64_t n, const float *x, const float *mean,
                           double *sums);
    void (*column_apply)(int64_t n, const float *x, const float *mean,
                         const float *scale, const float *shift, float *y);
    void (*column_products)(int64_t n, const float *g, const float *x,
                            const float *mean, double *a, double *b);
    void (*column_input)(int64_t n, const float *g, const float *x,
                         const float *mean, const float *scale, const float *by,
                         const float *shift, float *dx);
};
extern const struct pst_channel_loops pst_channel_loops_any,
    pst_channel_loops_avx2, pst_channel_loops_avx512;

/* Fast kernels: contiguous f32 operands. */
void pst_norm_channels_run_stats(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops);
void pst_norm_channels_run_apply(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops);
void pst_norm_channels_run_sums(const struct pst_call *c,
                                const struct pst_norm_channels *p,
                                const struct pst_channel_loops *loops);
void pst_norm_channels_run_input(const struct pst_call *c,
                                 const struct pst_norm_channels *p,
                                 const struct pst_channel_loops *loops);

/* Fast kernels for contiguous f64 (channel_f64.c). */
void pst_norm_channels_f64_stats(const struct pst_call *c,
                                 const struct pst_norm_channels *p);
void pst_norm_channels_f64_apply(const struct pst_call *c,
                                 const struct pst_norm_channels *p);
void pst_norm_channels_f64_sums(const struct pst_call *c,
                                const struct pst_norm_channels *p);
void pst_norm_channels_f64_input(const struct pst_call *c,
                                 const struct pst_norm_channels *p);

#endif
