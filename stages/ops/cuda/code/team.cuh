// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_TEAM_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_TEAM_CUH
/* Threads that work on a row together: a warp for a short row, else a block. */
#include "stages/ops/cuda/code/device.cuh"

template <bool WARP> struct pst_team;

template <> struct pst_team<true> {
    static const unsigned size = PST_WARP;

    PST_DEVICE float sum(float x)
    {
        return pst_warp_sum(x);
    }

    PST_DEVICE float max(float x)
    {
        return pst_warp_max(x);
    }
};

template <> struct pst_team<false> {
    static const unsigned size = PST_CUDA_BLOCK;

    PST_DEVICE float sum(float x)
    {
        return pst_block_sum(x);
    }

    PST_DEVICE float max(float x)
    {
        return pst_block_max(x);
    }
};

/* Returns the row of this thread's team; it may be beyond the last one. */
template <bool WARP> PST_DEVICE int64_t pst_team_row(void)
{
    const unsigned teams = PST_CUDA_BLOCK / pst_team<WARP>::size;

    return (int64_t)blockIdx.x * teams + threadIdx.x / pst_team<WARP>::size;
}

template <bool WARP> PST_DEVICE unsigned pst_team_lane(void)
{
    return threadIdx.x % pst_team<WARP>::size;
}

#endif
