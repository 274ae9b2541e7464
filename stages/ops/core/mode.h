// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_MODE_H
#define PENSTOCK_STAGES_OPS_CORE_MODE_H
/*
 * Applies model.eval() to nodes. Export records the model's mode in arguments:
 * `train` or `training` of dropout, `dropout_p` of attention, `training` of our
 * own rows that select one of two results of a composition (penstock.by_mode,
 * penstock.norm_mode). Some operators have another row in training programs.
 * Pure functions.
 */
#include "stages/ops/core/op.h"

/* Sets the arguments (schema order) to eval mode. Operands that only training
 * uses become unused. */
void pst_mode_set_eval(const struct pst_schema *schema, struct pst_arg *args);

/* True if a row with PST_OP_DROPOUT drops elements with these arguments. */
bool pst_mode_has_dropout(const struct pst_schema *schema,
                          const struct pst_arg *args);

/* Returns the argument that a node without dropout returns unchanged; -1: the
 * node is not an identity. */
int pst_mode_identity_arg(const struct pst_op *op,
                          const struct pst_schema *schema,
                          const struct pst_arg *args);

/* Returns the row that replaces op in nodes that are differentiated: it has the
 * same arguments and vjp, and more results, which the vjp reads. NULL: none. */
const struct pst_op *pst_mode_saving(const struct pst_op *op);

/* True if the node draws random numbers with its current arguments. */
bool pst_mode_is_random(const struct pst_node *node);

#endif
