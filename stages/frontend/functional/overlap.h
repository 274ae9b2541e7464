// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_OVERLAP_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_OVERLAP_H
/*
 * Exact tests on windows (sizes, strides, offset in elements of their dtype) of
 * one storage. If comparing bounds does not decide, a bitmap of the elements
 * does, so that interleaved windows (even and odd columns) count as disjoint.
 */
#include "stages/graph/tensor.h"

struct pst_window {
    const struct pst_meta *meta;
    int64_t offset;
};

/* Sets *ret to whether two indices refer to the same element. */
enum pst_status pst_window_overlaps_itself(const struct pst_meta *meta,
                                           bool *ret, struct pst_diag *diag)
    PST_MUST_CHECK;
/* Sets *ret to whether the windows have an element in common. */
enum pst_status pst_windows_overlap(const struct pst_window *a,
                                    const struct pst_window *b, bool *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Estimates the number of elements that pst_windows_overlap visits. */
int64_t pst_windows_work(const struct pst_window *a,
                         const struct pst_window *b);
/* Sets *ret to whether every element of b is one of a. False if that is too
 * expensive to find out. */
enum pst_status pst_window_covers(const struct pst_window *a,
                                  const struct pst_window *b, bool *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* True if sizes (ignoring dimensions of size 1), strides and offset are
 * equal. */
bool pst_windows_same(const struct pst_window *a, const struct pst_window *b);

#endif
