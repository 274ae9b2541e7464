// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_GEMM_H
#define PENSTOCK_STAGES_OPS_MATMUL_GEMM_H
/*
 * One matrix product on the calling thread:
 *     C (m, n) = alpha * op(A) (m, k) op(B) (k, n) + beta * C
 * row-major, op transposes if ta, tb; lda ... are the lengths of stored rows.
 * C is not read if beta is 0. Both libraries are kept to one thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct pst_gemm {
    bool ta, tb;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    double alpha, beta;
};

void pst_gemm_f32(const struct pst_gemm *g, const float *a, const float *b,
                  float *c);
void pst_gemm_f64(const struct pst_gemm *g, const double *a, const double *b,
                  double *c);
/* oneDNN; the same as pst_gemm_f32 where it was not built in. */
void pst_gemm_f32_dnnl(const struct pst_gemm *g, const float *a, const float *b,
                       float *c);
/* Keeps oneDNN to one thread; once in every thread that calls it. */
void pst_gemm_prepare_dnnl(void);
/* Lets the libraries make what they make once (oneDNN compiles its code: 40
 * ms), so that ranks do it side by side before the first step. */
void pst_gemm_warm_up(void);
/* So small that OpenBLAS takes its kernels that do not pack, which nothing
 * beats. */
bool pst_gemm_is_small(bool ta, bool tb, int64_t m, int64_t n, int64_t k);
/* Is oneDNN there and faster for one product of this shape? */
bool pst_gemm_likes_dnnl(bool ta, bool tb, int64_t m, int64_t n, int64_t k);

#endif
