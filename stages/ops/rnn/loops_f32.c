// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/packed.h"

#define REAL      float
#define RNN(name) name##_f32
#define GEMM      pst_gemm_f32_best
#include "stages/ops/rnn/loops.inc"
