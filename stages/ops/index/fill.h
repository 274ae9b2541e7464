// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_FILL_H
#define PENSTOCK_STAGES_OPS_INDEX_FILL_H
/*
 * x[:, mask] = v with the same v at all places of the mask: how many there are
 * is no matter, so this form of index_put depends on data in no shape.
 * Thread-safe; borrows all for the call.
 */
#include "stages/ops/core/op.h"

/* Are these arguments of index_put of that form? Its list has one bool tensor,
 * the last one, of dimensions of x. */
bool pst_mask_fills(const struct pst_arg *args);
/* Writes to out[0], which holds x. */
void pst_mask_fill(const struct pst_call *c);
enum pst_status pst_mask_fill_vjp(struct pst_vjp *v);

#endif
