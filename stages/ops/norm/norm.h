// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_NORM_NORM_H
#define PENSTOCK_STAGES_OPS_NORM_NORM_H
/*
 * Layer norm and RMS norm over rows: all dimensions before the normalised ones
 * are rows, the normalised ones are the n columns.
 *     y = (x - mean) * rstd * w + b,   rstd = 1 / sqrt(var + eps)
 * with mean 0 and var the mean of squares for RMS norm (centre false). Backward
 * passes recompute mean and rstd: two passes over a row that is in the cache
 * anyway, instead of buffers kept from forward to backward.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

struct pst_norm {
    bool centre;
    double eps;
    int64_t rows, n;
    const struct pst_operand *x, *w, *b, *g; /* w, b: data NULL if absent */
};

/* Returns eps; for rms_norm(eps=None) the machine epsilon of the compute dtype.
 */
double pst_norm_eps(const struct pst_arg *arg, enum pst_dtype dtype);

/* Checks that argument i (int[]) lists the last sizes of x, and that weight and
 * bias (metas or NULL) have exactly these sizes. */
enum pst_status pst_norm_check(const struct pst_infer *c, unsigned i,
                               const struct pst_meta *x,
                               const struct pst_meta *w,
                               const struct pst_meta *b);
/* Sets rows and n from the number of normalised dimensions. */
void pst_norm_rows(struct pst_norm *p, const struct pst_meta *x,
                   unsigned normalised);

/* Describe a call of layer_norm or native_layer_norm, of rms_norm, and of a
 * backward operator, whose arguments are grad, input, shape, [weight,] eps. */
struct pst_norm pst_norm_of_layer(const struct pst_call *c);
struct pst_norm pst_norm_of_rms(const struct pst_call *c);
struct pst_norm pst_norm_of_backward(const struct pst_call *c, bool centre,
                                     bool has_weight);

/* Reference kernels: sum in double and accept any strides and floating dtypes.
 * mean and rstd may be NULL. If accumulate is true, dw is added to. */
void pst_norm_ref(const struct pst_norm *p, struct pst_operand *y,
                  struct pst_operand *mean, struct pst_operand *rstd);
void pst_norm_input_ref(const struct pst_norm *p, struct pst_operand *dx);
void pst_norm_weight_ref(const struct pst_norm *p, struct pst_operand *dw,
                         bool accumulate);
void pst_norm_bias_ref(const struct pst_norm *p, struct pst_operand *db);

/* --- loops over contiguous rows, f32 or f64 (simd/layers/norm.c) ---------- */

struct pst_norm_rows {
    bool centre;
    double eps;
    int64_t n;
    const void *w, *b; /* NULL: ones, zeros */
};

struct pst_norm_loops {
    /* stats: mean and rstd of each row, alternating; may be NULL. */
    void (*forward)(const struct pst_norm_rows *p, int64_t rows, const void *x,
                    void *y, void *stats);
    /* dx may be g. */
    void (*input)(const struct pst_norm_rows *p, int64_t rows, const void *g,
                  const void *x, void *dx);
    void (*stats)(const struct pst_norm_rows *p, int64_t rows, const void *x,
                  void *stats);
    /* For columns begin..end-1, multiples of 64 except the last: adds the sums
     * over rows of g (x - mean) rstd to dw and of g to db. */
    void (*affine)(int64_t rows, int64_t n, int64_t begin, int64_t end,
                   const void *g, const void *x, const void *stats, void *dw,
                   void *db);
    /* Copies `from` to `to`, or adds it if accumulate is true. */
    void (*put)(int64_t n, const void *from, void *to, bool accumulate);
};
extern const struct pst_norm_loops pst_norm_loops_any, pst_norm_loops_avx2,
    pst_norm_loops_avx512, pst_norm_loops_f64_any, pst_norm_loops_f64_avx2,
    pst_norm_loops_f64_avx512;

/* Table of the loops for f32 and f64. */
#define PST_NORM_LOOPS(suffix)                                                 \
    (const struct pst_norm_loops *const[])                                     \
    {                                                                          \
        &pst_norm_loops_##suffix, &pst_norm_loops_f64_##suffix                 \
    }

/* Fast kernels: contiguous operands, all f32 or all f64, with the loops of that
 * dtype. pst_norm_run also writes mean and rstd to out[1] and out[2] if the
 * operator has them. */
void pst_norm_run(const struct pst_call *c, const struct pst_norm *p,
                  const struct pst_norm_loops *const *loops);
void pst_norm_run_input(const struct pst_call *c, const struct pst_norm *p,
                        const struct pst_norm_loops *const *loops);
/* Writes dw to out[0], and db to out[1] if there is one. */
void pst_norm_run_weight(const struct pst_call *c, const struct pst_norm *p,
                         const struct pst_norm_loops *const *loops);
size_t pst_norm_weight_scratch(const struct pst_norm *p);

#endif
