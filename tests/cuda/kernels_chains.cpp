// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/code/chains.cu"
