// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_LOSS_LOSS_H
#define PENSTOCK_STAGES_OPS_LOSS_LOSS_H
/*
 * Losses over classes: logits or log-probabilities of shape (N, C, d1, ...) or
 * (C), targets of shape (N, d1, ...) or (). Position p of N * D counts through
 * the targets in row-major order, D = d1 * d2 * ...
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

enum { PST_REDUCE_NONE, PST_REDUCE_MEAN, PST_REDUCE_SUM };

struct pst_classes {
    const struct pst_operand *x, *target, *weight; /* weight: NULL if absent */
    int64_t n, classes, d;
    int64_t reduction, ignore;
    double smoothing;
    bool
        probabilities; /* the target has a probability per class and position */
    bool is_dense;     /* the target is contiguous */
};

/* Checks that x has rank >= 1, reduction is in range, and weight (an argument
 * index) fits. */
enum pst_status pst_classes_check(const struct pst_infer *c, unsigned x,
                                  unsigned target, unsigned weight,
                                  unsigned reduction);
/* Sets result 0 to a scalar, or to the positions' shape if nothing is
 * reduced. */
enum pst_status pst_classes_set(struct pst_infer *c, unsigned x,
                                int64_t reduction);
/* Returns operand i, which is also argument i; NULL if the argument is None. */
static inline const struct pst_operand *pst_classes_optional(
    const struct pst_call *c, unsigned i)
{
    return c->args[i].kind == PST_ARG_VALUE ? &c->in[i] : NULL;
}
/* Sets n, classes and d from x. */
void pst_classes_shape(struct pst_classes *p);
/* Returns the class of position i; -1 if it is ignored. If it is out of range,
 * returns -1 and reports a fault of the call. */
int64_t pst_classes_target(const struct pst_call *c,
                           const struct pst_classes *p, int64_t i);
double pst_classes_weight(const struct pst_classes *p, int64_t k);
/* Returns the divisor of the mean: the sum of the weights of all targets that
 * are not ignored. */
double pst_classes_divisor(const struct pst_call *c,
                           const struct pst_classes *p);
/* Returns the offset of class k of position i in x. */
int64_t pst_classes_at(const struct pst_classes *p, int64_t i, int64_t k);

/* --- loops over contiguous f32 rows of `classes` (simd/layers/loss.c) ----- */

/* Coefficients t_k = a q_k + b, plus c for class y. q NULL: the term a q_k is
 * absent; y < 0: there is no class. */
struct pst_soft_target {
    const float *q;
    float a, b, c;
    int64_t y;
};

#define PST_LOSS_COLS 64

/* Coefficients of columns: t_k = w_k (a q_k + b). The columns of q have the
 * layout of those of x; w NULL: all w_k are 1. */
struct pst_soft_columns {
    const float *q, *w;
    float a, b;
};

struct pst_loss_loops {
    /* -log softmax(x)[y] */
    float (*nll)(int64_t n, const float *x, int64_t y);
    /* log sum e^x */
    float (*log_sum)(int64_t n, const float *x);
    /* dx = a * softmax(x) */
    void (*softmax_scaled)(int64_t n, const float *x, float a, float *dx);
    /* Returns nll(x, y) and sets dx, which may be x, to
     * a (softmax(x) - [k = y]). */
    float (*nll_grad)(int64_t n, const float *x, int64_t y, float a, float *dx);
    /* -sum of t_k log softmax(x)_k, where terms with t_k = 0 are 0. */
    float (*soft)(int64_t n, const float *x, const struct pst_soft_target *t);
    /* dx = g (softmax(x) sum(t) - t) */
    void (*soft_grad)(int64_t n, const float *x,
                      const struct pst_soft_target *t, float g, float *dx);
    /* For cols <= PST_LOSS_COLS columns j, each of n numbers that are stride
     * apart: maximum and log of the sum of e^(x - max); dx = g_j
     * softmax(x)_j. */
    void (*columns_log_sum)(int64_t n, int64_t cols, int64_t stride,
                            const float *x, float *max, float *log_sum);
    void (*columns_scaled)(int64_t n, int64_t cols, int64_t stride,
                           const float *x, const float *g, float *dx);
    /* losses_j = -sum of t_k log softmax(x)_k, where terms with t_k = 0 are
     * 0. */
    void (*columns_soft)(int64_t n, int64_t cols, int64_t stride,
                         const float *x, const struct pst_soft_columns *t,
                         const float *max, const float *log_sum, float *losses);
    /* dx = g_j (softmax(x) (sum(t) + more_j) - t) */
    void (*columns_soft_grad)(int64_t n, int64_t cols, int64_t stride,
                              const float *x, const struct pst_soft_columns *t,
                              const float *more, const float *g, float *dx);
    /* x = cap tanh(scale x / cap), or scale x if cap is 0. dx is multiplied by
     * the derivative, where y are the results; y is not read if cap is 0. */
    void (*capped)(int64_t n, float scale, float cap, float *x);
    void (*capped_grad)(int64_t n, float scale, float cap, const float *y,
                        float *dx);
    /* to_k = w_k t_k */
    void (*weighted)(int64_t n, const struct pst_soft_target *t, const float *w,
                     float *to);
    /* Returns the sum of (a - b)^2, in double. */
    double (*squares)(int64_t n, const float *a, const float *b);
    /* dx = s * (a - b) */
    void (*difference)(int64_t n, const float *a, const float *b, float s,
                       float *dx);
};
extern const struct pst_loss_loops pst_loss_loops_any, pst_loss_loops_avx2,
    pst_loss_loops_avx512;

#endif
