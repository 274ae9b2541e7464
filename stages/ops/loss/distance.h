// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_DISTANCE_H
#define PENSTOCK_STAGES_OPS_LOSS_DISTANCE_H
/*
 * Pairwise distances between rows, and their gradients, without storing the
 * differences of all pairs. f32 or f64, contiguous. Thread-safe.
 */
#include "stages/ops/core/op.h"

enum pst_distance_kind {
    PST_DISTANCE_0, /* number of coordinates that differ */
    PST_DISTANCE_1,
    PST_DISTANCE_2,
    PST_DISTANCE_MAX,
    PST_DISTANCE_KINDS,
    PST_DISTANCE_P = PST_DISTANCE_KINDS, /* any other p */
};

/* --- single differences, for reference kernels ---------------------------- */

/* pst_distance_add adds one more difference d to a sum; pst_distance_of
 * converts the sum of all differences to the distance. */
double pst_distance_add(double sum, double d, double p);
double pst_distance_of(double sum, double p);
/* Returns the derivative of the distance r with respect to the difference d of
 * a coordinate, rounded to the dtype like the distance; 0 where there is no
 * derivative. */
double pst_distance_slope(enum pst_dtype dtype, double d, double r, double p);

/* --- rows ----------------------------------------------------------------- */

/* Loops over a row a of n f32 ([0]) or f64 ([1]) numbers and consecutive rows
 * of b: simd/layers/distance.c. */
struct pst_distance_loops {
    /* For each row of b: compute the count of differences that are not 0, the
     * sum of |d|, the sum of d^2, or the largest |d|. */
    void (*measure[2][PST_DISTANCE_KINDS])(int64_t n, const void *a,
                                           int64_t rows, const void *b,
                                           double *ret);
    /* For each row with r != 0: add to acc the factor w times the sign of d, d,
     * or the sign of d where |d| = r. The count has no gradient and no
     * function. */
    void (*add[2][PST_DISTANCE_KINDS])(int64_t n, const void *a, int64_t rows,
                                       const void *b, const double *w,
                                       const double *r, void *acc);
};
extern const struct pst_distance_loops pst_distance_loops_any,
    pst_distance_loops_avx2, pst_distance_loops_avx512;

/* Distances between rows of x (n, m) and rows of y (k, m), for each batch. */
struct pst_distances {
    const struct pst_distance_loops *loops;
    enum pst_dtype dtype;
    int64_t batches, n, k, m;
    double p;
    const void *x, *y;
    /* Return the number of the matrix in x (n, m), and of that in y (k, m),
     * that belongs to batch b; if NULL, it is b. */
    int64_t (*batch_x)(const void *ctx, int64_t b);
    int64_t (*batch_y)(const void *ctx, int64_t b);
    const void *ctx;
    /* y is x; only pairs i < j have a distance, stored without gaps */
    bool half;
    /* The distance of i and j is at j n + i instead of i k + j. */
    bool swapped;
};

enum pst_distance_kind pst_distance_kind(double p);
/* True if the operands of a call are all f32, or all f64. */
bool pst_distance_fits(const struct pst_call *c);
/* Writes the distances to out: (batches, n, k), or, if `half`, n (n - 1) / 2
 * numbers. */
void pst_distance_forward(const struct pst_distances *d, struct pst_pool *pool,
                          void *out);
/* Returns the bytes of scratch of pst_distance_backward for a call whose
 * arguments begin with grad and x. */
size_t pst_distance_scratch(const struct pst_call *c, unsigned threads);
/* Computes the gradient of x, (batches, n, m), from that of the distances r. */
void pst_distance_backward(const struct pst_distances *d, struct pst_pool *pool,
                           void *scratch, const void *g, const void *r,
                           void *dx);

#endif
