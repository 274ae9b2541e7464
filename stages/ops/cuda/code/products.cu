// SPDX-License-Identifier: Apache-2.0
/* Device code module (modules.def): matmuls, attention, convolutions. */
#include "stages/ops/cuda/code/layers/sdpa_16.cu"
#include "stages/ops/cuda/code/layers/sdpa_f32.cu"
#include "stages/ops/cuda/code/matmul/conv.cu"
#include "stages/ops/cuda/code/matmul/matmul.cu"
