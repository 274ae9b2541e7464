// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/recompute.h"

#include "stages/ops/core/op.h"
#include "stages/passes/replay.h"
#include "stages/passes/rewrite.h"

#include <string.h>

#define TAG PST_TAG_EXEC

/* State of a value, by its id. */
struct fact {
    /* index + 1 of the segment of the current level that computes it; 0: none
     */
    unsigned in_segment;
    unsigned again;       /* level that added it, + 1; 0: original */
    bool constant;        /* computed once a step, so always present */
    bool leaves;          /* the storage is read outside its segment */
    enum pst_phase phase; /* first backward phase that needs it; F: none */
};

struct recompute {
    const struct pst_segments *segments;
    struct pst_graph *graph;
    struct pst_diag *diag;
    struct pst_replay replay;
    struct PST_VEC(struct fact) facts;
    struct PST_VEC(struct pst_value *) map;
    struct pst_node **newest; /* by node index: the node, or its last copy */
    size_t *first; /* by segment: index of the first node that reads it */
    /* Linked lists of the segments to recompute before a node: by node index,
     * the first segment + 1 (at); by segment, the next one + 1 (next). */
    unsigned *next;
    unsigned *at;
    size_t place;              /* position of the current node */
    enum pst_phase only_phase; /* phase to recompute for; F: all */
};

/* --- facts ---------------------------------------------------------------- */

static struct fact *fact_of(struct recompute *r, const struct pst_value *value)
{
    return &r->facts.at[value->id];
}

static struct fact *storage_fact(struct recompute *r, struct pst_value *value)
{
    return fact_of(r, pst_value_storage(value));
}

/* Adds the facts of new values, and maps each to itself. */
static enum pst_status add_facts(struct recompute *r)
{
    const struct pst_graph *graph = r->graph;

    for (size_t i = r->facts.n; i < graph->values.n; i++) {
        const struct fact fact = {0};

        if (!pst_vec_push(TAG, &r->facts, fact) ||
            !pst_vec_push(TAG, &r->map, graph->values.at[i]))
            return pst_diag_nomem(r->diag, sizeof(fact));
    }
    r->replay.map = r->map.at;
    return PST_OK;
}

struct visit {
    struct recompute *r;
    const struct pst_node *node;
    size_t place;
    unsigned in_segment; /* segment of the node */
    bool all;
};

static void check_constant(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct visit *look = ctx;

    (void)arg;
    look->all = look->all && storage_fact(look->r, *slot)->constant;
}

/* Marks values that depend on parameters and constants alone: they are computed
 * once a step. */
static void mark_constants(struct recompute *r)
{
    const struct pst_graph *graph = r->graph;

    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *value = graph->values.at[i];

        fact_of(r, value)->constant =
            pst_value_is_state(value) &&
            !(r->segments->params_on_demand && value->kind == PST_VALUE_PARAM &&
              value->requires_grad);
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            fact_of(r, graph->outputs.at[i].target)->constant = false;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct visit look = {.r = r, .all = true};

        if (node->op->flags & (PST_OP_RANDOM | PST_OP_EFFECT | PST_OP_MARKER))
            continue;
        pst_node_uses(node, check_constant, &look);
        for (unsigned k = 0; k < node->n_outs && look.all; k++)
            if (node->outs[k] != NULL)
                fact_of(r, node->outs[k])->constant = true;
    }
}

/* --- one round: the segments of a level ----------------------------------- */

static bool is_of_level(const struct recompute *r, size_t s, unsigned level)
{
    return r->segments->list.at[s].level == level;
}

static void mark_level(struct recompute *r, unsigned level)
{
    for (size_t i = 0; i < r->facts.n; i++) {
        r->facts.at[i].in_segment = 0;
        r->facts.at[i].leaves = false;
        r->facts.at[i].phase = PST_PHASE_F;
        r->map.at[i] = r->graph->values.at[i];
    }
    for (size_t s = 0; s < r->segments->list.n; s++) {
        const struct pst_segment *segment = &r->segments->list.at[s];

        r->first[s] = SIZE_MAX;
        for (unsigned i = 0; is_of_level(r, s, level) && i < segment->n; i++) {
            const struct pst_node *node = r->newest[segment->nodes[i]];

            /* Values that the outer segment did not recompute stay stored. */
            for (unsigned k = 0; k < node->n_outs; k++)
                if (node->outs[k] != NULL &&
                    fact_of(r, node->outs[k])->again == level)
                    fact_of(r, node->outs[k])->in_segment = (unsigned)s + 1;
        }
    }
}

static unsigned segment_of(struct recompute *r, const struct pst_node *node)
{
    return node->n_outs > 0 && node->outs[0] != NULL
               ? fact_of(r, node->outs[0])->in_segment
               : 0;
}

/* True for a backward node that is not a recomputed copy. */
static bool is_backward(struct recompute *r, const struct pst_node *node)
{
    return node->phase != PST_PHASE_F &&
           (node->n_outs == 0 || node->outs[0] == NULL ||
            !fact_of(r, node->outs[0])->again);
}

/* True for a backward node of the phase that values are recomputed for, unless
 * it is a recomputed copy. */
static bool is_reader(struct recompute *r, const struct pst_node *node)
{
    return is_backward(r, node) &&
           (r->only_phase == PST_PHASE_F || node->phase == r->only_phase);
}

static void mark_leaving(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct visit *look = ctx;
    struct fact *fact = storage_fact(look->r, *slot);

    (void)arg;
    if (fact->in_segment == 0 || fact->in_segment == look->in_segment)
        return;
    if (look->in_segment != 0 ||
        !look->r->segments->list.at[fact->in_segment - 1].results)
        fact->leaves = true;
}

static void find_leaving(struct recompute *r)
{
    const struct pst_graph *graph = r->graph;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct visit look = {.r = r, .in_segment = segment_of(r, node)};

        if (!is_backward(r, node))
            pst_node_uses(node, mark_leaving, &look);
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            storage_fact(r, graph->outputs.at[i].arg.value)->leaves = true;
}

/* True if the segment can recompute the value. */
static bool is_inner(struct recompute *r, struct pst_value *value)
{
    const struct fact *fact = storage_fact(r, value);

    return fact->in_segment != 0 && !fact->leaves && !fact->constant;
}

static void mark_needed(struct recompute *r, struct pst_value *value,
                        enum pst_phase phase)
{
    struct fact *fact = fact_of(r, value);

    if (fact->phase == PST_PHASE_F || phase < fact->phase)
        fact->phase = phase;
}

static void record_needed(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct visit *look = ctx;
    struct recompute *r = look->r;
    size_t *first;

    (void)arg;
    if (!is_inner(r, *slot))
        return;
    first = &r->first[storage_fact(r, *slot)->in_segment - 1];
    *first = PST_MIN(*first, look->place);
    mark_needed(r, *slot, look->node->phase);
}

static enum pst_phase phase_of(struct recompute *r, const struct pst_node *node)
{
    enum pst_phase phase = PST_PHASE_F;

    for (unsigned k = 0; k < node->n_outs; k++) {
        const enum pst_phase p = node->outs[k] == NULL
                                     ? PST_PHASE_F
                                     : fact_of(r, node->outs[k])->phase;

        if (p != PST_PHASE_F && (phase == PST_PHASE_F || p < phase))
            phase = p;
    }
    return phase;
}

static void mark_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct visit *look = ctx;

    (void)arg;
    if (is_inner(look->r, *slot))
        mark_needed(look->r, *slot, phase_of(look->r, look->node));
}

/* Finds the values that backward nodes read and, transitively, their
 * operands. */
static void find_needed(struct recompute *r, unsigned level)
{
    const struct pst_graph *graph = r->graph;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct visit look = {.r = r, .node = graph->nodes.at[i], .place = i};

        if (is_reader(r, look.node))
            pst_node_uses(graph->nodes.at[i], record_needed, &look);
    }
    for (size_t s = 0; s < r->segments->list.n; s++) {
        const struct pst_segment *segment = &r->segments->list.at[s];

        if (!is_of_level(r, s, level))
            continue;
        for (unsigned i = segment->n; i-- > 0;) {
            struct pst_node *node = r->newest[segment->nodes[i]];
            struct visit look = {.r = r, .node = node};

            if (phase_of(r, node) != PST_PHASE_F)
                pst_node_uses(node, mark_operand, &look);
        }
    }
}

static enum pst_status emit_segment(struct recompute *r, size_t s)
{
    const struct pst_segment *segment = &r->segments->list.at[s];
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < segment->n && status == PST_OK; i++) {
        struct pst_node **newest = &r->newest[segment->nodes[i]];
        const struct pst_node *node = *newest;
        const enum pst_phase phase = phase_of(r, node);

        if (phase == PST_PHASE_F)
            continue;
        status = pst_replay_node(&r->replay, node);
        if (status == PST_OK)
            status = add_facts(r);
        for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++) {
            struct pst_value *copy;

            if (node->outs[k] == NULL)
                continue;
            copy = r->map.at[node->outs[k]->id];
            fact_of(r, copy)->again = r->segments->list.at[s].level + 1;
            copy->version_of = NULL; /* only the original updates the buffer */
            copy->def->phase = phase;
            *newest = copy->def;
        }
    }
    return status;
}

static void map_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct recompute *r = ctx;

    (void)arg;
    if (is_inner(r, *slot))
        *slot = r->map.at[(*slot)->id];
}

static void map_operands(struct recompute *r, struct pst_node *node)
{
    pst_node_uses(node, map_operand, r);
    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k] != NULL && node->outs[k]->base != NULL &&
            is_inner(r, node->outs[k]->base))
            node->outs[k]->base = r->map.at[node->outs[k]->base->id];
}

static enum pst_status emit_with_copies(void *ctx, struct pst_node *node)
{
    struct recompute *r = ctx;
    enum pst_status status = PST_OK;

    for (unsigned s = r->at[r->place++]; s != 0 && status == PST_OK;
         s = r->next[s - 1])
        status = emit_segment(r, s - 1);
    if (status == PST_OK && is_reader(r, node))
        map_operands(r, node);
    if (status == PST_OK &&
        !pst_vec_push(PST_TAG_GRAPH, &r->graph->nodes, node))
        status = pst_diag_nomem(r->diag, sizeof(*node));
    return status;
}

static enum pst_status recompute_level(struct recompute *r, unsigned level)
{
    enum pst_status status;

    mark_level(r, level);
    find_leaving(r);
    find_needed(r, level);
    r->at = pst_calloc(TAG, r->graph->nodes.n + 1, sizeof(*r->at));
    if (r->at == NULL)
        return pst_diag_nomem(r->diag, r->graph->nodes.n * sizeof(*r->at));
    for (unsigned s = 0; s < r->segments->list.n; s++)
        if (r->first[s] != SIZE_MAX) {
            r->next[s] = r->at[r->first[s]];
            r->at[r->first[s]] = s + 1;
        }
    r->place = 0;
    status = pst_graph_rewrite(r->graph, emit_with_copies, r);
    pst_free(r->at);
    return status;
}

/* --- all ------------------------------------------------------------------ */

/* Recomputes level by level for one phase (F: all). nodes: the n nodes of the
 * graph before any recomputation. */
static enum pst_status recompute_phase(struct recompute *r, enum pst_phase only,
                                       struct pst_node *const *nodes, size_t n)
{
    enum pst_status status = PST_OK;
    unsigned levels = 0;

    memcpy(r->newest, nodes, n * sizeof(struct pst_node *));
    r->only_phase = only;
    for (size_t s = 0; s < r->segments->list.n; s++)
        levels = PST_MAX(levels, r->segments->list.at[s].level + 1);
    for (unsigned level = 0; level < levels && status == PST_OK; level++)
        status = recompute_level(r, level);
    return status;
}

static enum pst_status recompute_segments(struct recompute *r, bool split)
{
    const size_t n = r->graph->nodes.n;
    struct pst_node **nodes = pst_calloc(TAG, n + 1, sizeof(struct pst_node *));
    enum pst_status status = add_facts(r);

    r->newest = pst_calloc(TAG, n + 1, sizeof(*r->newest));
    r->first = pst_calloc(TAG, r->segments->list.n, sizeof(*r->first));
    r->next = pst_calloc(TAG, r->segments->list.n, sizeof(*r->next));
    if (nodes == NULL || r->newest == NULL || r->first == NULL ||
        r->next == NULL)
        status = pst_diag_nomem(r->diag, n * sizeof(*r->newest));
    if (status == PST_OK) {
        memcpy(nodes, r->graph->nodes.at, n * sizeof(struct pst_node *));
        mark_constants(r);
        status = recompute_phase(
            r, split && r->segments->twice ? PST_PHASE_I : PST_PHASE_F, nodes,
            n);
    }
    if (status == PST_OK && split && r->segments->twice)
        status = recompute_phase(r, PST_PHASE_W, nodes, n);
    pst_free(nodes);
    return status;
}

enum pst_status pst_recompute(const struct pst_segments *segments, bool split,
                              struct pst_graph *graph, struct pst_diag *diag)
{
    struct recompute r = {.segments = segments, .graph = graph, .diag = diag};
    enum pst_status status;

    if (segments->list.n == 0)
        return PST_OK;
    pst_build_init(&r.replay.build, graph, diag);
    r.replay.again = true;
    status = recompute_segments(&r, split);
    pst_vec_fini(&r.facts);
    pst_vec_fini(&r.map);
    pst_free(r.newest);
    pst_free(r.first);
    pst_free(r.next);
    return status;
}

/* Recomputes values derived from parameters first, then the segments of
 * --recompute. In this order each segment recomputes such values for its own
 * nodes, and none are stored from I to W. */
enum pst_status pst_recompute_stage(const struct pst_plan *plan, unsigned stage,
                                    const char *what, bool split,
                                    bool on_demand, struct pst_graph *graph,
                                    struct pst_diag *diag)
{
    struct pst_segments segments;
    enum pst_status status =
        on_demand ? pst_recompute_derived(split, graph, diag) : PST_OK;

    if (what == NULL || status != PST_OK)
        return status;
    status = pst_segments_find(plan, stage, what, graph, &segments, diag);
    segments.params_on_demand = on_demand;
    if (status == PST_OK)
        status = pst_recompute(&segments, split, graph, diag);
    pst_segments_fini(&segments);
    if (status == PST_OK && on_demand)
        status = pst_recompute_derived(split, graph, diag);
    return status;
}
