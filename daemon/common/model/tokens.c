// SPDX-License-Identifier: Apache-2.0
/* Finds the inputs of a model that are tokens, for the tokens per second. */
#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"

/* Search for the values of a stage's graph that are computed from the integers
 * of a model input. */
struct int_search {
    /* by value id: true if the value is computed from those integers */
    bool *has;
    bool met; /* the current node reads such a value */
};

static void mark_met(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct int_search *f = ctx;

    (void)arg;
    f->met = f->met || f->has[(*slot)->id];
}

static bool is_int(const struct pst_meta *meta)
{
    return pst_dtype_kind(meta->dtype) == PST_KIND_INT;
}

/* True if an embedding of the stage looks up the input's integers, or integers
 * computed from them. */
static bool is_looked_up_in(const struct pst_stage *stage, unsigned input)
{
    const struct pst_graph *graph = stage->graph;
    struct int_search f = {0};
    bool found = false;

    f.has = pst_calloc(PST_TAG_DAEMON, graph->values.n + 1, sizeof(*f.has));
    if (f.has == NULL)
        return false;
    for (size_t i = 0; i < graph->inputs.n; i++)
        f.has[graph->inputs.at[i]->id] =
            stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
            stage->inputs[i].index == input;
    for (size_t i = 0; i < graph->nodes.n && !found; i++) {
        struct pst_node *node = graph->nodes.at[i];

        f.met = false;
        pst_node_uses(node, mark_met, &f);
        for (unsigned k = 0; k < node->n_outs && f.met; k++)
            f.has[node->outs[k]->id] = is_int(&node->outs[k]->meta);
        found = f.met && strstr(pst_node_origin(node), "embedding") != NULL;
    }
    pst_free(f.has);
    return found;
}

static bool is_looked_up(const struct pst_plan *plan, unsigned input)
{
    for (size_t s = 0; s < plan->stages.n; s++)
        if (is_looked_up_in(&plan->stages.at[s], input))
            return true;
    return false;
}

/* Returns the index of the input with the tokens, or -1. */
static int find_tokens(const struct pst_plan *plan)
{
    int other = -1;

    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_meta *meta = &plan->inputs.at[i].meta;

        if (meta->rank < 2 || !is_int(meta))
            continue;
        if (is_looked_up(plan, (unsigned)i))
            return (int)i;
        if (other < 0 && meta->rank == 2 && pst_dtype_size(meta->dtype) > 1)
            other = (int)i;
    }
    return other;
}

uint64_t pstd_count_tokens(const struct pst_batch *batch)
{
    const int input = find_tokens(batch->plan);
    uint64_t n;

    if (input < 0)
        return 0;
    n = (batch->microbatches - batch->n_tail) *
        (uint64_t)pst_meta_numel(&batch->plan->inputs.at[input].meta);
    if (batch->tail != NULL)
        n += batch->n_tail *
             (uint64_t)pst_meta_numel(&batch->tail->inputs.at[input].meta);
    return n;
}
