// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CREATE_ARANGE_H
#define PENSTOCK_STAGES_OPS_CREATE_ARANGE_H
#include "stages/ops/core/op.h"

/* The elements of arange: start + i step, or first + i by if they are
 * integers. */
struct pst_arange {
    double start, step;
    int64_t first, by;
};
/* Describes a call of arange whose first n arguments are numbers: end; start
 * and end; start, end and step. */
struct pst_arange pst_arange_of(const struct pst_call *c, unsigned n);

#endif
