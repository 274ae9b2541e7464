// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CUDA_H
#define PENSTOCK_STAGES_OPS_CUDA_CUDA_H
/* "cuda": NVIDIA GPUs. Calls without a kernel run on the host (fallback.h). */
#include "stages/device/device.h"

extern const struct pst_device pst_device_cuda;

#endif
