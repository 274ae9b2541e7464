// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_GEMM_BF16_H
#define PENSTOCK_STAGES_OPS_MATMUL_GEMM_BF16_H
/*
 * GEMM of bf16 operands with f32 accumulation, by oneDNN on processors with
 * instructions for it (AVX512-BF16, AMX). Any thread. oneDNN compiles code for
 * each variant of GEMM; this happens when the scratch is requested, at plan
 * time, and is kept for the life of the process.
 *
 * Operands are plain matrices: oneDNN packs the second one again in every call.
 * For a weight, tiles.h is faster.
 */
#include "stages/ops/matmul/gemm.h"

#include <stddef.h>

bool pst_gemm_has_bf16(void);
/* Returns the bytes of scratch (aligned to 64). */
size_t pst_gemm_bf16_scratch(const struct pst_gemm *g);
/* Computes the GEMM; beta is 0 or 1. Returns false if the library runs out of
 * memory. */
bool pst_gemm_bf16(const struct pst_gemm *g, const uint16_t *a,
                   const uint16_t *b, float *c, void *scratch);

#endif
