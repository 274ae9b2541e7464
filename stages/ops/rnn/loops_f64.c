// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/gemm.h"

/* Matmul of the f64 loops. It is simple, because they are the reference. */
static void gemm_f64(const struct pst_gemm *g, const double *a, const double *b,
                     double *c)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = g->beta == 0.0 ? 0.0 : g->beta * c[i * g->ldc + j];

            for (int64_t k = 0; k < g->k; k++)
                sum += a[i * g->lda + k] *
                       b[g->tb ? j * g->ldb + k : k * g->ldb + j];
            c[i * g->ldc + j] = sum;
        }
}

#define REAL      double
#define RNN(name) name##_f64
#define GEMM      gemm_f64
#include "stages/ops/rnn/loops.inc"
