// SPDX-License-Identifier: Apache-2.0
/* Lists the modules of a model. */
#include "lib/object.h"

#include "daemon/common/model/tree.h"
#include "stages/base/alloc.h"

#define TAG PST_TAG_CLIENT

/* A module, copied from its row of the module tree. struct pstl_modules owns
 * the arrays and texts. */
struct pstl_module {
    const char *name, *type;
    int64_t own, all;
    unsigned calls;
    size_t n_stages;
    int32_t *stages;
};

struct pstl_modules {
    struct pst_arena arena; /* owns the rows and what they point to */
    struct pstl_module *at;
    size_t n;
};

static bool copy_row(struct pstl_modules *m, const struct pst_tree_row *row,
                     struct pstl_module *ret)
{
    const char *type = row->site != NULL ? row->site->call->type : NULL;

    *ret = (struct pstl_module){
        .name = pst_arena_strdup(&m->arena, row->path),
        .type = pst_arena_strdup(&m->arena, type != NULL ? type : ""),
        .own = row->own,
        .all = row->total,
        .calls = row->site == NULL ? 0
                 : row->parent < 0 ? 1
                                   : row->site->n_calls,
        .n_stages = row->stages.n,
        .stages = pst_arena_calloc(&m->arena, row->stages.n + 1,
                                   sizeof(*ret->stages))};
    if (ret->name == NULL || ret->type == NULL || ret->stages == NULL)
        return false;
    for (size_t i = 0; i < row->stages.n; i++)
        ret->stages[i] = (int32_t)row->stages.at[i];
    return true;
}

static enum pst_status copy_tree(struct pstl_modules *m,
                                 const struct pst_tree *tree,
                                 struct pst_diag *diag)
{
    const size_t n = tree->order.n;

    m->at = pst_arena_calloc(&m->arena, n + 1, sizeof(*m->at));
    for (size_t i = 0; i < n && m->at != NULL; i++)
        if (!copy_row(m, &tree->rows.at[tree->order.at[i]], &m->at[i]))
            m->at = NULL;
    m->n = n;
    return m->at != NULL ? PST_OK : pst_diag_nomem(diag, n * sizeof(*m->at));
}

enum pst_status pstl_modules_new(struct pst_plan *plan,
                                 struct pstl_modules **ret,
                                 struct pst_diag *diag)
{
    struct pstl_modules *m = pst_calloc(TAG, 1, sizeof(*m));
    struct pstd_tree tree;
    enum pst_status status;

    if (m == NULL)
        return pst_diag_nomem(diag, sizeof(*m));
    pst_arena_init(&m->arena, TAG);
    status = pstd_tree_make(plan, &tree, diag);
    if (status == PST_OK) {
        status = copy_tree(m, tree.tree, diag);
        pstd_tree_fini(&tree);
    }
    if (status == PST_OK)
        *ret = m;
    else
        pstl_modules_free(m);
    return status;
}

void pstl_modules_free(struct pstl_modules *m)
{
    if (m == NULL)
        return;
    pst_arena_fini(&m->arena);
    pst_free(m);
}

size_t penstock_module_count(const penstock_model *model)
{
    return model != NULL ? model->modules->n : 0;
}

int penstock_describe_module(const penstock_model *model, size_t index,
                             struct penstock_module *ret,
                             struct penstock_error *error)
{
    const size_t n = penstock_module_count(model);
    struct penstock_module info = {.size = sizeof(info)};
    const struct pstl_module *m;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_check_struct("ret", ret, &diag);
    if (status == PST_OK && index >= n)
        status =
            pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                         "there are %zu modules, and no number %zu", n, index);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    m = &model->modules->at[index];
    info.name = m->name;
    info.type = m->type;
    info.own_parameters = m->own;
    info.parameters = m->all;
    info.calls = m->calls;
    info.n_stages = (int32_t)m->n_stages;
    info.stages = m->stages;
    pstl_write_struct(&info, ret, sizeof(info));
    return 0;
}
