// SPDX-License-Identifier: Apache-2.0
/* A module: the kernels that are in no other one. */
#include "stages/ops/cuda/code/channel.cu"
#include "stages/ops/cuda/code/copies.cu"
#include "stages/ops/cuda/code/embed.cu"
#include "stages/ops/cuda/code/fold.cu"
#include "stages/ops/cuda/code/grad.cu"
#include "stages/ops/cuda/code/loss.cu"
#include "stages/ops/cuda/code/norm.cu"
#include "stages/ops/cuda/code/places.cu"
#include "stages/ops/cuda/code/pool.cu"
#include "stages/ops/cuda/code/scan.cu"
#include "stages/ops/cuda/code/softmax.cu"
#include "stages/ops/cuda/code/tasks.cu"
