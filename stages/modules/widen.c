// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/widen.h"

#include "stages/ops/core/op.h"
#include "stages/passes/rewrite.h"

#include <string.h>

struct widener {
    struct pst_graph *graph;
    struct pst_value *param;
    enum pst_dtype stored;
    struct pst_build build;
    struct pst_node *node; /* node whose operands are converted */
    struct pst_diag *diag;
};

static enum pst_status check_param(const struct pst_model *model,
                                   const struct pst_value *param,
                                   enum pst_dtype dtype, struct pst_diag *diag)
{
    const struct pst_graph *graph = model->graph;
    const char *why = NULL;

    for (size_t i = 0; i < model->storages.n; i++)
        if (strcmp(model->storages.at[i].fqn, param->fqn) == 0)
            why = "other names of the model are parts of it";
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++)
            if (graph->nodes.at[i]->outs[k]->version_of == param)
                why = "the model writes it";
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].target == param)
            why = "the model writes it";
        else if (graph->outputs.at[i].arg.kind == PST_ARG_VALUE &&
                 graph->outputs.at[i].arg.value == param)
            why = "the model returns it";
    if (why == NULL)
        return PST_OK;
    return pst_diag_set(diag, PST_E_CAST_IMPOSSIBLE,
                        "\"%.200s\" is %s, so training keeps it in %s and "
                        "converts it where it is read, which is impossible: %s",
                        param->fqn, pst_dtype_name(param->meta.dtype),
                        pst_dtype_name(dtype), why);
}

/* Inserts a conversion before each reader, as in the export of a trained
 * parameter. */
static void convert_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct widener *w = ctx;
    struct pst_value *ret;

    (void)arg;
    if (*slot != w->param)
        return;
    ret = pst_rewrite_dtype(&w->build, w->node, w->param, w->stored);
    if (ret != NULL)
        *slot = ret;
}

/* Infers views of the parameter again: they become views of the converted
 * value. */
static enum pst_status infer_views(const struct widener *w)
{
    PST_UNINIT struct pst_infer inferred;
    enum pst_status status;

    inferred.schema = w->node->schema;
    inferred.args = w->node->args;
    inferred.diag = w->diag;
    inferred.hint = w->node->outs[0]->meta.dtype;
    status = pst_op_infer(w->node->op, &inferred);
    for (unsigned k = 0; k < w->node->n_outs && status == PST_OK; k++) {
        struct pst_value *out = w->node->outs[k];
        struct pst_value *of = inferred.alias_of[k];

        out->base = of != NULL ? pst_value_storage(of) : NULL;
        out->offset = of != NULL ? of->offset + inferred.offset[k] : 0;
    }
    return status;
}

static bool is_view(const struct widener *w, const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k]->base == w->param)
            return true;
    return false;
}

static enum pst_status widen_node(void *ctx, struct pst_node *node)
{
    struct widener *w = ctx;
    enum pst_status status;

    w->node = node;
    pst_node_uses(node, convert_operand, w);
    status = w->build.status;
    if (status == PST_OK && is_view(w, node))
        status = infer_views(w);
    if (status == PST_OK && !pst_vec_push(PST_TAG_PLAN, &w->graph->nodes, node))
        status = pst_diag_nomem(w->diag, sizeof(node));
    return status;
}

/* Keeps the parameter in another dtype; its readers convert it to the old one.
 */
static enum pst_status keep_in(struct pst_model *model, struct pst_value *param,
                               enum pst_dtype dtype, struct pst_diag *diag)
{
    struct widener w = {.graph = model->graph,
                        .param = param,
                        .stored = param->meta.dtype,
                        .diag = diag};
    struct pst_weight *weight = pst_map_get(&model->weights_by_fqn, param->fqn);
    enum pst_status status = check_param(model, param, dtype, diag);

    if (status != PST_OK)
        return status;
    pst_build_init(&w.build, w.graph, diag);
    param->meta.dtype = dtype;
    if (dtype == PST_F32 && weight != NULL && weight->read != NULL) {
        weight->rounded = true;
        weight->rounds = w.stored;
    }
    status = pst_graph_rewrite(w.graph, widen_node, &w);
    model->identity[0] = '\0';
    return status == PST_OK ? pst_graph_verify(w.graph, diag) : status;
}

enum pst_status pst_model_widen(struct pst_model *model,
                                struct pst_value *param, struct pst_diag *diag)
{
    return keep_in(model, param, PST_F32, diag);
}

enum pst_status pst_model_keep_param_bf16(struct pst_model *model,
                                          struct pst_value *param,
                                          struct pst_diag *diag)
{
    return keep_in(model, param, PST_BF16, diag);
}

enum pst_status pst_model_keep_bf16(struct pst_model *model, unsigned *ret_n,
                                    struct pst_diag *diag)
{
    struct pst_graph *graph = model->graph;
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    *ret_n = 0;
    for (size_t i = 0; i < graph->params.n && status == PST_OK; i++) {
        struct pst_value *v = graph->params.at[i];
        const struct pst_weight *weight = pst_model_weight(model, v->fqn);

        /* there are no complex numbers of two bf16 */
        if (!v->requires_grad || v->meta.dtype != PST_F32 ||
            (weight != NULL && weight->is_complex))
            continue;
        ++*ret_n;
        status = keep_in(model, v, PST_BF16, diag);
    }
    /* The digest changes, since checkpoints then have other tensors. */
    pst_str_addf(&text, "%s params bf16", model->digest);
    pst_digest(pst_str_text(&text), text.len, model->digest);
    pst_str_fini(&text);
    return status;
}
