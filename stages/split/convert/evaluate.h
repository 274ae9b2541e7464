// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_CONVERT_EVALUATE_H
#define PENSTOCK_STAGES_SPLIT_CONVERT_EVALUATE_H
/*
 * Converts a plan to the graph that model.eval() would run.
 *
 * A file has the nodes of the mode in which the model was exported, and not the
 * Python code for the other mode. So:
 *
 *  - every dropout is off, as if it had checked self.training. A note names
 *    those that were called as functions.
 *  - norms with running statistics read them.
 *  - buffers that the model writes itself are written, too. A note names those
 *    that outputs depend on, unless the model was exported in eval mode.
 *  - other random operators are an error, because it is unknown whether eval()
 *    turns them off. If the model was exported in eval mode (plan->evaluates)
 *    they stay as they are in the file.
 *
 * Modules named in the options keep their random operators, dropout included.
 */
#include "stages/split/attr/follow.h"

struct pst_eval_options {
    /* fnmatch(3) patterns of modules; submodules match, too. */
    const char *const *keep;
    size_t n_keep;
    /* The parameters will be averages (--use-ema): f32, even if the parameters
     * are trained in bf16 (--params bf16). */
    bool averages;
    bool has_cache; /* the model's buffers are a cache: no note */
};

/*
 * Makes a plan of one stage with the ids, names, inputs, outputs and parameters
 * of `plan`. Nodes that evaluation does not need are removed. (*ret)->notes are
 * for the user. Borrows plan, which holds the parameters' data, until *ret is
 * freed with pst_plan_free. options may be NULL.
 */
enum pst_status pst_plan_eval(struct pst_plan *plan,
                              const struct pst_eval_options *options,
                              struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* An evaluation plan cut like `plan`, for ranks that have its stages. A zeroed
 * struct is valid and empty. It must not be moved. */
struct pst_eval_cut {
    struct pst_plan *whole; /* set by pst_eval_cut_other, or NULL */
    struct pst_plan *like;  /* the plan that is evaluated; borrowed */
    /* reads the values of `like`'s parameters, with read_ctx */
    pst_param_fn read;
    void *read_ctx;
    struct pst_plan *joined;
    struct pst_model *model;
    struct pst_casting
        *casts[PST_MAX_FOLLOWS]; /* casts of tensors of `model` */
    struct pst_plan *plan;       /* the plan to run */
};

/* Makes the evaluation plan. Parameters are numbered as in `plan`; fn reads
 * their values. averages: see struct pst_eval_options. plan and ctx are
 * borrowed until *ret is released, also after an error. PST_ERR_UNSUPPORTED: a
 * stage has no nodes left in eval mode. */
enum pst_status pst_eval_cut_init(struct pst_eval_cut *ret,
                                  struct pst_plan *plan, bool averages,
                                  pst_param_fn fn, void *ctx,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Makes the evaluation plan of another export of the model, such as one in eval
 * mode. Its parameters and buffers must have the names, shapes and dtypes of
 * the plan's; those that were cast since the run began are cast here, too
 * (attr/follow.h). Parameters that the plan trains in bf16 may be f32 here, for
 * averages. Each node goes to the first stage that has its operands; fn
 * reads the values of the plan's parameters. The loss is the output with the
 * same path as the plan's loss, or is added by the same loss function. The
 * error names tensors that the plan does not have, and models that use their
 * parameters in another order than the stages do. Borrows plan, ctx and model
 * until *ret is released.
 */
enum pst_status pst_eval_cut_other(struct pst_eval_cut *ret,
                                   struct pst_plan *plan, pst_param_fn fn,
                                   void *ctx, struct pst_model *model,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_eval_cut_fini(struct pst_eval_cut *cut);

#endif
