// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/build.h"

#include "stages/graph/calls.h"
#include "stages/graph/oprow.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

void pst_build_init(struct pst_build *build, struct pst_graph *graph,
                    struct pst_diag *diag)
{
    *build = (struct pst_build){
        .graph = graph,
        .status = PST_OK,
        .diag = diag,
        .source = "",
        .phase = PST_PHASE_F,
        .node_id = UINT32_MAX,
        .hint = PST_N_DTYPES,
    };
}

void pst_build_at(struct pst_build *build, const struct pst_node *node)
{
    struct pst_module_call *call = NULL;

    if (build->status == PST_OK)
        build->status =
            pst_graph_adopt_call(build->graph, node->call, &call, build->diag);
    build->call = call;
    build->source = node->source;
    build->phase = node->phase;
    build->region = node->region;
    build->node_id = node->id;
}

void pst_build_like(struct pst_build *build, const struct pst_node *node)
{
    pst_build_at(build, node);
    build->no_grad = node->no_grad;
    build->origin = node->origin[0] != '\0' ? node->origin : NULL;
    build->is_function = node->is_function;
}

/* True if the value is not in the graph, or was removed from it: a node must
 * not use it. */
static bool is_foreign(const struct pst_graph *graph,
                       const struct pst_value *value)
{
    return value->id >= graph->values.n ||
           graph->values.at[value->id] != value || pst_value_is_dead(value);
}

static enum pst_status check_owner(struct pst_build *build,
                                   const struct pst_schema *schema, unsigned i,
                                   const struct pst_arg *arg)
{
    bool foreign = false;

    if (arg->kind == PST_ARG_VALUE)
        foreign = arg->value == NULL || is_foreign(build->graph, arg->value);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (arg->values[k] != NULL)
            foreign = foreign || is_foreign(build->graph, arg->values[k]);
    if (!foreign)
        return PST_OK;
    return pst_diag_set(build->diag, PST_E_INTERNAL_BUG,
                        "%s: argument \"%s\" is a value of another graph",
                        schema->name, schema->args[i].name);
}

enum pst_status pst_build_args(struct pst_build *build,
                               const struct pst_schema *schema,
                               const struct pst_arg *args, unsigned n_args,
                               struct pst_arg *ret)
{
    struct pst_arena *arena = &build->graph->arena;

    if (n_args > schema->n_args)
        return pst_diag_set(build->diag, PST_E_OP_ARGUMENT,
                            "%s takes %u arguments, not %u", schema->name,
                            schema->n_args, n_args);
    for (unsigned i = 0; i < schema->n_args; i++) {
        const struct pst_param *param = &schema->args[i];
        enum pst_status status;

        if (i >= n_args) {
            if (!param->has_default)
                return pst_diag_set(build->diag, PST_E_OP_ARGUMENT,
                                    "%s: argument \"%s\" is missing",
                                    schema->name, param->name);
            ret[i] = param->def; /* its lists live in the registry */
            continue;
        }
        status = check_owner(build, schema, i, &args[i]);
        if (status == PST_OK)
            status = pst_arg_copy(arena, &args[i], &ret[i], build->diag);
        if (status == PST_OK)
            status = pst_schema_coerce(schema, i, &ret[i], arena, build->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Derives the prefix of result names from the operator: "add" from
 * "aten.add.Tensor". */
static void default_prefix(const char *op, char out[64])
{
    const char *begin = strchr(op, '.');
    size_t n;

    begin = begin == NULL ? op : begin + 1;
    n = strcspn(begin, ".");
    n = PST_MIN(n, (size_t)63);
    memcpy(out, begin, n);
    out[n] = '\0';
}

static enum pst_status add_outs(struct pst_build *build, struct pst_node *node,
                                const struct pst_infer *c)
{
    struct pst_graph *graph = build->graph;
    char of_op[64];

    default_prefix(node->schema->name, of_op);
    node->n_outs = c->n_outs;
    node->outs = pst_arena_calloc(&graph->arena, PST_MAX(c->n_outs, 1u),
                                  sizeof(*node->outs));
    if (node->outs == NULL)
        return pst_diag_nomem(build->diag, c->n_outs * sizeof(*node->outs));
    for (unsigned k = 0; k < c->n_outs; k++) {
        const char *name = k < build->n_names ? build->names[k] : NULL;
        struct pst_value *out;

        if (name == NULL)
            name = build->prefix != NULL ? build->prefix : of_op;
        out =
            pst_graph_add_value(graph, PST_VALUE_NODE, name, NULL, &c->out[k]);
        if (out == NULL)
            return pst_diag_nomem(build->diag, sizeof(*out));
        node->outs[k] = out;
        out->def_index = k;
        if (c->alias_of[k] != NULL) {
            out->base = pst_value_storage(c->alias_of[k]);
            out->offset =
                pst_view_offset(c->alias_of[k], out->meta.dtype, c->offset[k]);
        }
    }
    if (!pst_vec_push(TAG, &graph->nodes, node))
        return pst_diag_nomem(build->diag, sizeof(node));
    /* Sets `def` only after success: a value without a node counts as dead. */
    for (unsigned k = 0; k < c->n_outs; k++)
        node->outs[k]->def = node;
    return PST_OK;
}

/* True if the operator of that name, or its functional variant
 * ("aten.celu_.default" of "aten.celu.default"), is decomposed into others. */
static bool is_composition(const char *name)
{
    const struct pst_op *op = pst_op_find(name);
    const char *end = strstr(name, "_.");
    char functional[200];

    if (op == NULL && end != NULL && strlen(name) < sizeof(functional)) {
        (void)snprintf(functional, sizeof(functional), "%.*s%s",
                       (int)(end - name), name, end + 1);
        op = pst_op_find(functional);
    }
    return op != NULL && pst_op_is_rewrite(op);
}

/* Sets node->origin, the operator's name in the user's file, for penstock's own
 * operators, parts of decomposed ones and rows with PST_OP_ORIGIN. */
static bool fill_origin(struct pst_build *build, struct pst_node *node)
{
    const bool keeps = pst_op_keeps_origin(node->op);
    const char *origin = build->origin;

    node->origin = "";
    node->is_function = keeps && build->is_function;
    if (origin == NULL || strcmp(origin, node->schema->name) == 0)
        return true;
    if (!keeps && !pst_has_prefix(node->schema->name, "penstock.") &&
        !is_composition(origin))
        return true;
    node->origin = pst_arena_strdup(&build->graph->arena, origin);
    return node->origin != NULL;
}

static enum pst_status fill_place(struct pst_build *build,
                                  struct pst_node *node)
{
    struct pst_graph *graph = build->graph;

    node->source =
        pst_arena_strdup(&graph->arena, build->source ? build->source : "");
    node->region = build->region != NULL
                       ? pst_arena_strdup(&graph->arena, build->region)
                       : NULL;
    if (node->source == NULL ||
        (node->region == NULL) != (build->region == NULL) ||
        !fill_origin(build, node))
        return pst_diag_nomem(build->diag, 0);
    node->call = build->call != NULL ? build->call : graph->calls.at[0];
    node->phase = build->phase;
    node->no_grad = build->no_grad;
    node->stage = -1;
    node->id = build->node_id;
    if (node->id == UINT32_MAX)
        node->id = graph->next_node_id;
    if (node->id >= graph->next_node_id)
        graph->next_node_id = node->id + 1;
    return PST_OK;
}

static enum pst_status emit(struct pst_build *build, const struct pst_op *op,
                            const struct pst_arg *args, unsigned n_args,
                            struct pst_node **ret)
{
    const struct pst_schema *schema = pst_op_schema(op);
    struct pst_arena *arena = &build->graph->arena;
    PST_UNINIT struct pst_infer c;
    struct pst_node *node = pst_arena_alloc(arena, sizeof(*node));
    enum pst_status status;

    if (schema == NULL)
        return pst_diag_set(build->diag, PST_E_INTERNAL_BUG,
                            "an operator is not in the registry");
    if (node == NULL)
        return pst_diag_nomem(build->diag, sizeof(*node));
    node->op = op;
    node->schema = schema;
    node->args = pst_arena_calloc(arena, PST_MAX(schema->n_args, 1u),
                                  sizeof(*node->args));
    if (node->args == NULL)
        return pst_diag_nomem(build->diag,
                              schema->n_args * sizeof(*node->args));
    status = pst_build_args(build, schema, args, n_args, node->args);
    if (status != PST_OK)
        return status;
    c.schema = schema;
    c.args = node->args;
    c.diag = build->diag;
    c.hint = build->hint;
    status = pst_op_infer(op, &c);
    if (status == PST_OK)
        status = fill_place(build, node);
    if (status == PST_OK)
        status = add_outs(build, node, &c);
    if (status == PST_OK && build->sizes != NULL && pst_node_is_free(node)) {
        pst_op_sizes(op, build, node);
        status = build->status;
    }
    if (status == PST_OK)
        *ret = node;
    return status;
}

struct pst_node *pst_emit_node(struct pst_build *build, const struct pst_op *op,
                               const struct pst_arg *args, unsigned n_args)
{
    struct pst_node *node = NULL;

    if (build->status != PST_OK)
        return NULL;
    build->status = emit(build, op, args, n_args, &node);
    return build->status == PST_OK ? node : NULL;
}

struct pst_value *pst_emit(struct pst_build *build, const struct pst_op *op,
                           const struct pst_arg *args, unsigned n_args)
{
    struct pst_value *first = NULL;
    struct pst_node *node;

    if (build->status == PST_OK && pst_op_is_rewrite(op)) {
        build->status = pst_op_rewrite_first(op, build, args, n_args, &first);
        return build->status == PST_OK ? first : NULL;
    }
    node = pst_emit_node(build, op, args, n_args);
    return node == NULL || node->n_outs == 0 ? NULL : node->outs[0];
}
