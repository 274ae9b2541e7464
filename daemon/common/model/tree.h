// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_TREE_H
#define PENSTOCK_DAEMON_COMMON_MODEL_TREE_H
/* The modules of a plan, with the stages that run them. One thread. */
#include "stages/modules/tree/tree.h"
#include "stages/split/plan.h"

struct pstd_tree {
    struct pst_plan *joined; /* the plan with all its stages joined into one */
    struct PST_VEC(struct pst_tie) ties;
    struct pst_modules *modules;
    struct pst_tree *tree;
};

/* Borrows the plan until pstd_tree_fini. */
enum pst_status pstd_tree_make(struct pst_plan *plan, struct pstd_tree *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pstd_tree_fini(struct pstd_tree *t);

#endif
