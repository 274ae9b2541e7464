// SPDX-License-Identifier: Apache-2.0
/* Computes numbers that depend on constants of the file alone. */
#include "stages/frontend/import/regions/regions.h"
#include "stages/ops/core/call.h"

/* maximum number of elements of an intermediate tensor */
#define MAX_NUMBERS 4096

struct fold {
    struct pst_import *import;
    struct pst_eval *eval;
    unsigned n_nodes;
    struct PST_VEC(void *) data; /* data of constants */
    enum pst_status status;
};

static bool compute_value(struct fold *f, struct pst_value *v);

static bool is_small(const struct pst_value *v)
{
    return pst_meta_numel(&v->meta) <= MAX_NUMBERS &&
           pst_meta_span(&v->meta) <= MAX_NUMBERS * sizeof(double);
}

static bool load_constant(struct fold *f, struct pst_value *v)
{
    const struct pst_model *model = f->import->model;
    const struct pst_weight *w = pst_model_weight(model, v->fqn);
    void *data;

    if (w == NULL || !is_small(v))
        return false;
    data = pst_alloc(PST_TAG_ARCHIVE, PST_MAX(pst_meta_span(&v->meta), 1u));
    if (data == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &f->data, data)) {
        pst_free(data);
        f->status = pst_diag_nomem(f->import->diag, 0);
        return false;
    }
    f->status = pst_model_read(model, w, &v->meta, data, f->import->diag);
    if (f->status == PST_OK)
        f->status = pst_eval_set(f->eval, v, data, f->import->diag);
    return f->status == PST_OK;
}

static bool compute_argument(struct fold *f, const struct pst_arg *arg)
{
    if (arg->kind == PST_ARG_VALUE)
        return compute_value(f, arg->value);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (arg->values[k] != NULL && !compute_value(f, arg->values[k]))
            return false;
    return true;
}

static bool compute_node(struct fold *f, struct pst_node *node)
{
    if (f->n_nodes == PST_FOLD_NODES || pst_op_has_effect(node->op) ||
        (node->op->flags & PST_OP_RANDOM) != 0 || !pst_op_runs(node->op))
        return false;
    f->n_nodes++;
    for (unsigned k = 0; k < node->n_outs; k++)
        if (!is_small(node->outs[k]))
            return false;
    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (!compute_argument(f, &node->args[i]))
            return false;
    f->status = pst_eval_node(f->eval, node, true, NULL, f->import->diag);
    return f->status == PST_OK;
}

/* Computes the content of v. False if v depends on anything but constants, or
 * after an error. PST_FOLD_NODES bounds the recursion. */
static bool compute_value(struct fold *f, struct pst_value *v)
{
    struct pst_value *base = v->base != NULL ? v->base : v;

    if (pst_eval_get(f->eval, base) != NULL)
        return true;
    if (base->kind == PST_VALUE_CONST)
        return load_constant(f, base);
    return base->kind == PST_VALUE_NODE && base->def != NULL &&
           compute_node(f, base->def);
}

enum pst_status pst_import_fold(struct pst_import *import, struct pst_value *v,
                                bool *ret_known, double *ret)
{
    struct fold f = {.import = import};
    enum pst_status status = PST_OK;

    *ret_known = false;
    if (pst_meta_numel(&v->meta) != 1)
        return PST_OK;
    status = pst_eval_new(import->build.graph, &f.eval, import->diag);
    if (status != PST_OK)
        return status;
    if (compute_value(&f, v)) {
        *ret_known = true;
        *ret = pst_load_f64(v->meta.dtype, pst_eval_get(f.eval, v), 0);
    }
    for (size_t i = 0; i < f.data.n; i++)
        pst_free(f.data.at[i]);
    pst_vec_fini(&f.data);
    pst_eval_free(f.eval);
    return f.status;
}
