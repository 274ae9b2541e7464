// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/base/macros.h"
#include "stages/ops/simd/simd.h"

#include <cblas.h>

/* y = alpha A x + beta y, or of the transposed A. */
static void times_vector(const struct pst_gemm *g, bool trans, int64_t rows,
                         int64_t cols, const float *a, int64_t lda,
                         const float *x, int64_t x_step, float *y,
                         int64_t y_step)
{
    cblas_sgemv(CblasRowMajor, trans ? CblasTrans : CblasNoTrans, (int)rows,
                (int)cols, (float)g->alpha, a, (int)PST_MAX(lda, cols), x,
                (int)PST_MAX(x_step, 1), (float)g->beta, y,
                (int)PST_MAX(y_step, 1));
}

void pst_gemm_packed(const struct pst_gemm *g, const float *a, const float *b,
                     float *c)
{
    static _Thread_local float PST_ALIGNED(64) room[PST_PACKED_ROOM];

    if (g->m == 1 && g->n > 0 && g->k > 0) {
        times_vector(g, !g->tb, g->tb ? g->n : g->k, g->tb ? g->k : g->n, b,
                     g->ldb, a, g->ta ? g->lda : 1, c, 1);
        return;
    }
    if (g->n == 1 && g->m > 0 && g->k > 0) {
        times_vector(g, g->ta, g->ta ? g->k : g->m, g->ta ? g->m : g->k, a,
                     g->lda, b, g->tb ? 1 : g->ldb, c, g->ldc);
        return;
    }
#if PST_HAVE_AVX512
    if (pst_cpu_isa() == PST_ISA_AVX512) {
        pst_simd_gemm_avx512(g, a, b, c, room);
        return;
    }
#endif
#if PST_HAVE_AVX2
    if (pst_cpu_isa() >= PST_ISA_AVX2) {
        pst_simd_gemm_avx2(g, a, b, c, room);
        return;
    }
#endif
    pst_simd_gemm_any(g, a, b, c, room);
}

/*
 * Measured on one core of Sapphire Rapids, GFLOP/s OpenBLAS : ours, NN, NT, TN
 * with AVX-512 4x512x2048 19 : 54, 20 : 61, 18 : 54; 32x1024x1024 78 : 131,
 * 83 : 110, 83 : 135; 128^3 126 : 165, 121 : 159, 132 : 159; 512x2304x768
 * 150 : 156, 150 : 127, 147 : 146. With AVX2 OpenBLAS packs less than the
 * product takes, but for a few rows or columns.
 */
bool pst_packed_likes(enum pst_isa isa, bool ta, bool tb, int64_t m, int64_t n,
                      int64_t k)
{
    const int64_t shortest = PST_MIN(PST_MIN(m, n), k);
    const double work = (double)m * (double)n * (double)k;

    if (pst_gemm_is_small(ta, tb, m, n, k))
        return false;
    if (isa == PST_ISA_AVX512)
        return shortest < 256;
    if (isa >= PST_ISA_AVX2)
        return m <= (tb ? 4 : 3) || n <= 16 || (work <= 0x1p23 && m >= 16);
    return false;
}

bool pst_gemm_likes_packed(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    return pst_packed_likes(pst_cpu_isa(), ta, tb, m, n, k);
}

void pst_gemm_f32_best(const struct pst_gemm *g, const float *a, const float *b,
                       float *c)
{
    if (pst_gemm_likes_dnnl(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_f32_dnnl(g, a, b, c);
    else if (pst_gemm_likes_packed(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_packed(g, a, b, c);
    else
        pst_gemm_f32(g, a, b, c);
}
