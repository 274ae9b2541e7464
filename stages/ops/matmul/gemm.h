// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_GEMM_H
#define PENSTOCK_STAGES_OPS_MATMUL_GEMM_H
/*
 * One GEMM on the calling thread:
 *     C (m, n) = alpha * op(A) (m, k) op(B) (k, n) + beta * C
 * row-major; op transposes if ta, tb; lda ... are the lengths of stored rows. C
 * is not read if beta is 0. Both libraries are limited to one thread.
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
/* Computes the GEMM by oneDNN; by pst_gemm_f32 if oneDNN was not built in. */
void pst_gemm_f32_dnnl(const struct pst_gemm *g, const float *a, const float *b,
                       float *c);
/* Limits oneDNN to one thread; call once in every thread that uses it. */
void pst_gemm_prepare_dnnl(void);
/* Triggers one-time work of the libraries (oneDNN compiles its code: 40 ms), so
 * that ranks do this work in parallel before the first step. Any thread; later
 * calls in a process do nothing. */
void pst_gemm_warm_up(void);
/* True if the matmul is so small that OpenBLAS runs its kernels without
 * packing, which are faster for it than oneDNN and our GEMM. */
bool pst_gemm_is_small(bool ta, bool tb, int64_t m, int64_t n, int64_t k);
/* True if oneDNN is available and faster for one matmul of this shape. */
bool pst_gemm_prefers_dnnl(bool ta, bool tb, int64_t m, int64_t n, int64_t k);

#endif
