// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_WINDOW_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_WINDOW_H
/*
 * Strides and offset of a view as expressions of symbolic sizes, derived view
 * by view from those of its base. One thread; errors stay in the builder.
 */
#include "stages/graph/sizes/extent.h"

struct pst_window_sizes {
    struct pst_extent stride[PST_MAX_RANK], offset;
};

/* Derives v's strides and offset; unknown if that is not possible. */
void pst_window_follow(struct pst_build *build, const struct pst_value *v,
                       struct pst_window_sizes *ret);

#endif
