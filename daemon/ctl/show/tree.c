// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/show/tree.h"

static enum pst_status open_plan(const char *path, struct pstctl_tree *t,
                                 struct pst_diag *diag)
{
    enum pst_status status = pst_plan_load(path, &t->plan.plan, diag);

    if (status == PST_OK)
        status = pstd_tree_make(t->plan.plan, &t->source, diag);
    t->modules = t->source.modules;
    t->tree = t->source.tree;
    return status;
}

static enum pst_status open_model(const char *path,
                                  const struct pstd_config *config,
                                  struct pstctl_tree *t, struct pst_diag *diag)
{
    enum pst_status status = pstd_model_open(path, config, &t->plan, diag);

    if (status == PST_OK) {
        const struct pst_model *model = pstd_model(&t->plan);

        status = pst_modules_new(model->graph, model->ties.at, model->ties.n,
                                 &t->source.modules, diag);
    }
    t->modules = t->source.modules;
    if (status == PST_OK)
        status = pst_tree_new(t->source.modules, &t->source.tree, diag);
    t->tree = t->source.tree;
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
    pstd_tree_fini(&t->source);
    pstd_plan_close(&t->plan);
}
