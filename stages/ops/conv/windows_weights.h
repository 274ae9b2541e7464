// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_WEIGHTS_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_WEIGHTS_H
/* Weight gradients of a convolution by windows (windows.h). */
#include "stages/ops/conv/windows_job.h"

/* Pool function: computes the weight gradients of a share of all taps. */
void pst_windows_taps(void *job, unsigned part, unsigned parts);

#endif
