// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/show/tree.h"

static enum pst_status open_plan(const char *path, struct pstctl_tree *t,
                                 struct pst_diag *diag)
{
    enum pst_status status = pst_plan_load(path, &t->opened.plan, diag);

    if (status == PST_OK)
        status = pstd_tree_make(t->opened.plan, &t->of, diag);
    t->modules = t->of.modules;
    t->tree = t->of.tree;
    return status;
}

static enum pst_status open_model(const char *path,
                                  const struct pstd_config *config,
                                  struct pstctl_tree *t, struct pst_diag *diag)
{
    enum pst_status status = pstd_model_open(path, config, &t->opened, diag);

    if (status == PST_OK) {
        const struct pst_model *model = pstd_model(&t->opened);

        status = pst_modules_new(model->graph, model->ties.at, model->ties.n,
                                 &t->of.modules, diag);
    }
    t->modules = t->of.modules;
    if (status == PST_OK)
        status = pst_tree_new(t->of.modules, &t->of.tree, diag);
    t->tree = t->of.tree;
    return status;
}

enum pst_status pstctl_tree_open(const char *path,
                                 const struct pstd_config *config,
                                 struct pstctl_tree *ret, struct pst_diag *diag)
{
    struct pstctl_tree t = {0};
    enum pst_status status;

    status = pstd_is_plan(path) ? open_plan(path, &t, diag)
                                : open_model(path, config, &t, diag);
    if (status == PST_OK)
        *ret = t;
    else
        pstctl_tree_close(&t);
    return status;
}

void pstctl_tree_close(struct pstctl_tree *t)
{
    pstd_tree_fini(&t->of);
    pstd_plan_close(&t->opened);
}
