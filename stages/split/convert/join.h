// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_CONVERT_JOIN_H
#define PENSTOCK_STAGES_SPLIT_CONVERT_JOIN_H
/*
 * Joins the stages of a plan into one, so that the plan can be compared with
 * its uncut form when the model's file no longer exists. The stages' graphs are
 * concatenated and edges become plain values. Node ids, names, inputs, outputs
 * and parameters (and their order) are those of `plan`.
 */
#include "stages/split/plan.h"

/* Joins the stages. Borrows plan, which holds the parameters' data, until *ret
 * is freed with pst_plan_free. */
enum pst_status pst_plan_join(struct pst_plan *plan, struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Joins the stages like pst_plan_join. Nodes for which `eval` returns true are
 * replaced by the nodes that model.eval() would run. With `wide`, parameters
 * that are trained in bf16 (--params bf16) become f32, and their readers need
 * no conversion; start values are converted. */
typedef bool (*pst_join_eval_fn)(void *ctx, const struct pst_node *node);
enum pst_status pst_plan_join_as(struct pst_plan *plan, pst_join_eval_fn eval,
                                 void *ctx, bool wide, struct pst_plan **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
