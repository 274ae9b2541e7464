// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_MODEL_H
#define PENSTOCK_DAEMON_CTL_MODEL_H
/* Plans for commands: a folder written by split, or a .pt2 that is split on the
 * fly. */
#include "daemon/common/config.h"
#include "stages/split/plan.h"

struct pstctl_plan {
    struct pst_plan *plan; /* NULL if only the model is loaded */
    /* The exported model and what each option made of it. The plan is made from
     * the last model, which borrows from the others. Empty if the plan was
     * loaded from a folder. */
    struct PST_VEC(struct pst_model *) models;
};

/* Opens the model and applies --swap, --lora, --freeze and --unfreeze. */
enum pst_status pstctl_model_open(const char *path,
                                  const struct pstd_config *config,
                                  struct pstctl_plan *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
static inline struct pst_model *pstctl_model(const struct pstctl_plan *p)
{
    return p->models.n > 0 ? p->models.at[p->models.n - 1] : NULL;
}

/* True if the path is a folder: a plan, not a .pt2. */
bool pstctl_is_plan(const char *path);
/* Opens PLAN, or MODEL.pt2 with the options of PSTD_OPT_SPLIT. */
enum pst_status pstctl_plan_open(const char *path,
                                 const struct pstd_config *config,
                                 struct pstctl_plan *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_plan_close(struct pstctl_plan *p);

/* Returns the first given option that determines the cuts; or NULL. */
const char *pstctl_cut_option(const struct pstd_config *config);
/* Prints the text, then frees it, also on failure. json: the text is JSON. */
enum pst_status pstctl_print_text(struct pst_str *text, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the table of stages. */
enum pst_status pstctl_print_plan(const struct pst_plan *plan, bool json,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
