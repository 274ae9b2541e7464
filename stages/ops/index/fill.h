// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_FILL_H
#define PENSTOCK_STAGES_OPS_INDEX_FILL_H
/*
 * x[:, mask] = v with one v for all positions of the mask: their number does
 * not matter, so in this case the shapes of index_put do not depend on data.
 * Thread-safe; borrows everything for the call.
 */
#include "stages/ops/core/op.h"

/* True for such arguments of index_put: the list has one bool tensor, as its
 * last entry, with the matching dimensions of x. */
bool pst_mask_fills(const struct pst_arg *args);
/* Writes to out[0], which already holds x. */
void pst_mask_fill(const struct pst_call *c);
enum pst_status pst_mask_fill_vjp(struct pst_vjp *v);

#endif
