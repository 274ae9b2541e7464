// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_EVAL_MODEL_H
#define PENSTOCK_DAEMON_COMMON_MODEL_EVAL_MODEL_H
/* --eval-model: another export of the model, in eval mode, that is run in the
 * place of the one that is trained wherever that is evaluated. One thread. */
#include "daemon/common/config.h"
#include "stages/split/bind/bind.h"
#include "stages/split/evaluate.h"

/* Zeros are none. */
struct pstd_eval_model {
    struct pst_model *file;
    struct pst_model *adapted; /* with the plan's adapters, or NULL */
};

/* Reads the file and cuts it as the plan is cut. Borrows plan; *ret is to be
 * closed after *cut, also after an error. */
enum pst_status pstd_eval_model_open(const char *path, struct pst_plan *plan,
                                     struct pstd_eval_model *ret,
                                     struct pst_eval_cut *cut,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pstd_eval_model_close(struct pstd_eval_model *model);

/* Microbatches of an evaluation: as many as the training has, of the same rows
 * and --size if the file leaves these free, else as it was exported. Borrows
 * plan until pst_batch_fini. */
enum pst_status pstd_eval_model_batch(const struct pstd_config *config,
                                      const struct pst_batch *training,
                                      struct pst_plan *plan,
                                      struct pst_batch *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

#endif
