// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_INDEX_FILL_H
#define PENSTOCK_STAGES_OPS_INDEX_FILL_H
/*
 * x[:, mask] = v with the same v for all positions of the mask. The number of
 * positions does not matter then, so the shapes of this index_put do not depend
 * on data. Thread-safe; borrows everything for the call.
 */
#include "stages/ops/core/op.h"

/* True if the arguments of index_put are of this kind: the last entry of the
 * list is a bool tensor with the sizes of the matching dimensions of x, the
 * others are None, and v is the same for all positions. */
bool pst_mask_fills(const struct pst_arg *args);
/* Writes v to the masked positions of out[0], which already holds x. */
void pst_mask_fill(const struct pst_call *c);
enum pst_status pst_mask_fill_vjp(struct pst_vjp *v);

#endif
