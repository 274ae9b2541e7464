// SPDX-License-Identifier: Apache-2.0
#include "stages/split/replay.h"

#include "stages/graph/schema.h"

#include <string.h>

enum pst_dtype pst_replay_dtype(const struct pst_replay *r,
                                enum pst_dtype dtype)
{
    return r->widen && dtype == PST_F32 ? PST_F64 : dtype;
}

static enum pst_status no_twin(struct pst_replay *r,
                               const struct pst_value *value)
{
    return pst_diag_set(r->build.diag, PST_ERR_INTERNAL,
                        "%%%s is used before it is made", value->name);
}

static enum pst_status copy_arg(struct pst_replay *r,
                                const struct pst_arg *from, struct pst_arg *to)
{
    enum pst_status status =
        pst_arg_copy(&r->build.graph->arena, from, to, r->build.diag);

    if (status != PST_OK)
        return status;
    if (from->kind == PST_ARG_DTYPE)
        to->i = pst_replay_dtype(r, (enum pst_dtype)from->i);
    if (from->kind == PST_ARG_VALUE) {
        to->value = r->twins[from->value->id];
        if (to->value == NULL)
            return no_twin(r, from->value);
    }
    for (unsigned k = 0; from->kind == PST_ARG_VALUES && k < from->n; k++) {
        if (from->values[k] == NULL)
            continue;
        to->values[k] = r->twins[from->values[k]->id];
        if (to->values[k] == NULL)
            return no_twin(r, from->values[k]);
    }
    return PST_OK;
}

/* Export writes the mode that the model was in into its nodes. */
static void leave_training(const struct pst_schema *schema,
                           struct pst_arg *args)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        const char *name = schema->args[i].name;

        if (args[i].kind == PST_ARG_BOOL &&
            (strcmp(name, "train") == 0 || strcmp(name, "training") == 0))
            args[i].b = false;
        if (args[i].kind == PST_ARG_FLOAT && strcmp(name, "dropout_p") == 0)
            args[i].f = 0.0;
    }
}

/* The node that was copied from another stage's copy of this one. */
static const struct pst_node *find_same(const struct pst_replay *r,
                                        const struct pst_node *node)
{
    const struct pst_node *found = NULL;

    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *value =
            pst_graph_find(r->build.graph, node->outs[k]->name);

        if (value == NULL || value->def == NULL || value->def_index != k ||
            (k > 0 && value->def != found))
            return NULL;
        found = value->def;
    }
    if (found == NULL || found->id != node->id || found->op != node->op)
        return NULL;
    return found;
}

static void set_place(struct pst_build *build, const struct pst_node *node,
                      const char *const *names)
{
    build->names = names;
    build->n_names = node->n_outs;
    build->module = node->module;
    build->source = node->source;
    build->call = node->call;
    build->phase = node->phase;
    build->no_grad = node->no_grad;
    build->node_id = node->id;
}

static enum pst_status emit(struct pst_replay *r, const struct pst_node *node)
{
    struct pst_arena *arena = &r->build.graph->arena;
    const unsigned n = node->schema->n_args;
    struct pst_arg *args = pst_arena_calloc(arena, n + 1, sizeof(*args));
    const char **names =
        pst_arena_calloc(arena, node->n_outs + 1, sizeof(*names));
    struct pst_node *copy;

    if (args == NULL || names == NULL)
        return pst_diag_nomem(r->build.diag, n * sizeof(*args));
    for (unsigned i = 0; i < n; i++) {
        enum pst_status status = copy_arg(r, &node->args[i], &args[i]);

        if (status != PST_OK)
            return status;
    }
    if (r->eval)
        leave_training(node->schema, args);
    for (unsigned k = 0; k < node->n_outs; k++)
        names[k] = node->outs[k]->name;
    set_place(&r->build, node, names);
    r->build.hint = node->n_outs == 0
                        ? PST_N_DTYPES
                        : pst_replay_dtype(r, node->outs[0]->meta.dtype);
    copy = pst_emit_node(&r->build, node->op, args, n);
    r->build.names = NULL;
    r->build.n_names = 0;
    if (copy == NULL)
        return r->build.status;
    copy->stage = node->stage;
    for (unsigned k = 0; k < node->n_outs; k++)
        r->twins[node->outs[k]->id] = copy->outs[k];
    return PST_OK;
}

enum pst_status pst_replay_node(struct pst_replay *r,
                                const struct pst_node *node)
{
    const struct pst_node *same = find_same(r, node);
    enum pst_status status = PST_OK;

    if (same == NULL)
        status = emit(r, node);
    for (unsigned k = 0; same != NULL && k < node->n_outs; k++)
        r->twins[node->outs[k]->id] = same->outs[k];
    if (status == PST_OK)
        for (unsigned k = 0; k < node->n_outs; k++) {
            struct pst_meta want = node->outs[k]->meta;
            const struct pst_meta *got = &r->twins[node->outs[k]->id]->meta;
            char a[PST_META_TEXT], b[PST_META_TEXT];

            want.dtype = pst_replay_dtype(r, want.dtype);
            if (!pst_meta_same(&want, got))
                return pst_diag_set(r->build.diag, PST_ERR_INTERNAL,
                                    "%%%s is %s, not %s", node->outs[k]->name,
                                    pst_meta_text(got, a),
                                    pst_meta_text(&want, b));
        }
    return status;
}
