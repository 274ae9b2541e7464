// SPDX-License-Identifier: Apache-2.0
/* The kernels of all CUDA sources, for the host. */
#include "stages/ops/cuda/code/kernels.cu"
