// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_LINES_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_LINES_H
/* Stores the results of a convolution by windows (windows.h). */
#include "stages/ops/conv/windows_job.h"

/* Returns the plane of an image's result that row `row` of the group fills. */
float *pst_windows_plane(const struct pst_windows_job *j, int64_t image,
                         int64_t group, int64_t row);
/* Returns the bias of a row; 0 without bias. */
float pst_windows_bias(const struct pst_windows_job *j, int64_t group,
                       int64_t row);
/* Returns how many passes from `pass` on, 1 or 2, are stored together, because
 * their results alternate along a line. */
int64_t pst_windows_count_paired(const struct pst_windows_job *j, int64_t pass);
/* Stores the results of n positions from `at` on for each pass of the range;
 * `from` holds (rows, ld) results per pass. */
void pst_windows_scatter(const struct pst_windows_job *j,
                         const struct pst_windows_range *r, int64_t at,
                         int64_t n, const float *from);

#endif
