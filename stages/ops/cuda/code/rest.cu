// SPDX-License-Identifier: Apache-2.0
/* Device code module (modules.def) with all kernels that are not in loops.cu or
 * products.cu. */
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
