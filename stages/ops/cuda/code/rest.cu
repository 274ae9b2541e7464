// SPDX-License-Identifier: Apache-2.0
/* Device code module (modules.def) with all kernels that are not in loops.cu or
 * products.cu. */
#include "stages/ops/cuda/code/elements/copies.cu"
#include "stages/ops/cuda/code/elements/drop.cu"
#include "stages/ops/cuda/code/elements/embed.cu"
#include "stages/ops/cuda/code/elements/fold.cu"
#include "stages/ops/cuda/code/elements/grad.cu"
#include "stages/ops/cuda/code/elements/places.cu"
#include "stages/ops/cuda/code/elements/scan.cu"
#include "stages/ops/cuda/code/layers/channel.cu"
#include "stages/ops/cuda/code/layers/loss.cu"
#include "stages/ops/cuda/code/layers/norm.cu"
#include "stages/ops/cuda/code/layers/pool.cu"
#include "stages/ops/cuda/code/layers/softmax.cu"
#include "stages/ops/cuda/code/tasks.cu"
