// SPDX-License-Identifier: Apache-2.0
/*
 * Reads of parameters that are kept in 16 bits (--params bf16). Every reader
 * has its own conversion to f32; this pass keeps one for all of them. Readers
 * that convert back to 16 bits, embeddings and heads read the parameter itself.
 * Results are the same bit for bit. Gradients are not affected: the backward
 * nodes exist already.
 */
#include "stages/compile/compile.h"
#include "stages/graph/build.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/head.h"
#include "stages/passes/rewrite.h"

static bool is_conversion(const struct pst_node *node)
{
    return node != NULL && node->op == &pst_op__to_copy;
}

/* If the value is a conversion of a 16-bit parameter to f32, returns the
 * parameter; else NULL. */
static struct pst_value *find_param(const struct pst_value *value)
{
    struct pst_value *ret = value != NULL && is_conversion(value->def)
                                ? value->def->args[0].value
                                : NULL;

    return ret != NULL && ret->kind == PST_VALUE_PARAM &&
                   value->meta.dtype == PST_F32 &&
                   pst_dtype_size(ret->meta.dtype) == 2
               ? ret
               : NULL;
}

/* Returns the value to read in place of the node's result: an earlier
 * conversion of the same parameter to f32, or the parameter itself if the node
 * converts it back. NULL: the result stays. Records the first conversion of a
 * parameter in `forms`. */
static struct pst_value *find_origin(const struct pst_node *node,
                                     struct pst_value **forms)
{
    struct pst_value *out = node->n_outs == 1 ? node->outs[0] : NULL;
    struct pst_value *param = find_param(out), **form;

    if (param != NULL) {
        form = &forms[param->id];
        if (*form == NULL)
            *form = out;
        return *form != out ? *form : NULL;
    }
    param = is_conversion(node) ? find_param(node->args[0].value) : NULL;
    return param != NULL && pst_meta_same(&param->meta, &out->meta) ? param
                                                                    : NULL;
}

struct casts {
    struct pst_value **origin; /* by value id; NULL: the value stays */
    struct pst_value **forms;  /* by id of a parameter: its first conversion */
    unsigned *uses;            /* by value id, outputs included */
};

static void use_origin(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct casts *casts = ctx;

    (void)arg;
    if (casts->origin[(*slot)->id] != NULL)
        *slot = casts->origin[(*slot)->id];
}

/* Makes views of a replaced value views of the value that replaces it. */
static void move_views(const struct pst_node *node, const struct casts *casts)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_value *out = node->outs[k];

        if (out->base != NULL && casts->origin[out->base->id] != NULL)
            out->base = casts->origin[out->base->id];
    }
}

/* Returns the index of the node's weight if the node is an operator of a head
 * that rounds this weight to the parameter's dtype, so that it can read the
 * parameter; else -1. */
static int find_head_weight(const struct pst_node *node)
{
    const bool is_loss = node->op == &pst_op_linear_cross_entropy;
    const int weight = is_loss ? 1 : 3;
    const struct pst_value *param;

    if (!is_loss && node->op != &pst_op_linear_cross_entropy_input &&
        node->op != &pst_op_linear_cross_entropy_weight &&
        node->op != &pst_op_linear_cross_entropy_backward)
        return -1;
    param = find_param(node->args[weight].value);
    return param != NULL && pst_head_matmul_dtype(node) == param->meta.dtype
               ? weight
               : -1;
}

/* If the node is an embedding of a converted parameter, looks up rows of the
 * 16-bit parameter and converts only these rows. */
static enum pst_status look_up(struct pst_build *build, struct pst_node *node)
{
    struct pst_value *param, *rows, *wide;
    struct pst_arg args[8];

    if (node->op != &pst_op_embedding || node->schema->n_args > PST_COUNT(args))
        return PST_OK;
    param = find_param(node->args[0].value);
    if (param == NULL)
        return PST_OK;
    for (unsigned i = 0; i < node->schema->n_args; i++)
        args[i] = node->args[i];
    args[0] = pst_v(param);
    pst_build_at(build, node);
    rows = pst_emit(build, &pst_op_embedding, args, node->schema->n_args);
    wide = rows == NULL
               ? NULL
               : pst_emit(build, &pst_op__to_copy,
                          PST_ARGS(pst_v(rows), pst_dtype_arg(PST_F32)));
    if (wide == NULL)
        return build->status;
    rows->def->phase = wide->def->phase = node->phase;
    rows->def->stage = wide->def->stage = node->stage;
    wide->def->outs[0] = node->outs[0];
    node->outs[0]->def = wide->def;
    wide->def = NULL;
    return PST_OK;
}

static void count_read(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct casts *casts = ctx;

    (void)arg;
    casts->uses[(*slot)->id]++;
}

/* Removes conversions of parameters whose results nothing reads any more. */
static void drop_conversions(struct pst_graph *graph, struct casts *casts)
{
    const size_t n = graph->nodes.n;
    size_t kept = n;

    for (size_t i = n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        struct pst_value *from =
            is_conversion(node) ? node->args[0].value : NULL;

        if (from != NULL && casts->uses[node->outs[0]->id] == 0 &&
            (from->kind == PST_VALUE_PARAM ||
             casts->origin[node->outs[0]->id] != NULL)) {
            casts->uses[from->id]--;
            node->outs[0]->def = NULL;
            continue;
        }
        graph->nodes.at[--kept] = node;
    }
    for (size_t i = kept; i < n; i++)
        graph->nodes.at[i - kept] = graph->nodes.at[i];
    graph->nodes.n = n - kept;
}

struct shortener {
    struct casts casts;
    struct pst_graph *graph;
    struct pst_build build;
};

static enum pst_status shorten_node(void *ctx, struct pst_node *node)
{
    struct shortener *s = ctx;
    const size_t n = s->graph->nodes.n;
    const enum pst_status status = look_up(&s->build, node);
    int weight;

    if (status != PST_OK || s->graph->nodes.n > n)
        return status;
    weight = find_head_weight(node);
    if (weight >= 0)
        node->args[weight].value = find_param(node->args[weight].value);
    pst_node_uses(node, use_origin, &s->casts);
    move_views(node, &s->casts);
    if (node->n_outs == 1)
        s->casts.origin[node->outs[0]->id] = find_origin(node, s->casts.forms);
    return pst_vec_push(PST_TAG_GRAPH, &s->graph->nodes, node)
               ? PST_OK
               : pst_diag_nomem(s->build.diag, sizeof(node));
}

enum pst_status pst_pass_casts(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_graph *graph = c->p->graph;
    /* a bound for value ids: two new nodes may replace a node */
    const size_t n = graph->values.n + 2 * graph->nodes.n;
    struct shortener s = {
        .casts = {pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*s.casts.origin)),
                  pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*s.casts.forms)),
                  pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*s.casts.uses))},
        .graph = graph};
    struct casts *casts = &s.casts;
    enum pst_status status;

    pst_build_init(&s.build, graph, diag);
    if (casts->origin == NULL || casts->forms == NULL || casts->uses == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*casts->origin));
    else
        status = pst_graph_rewrite(graph, shorten_node, &s);
    if (status == PST_OK) {
        for (size_t i = 0; i < graph->nodes.n; i++)
            pst_node_uses(graph->nodes.at[i], count_read, casts);
        for (size_t i = 0; i < graph->outputs.n; i++)
            pst_arg_uses(&graph->outputs.at[i].arg, 0, count_read, casts);
        drop_conversions(graph, casts);
    }
    pst_free(casts->origin);
    pst_free(casts->forms);
    pst_free(casts->uses);
    return status;
}
