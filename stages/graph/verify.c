// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/calls.h"
#include "stages/graph/oprow.h"

#include <stdarg.h>
#include <stdio.h>

struct verifier {
    const struct pst_graph *graph;
    bool *defined; /* by value id */
    bool lowered;  /* the graph's operands may be converted for kernels */
    const struct pst_node *node;
    struct pst_diag *diag;
};

static enum pst_status report_violation(const struct verifier *v,
                                        const char *fmt, ...) PST_PRINTF(2, 3);

static enum pst_status report_violation(const struct verifier *v,
                                        const char *fmt, ...)
{
    const struct pst_node *node = v->node;
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (node == NULL)
        return pst_diag_set(v->diag, PST_E_INTERNAL_BUG, "graph: %s", text);
    return pst_diag_set(v->diag, PST_E_INTERNAL_BUG,
                        "graph, node %%%s (%s, module \"%s\", %s): %s",
                        node->n_outs > 0 ? node->outs[0]->name : "",
                        node->schema->name, node->call->path, node->source,
                        text);
}

static bool is_in_graph(const struct verifier *v, const struct pst_value *value)
{
    return value->id < v->graph->values.n &&
           v->graph->values.at[value->id] == value;
}

static enum pst_status check_value(struct verifier *v, size_t id)
{
    struct pst_value *value = v->graph->values.at[id];
    enum pst_status status;

    if (value->id != id)
        return report_violation(v, "value %%%s has id %u at place %zu",
                                value->name, value->id, id);
    if (pst_value_is_dead(value))
        return PST_OK;
    if (pst_graph_find(v->graph, value->name) != value)
        return report_violation(v, "value %%%s is not found by its name",
                                value->name);
    status = pst_meta_check(&value->meta, v->diag);
    if (status != PST_OK) {
        pst_diag_prefix(v->diag, "graph, value %%%s", value->name);
        return status;
    }
    if (value->kind == PST_VALUE_NODE)
        return PST_OK; /* checked with its node */
    if (value->def != NULL || value->base != NULL || value->offset != 0)
        return report_violation(
            v, "value %%%s is no result but has a node or a base", value->name);
    v->defined[id] = true;
    return PST_OK;
}

static enum pst_status check_use(const struct verifier *v,
                                 const struct pst_value *value,
                                 const char *where)
{
    if (!is_in_graph(v, value))
        return report_violation(v, "%s is a value of another graph", where);
    if (!v->defined[value->id])
        return report_violation(v, "%s uses %%%s before its definition", where,
                                value->name);
    return PST_OK;
}

static enum pst_status check_arg(const struct verifier *v, unsigned i)
{
    const struct pst_schema *schema = v->node->schema;
    const struct pst_arg *arg = &v->node->args[i];
    const char *name = schema->args[i].name;
    enum pst_status status = PST_OK;

    if (!pst_schema_fits(schema, i, arg))
        return report_violation(v, "argument \"%s\" has the wrong type", name);
    if (arg->kind == PST_ARG_VALUE)
        status = check_use(v, arg->value, name);
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (status == PST_OK && arg->values[k] != NULL)
            status = check_use(v, arg->values[k], name);
    return status;
}

static enum pst_status check_meta(const struct verifier *v, unsigned k,
                                  const struct pst_infer *c)
{
    const struct pst_value *out = v->node->outs[k];
    struct pst_value *alias = c->alias_of[k];
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (!pst_meta_same_layout(&out->meta, &c->out[k]))
        return report_violation(v, "%%%s is recorded as %s, inferred as %s",
                                out->name, pst_meta_text(&out->meta, a),
                                pst_meta_text(&c->out[k], b));
    if (alias == NULL && (out->base != NULL || out->offset != 0))
        return report_violation(v, "%%%s has a base but is not a view",
                                out->name);
    if (alias != NULL &&
        (out->base != pst_value_storage(alias) ||
         out->offset != pst_view_offset(alias, out->meta.dtype, c->offset[k])))
        return report_violation(
            v, "%%%s is a view but its base or offset is wrong", out->name);
    return PST_OK;
}

/* True if every element of the view lies in its storage. */
static bool is_inside(const struct pst_value *view)
{
    const size_t item = pst_dtype_size(view->meta.dtype);
    const size_t bytes = pst_meta_span(&view->base->meta);

    return view->offset >= 0 && (size_t)view->offset <= bytes / item &&
           pst_meta_span(&view->meta) <= bytes - (size_t)view->offset * item;
}

static enum pst_status check_out(const struct verifier *v, unsigned k)
{
    const struct pst_value *out = v->node->outs[k];

    if (!is_in_graph(v, out) || out->kind != PST_VALUE_NODE ||
        out->def != v->node || out->def_index != k)
        return report_violation(v, "result %u does not belong to the node", k);
    if (v->defined[out->id])
        return report_violation(v, "%%%s is defined twice", out->name);
    if (out->base != NULL &&
        (!is_in_graph(v, out->base) || !v->defined[out->base->id]))
        return report_violation(v, "%%%s is a view of what is not there",
                                out->name);
    if (out->base != NULL && pst_meta_numel(&out->meta) > 0 && !is_inside(out))
        return report_violation(v, "%%%s reaches beyond the storage of %%%s",
                                out->name, out->base->name);
    if (out->version_of != NULL &&
        (!is_in_graph(v, out->version_of) ||
         (out->version_of->kind != PST_VALUE_INPUT &&
          out->version_of->kind != PST_VALUE_BUFFER &&
          out->version_of->kind != PST_VALUE_CONST)))
        return report_violation(
            v, "%%%s is a version of what cannot be written", out->name);
    v->defined[out->id] = true;
    return PST_OK;
}

/* Checks that the recorded results equal the inferred ones. */
static enum pst_status check_inferred(const struct verifier *v)
{
    const struct pst_node *node = v->node;
    PST_UNINIT struct pst_infer c;
    enum pst_status status;

    c.schema = node->schema;
    c.args = node->args;
    c.diag = v->diag;
    c.hint = node->n_outs > 0 ? node->outs[0]->meta.dtype : PST_N_DTYPES;
    status = pst_op_infer(node->op, &c);
    if (status != PST_OK) {
        pst_diag_prefix(v->diag, "graph, node %%%s",
                        node->n_outs > 0 ? node->outs[0]->name : "");
        return status;
    }
    if (c.n_outs != node->n_outs)
        return report_violation(v, "%u results are recorded, %u inferred",
                                node->n_outs, c.n_outs);
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
        status = check_meta(v, k, &c);
    return status;
}

static bool is_call_in_graph(const struct verifier *v,
                             const struct pst_module_call *call)
{
    return call != NULL && call->id < v->graph->calls.n &&
           v->graph->calls.at[call->id] == call;
}

static enum pst_status check_node(struct verifier *v)
{
    const struct pst_node *node = v->node;
    enum pst_status status = PST_OK;

    if (node->schema == NULL || node->schema != pst_op_schema(node->op))
        return pst_diag_set(v->diag, PST_E_INTERNAL_BUG,
                            "graph: a node has another operator's schema");
    if (!is_call_in_graph(v, node->call))
        return pst_diag_set(v->diag, PST_E_INTERNAL_BUG,
                            "graph: %s stands in a call of another graph",
                            node->schema->name);
    if (node->phase >= PST_N_PHASES || node->id >= v->graph->next_node_id)
        return report_violation(v, "phase or id is out of range");
    for (unsigned i = 0; i < node->schema->n_args && status == PST_OK; i++)
        status = check_arg(v, i);
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
        if (!is_in_graph(v, node->outs[k]))
            status =
                report_violation(v, "result %u does not belong to the node", k);
    if (status == PST_OK && (!v->lowered || pst_op_is_view(node->op)))
        status = check_inferred(v);
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
        status = check_out(v, k);
    return status;
}

static enum pst_status check_output(const struct verifier *v,
                                    const struct pst_output *output)
{
    const struct pst_value *target = output->target;
    enum pst_status status = PST_OK;

    if (output->arg.kind == PST_ARG_VALUE)
        status = check_use(v, output->arg.value, "an output");
    if (status != PST_OK)
        return status;
    if (output->kind == PST_OUTPUT_USER)
        return target == NULL
                   ? PST_OK
                   : report_violation(v, "a user output has a target");
    if (target == NULL || output->arg.kind != PST_ARG_VALUE ||
        !is_in_graph(v, target) ||
        target->kind != (output->kind == PST_OUTPUT_BUFFER_UPDATE
                             ? PST_VALUE_BUFFER
                             : PST_VALUE_INPUT))
        return report_violation(v, "an update has no target of its kind");
    if (!pst_meta_same(&target->meta, &output->arg.value->meta))
        return report_violation(v, "the update of %%%s has another shape",
                                target->name);
    return PST_OK;
}

static enum pst_status check_leaves(const struct verifier *v,
                                    const struct pst_call_leaf *leaves,
                                    unsigned n)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < n && status == PST_OK; i++)
        if (leaves[i].arg.kind == PST_ARG_VALUE)
            status = check_use(v, leaves[i].arg.value, "a signature");
    return status;
}

static enum pst_status check_call(const struct verifier *v, size_t i)
{
    const struct pst_module_call *call = v->graph->calls.at[i];
    const struct pst_call_signature *s = call->signature;
    enum pst_status status;

    if (call->id != i || (i > 0) != (call->parent != NULL) ||
        pst_graph_find_call(v->graph, call->path, call->index) != call)
        return report_violation(v, "call %s@%u is not in its place", call->path,
                                call->index);
    if (i > 0 && (!is_call_in_graph(v, call->parent) || call->parent->id >= i ||
                  call->depth != call->parent->depth + 1))
        return report_violation(v, "call %s@%u does not stand in one before it",
                                call->path, call->index);
    if (s == NULL)
        return PST_OK;
    status = check_leaves(v, s->inputs, s->n_inputs);
    return status == PST_OK ? check_leaves(v, s->outputs, s->n_outputs)
                            : status;
}

static enum pst_status verify_graph(const struct pst_graph *graph, bool lowered,
                                    struct pst_diag *diag)
{
    struct verifier v = {.graph = graph, .lowered = lowered, .diag = diag};
    enum pst_status status = PST_OK;

    v.defined = pst_calloc(PST_TAG_GRAPH, graph->values.n + 1, 1);
    if (v.defined == NULL)
        return pst_diag_nomem(diag, graph->values.n + 1);
    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++)
        status = check_value(&v, i);
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        v.node = graph->nodes.at[i];
        status = check_node(&v);
    }
    v.node = NULL;
    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++)
        if (!v.defined[i] && !pst_value_is_dead(graph->values.at[i]))
            status =
                report_violation(&v, "%%%s has a node that is not in the graph",
                                 graph->values.at[i]->name);
    for (size_t i = 0; i < graph->calls.n && status == PST_OK; i++)
        status = check_call(&v, i);
    for (size_t i = 0; i < graph->outputs.n && status == PST_OK; i++)
        status = check_output(&v, &graph->outputs.at[i]);
    pst_free(v.defined);
    return status;
}

enum pst_status pst_graph_verify(const struct pst_graph *graph,
                                 struct pst_diag *diag)
{
    return verify_graph(graph, false, diag);
}

enum pst_status pst_graph_verify_lowered(const struct pst_graph *graph,
                                         struct pst_diag *diag)
{
    return verify_graph(graph, true, diag);
}
