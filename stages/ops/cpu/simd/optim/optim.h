// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_OPTIM_OPTIM_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_OPTIM_OPTIM_H
/* Optimizer loops, and the tables that pst_simd_best chooses from, one per
 * instruction set. */
#include "stages/device/device.h"
#include "stages/ops/cpu/simd/simd.h"

/*
 * An element keeps its value and states if they are finite but one of the new
 * ones would not be: otherwise an outlier in the data would ruin it
 * permanently. Each loop returns the number of elements kept.
 */
struct pst_simd_updates {
    /*
     * torch.optim.AdamW, one tensor: g *= gscale; p *= 1 - lr * weight_decay;
     * m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
     * p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
     * with bias1 = 1 - beta1^t, bias2 = 1 - beta2^t, t = 1 in the first step.
     */
    int64_t (*adamw)(int64_t n, float *p, const float *g, float *m, float *v,
                     double lr, double beta1, double beta2, double eps,
                     double weight_decay, double bias1, double bias2,
                     double gscale);
    /*
     * torch.optim.SGD, one tensor: g = g * gscale + weight_decay * p; with
     * buf: buf = first ? g : momentum * buf + (1 - dampening) * g, then
     * g = nesterov ? g + momentum * buf : buf; p -= lr * g. buf NULL: no
     * momentum.
     */
    int64_t (*sgd)(int64_t n, float *p, const float *g, float *buf, double lr,
                   double momentum, double dampening, double weight_decay,
                   bool nesterov, bool first, double gscale);
    /* The other optimizers, with the formulas of their rows (stages/optim/);
     * all but lion and schedulefree begin with g = g * grad_scale +
     * weight_decay * p. Their operands are the parameter, its gradient and the
     * row's states. */
    int64_t (*adam)(int64_t n, float *p, const float *g, float *m, float *v,
                    const struct pst_update *u);
    int64_t (*adamax)(int64_t n, float *p, const float *g, float *m, float *top,
                      const struct pst_update *u);
    int64_t (*lion)(int64_t n, float *p, const float *g, float *m,
                    const struct pst_update *u);
    /* buf is read with momentum only, mean only if centered. A variance that
     * rounding makes negative counts as 0. */
    int64_t (*rmsprop)(int64_t n, float *p, const float *g, float *v,
                       float *buf, float *mean, const struct pst_update *u);
    int64_t (*adagrad)(int64_t n, float *p, const float *g, float *sum,
                       const struct pst_update *u);
    int64_t (*adadelta)(int64_t n, float *p, const float *g, float *v, float *s,
                        const struct pst_update *u);
    int64_t (*schedulefree)(int64_t n, float *p, const float *g, float *z,
                            float *v, float *x, const struct pst_update *u);
};

/* Mean squares of a piece of a row of gradients, for adafactor. If factored,
 * that of element i is row * col[i] / mean. Otherwise col is NULL, and v[i] has
 * the old one, from which the loops compute the next. */
struct pst_factored {
    float row, mean;
    const float *col;
    float *v;
};

/* Loops of optimizers that need whole parameters (whole_update.c). Sums are in
 * f64, in 16 lanes and then by a fixed tree. */
struct pst_simd_whole_updates {
    /* lamb, first half: sets ret to the sums of squares of the parameter and of
     * u (stages/optim/lamb.c), without elements whose u, m or v would not be
     * finite. */
    void (*lamb_sums)(int64_t n, const float *p, const float *g, const float *m,
                      const float *v, const struct pst_update *u,
                      double ret[2]);
    /* lamb, second half: updates m, v, and p by step * u. */
    int64_t (*lamb)(int64_t n, float *p, const float *g, float *m, float *v,
                    double step, const struct pst_update *u);
    /* muon, in this order. muon_sum: returns the sum of squares of u
     * (stages/optim/muon.c). muon_begin: sets the momentum b, and x to u *
     * scale. muon_end: updates p by step * x; an element that would not be
     * finite keeps its value, and the number of these is returned. */
    double (*muon_sum)(int64_t n, const float *g, const float *b,
                       const struct pst_update *u);
    void (*muon_begin)(int64_t n, const float *g, float *b, float *x,
                       double scale, const struct pst_update *u);
    /* adafactor. square: returns the sum of squares of a row of the gradient,
     * and adds the squares to cols. The other two get `at`, the mean squares of
     * the row. sum: returns the sum of squares of u (stages/optim/adafactor.c),
     * NaN if a state would not be finite. step: updates p by step * u, and v
     * unless it is factored; returns the number of elements that kept their
     * value. */
    double (*adafactor_square)(int64_t n, const float *g, double *cols,
                               const struct pst_update *u);
    double (*adafactor_sum)(int64_t n, const float *g,
                            const struct pst_factored *at,
                            const struct pst_update *u);
    int64_t (*adafactor_step)(int64_t n, float *p, const float *g,
                              const struct pst_factored *at, double step,
                              const struct pst_update *u);
    int64_t (*muon_end)(int64_t n, float *p, const float *x, double step,
                        const struct pst_update *u);
};

extern const struct pst_simd_whole_updates pst_simd_whole_updates_any;
extern const struct pst_simd_whole_updates pst_simd_whole_updates_avx2;
extern const struct pst_simd_whole_updates pst_simd_whole_updates_avx512;

extern const struct pst_simd_updates pst_simd_updates_any;
extern const struct pst_simd_updates pst_simd_updates_avx2;
extern const struct pst_simd_updates pst_simd_updates_avx512;

/* Returns the loops for that instruction set. */
const struct pst_simd_updates *pst_simd_updates_best(enum pst_isa isa);
const struct pst_simd_whole_updates *pst_simd_whole_updates_best(
    enum pst_isa isa);

extern const struct pst_simd_ops pst_simd_ops_any;
extern const struct pst_simd_ops pst_simd_ops_avx2;
extern const struct pst_simd_ops pst_simd_ops_avx512;

#endif
