// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_REPLACE_H
#define PENSTOCK_DAEMON_COMMON_MODEL_REPLACE_H
/* Replaces a module in the model of a plan that runs. One thread. */
#include "stages/modules/replace.h"
#include "stages/split/plan.h"

/* A zeroed struct has no models. The caller closes both models, `model` first.
 */
struct pstd_replaced {
    /* The new module, and the model that contains it. */
    struct pst_model *module, *model;
    unsigned calls;
    unsigned frozen; /* parameters of the new module that are frozen */
};

/*
 * Replaces the module what->path of `old`, the reconstructed model of `before`,
 * by the module in the file `path` (what->module is not read). A new parameter
 * is frozen if the old parameter of the same name was frozen, or if no
 * parameter of the old module was trained. PST_ERR_UNSUPPORTED: an adapter
 * would be lost. After an error, too, the caller closes the models in *ret.
 */
enum pst_status pstd_replace(const struct pst_plan *before,
                             const struct pst_model *old,
                             const struct pst_replacement *what,
                             const char *path, struct pstd_replaced *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* Returns PST_ERR_UNSUPPORTED if gradients that passed through the old module
 * do not pass through the new one, so that parameters before it would no longer
 * be trained. */
enum pst_status pstd_replaced_check(const struct pst_plan *before,
                                    const struct pst_plan *after,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True if the parameter belongs to the new module. */
bool pstd_replaced_has_param(const struct pstd_replaced *replaced,
                             const char *fqn);

#endif
