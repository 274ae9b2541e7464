// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/identity.h"

#include "stages/graph/schema.h"
#include "stages/graph/text/print.h"
#include "stages/ops/core/mode.h"

#include <string.h>

#define TAG PST_TAG_ARCHIVE

struct digest {
    char text[33];
};

struct identity {
    const struct pst_model *model;
    struct digest *of;                   /* digests, by value id */
    struct pst_str text;                 /* text of the current node */
    struct PST_VEC(struct pst_arg) args; /* arguments of the current node */
    struct pst_arena arena;              /* temporary lists of numbers */
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct identity *x)
{
    return pst_diag_nomem(x->diag, 0);
}

static void put_value(void *ctx, const struct pst_value *value,
                      struct pst_str *out)
{
    const struct identity *x = ctx;

    pst_str_add(out, x->of[value->id].text);
}

static enum pst_status end_text(struct identity *x, char ret[33])
{
    if (x->text.failed)
        return no_memory(x);
    pst_digest(pst_str_text(&x->text), x->text.len, ret);
    return PST_OK;
}

/* Adds the digest of a value that no checkpoint contains (a constant or a
 * non-persistent buffer). */
static enum pst_status add_data(struct identity *x, const struct pst_value *v)
{
    const struct pst_weight *w = pst_model_weight(x->model, v->fqn);
    struct pst_meta meta = v->meta;
    enum pst_status status;
    char digest[33];
    void *data;

    if (w == NULL || w->absent)
        return PST_OK;
    pst_meta_set_contiguous(&meta);
    data = pst_alloc(TAG, PST_MAX(pst_meta_bytes(&meta), (size_t)1));
    if (data == NULL)
        return no_memory(x);
    status = pst_model_read(x->model, w, &meta, data, x->diag);
    if (status == PST_OK) {
        pst_digest(data, pst_meta_bytes(&meta), digest);
        pst_str_addf(&x->text, " %s", digest);
    }
    pst_free(data);
    return status;
}

static bool is_saved(const struct pst_value *v)
{
    return v->kind == PST_VALUE_PARAM ||
           (v->kind == PST_VALUE_BUFFER && v->persistent);
}

static enum pst_status digest_given(struct identity *x,
                                    const struct pst_value *v)
{
    enum pst_status status = PST_OK;
    char meta[PST_META_TEXT];

    x->text.len = 0;
    if (v->kind == PST_VALUE_INPUT)
        pst_str_addf(&x->text, "input %s %s %u", v->name,
                     pst_dtype_name(v->meta.dtype), v->meta.rank);
    else
        pst_str_addf(&x->text, "state %s %s", is_saved(v) ? v->fqn : "",
                     pst_meta_text(&v->meta, meta));
    if (v->kind != PST_VALUE_INPUT && !is_saved(v))
        status = add_data(x, v);
    return status == PST_OK ? end_text(x, x->of[v->id].text) : status;
}

/* Sets numbers that depend on symbolic sizes to 0, so that only their
 * expressions count and not the sizes at export. */
static enum pst_status forget_sizes(struct identity *x, struct pst_arg *arg)
{
    int64_t *ints = NULL;
    double *floats = NULL;

    if (arg->exprs == NULL)
        return PST_OK;
    if (arg->kind == PST_ARG_INT)
        arg->i = 0;
    else if (arg->kind == PST_ARG_FLOAT)
        arg->f = 0;
    else if (arg->kind == PST_ARG_BOOL)
        arg->b = false;
    if ((arg->kind != PST_ARG_INTS && arg->kind != PST_ARG_FLOATS) ||
        arg->n == 0)
        return PST_OK;
    if (arg->kind == PST_ARG_INTS)
        arg->ints = ints =
            pst_arena_memdup(&x->arena, arg->ints, arg->n * sizeof(*ints));
    else
        arg->floats = floats =
            pst_arena_memdup(&x->arena, arg->floats, arg->n * sizeof(*floats));
    if (ints == NULL && floats == NULL)
        return no_memory(x);
    for (unsigned k = 0; k < arg->n; k++) {
        if (arg->exprs[k] != NULL && ints != NULL)
            ints[k] = 0;
        else if (arg->exprs[k] != NULL)
            floats[k] = 0;
    }
    return PST_OK;
}

/* Digests a node as in model.eval(). */
static enum pst_status digest_node(struct identity *x,
                                   const struct pst_node *node)
{
    const unsigned n = node->schema->n_args;
    enum pst_status status = PST_OK;
    struct pst_arg *args;
    int same;

    if (n > 0 && !pst_vec_reserve(TAG, &x->args, n))
        return no_memory(x);
    args = x->args.at;
    for (unsigned i = 0; i < n; i++)
        args[i] = node->args[i];
    pst_mode_set_eval(node->schema, args);
    same = pst_mode_identity_arg(node->op, node->schema, args);
    if (same >= 0) { /* in evaluation it returns an operand */
        x->of[node->outs[0]->id] = x->of[args[same].value->id];
        return PST_OK;
    }
    x->text.len = 0;
    pst_str_add(&x->text, node->schema->name);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        status = forget_sizes(x, &args[i]);
        pst_str_add(&x->text, " ");
        pst_arg_print(&args[i], put_value, x, &x->text);
    }
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++) {
        pst_str_addf(&x->text, " %u", k);
        status = end_text(x, x->of[node->outs[k]->id].text);
    }
    return status;
}

/* Digests the outputs. Unused nodes and buffer updates, which evaluation does
 * not make, are not included. */
static enum pst_status digest_outputs(struct identity *x, char ret[33])
{
    const struct pst_graph *from = x->model->graph;
    struct pst_str all = {0};
    bool failed;

    for (size_t i = 0; i < from->outputs.n; i++) {
        const struct pst_output *output = &from->outputs.at[i];

        if (output->kind != PST_OUTPUT_USER)
            continue;
        pst_str_addf(&all, "%s ", output->path);
        pst_arg_print(&output->arg, put_value, x, &all);
        pst_str_add(&all, "\n");
    }
    failed = all.failed;
    if (!failed)
        pst_digest(pst_str_text(&all), all.len, ret);
    pst_str_fini(&all);
    return failed ? no_memory(x) : PST_OK;
}

enum pst_status pst_model_identity(const struct pst_model *model, char ret[33],
                                   struct pst_diag *diag)
{
    const struct pst_graph *graph = model->graph;
    struct identity x = {.model = model, .diag = diag};
    enum pst_status status = PST_OK;

    x.of = pst_calloc(TAG, graph->values.n + 1, sizeof(*x.of));
    if (x.of == NULL)
        return no_memory(&x);
    pst_arena_init(&x.arena, TAG);
    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++)
        if (graph->values.at[i]->kind != PST_VALUE_NODE)
            status = digest_given(&x, graph->values.at[i]);
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++)
        status = digest_node(&x, graph->nodes.at[i]);
    if (status == PST_OK)
        status = digest_outputs(&x, ret);
    pst_free(x.of);
    pst_arena_fini(&x.arena);
    pst_vec_fini(&x.args);
    pst_str_fini(&x.text);
    return status;
}
