// SPDX-License-Identifier: Apache-2.0
/*
 * Recomputes values derived from parameters that are gathered on demand
 * (ZeRO-3): casts, transposed copies, norms. If they were stored as results of
 * the forward, each would take as much memory as the released parameter, for as
 * long as the microbatch is in flight. The backward computes them again from
 * the parameter that it gathers.
 */
#include "stages/compile/recompute.h"
#include "stages/ops/core/op.h"

#include <string.h>

#define TAG PST_TAG_EXEC

/* Origin of a value, by its id. */
enum origin {
    OTHERS,    /* depends on a microbatch */
    CONSTANT,  /* always present */
    ON_DEMAND, /* derived from parameters that are gathered on demand */
};

struct derive {
    const struct pst_graph *graph;
    unsigned char *origin; /* enum origin, by value id */
    unsigned *maker; /* by value: index of the node that computes it, + 1 */
    /* by node index: another node of its group (union-find), or itself */
    unsigned *group;
    bool *derived; /* by node index: its results are ON_DEMAND */
    struct pst_diag *diag;
};

struct look {
    struct derive *d;
    unsigned place;
    bool others, on_demand;
};

static void record_origin(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct look *look = ctx;
    const unsigned char is = look->d->origin[pst_value_storage(*slot)->id];

    (void)arg;
    look->others = look->others || is == OTHERS;
    look->on_demand = look->on_demand || is == ON_DEMAND;
}

static unsigned group_of(struct derive *d, unsigned place)
{
    while (d->group[place] != place)
        place = d->group[place] = d->group[d->group[place]];
    return place;
}

static void join_groups(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct look *look = ctx;
    const unsigned maker = look->d->maker[(*slot)->id];

    (void)arg;
    if (maker != 0 && look->d->derived[maker - 1])
        look->d->group[group_of(look->d, look->place)] =
            group_of(look->d, maker - 1);
}

static void mark_given(struct derive *d)
{
    const struct pst_graph *graph = d->graph;

    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *v = graph->values.at[i];

        if (pst_value_is_state(v))
            d->origin[i] = v->kind == PST_VALUE_PARAM && v->requires_grad
                               ? ON_DEMAND
                               : CONSTANT;
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            d->origin[graph->outputs.at[i].target->id] = OTHERS;
}

/* Sets the origin of a node's results. A derived node joins the group of the
 * derived nodes that it reads. */
static void mark_node(struct derive *d, unsigned place)
{
    struct pst_node *node = d->graph->nodes.at[place];
    struct look look = {.d = d, .place = place};

    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k] != NULL)
            d->maker[node->outs[k]->id] = place + 1;
    if (node->phase != PST_PHASE_F ||
        node->op->flags & (PST_OP_RANDOM | PST_OP_EFFECT | PST_OP_MARKER))
        return;
    pst_node_uses(node, record_origin, &look);
    if (look.others)
        return;
    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k] != NULL)
            d->origin[node->outs[k]->id] =
                look.on_demand ? ON_DEMAND : CONSTANT;
    d->derived[place] = look.on_demand;
    if (look.on_demand)
        pst_node_uses(node, join_groups, &look);
}

/* Makes one segment of each group of derived nodes that read each other.
 * counts: zeros, one per node. */
static enum pst_status add_segments(struct derive *d, unsigned *counts,
                                    struct pst_segments *ret)
{
    const unsigned n = (unsigned)d->graph->nodes.n;

    for (unsigned i = 0; i < n; i++)
        counts[group_of(d, i)] += d->derived[i];
    for (unsigned g = 0; g < n; g++) {
        struct pst_segment segment = {.results = true};

        if (counts[g] == 0)
            continue;
        segment.nodes =
            pst_arena_calloc(&ret->arena, counts[g], sizeof(*segment.nodes));
        if (segment.nodes == NULL || !pst_vec_push(TAG, &ret->list, segment))
            return pst_diag_nomem(d->diag, counts[g] * sizeof(unsigned));
        counts[g] = (unsigned)ret->list.n; /* number of the segment, + 1 */
    }
    for (unsigned i = 0; i < n; i++)
        if (d->derived[i]) {
            struct pst_segment *s = &ret->list.at[counts[group_of(d, i)] - 1];

            s->nodes[s->n++] = i;
        }
    return PST_OK;
}

static enum pst_status find_segments(struct derive *d, struct pst_segments *ret)
{
    const unsigned n = (unsigned)d->graph->nodes.n;
    const size_t values = d->graph->values.n;
    unsigned *counts = pst_arena_calloc(&ret->arena, n + 1, sizeof(*counts));

    d->origin = pst_arena_calloc(&ret->arena, values + 1, 1);
    d->maker = pst_arena_calloc(&ret->arena, values + 1, sizeof(*d->maker));
    d->group = pst_arena_calloc(&ret->arena, n + 1, sizeof(*d->group));
    d->derived = pst_arena_calloc(&ret->arena, n + 1, sizeof(*d->derived));
    if (counts == NULL || d->origin == NULL || d->maker == NULL ||
        d->group == NULL || d->derived == NULL)
        return pst_diag_nomem(d->diag, (n + values) * sizeof(unsigned));
    for (unsigned i = 0; i < n; i++)
        d->group[i] = i;
    mark_given(d);
    for (unsigned i = 0; i < n; i++)
        mark_node(d, i);
    return add_segments(d, counts, ret);
}

enum pst_status pst_recompute_derived(bool split, struct pst_graph *graph,
                                      struct pst_diag *diag)
{
    /* I and W recompute separately, so that nothing is stored between them. */
    struct pst_segments segments = {.twice = true, .params_on_demand = true};
    struct derive d = {.graph = graph, .diag = diag};
    enum pst_status status;

    pst_arena_init(&segments.arena, TAG);
    status = find_segments(&d, &segments);
    if (status == PST_OK)
        status = pst_recompute(&segments, split, graph, diag);
    pst_segments_fini(&segments);
    return status;
}
