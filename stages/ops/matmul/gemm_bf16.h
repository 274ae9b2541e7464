// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_GEMM_BF16_H
#define PENSTOCK_STAGES_OPS_MATMUL_GEMM_BF16_H
/*
 * A product of bf16 factors summed in f32, by oneDNN on processors that have
 * instructions for it (AVX512-BF16, AMX). Any thread. oneDNN compiles code for
 * each form of product; it is made when the scratch is asked for, at plan
 * time, and kept for the life of the process.
 *
 * Factors are plain matrices: inside, oneDNN packs the second one anew in every
 * product. Where it is a weight, tiles.h is faster.
 */
#include "stages/ops/matmul/gemm.h"

#include <stddef.h>

bool pst_gemm_has_bf16(void);
/* Bytes of scratch (aligned to 64) that the product wants. */
size_t pst_gemm_bf16_scratch(const struct pst_gemm *g);
/* beta is 0 or 1. False: the library ran out of memory. */
bool pst_gemm_bf16(const struct pst_gemm *g, const uint16_t *a,
                   const uint16_t *b, float *c, void *scratch);

#endif
