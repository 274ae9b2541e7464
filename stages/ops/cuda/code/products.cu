// SPDX-License-Identifier: Apache-2.0
/* A module: products and attention. */
#include "stages/ops/cuda/code/attention.cu"
#include "stages/ops/cuda/code/matmul.cu"
