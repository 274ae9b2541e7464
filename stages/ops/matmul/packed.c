// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#include "stages/base/macros.h"
#include "stages/ops/cpu/simd/simd.h"

#include <cblas.h>
#include <pthread.h>
#include <sys/mman.h>

/* y = alpha A x + beta y, with A transposed if trans. */
static void multiply_vector(const struct pst_gemm *g, bool trans, int64_t rows,
                            int64_t cols, const float *a, int64_t lda,
                            const float *x, int64_t x_step, float *y,
                            int64_t y_step)
{
    cblas_sgemv(CblasRowMajor, trans ? CblasTrans : CblasNoTrans, (int)rows,
                (int)cols, (float)g->alpha, a, (int)PST_MAX(lda, cols), x,
                (int)PST_MAX(x_step, 1), (float)g->beta, y,
                (int)PST_MAX(y_step, 1));
}

/* --- memory -------------------------------------------------------------- */

#define SCRATCH_BYTES (PST_PACKED_SCRATCH * sizeof(float))

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void unmap(void *scratch)
{
    munmap(scratch, SCRATCH_BYTES);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, unmap) == 0;
}

/* Returns this thread's scratch, mapped at first use since most threads never
 * multiply, and freed when the thread ends. NULL if memory runs out. */
static float *thread_scratch(void)
{
    static _Thread_local float *scratch;
    void *p;

    if (scratch != NULL)
        return scratch;
    pthread_once(&once, make_key);
    if (!has_key)
        return NULL;
    p = mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (pthread_setspecific(key, p) != 0) {
        unmap(p);
        return NULL;
    }
    scratch = p;
    return scratch;
}

/* --- kernels of this processor ------------------------------------------- */

#if PST_HAVE_AVX512
#define CALL_AVX512(fn, ...)                                                   \
    if (pst_cpu_isa() == PST_ISA_AVX512) {                                     \
        fn##_avx512(__VA_ARGS__);                                              \
        return;                                                                \
    }
#else
#define CALL_AVX512(fn, ...)
#endif
#if PST_HAVE_AVX2
#define CALL_AVX2(fn, ...)                                                     \
    if (pst_cpu_isa() >= PST_ISA_AVX2) {                                       \
        fn##_avx2(__VA_ARGS__);                                                \
        return;                                                                \
    }
#else
#define CALL_AVX2(fn, ...)
#endif
#define CALL(fn, ...)                                                          \
    CALL_AVX512(fn, __VA_ARGS__)                                               \
    CALL_AVX2(fn, __VA_ARGS__)                                                 \
    fn##_any(__VA_ARGS__)

void pst_gemm_packed(const struct pst_gemm *g, const float *a, const float *b,
                     float *c)
{
    float *scratch;

    if (g->m == 1 && g->n > 0 && g->k > 0) {
        multiply_vector(g, !g->tb, g->tb ? g->n : g->k, g->tb ? g->k : g->n, b,
                        g->ldb, a, g->ta ? g->lda : 1, c, 1);
        return;
    }
    if (g->n == 1 && g->m > 0 && g->k > 0) {
        multiply_vector(g, g->ta, g->ta ? g->k : g->m, g->ta ? g->m : g->k, a,
                        g->lda, b, g->tb ? 1 : g->ldb, c, g->ldc);
        return;
    }
    scratch = thread_scratch();
    if (scratch == NULL) {
        pst_gemm_f32(g, a, b, c);
        return;
    }
    CALL(pst_simd_gemm, g, a, b, c, scratch);
}

void pst_gemm_windows(const struct pst_gemm *g, const float *a,
                      const struct pst_windows *b, float *c, float *scratch)
{
    CALL(pst_simd_gemm_windows, g, a, b, c, scratch);
}

/* Measured on one core of Sapphire Rapids, in GFLOP/s of OpenBLAS :
 * pst_gemm_packed, for NN, NT, TN (T: transposed operand) with AVX-512.
 * 4x512x2048 19 : 54, 20 : 61, 18 : 54; 32x1024x1024 78 : 131, 83 : 110, 83 :
 * 135; 128^3 126 : 165, 121 : 159, 132 : 159. With AVX2, OpenBLAS spends less
 * time on packing than on the matmul unless there are few rows or columns. */
bool pst_packed_preferred(enum pst_isa isa, bool ta, bool tb, int64_t m,
                          int64_t n, int64_t k)
{
    const double work = (double)m * (double)n * (double)k;

    if (pst_gemm_is_small(ta, tb, m, n, k))
        return false;
    if (isa == PST_ISA_AVX512)
        return true;
    if (isa >= PST_ISA_AVX2)
        return m <= (tb ? 4 : 3) || n <= 16 || (work <= 0x1p23 && m >= 16);
    return false;
}

bool pst_gemm_prefers_packed(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    return pst_packed_preferred(pst_cpu_isa(), ta, tb, m, n, k);
}

void pst_gemm_f32_best(const struct pst_gemm *g, const float *a, const float *b,
                       float *c)
{
    if (pst_gemm_prefers_dnnl(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_f32_dnnl(g, a, b, c);
    else if (pst_gemm_prefers_packed(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_packed(g, a, b, c);
    else
        pst_gemm_f32(g, a, b, c);
}
