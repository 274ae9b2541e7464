// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SOFTMAX_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SOFTMAX_CUH
/* The sum of e^(x - max), with the maximum, in one pass over x. */
#include "stages/ops/cuda/code/team.cuh"

struct pst_exp_sum {
    float max, sum; /* -inf and 0: nothing yet */
};

/* Adds x. A NaN makes the sum a NaN; -inf adds nothing. */
PST_DEVICE void pst_exp_sum_add(struct pst_exp_sum &s, float x)
{
    if (x > s.max) {
        s.sum = s.sum * expf(s.max - x) + 1.0f;
        s.max = x;
    } else if (x != -INFINITY) {
        s.sum += expf(x - s.max);
    }
}

/* Returns the sum of e^(x - max) for another max. It is NaN if +inf is among
 * the numbers, because inf - inf is. */
PST_DEVICE float pst_exp_sum_for(const struct pst_exp_sum &s, float max)
{
    return s.max == -INFINITY ? s.sum : s.sum * expf(s.max - max);
}

/* Joins the sums of a row's threads; each of them gets the result. */
template <bool WARP>
PST_DEVICE struct pst_exp_sum pst_exp_sum_join(const struct pst_exp_sum &s)
{
    const float max = pst_team<WARP>::max(s.max);

    return {max, pst_team<WARP>::sum(pst_exp_sum_for(s, max))};
}

#endif
