// SPDX-License-Identifier: Apache-2.0
/* Device code module (modules.def): matmuls, attention, convolutions. */
#include "stages/ops/cuda/code/attention.cu"
#include "stages/ops/cuda/code/conv.cu"
#include "stages/ops/cuda/code/matmul.cu"
#include "stages/ops/cuda/code/sdpa_f32.cu"
