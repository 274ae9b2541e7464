// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_LANES_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_LANES_H
/*
 * Reductions with PST_LANES explicit partial results, combined by a fixed tree:
 * the compiler may not reorder a sum, so the order that it vectorises is
 * explicit. Element i belongs to lane i % PST_LANES for any vector width.
 */
#include "stages/ops/cpu/simd/real.h"

#include <stdint.h>

#define PST_LANES 32

static inline pst_real pst_lanes_sum(pst_real lane[PST_LANES])
{
    for (int w = PST_LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

/* Returns the maximum of the lanes; NaN is not propagated. */
static inline pst_real pst_lanes_max(pst_real lane[PST_LANES])
{
    for (int w = PST_LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] = lane[j] > lane[j + w] ? lane[j] : lane[j + w];
    return lane[0];
}

/* Adds the expression `term` in i to sum, for 0 <= i < n. */
#define PST_LANES_SUM(sum, n, term)                                            \
    do {                                                                       \
        pst_real lane_[PST_LANES] = {0};                                       \
        int64_t i0_ = 0;                                                       \
                                                                               \
        for (; i0_ + PST_LANES <= (n); i0_ += PST_LANES)                       \
            for (int j_ = 0; j_ < PST_LANES; j_++) {                           \
                const int64_t i = i0_ + j_;                                    \
                                                                               \
                lane_[j_] += (term);                                           \
            }                                                                  \
        for (int64_t i = i0_; i < (n); i++)                                    \
            lane_[i - i0_] += (term);                                          \
        (sum) += pst_lanes_sum(lane_);                                         \
    } while (0)

/* Raises max to the largest `term` in i, for 0 <= i < n; NaN is ignored. */
#define PST_LANES_MAX(max, n, term)                                            \
    do {                                                                       \
        pst_real lane_[PST_LANES];                                             \
        int64_t i0_ = 0;                                                       \
                                                                               \
        for (int j_ = 0; j_ < PST_LANES; j_++)                                 \
            lane_[j_] = (max);                                                 \
        for (; i0_ + PST_LANES <= (n); i0_ += PST_LANES)                       \
            for (int j_ = 0; j_ < PST_LANES; j_++) {                           \
                const int64_t i = i0_ + j_;                                    \
                                                                               \
                lane_[j_] = (term) > lane_[j_] ? (term) : lane_[j_];           \
            }                                                                  \
        for (int64_t i = i0_; i < (n); i++)                                    \
            lane_[i - i0_] =                                                   \
                (term) > lane_[i - i0_] ? (term) : lane_[i - i0_];             \
        (max) = pst_lanes_max(lane_);                                          \
    } while (0)

#endif
