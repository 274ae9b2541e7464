// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_EVALUATE_H
#define PENSTOCK_STAGES_SPLIT_EVALUATE_H
/*
 * A plan as model.eval() would run it. A file holds the nodes of the mode that
 * the model was exported in; what the Python code would do in the other mode
 * is not in it. So:
 *
 *  - dropout of any form counts as if it had asked self.training: it is off.
 *    Where it was called as a function, a note says so.
 *  - norms with running statistics read them.
 *  - other operators that draw random numbers are refused, for nobody knows
 *    whether eval() turns them off, unless the model was exported in eval mode
 *    (plan->evaluates): then they are in eval() what they are in the file.
 *
 * Modules that options name keep what is random in them, dropout included.
 */
#include "stages/split/again.h"

struct pst_eval_options {
    /* Patterns as of fnmatch(3), of modules; those below them count too. */
    const char *const *keep;
    size_t n_keep;
};

/*
 * One stage, with the ids, names, inputs, outputs and parameters of `plan`;
 * (*ret)->notes is for the user. Nodes that evaluation does not need are gone.
 * Borrows plan, which holds the parameters' data, until *ret is freed with
 * pst_plan_free. options may be NULL.
 */
enum pst_status pst_plan_eval(struct pst_plan *plan,
                              const struct pst_eval_options *options,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* The same cut where `plan` is cut, for ranks that have its stages. Zeros are
 * none. Not to be moved. */
struct pst_eval_cut {
    struct pst_plan *whole; /* of pst_eval_cut_other, or NULL */
    struct pst_plan *like;  /* of the same; borrowed */
    struct pst_plan *joined;
    struct pst_model *model;
    struct pst_plan *plan; /* what is run */
};

/* Parameters have the numbers of `plan`, which is borrowed; fn and ctx are
 * asked for their values. Both until *ret is released, also after an error.
 * PST_ERR_UNSUPPORTED: of a stage nothing is left in that mode. */
enum pst_status pst_eval_cut_init(struct pst_eval_cut *ret,
                                  struct pst_plan *plan, pst_param_fn fn,
                                  void *ctx,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/*
 * The same of another export of the model, as one in eval mode: its parameters
 * and buffers have the names and shapes of the plan's, and a node is where the
 * plan reads its parameters; the values are the plan's start values. The loss
 * is the output with the path of the plan's, or added by the same function.
 * Refuses by name what the plan does not have, and models that go through their
 * parameters in another order than the stages do. Borrows plan and model until
 * *ret is released.
 */
enum pst_status pst_eval_cut_other(struct pst_eval_cut *ret,
                                   struct pst_plan *plan,
                                   struct pst_model *model,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_eval_cut_fini(struct pst_eval_cut *cut);

#endif
