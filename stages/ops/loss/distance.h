// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_DISTANCE_H
#define PENSTOCK_STAGES_OPS_LOSS_DISTANCE_H
/*
 * Distances between rows, pair by pair, and their gradients: what all pairs of
 * differences would take is never there. f32 or f64, contiguous. Thread-safe.
 */
#include "stages/ops/core/op.h"

enum pst_distance_kind {
    PST_DISTANCE_0, /* how many coordinates differ */
    PST_DISTANCE_1,
    PST_DISTANCE_2,
    PST_DISTANCE_MAX,
    PST_DISTANCE_KINDS,
    PST_DISTANCE_P = PST_DISTANCE_KINDS, /* any other p */
};

/* --- one by one, for references ------------------------------------------- */

/* The sum so far and one more difference; the distance that a sum means. */
double pst_distance_next(double sum, double d, double p);
double pst_distance_of(double sum, double p);
/* Slope of the distance r in the difference d of a coordinate, which is rounded
 * to the dtype as the distance was; 0 where the distance is not smooth. */
double pst_distance_slope(enum pst_dtype dtype, double d, double r, double p);

/* --- rows ----------------------------------------------------------------- */

/* Of a row a of n f32 ([0]) or f64 ([1]) and rows of b, one after the other:
 * simd/layers/distance.c. */
struct pst_distance_loops {
    /* Count, sum of |d|, sum of d^2, largest |d|. */
    void (*measure[2][PST_DISTANCE_KINDS])(int64_t n, const void *a,
                                           int64_t rows, const void *b,
                                           double *ret);
    /* acc += w times: sign of d; d; sign of d where |d| = r. Of each row that
     * has not r = 0. There is none for a count. */
    void (*add[2][PST_DISTANCE_KINDS])(int64_t n, const void *a, int64_t rows,
                                       const void *b, const double *w,
                                       const double *r, void *acc);
};
extern const struct pst_distance_loops pst_distance_loops_any,
    pst_distance_loops_avx2, pst_distance_loops_avx512;

/* Rows of x (n, m) against rows of y (k, m), for each of the batches. */
struct pst_distances {
    const struct pst_distance_loops *loops;
    enum pst_dtype dtype;
    int64_t batches, n, k, m;
    double p;
    const void *x, *y;
    /* First rows of each batch in units of (n, m) and (k, m); NULL: batch b is
     * the b-th. */
    int64_t (*batch_x)(const void *ctx, int64_t b);
    int64_t (*batch_y)(const void *ctx, int64_t b);
    const void *ctx;
    /* y is x, and only pairs i < j have a distance, one after the other. */
    bool half;
    /* The distance of i and j is at j n + i instead of i k + j. */
    bool swapped;
};

enum pst_distance_kind pst_distance_kind(double p);
/* Are the operands of a call all f32, or all f64? */
bool pst_distance_fits(const struct pst_call *c);
/* Into out: (batches, n, k), or n (n - 1) / 2. */
void pst_distance_forward(const struct pst_distances *d, struct pst_pool *pool,
                          void *out);
/* Bytes for pst_distance_backward in a call (grad, rows, ...). */
size_t pst_distance_scratch(const struct pst_call *c, unsigned threads);
/* Gradient of x, (batches, n, m), from that of the distances r. */
void pst_distance_backward(const struct pst_distances *d, struct pst_pool *pool,
                           void *scratch, const void *g, const void *r,
                           void *dx);

#endif
