// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_OVERLAP_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_OVERLAP_H
/*
 * Exact questions about windows (sizes, strides, offset in elements of their
 * dtype) on one storage. Where comparing bounds does not decide, a bitmap of
 * the elements does, so that interleaved windows (even and odd columns) count
 * as disjoint.
 */
#include "stages/graph/tensor.h"

struct pst_window {
    const struct pst_meta *meta;
    int64_t offset;
};

/* Do two indices reach the same element? */
enum pst_status pst_window_overlaps_itself(const struct pst_meta *meta,
                                           bool *ret, struct pst_diag *diag)
    PST_MUST_CHECK;
/* Is there an element that both reach? */
enum pst_status pst_windows_overlap(const struct pst_window *a,
                                    const struct pst_window *b, bool *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Is each element of b one of a? Also false of what is too much to find out. */
enum pst_status pst_window_covers(const struct pst_window *a,
                                  const struct pst_window *b, bool *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Same sizes (dimensions of size 1 do not count), strides and offset. */
bool pst_windows_same(const struct pst_window *a, const struct pst_window *b);

#endif
