// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_SHOW_TREE_H
#define PENSTOCK_DAEMON_CTL_SHOW_TREE_H
/* Opens the module calls of a model or a plan. */
#include "daemon/common/model/tree.h"
#include "daemon/ctl/model.h"

struct pstctl_tree {
    struct pstd_plan plan;
    struct pstd_tree source;
    struct pst_modules *modules; /* those of `of` */
    struct pst_tree *tree;
};

/* Opens PLAN, or MODEL.pt2 with the options that pstd_model_open applies. */
enum pst_status pstctl_tree_open(const char *path,
                                 const struct pstd_config *config,
                                 struct pstctl_tree *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_tree_close(struct pstctl_tree *t);

#endif
