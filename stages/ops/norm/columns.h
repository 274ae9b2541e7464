// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_NORM_COLUMNS_H
#define PENSTOCK_STAGES_OPS_NORM_COLUMNS_H
/*
 * Norms over channels of few positions, as those of features (N, C): a loop
 * along the positions would be called for every number or two, and a channel
 * read one number from each cache line. Here loops go along an image, a strip
 * of columns at a time; each column has its own sums, in double and in the
 * order of the images, so the bits do not depend on strips and threads.
 */
#include "stages/ops/norm/channel.h"

/* Contiguous f32 operands, as the fast kernels of channel.h. False: these are
 * better, and nothing was done. */
bool pst_columns_run_stats(const struct pst_call *c,
                           const struct pst_channels *p,
                           const struct pst_channel_loops *loops);
bool pst_columns_run_apply(const struct pst_call *c,
                           const struct pst_channels *p,
                           const struct pst_channel_loops *loops);
bool pst_columns_run_sums(const struct pst_call *c,
                          const struct pst_channels *p,
                          const struct pst_channel_loops *loops);
bool pst_columns_run_input(const struct pst_call *c,
                           const struct pst_channels *p,
                           const struct pst_channel_loops *loops);

#endif
