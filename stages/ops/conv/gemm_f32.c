// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/conv.h"

#include "stages/ops/matmul/packed.h"

#include <string.h>

#define REAL    float
#define NAME(x) x
#define product pst_gemm_f32_best

#include "stages/ops/conv/gemm.inc"
