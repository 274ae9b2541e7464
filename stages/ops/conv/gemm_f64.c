// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/conv.h"

#include "stages/ops/matmul/gemm.h"

#include <string.h>

#define REAL    double
#define NAME(x) x##_f64
#define product pst_gemm_f64

#include "stages/ops/conv/gemm.inc"
