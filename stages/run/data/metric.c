// SPDX-License-Identifier: Apache-2.0
#include "stages/run/data/metric.h"

#include "stages/base/alloc.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"
#include "stages/split/convert/join.h"

#define TAG PST_TAG_EXEC

/* Flags of a value: it depends on an input, it depends on a parameter, the
 * output depends on it. */
enum { OF_INPUT = 1, OF_PARAM = 2, WANTED = 4 };

struct use {
    unsigned char *marks; /* by id of the value */
    unsigned found;       /* marks of all operands so far */
    unsigned add;         /* marks that operands receive */
};

static void visit(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use *use = ctx;

    (void)arg;
    use->found |= use->marks[(*slot)->id];
    use->marks[(*slot)->id] |= (unsigned char)use->add;
}

static void mark_sources(const struct pst_graph *graph, unsigned char *marks)
{
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *value = graph->values.at[i];

        marks[value->id] = value->kind == PST_VALUE_INPUT   ? OF_INPUT
                           : value->kind == PST_VALUE_PARAM ? OF_PARAM
                                                            : 0;
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct use use = {.marks = marks};

        pst_node_uses(node, visit, &use);
        for (unsigned k = 0; k < node->n_outs; k++)
            marks[node->outs[k]->id] |= (unsigned char)use.found;
    }
}

/* Returns the operand by which the node divides; NULL: there is none. */
static const struct pst_value *find_divisor(const struct pst_node *node)
{
    const bool inverts = node->op == &pst_op_reciprocal;

    if (!inverts && node->op != &pst_op_div_Tensor &&
        node->op != &pst_op_div_Tensor_mode)
        return NULL;
    return node->args[inverts ? 0 : 1].kind == PST_ARG_VALUE
               ? node->args[inverts ? 0 : 1].value
               : NULL;
}

/* True if the node computes a mean over targets: by a mean loss with
 * ignore_index, or by dividing by one number that depends on inputs alone. A
 * divisor for each row (rank 1 or more) does not count: the result is still a
 * mean over rows. */
static bool is_mean_of_targets(const struct pst_node *node,
                               const unsigned char *marks)
{
    const struct pst_arg *reduction = pst_node_arg(node, "reduction");
    const struct pst_value *divisor = find_divisor(node);

    if (pst_node_arg(node, "ignore_index") != NULL && reduction != NULL &&
        reduction->i == 1)
        return true;
    return divisor != NULL && divisor->meta.rank == 0 &&
           (marks[divisor->id] & (OF_INPUT | OF_PARAM)) == OF_INPUT;
}

static bool depends_on_targets(const struct pst_graph *graph,
                               const struct pst_value *output,
                               unsigned char *marks)
{
    mark_sources(graph, marks);
    marks[output->id] |= WANTED;
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        struct use use = {.marks = marks, .add = WANTED};
        bool wanted = false;

        for (unsigned k = 0; k < node->n_outs; k++)
            wanted |= (marks[node->outs[k]->id] & WANTED) != 0;
        if (wanted && is_mean_of_targets(node, marks))
            return true;
        if (wanted)
            pst_node_uses(node, visit, &use);
    }
    return false;
}

enum pst_status pst_metric_find_by(struct pst_plan *plan, unsigned output,
                                   enum pst_mean_by *ret, struct pst_diag *diag)
{
    struct pst_plan *joined;
    const struct pst_plan_output *o;
    const struct pst_graph *graph;
    unsigned char *marks;
    enum pst_status status;

    *ret = PST_MEAN_BY_ROWS;
    if (plan->outputs.at[output].stage < 0) /* an input of the model */
        return PST_OK;
    status = pst_plan_join(plan, &joined, diag);
    if (status != PST_OK)
        return status;
    o = &joined->outputs.at[output];
    graph = joined->stages.at[0].graph;
    marks = pst_calloc(TAG, graph->values.n + 1, sizeof(*marks));
    if (marks == NULL)
        status = pst_diag_nomem(diag, graph->values.n);
    else if (depends_on_targets(graph, graph->outputs.at[o->output].arg.value,
                                marks))
        *ret = PST_MEAN_BY_EITHER;
    pst_free(marks);
    pst_plan_free(joined);
    return status;
}
