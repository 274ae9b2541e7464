// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_EVAL_MODEL_H
#define PENSTOCK_DAEMON_COMMON_MODEL_EVAL_MODEL_H
/* --eval-model: another export of the model, in eval mode, that replaces the
 * trained one in evaluations. One thread. */
#include "daemon/common/config.h"
#include "stages/split/bind/bind.h"
#include "stages/split/convert/evaluate.h"

/* A zeroed struct has no model. */
struct pstd_eval_model {
    struct pst_model *file;
    struct pst_model *adapted; /* `file` with the plan's adapters, or NULL */
};

/* Reads the file and splits it like the plan; fn reads the values of the plan's
 * parameters. averages: see struct pst_eval_options. Borrows plan and ctx; the
 * caller closes *ret after *cut, also after an error. */
enum pst_status pstd_eval_model_open(const char *path, struct pst_plan *plan,
                                     bool averages, pst_param_fn fn, void *ctx,
                                     struct pstd_eval_model *ret,
                                     struct pst_eval_cut *cut,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pstd_eval_model_close(struct pstd_eval_model *model);
/* Puts "--eval-model" in front of an error, and the path, unless the error has
 * it: an error of opening a file names it. */
void pstd_eval_model_prefix(const char *path, struct pst_diag *diag);

/* Makes the microbatches of an evaluation: as many as in training. Rows and
 * --size are those of training if they are symbolic in the file, else those of
 * the export. Borrows plan until pst_batch_fini. */
enum pst_status pstd_eval_model_batch(const struct pstd_config *config,
                                      const struct pst_batch *training,
                                      struct pst_plan *plan,
                                      struct pst_batch *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
