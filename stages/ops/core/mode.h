// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_MODE_H
#define PENSTOCK_STAGES_OPS_CORE_MODE_H
/*
 * What model.eval() does to a node. Export writes the mode that the model was
 * in into arguments: `train` or `training` of dropout, `dropout_p` of
 * attention, `training` of our rows that choose between the two results of a
 * composition (penstock.by_mode, penstock.norm_mode). Pure functions.
 */
#include "stages/ops/core/op.h"

/* Arguments (schema order) as in evaluation; what is for training alone is not
 * used any more. */
void pst_mode_leave(const struct pst_schema *schema, struct pst_arg *args);

/* Does a row with PST_OP_DROPOUT drop with these arguments? */
bool pst_mode_drops(const struct pst_schema *schema,
                    const struct pst_arg *args);

/* Which argument a node that drops nothing gives on as it is; -1: it does
 * something all the same. */
int pst_mode_passes(const struct pst_op *op, const struct pst_schema *schema,
                    const struct pst_arg *args);

/* Does the node draw random numbers as it stands? */
bool pst_mode_draws(const struct pst_node *node);

#endif
