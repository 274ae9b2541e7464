// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_NORM_COLUMNS_H
#define PENSTOCK_STAGES_OPS_NORM_COLUMNS_H
/*
 * Norms over channels with few positions, such as features (N, C): a loop along
 * positions would be called for one or two numbers, and a channel would read
 * one number per cache line. Here loops go along an image, a strip of columns
 * at a time; each column has its own sums, in double and in the order of
 * images, so the bits do not depend on strips and threads.
 */
#include "stages/ops/norm/channel.h"

/* Compute the same as the fast kernels of channel.h, for contiguous f32. If
 * those are faster, return false and compute nothing. */
bool pst_columns_run_stats(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops);
bool pst_columns_run_apply(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops);
bool pst_columns_run_sums(const struct pst_call *c,
                          const struct pst_norm_channels *p,
                          const struct pst_channel_loops *loops);
bool pst_columns_run_input(const struct pst_call *c,
                           const struct pst_norm_channels *p,
                           const struct pst_channel_loops *loops);

#endif
