// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_MODEL_H
#define PENSTOCK_DAEMON_CTL_MODEL_H
/* Plans for commands: a folder that split wrote, or a .pt2 split on the fly. */
#include "daemon/common/config.h"
#include "stages/split/plan.h"

struct pstctl_plan {
    struct pst_plan *plan;
    struct pst_model *model; /* NULL if the plan was loaded */
};

/* True for a folder. */
bool pstctl_is_plan(const char *path);
/* PLAN, or MODEL.pt2 with the options of PSTD_OPT_SPLIT. */
enum pst_status pstctl_plan_open(const char *path,
                                 const struct pstd_config *config,
                                 struct pstctl_plan *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_plan_close(struct pstctl_plan *p);

#endif
