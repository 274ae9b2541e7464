// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_LOW_H
#define PENSTOCK_STAGES_GRAPH_LOW_H
/* Parameters that are trained in 16 bits (--params bf16). Any thread. */
#include "stages/graph/tensor.h"

/* Returns the dtype of a parameter's gradient and optimizer states: f32 for
 * bf16 and f16, else the parameter's dtype. */
static inline enum pst_dtype pst_dtype_of_grad(enum pst_dtype param)
{
    return param == PST_BF16 || param == PST_F16 ? PST_F32 : param;
}

#endif
