// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/gemm.h"

#include <pthread.h>

#include "stages/base/macros.h"

#if PST_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>
#endif

/* Measured on one core with AVX-512, in GFLOP/s of OpenBLAS : oneDNN. 64^3 NN
 * 229 : 198, NT 118 : 160; 8x64x64 NN 200 : 102, NT 98 : 91; 256x512x512 NN 190
 * : 229. (N: operand not transposed, T: transposed.) */
bool pst_gemm_is_small(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    const double small = tb && !ta ? 32.0 * 32 * 32 : 64.0 * 64 * 64;

    return (double)m * (double)n * (double)k <= small;
}

#if PST_HAVE_DNNL

/* CBLAS rejects a leading dimension below the matrix's width, even for one
 * row. */
static int leading_dimension(int64_t ld, int64_t width)
{
    return (int)PST_MAX(PST_MAX(ld, width), 1);
}

/* Sets the OpenMP thread count to 1. OpenMP has one count per thread. The
 * symbol is looked up at run time because oneDNN may have been built with
 * another threading runtime. */
void pst_gemm_prepare_dnnl(void)
{
    static _Thread_local bool done;
    void (*set)(int);

    if (done)
        return;
    done = true;
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set != NULL)
        set(1);
}

void pst_gemm_f32_dnnl(const struct pst_gemm *g, const float *a, const float *b,
                       float *c)
{
    pst_gemm_prepare_dnnl();
    dnnl_sgemm(g->ta ? 'T' : 'N', g->tb ? 'T' : 'N', g->m, g->n, g->k,
               (float)g->alpha, a,
               leading_dimension(g->lda, g->ta ? g->m : g->k), b,
               leading_dimension(g->ldb, g->tb ? g->k : g->n), (float)g->beta,
               c, leading_dimension(g->ldc, g->n));
}

bool pst_gemm_prefers_dnnl(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    return !pst_gemm_is_small(ta, tb, m, n, k);
}

#else

void pst_gemm_prepare_dnnl(void)
{
}

void pst_gemm_f32_dnnl(const struct pst_gemm *g, const float *a, const float *b,
                       float *c)
{
    pst_gemm_f32(g, a, b, c);
}

bool pst_gemm_prefers_dnnl(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k;
    return false;
}

#endif

static void warm_up(void)
{
    enum { N = 128 };
    static const float a[N * N];
    static float c[N * N];
    const bool forms[][2] = {{false, false}, {false, true}, {true, false}};

    for (size_t i = 0; i < PST_COUNT(forms); i++) {
        const struct pst_gemm g = {.ta = forms[i][0],
                                   .tb = forms[i][1],
                                   .m = N,
                                   .n = N,
                                   .k = N,
                                   .lda = N,
                                   .ldb = N,
                                   .ldc = N,
                                   .alpha = 1.0};

        pst_gemm_f32_dnnl(&g, a, a, c);
        pst_gemm_f32(&g, a, a, c);
    }
}

void pst_gemm_warm_up(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, warm_up);
}
