// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_RANDOM_DROPOUT_H
#define PENSTOCK_STAGES_OPS_RANDOM_DROPOUT_H
/* The arguments of dropout and native_dropout (input, p, train). */
#include "stages/ops/core/op.h"

/* Returns the scale of kept elements. For p = 1 it is 0, so that all results
 * are 0 and not NaN. */
static inline double pst_dropout_scale(double p)
{
    return p < 1.0 ? 1.0 / (1.0 - p) : 0.0;
}

/* Returns the argument `train`; None means true. */
static inline bool pst_dropout_trains(const struct pst_arg *args)
{
    return args[2].kind != PST_ARG_BOOL || args[2].b;
}

#endif
