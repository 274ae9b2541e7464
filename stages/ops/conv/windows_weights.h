// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_WEIGHTS_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_WEIGHTS_H
/*
 * Gradients of weights by windows. The factor that has to be turned is the one
 * with fewer numbers: windows, or, where a group has few rows, gradients. Then
 * the product is that of w transposed, and positions are counted along the
 * copy, with zeros for the gradients at the ends of lines.
 */
#include "stages/ops/conv/windows_job.h"

#define PST_WINDOWS_FEW 32 /* rows, of one panel */

/* Floats beside the copy that a part needs if positions are the copy's. */
int64_t pst_windows_side(const struct pst_windows_job *j);
/* Of a pool: a share of all taps. */
void pst_windows_taps(void *job, unsigned part, unsigned parts);

#endif
