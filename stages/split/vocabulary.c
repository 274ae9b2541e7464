// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the integers that an input may contain, if the operators that read it
 * determine them: indices of rows of a table (embedding), or classes of a loss.
 */
#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"
#include "stages/split/plan.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

static bool is_value(const struct pst_arg *arg, const struct pst_value *value)
{
    return arg != NULL && arg->kind == PST_ARG_VALUE && arg->value == value;
}

/* True if the result contains every element of the first operand, unchanged. */
static bool keeps_elements(const struct pst_node *node)
{
    const struct pst_value *in = node->args[0].value, *out = node->outs[0];
    const bool known =
        (node->op->flags & (PST_OP_VIEW | PST_OP_MAYBE_VIEW)) != 0 ||
        node->op == &pst_op_clone || node->op == &pst_op__to_copy;

    return known && node->op != &pst_op_as_strided && node->n_outs == 1 &&
           pst_dtype_size(out->meta.dtype) >= pst_dtype_size(in->meta.dtype) &&
           pst_dtype_kind(out->meta.dtype) == PST_KIND_INT &&
           pst_meta_numel(&out->meta) >= pst_meta_numel(&in->meta);
}

/* Intersects *ret, the integers that all operators so far accept, with the
 * range that one more operator accepts. */
static void add_bound(struct pst_data_bound *ret, int64_t below,
                      const struct pst_arg *ignored,
                      const struct pst_node *node)
{
    const bool ignores = ignored != NULL && ignored->kind == PST_ARG_INT;

    if (ret->below == 0) {
        ret->ignores = ignores;
        ret->ignored = ignores ? ignored->i : 0;
    } else if (!ignores || ret->ignored != ignored->i) {
        ret->ignores = false;
    }
    if (ret->below != 0 && ret->below <= below)
        return;
    ret->below = below;
    (void)snprintf(ret->what, sizeof(ret->what), "%.40s%s%.60s",
                   pst_node_origin(node), node->source[0] != '\0' ? " at " : "",
                   node->source);
}

static void add_node_bounds(const struct pst_node *node,
                            const struct pst_value *value,
                            struct pst_data_bound *ret)
{
    const struct pst_arg *ignored = pst_node_arg(node, "ignore_index");
    const struct pst_arg *table = pst_node_arg(node, "weight"),
                         *scores = pst_node_arg(node, "self");

    if (node->op == &pst_op_embedding &&
        is_value(pst_node_arg(node, "indices"), value)) {
        add_bound(ret, table->value->meta.size[0], NULL, node);
    } else if (ignored != NULL &&
               is_value(pst_node_arg(node, "target"), value) &&
               scores != NULL && scores->kind == PST_ARG_VALUE &&
               scores->value->meta.rank > 0) {
        const struct pst_meta *meta = &scores->value->meta;

        add_bound(ret, meta->size[meta->rank > 1], ignored, node);
    }
}

/* Finds the bounds that operators of a stage set. marks: by id, true for values
 * that contain all elements of the input. */
static void add_stage_bounds(const struct pst_graph *graph, bool *marks,
                             struct pst_data_bound *ret)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];

        for (unsigned k = 0; k < node->schema->n_args; k++) {
            const struct pst_arg *arg = &node->args[k];

            if (arg->kind != PST_ARG_VALUE || !marks[arg->value->id])
                continue;
            add_node_bounds(node, arg->value, ret);
            if (k == 0 && keeps_elements(node))
                marks[node->outs[0]->id] = true;
        }
    }
}

static void mark_inputs(const struct pst_plan *plan, unsigned input,
                        bool *const *marks, unsigned at)
{
    const struct pst_stage *stage = &plan->stages.at[at];

    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        const struct pst_stage_input *source = &stage->inputs[i];
        const struct pst_edge *edge;
        const struct pst_output *made;
        bool marked =
            source->kind == PST_SOURCE_MODEL_INPUT && source->index == input;

        if (source->kind == PST_SOURCE_EDGE) {
            edge = &plan->edges.at[source->index];
            made = &plan->stages.at[edge->from_stage]
                        .graph->outputs.at[edge->from_output];
            marked = edge->from_stage < at && made->arg.kind == PST_ARG_VALUE &&
                     marks[edge->from_stage][made->arg.value->id];
        }
        marks[at][stage->graph->inputs.at[i]->id] |= marked;
    }
}

enum pst_status pst_plan_bound(const struct pst_plan *plan, unsigned input,
                               struct pst_data_bound *ret,
                               struct pst_diag *diag)
{
    const struct pst_meta *meta = &plan->inputs.at[input].meta;
    bool **marks;
    size_t n = 0;

    memset(ret, 0, sizeof(*ret));
    if (pst_dtype_kind(meta->dtype) != PST_KIND_INT)
        return PST_OK;
    for (size_t k = 0; k < plan->stages.n; k++)
        n += plan->stages.at[k].graph->values.n;
    marks = pst_alloc(TAG, plan->stages.n * sizeof(*marks) + n);
    if (marks == NULL)
        return pst_diag_nomem(diag, n);
    memset(marks, 0, plan->stages.n * sizeof(*marks) + n);
    n = 0;
    for (size_t k = 0; k < plan->stages.n; k++) {
        marks[k] = (bool *)(marks + plan->stages.n) + n;
        n += plan->stages.at[k].graph->values.n;
    }
    for (unsigned k = 0; k < plan->stages.n; k++) {
        mark_inputs(plan, input, marks, k);
        add_stage_bounds(plan->stages.at[k].graph, marks[k], ret);
    }
    pst_free(marks);
    return PST_OK;
}
