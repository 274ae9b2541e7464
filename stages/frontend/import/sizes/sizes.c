// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers that depend on symbolic sizes have expressions, from the file or by
 * stages/graph/sizes/extent.h. If it is unknown how a number depends on them,
 * the model only works with the exported sizes, and model->fixed names the
 * number.
 */
#include "stages/frontend/import/import.h"

#include "stages/graph/schema.h"

static bool has_unknown(const char *const *exprs, unsigned n)
{
    for (unsigned k = 0; exprs != NULL && k < n; k++)
        if (pst_expr_is_unknown(exprs[k]))
            return true;
    return false;
}

static bool drop_unknown(struct pst_arg *arg)
{
    const bool list = arg->kind == PST_ARG_INTS || arg->kind == PST_ARG_FLOATS;

    if (!has_unknown(arg->exprs, list ? arg->n : 1))
        return false;
    arg->exprs = NULL;
    return true;
}

static enum pst_status fix_sizes(struct pst_model *model, const char *where,
                                 struct pst_diag *diag)
{
    if (model->fixed != NULL)
        return PST_OK;
    model->fixed =
        pst_arena_printf(&model->arena,
                         "a number in it depends on sizes in a way that is "
                         "not known%s%.300s",
                         where[0] != '\0' ? ": " : "", where);
    return model->fixed != NULL ? PST_OK : pst_diag_nomem(diag, 0);
}

enum pst_status pst_import_sizes(struct pst_import *import)
{
    const struct pst_graph *graph = import->model->graph;
    enum pst_status status = PST_OK;

    if (import->sizes.fixed != NULL)
        status = fix_sizes(import->model, import->sizes.fixed, import->diag);
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        struct pst_node *node = graph->nodes.at[i];
        bool unknown = false;

        for (unsigned k = 0; k < node->schema->n_args; k++)
            unknown = drop_unknown(&node->args[k]) || unknown;
        if (unknown)
            status = fix_sizes(import->model, node->schema->name, import->diag);
    }
    for (size_t i = 0; i < graph->values.n; i++) {
        struct pst_value *v = graph->values.at[i];

        if (has_unknown(v->dims, v->meta.rank))
            v->dims = NULL;
    }
    pst_symbols_drop_constants(&import->model->symbols);
    return status;
}
