// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_OPEN_H
#define PENSTOCK_DAEMON_COMMON_MODEL_OPEN_H
/* Opens a plan: a folder written by split, or a .pt2 that is split on the fly.
 * One thread. */
#include "daemon/common/config.h"
#include "stages/split/plan.h"

struct pstd_plan {
    struct pst_plan *plan; /* owned; NULL if only the model is loaded */
    /* The exported model and what each option made of it. The plan is made from
     * the last model, which borrows from the others. Empty if the plan was
     * loaded from a folder. */
    struct PST_VEC(struct pst_model *) models;
};

/* Opens the model and applies --swap, --lora, --freeze and --unfreeze. */
enum pst_status pstd_model_open(const char *path,
                                const struct pstd_config *config,
                                struct pstd_plan *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
static inline struct pst_model *pstd_model(const struct pstd_plan *p)
{
    return p->models.n > 0 ? p->models.at[p->models.n - 1] : NULL;
}

/* True if the path is a folder: a plan, not a .pt2. */
bool pstd_is_plan(const char *path);
/* Opens PLAN, or MODEL.pt2 with the options of PSTD_OPT_SPLIT. */
enum pst_status pstd_plan_open(const char *path,
                               const struct pstd_config *config,
                               struct pstd_plan *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pstd_plan_close(struct pstd_plan *p);

/* Returns the first given option that determines the cuts; or NULL. */
const char *pstd_cut_option(const struct pstd_config *config);

#endif
