// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/conv.h"

#include "stages/ops/matmul/gemm.h"

#include <string.h>

#define REAL    float
#define NAME(x) x

static void product(const struct pst_gemm *g, const float *a, const float *b,
                    float *c)
{
    if (pst_gemm_likes_dnnl(g->ta, g->tb, g->m, g->n, g->k))
        pst_gemm_f32_dnnl(g, a, b, c);
    else
        pst_gemm_f32(g, a, b, c);
}

#include "stages/ops/conv/gemm.inc"
