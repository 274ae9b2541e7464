// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/gemm.h"

/* The faster library for the shape. */
static void gemm_f32(const struct pst_gemm *g, const float *a, const float *b,
                     float *c)
{
    if (pst_gemm_likes_dnnl(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_f32_dnnl(g, a, b, c);
    else
        pst_gemm_f32(g, a, b, c);
}

#define REAL      float
#define RNN(name) name##_f32
#define GEMM      gemm_f32
#include "stages/ops/rnn/loops.inc"
