// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_WINDOW_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_WINDOW_H
/*
 * Where a view lies in its storage, as it follows from free sizes: strides and
 * offset are computed from those of what it is a view of, view by view. One
 * thread; failures stay in the builder.
 */
#include "stages/graph/extent.h"

struct pst_window_sizes {
    struct pst_extent stride[PST_MAX_RANK], offset;
};

/* Where v's strides and offset come from; unknown where nobody knows. */
void pst_window_follow(struct pst_build *build, const struct pst_value *v,
                       struct pst_window_sizes *ret);

#endif
