// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_OPTIM_H
#define PENSTOCK_STAGES_OPS_SIMD_OPTIM_H
/* The tables behind pst_simd_best, one per instruction set. */
#include "stages/ops/simd/simd.h"

extern const struct pst_simd_ops pst_simd_ops_any;
extern const struct pst_simd_ops pst_simd_ops_avx2;
extern const struct pst_simd_ops pst_simd_ops_avx512;

#endif
