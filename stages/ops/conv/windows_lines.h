// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_LINES_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_LINES_H
/* Where the results of a convolution by windows go. */
#include "stages/ops/conv/windows_job.h"

/* Plane of a row of the result of a group. */
float *pst_windows_plane(const struct pst_windows_job *j, int64_t image,
                         int64_t group, int64_t row);
/* What a row starts from. */
float pst_windows_bias(const struct pst_windows_job *j, int64_t group,
                       int64_t row);
/* Passes from `pass` on, 1 or 2, whose results alternate along lines. */
int64_t pst_windows_mates(const struct pst_windows_job *j, int64_t pass);
/* n positions from `at` on go where they belong: of each of the range's passes
 * (rows, ld). */
void pst_windows_scatter(const struct pst_windows_job *j,
                         const struct pst_windows_range *r, int64_t at,
                         int64_t n, const float *from);

#endif
