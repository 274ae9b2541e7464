// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_REDUCE_WHOLE_H
#define PENSTOCK_STAGES_OPS_REDUCE_WHOLE_H
/* Fast sums of contiguous bool and i64 tensors whose reduced dimensions are
 * adjacent; any and all are derived from the sum of a bool tensor. */
#include "stages/ops/reduce/reduce.h"

enum pst_whole { PST_WHOLE_SUM, PST_WHOLE_ANY, PST_WHOLE_ALL };

/* True for a sum of bool or i64 whose result is i64; arg: see
 * pst_reduce_dims. */
bool pst_whole_fits_sum(const struct pst_call *call, int arg);
/* True for `any` or `all` of bool elements with a bool result. */
bool pst_whole_fits_logic(const struct pst_call *call, int arg);
void pst_whole_run(const struct pst_call *call, int arg, enum pst_whole how);

#endif
