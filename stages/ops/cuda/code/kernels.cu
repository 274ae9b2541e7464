// SPDX-License-Identifier: Apache-2.0
/* All kernels, as one module. */
#include "stages/ops/cuda/code/attention.cu"
#include "stages/ops/cuda/code/copies.cu"
#include "stages/ops/cuda/code/embed.cu"
#include "stages/ops/cuda/code/grad.cu"
#include "stages/ops/cuda/code/loops.cu"
#include "stages/ops/cuda/code/loss.cu"
#include "stages/ops/cuda/code/matmul.cu"
#include "stages/ops/cuda/code/norm.cu"
#include "stages/ops/cuda/code/softmax.cu"
#include "stages/ops/cuda/code/tasks.cu"
