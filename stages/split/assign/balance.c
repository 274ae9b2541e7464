// SPDX-License-Identifier: Apache-2.0
/*
 * Cuts by cost. Bisection finds the smallest limit on the cost of a stage that
 * some cut keeps, exact to the last bit. Then, of all cuts within that limit
 * (plus the slack), the one that sends the fewest bytes is chosen. Both take
 * time proportional to nodes x stages (x log):
 *
 *  - end[b] is the last position where a stage that begins at node b may end.
 *    The cost of [b, e) grows with e, and one backward walk with a tree of sums
 *    finds all end[b]: a value that a stage reads and does not compute counts
 *    at its first use.
 *  - The prefixes that can be cut into k stages follow from those of k - 1 by
 *    marking [first[b], end[b]].
 *  - Bytes are a dynamic program over prefixes: a tree of minima has, for each
 *    b, the total for a last stage from b to the current position.
 */
#include "stages/cost/cost.h"
#include "stages/split/assign/assign.h"
#include "stages/split/assign/trees.h"
#include "stages/split/carry.h"

#include <math.h>
#include <string.h>

#define TAG PST_TAG_PLAN

/* A value that a node reads. If several operands are the same value, the node
 * has one use. */
struct use {
    unsigned value;
    /* (index + 1) of the last node before this one that computes or reads the
     * value: a stage that begins after that node receives the value for this
     * use; 0: none */
    size_t from;
};

struct balance {
    struct pst_splitter *s;
    const struct pst_cost_model *cost;
    struct pst_arena arena;
    size_t n; /* number of nodes */
    unsigned n_stages;
    bool *allowed; /* n + 1 positions: true if a cut is possible there */
    /* n + 1 elements: sum of the costs of the first i nodes */
    double *before;
    /* n + 1 elements, by b: end of the shortest stage that begins at node b and
     * has work */
    size_t *first;
    /* by b: end of the longest stage from node b on that keeps the limit */
    size_t *end;
    /* n + 1 elements, by node: index of its first use in `uses` */
    size_t *uses_of;
    struct use *uses; /* values that nodes read, in the order of the nodes */
    /* by value: its first use after the current position, + 1; 0: none */
    size_t *next;
    /* two rows of n + 1: true for prefixes that can be cut into k stages */
    unsigned char *feasible;
    /* [stage][prefix]: start of the last stage in the prefix's cheapest cut */
    unsigned *from;
    struct pst_sums sums;
    struct pst_minima minima;
};

/* --- tables of the graph ------------------------------------------------ */

struct use_ctx {
    struct balance *b;
    size_t node, n;
    size_t *last; /* by value: its producer or last reader so far, + 1 */
    bool list;    /* true: fill in `uses`; false: only count them */
};

static void record_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *u = ctx;
    struct use use = {(*slot)->id, 0};

    (void)arg;
    use.from = u->last[use.value];
    if (use.from == u->node + 1)
        return; /* another operand of the node is the same value */
    u->last[use.value] = u->node + 1;
    if (u->list)
        u->b->uses[u->n] = use;
    u->n++;
}

static size_t visit_uses(struct balance *b, size_t *last, bool list)
{
    const struct pst_graph *graph = b->s->graph;
    struct use_ctx u = {.b = b, .last = last, .list = list};

    memset(last, 0, graph->values.n * sizeof(*last));
    for (size_t i = 0; i < b->n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        b->uses_of[i] = u.n;
        u.node = i;
        pst_node_uses(node, record_use, &u);
        for (unsigned k = 0; k < node->n_outs; k++)
            last[node->outs[k]->id] = i + 1;
    }
    b->uses_of[b->n] = u.n;
    return u.n;
}

static void find_work_ends(struct balance *b)
{
    size_t end = b->n + 1;

    for (size_t i = b->n + 1; i-- > 0;) {
        if (i < b->n && pst_node_is_work(b->s->graph->nodes.at[i]))
            end = i + 1;
        b->first[i] = end;
    }
}

/* Forbids cuts between nodes that read or compute an updated buffer, unless the
 * user gave the buffer an owner. */
static enum pst_status forbid_spans(struct balance *b)
{
    const struct pst_graph *graph = b->s->graph;
    const size_t n = graph->values.n + 1;
    size_t *first = pst_arena_calloc(&b->arena, n, sizeof(*first));
    size_t *last = pst_arena_calloc(&b->arena, n, sizeof(*last));

    if (first == NULL || last == NULL)
        return pst_diag_nomem(b->s->diag, n * sizeof(*first));
    for (size_t i = 0; i < b->n; i++) {
        for (size_t k = b->uses_of[i]; k < b->uses_of[i + 1]; k++) {
            const unsigned value = b->uses[k].value;

            first[value] = last[value] == 0 ? i : first[value];
            last[value] = i + 1;
        }
        for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++)
            first[graph->nodes.at[i]->outs[k]->id] = i;
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *output = &graph->outputs.at[i];
        size_t from, to;

        if (output->kind != PST_OUTPUT_BUFFER_UPDATE ||
            last[output->target->id] == 0 ||
            output->arg.value->kind != PST_VALUE_NODE ||
            pst_split_is_owned(b->s, output->target))
            continue;
        from = first[output->target->id];
        to = first[output->arg.value->id];
        if (to < from) {
            from = to;
            to = first[output->target->id];
        }
        to = PST_MAX(to + 1, last[output->target->id]);
        for (size_t e = from + 1; e < to; e++)
            b->allowed[e] = false;
    }
    return PST_OK;
}

static enum pst_status prepare_tables(struct balance *b, const bool *allowed)
{
    const struct pst_graph *graph = b->s->graph;
    const size_t n = b->n + 1;
    enum pst_status status;
    size_t n_uses;

    b->allowed = pst_arena_calloc(&b->arena, n, sizeof(bool));
    b->before = pst_arena_calloc(&b->arena, n, sizeof(double));
    b->first = pst_arena_calloc(&b->arena, n, sizeof(size_t));
    b->end = pst_arena_calloc(&b->arena, n, sizeof(size_t));
    b->uses_of = pst_arena_calloc(&b->arena, n, sizeof(size_t));
    b->next = pst_arena_calloc(&b->arena, graph->values.n + 1, sizeof(size_t));
    b->feasible = pst_arena_calloc(&b->arena, 2 * n, 1);
    b->from = pst_arena_calloc(&b->arena, n * b->n_stages, sizeof(unsigned));
    if (b->allowed == NULL || b->before == NULL || b->first == NULL ||
        b->end == NULL || b->uses_of == NULL || b->next == NULL ||
        b->feasible == NULL || b->from == NULL ||
        !pst_sums_init(&b->sums, &b->arena, b->n) ||
        !pst_minima_init(&b->minima, &b->arena, n))
        return pst_diag_nomem(b->s->diag, n * b->n_stages * sizeof(unsigned));
    n_uses = visit_uses(b, b->next, false);
    b->uses = pst_arena_calloc(&b->arena, n_uses + 1, sizeof(*b->uses));
    if (b->uses == NULL)
        return pst_diag_nomem(b->s->diag, n_uses * sizeof(*b->uses));
    (void)visit_uses(b, b->next, true);
    find_work_ends(b);
    for (size_t i = 0; i < n; i++)
        b->allowed[i] = i == b->n || allowed == NULL || allowed[i];
    for (size_t i = 0; i < b->n; i++)
        b->before[i + 1] = b->before[i] + b->cost->node[i];
    status = forbid_spans(b);
    return status == PST_OK ? pst_split_allow(b->s, b->allowed) : status;
}

/* --- the limit ---------------------------------------------------------- */

static void move_use(struct balance *b, unsigned value, size_t to)
{
    const double carry = b->cost->carry[value];

    if (carry == 0.0)
        return;
    if (b->next[value] > 0)
        pst_sums_add(&b->sums, b->next[value] - 1, -carry);
    if (to > 0)
        pst_sums_add(&b->sums, to - 1, carry);
    b->next[value] = to;
}

static void find_ends(struct balance *b, double limit)
{
    const struct pst_graph *graph = b->s->graph;

    pst_sums_clear(&b->sums);
    memset(b->next, 0, graph->values.n * sizeof(*b->next));
    for (size_t i = b->n; i-- > 0;) {
        const struct pst_node *node = graph->nodes.at[i];

        for (unsigned k = 0; k < node->n_outs; k++)
            move_use(b, node->outs[k]->id, 0);
        for (size_t k = b->uses_of[i]; k < b->uses_of[i + 1]; k++)
            move_use(b, b->uses[k].value, i + 1);
        b->end[i] =
            pst_sums_find_end(&b->sums, b->before, i, b->cost->unit, limit);
    }
}

/* True if the nodes can be cut into n_stages stages that keep b->end. */
static bool is_feasible(struct balance *b)
{
    unsigned char *now = b->feasible, *then = b->feasible + b->n + 1;

    memset(now, 0, b->n + 1);
    now[0] = 1;
    for (unsigned k = 0; k < b->n_stages; k++) {
        unsigned char *swap = now;
        size_t open = 0; /* the stage can end below `open` */

        memset(then, 0, b->n + 1);
        /* If a stage begins later, its first work is later, too. So visiting
         * the beginnings in order gives the union of the intervals [first,
         * end]. */
        for (size_t i = 0, e = 1; e <= b->n; e++) {
            for (; i < e && b->first[i] <= e; i++)
                if (now[i])
                    open = PST_MAX(open, b->end[i] + 1);
            then[e] = e < open && b->allowed[e];
        }
        now = then;
        then = swap;
    }
    return now[b->n];
}

static bool is_limit_feasible(struct balance *b, double limit)
{
    find_ends(b, limit);
    return is_feasible(b);
}

/* Finds the smallest feasible limit, exact to the last bit. */
static double find_limit(struct balance *b)
{
    double low = b->before[b->n] / b->n_stages, high = b->before[b->n];

    for (size_t i = 0; i < b->s->graph->values.n; i++)
        high += b->cost->unit * b->cost->carry[i];
    high *= 1.0 + 1e-9; /* allows for rounding errors of the sums */
    low = PST_MAX(low, high * 1e-18);
    if (is_limit_feasible(b, low))
        return low;
    for (;;) {
        const double middle = low + (high - low) / 2.0;

        if (middle <= low || middle >= high)
            return high;
        if (is_limit_feasible(b, middle))
            high = middle;
        else
            low = middle;
    }
}

/* --- the fewest bytes --------------------------------------------------- */

struct bytes {
    /* by prefix: fewest bytes sent if it is cut into k stages (now) and into k
     * + 1 (then) */
    double *now, *then;
    /* Lists of stages by their longest end. dies[e]: beginning b, + 1, of the
     * first stage with b->end == e - 1; next[b]: beginning, + 1, of the next
     * stage in the same list. 0: none */
    size_t *dies, *next;
};

/* Extends the prefixes cut into k stages to k + 1 stages. */
static void add_stage(struct balance *b, unsigned k, struct bytes *bytes)
{
    size_t alive = 0;

    pst_minima_clear(&b->minima);
    for (size_t e = 1; e <= b->n; e++) {
        for (size_t j = b->uses_of[e - 1]; j < b->uses_of[e]; j++)
            pst_minima_add(&b->minima, b->uses[j].from, e,
                           b->cost->sent[b->uses[j].value]);
        for (; alive < e && b->first[alive] <= e; alive++)
            if (b->end[alive] >= e)
                pst_minima_set(&b->minima, alive, bytes->now[alive]);
        for (size_t i = bytes->dies[e]; i > 0; i = bytes->next[i - 1])
            pst_minima_set(&b->minima, i - 1, HUGE_VAL);
        b->from[k * (b->n + 1) + e] = (unsigned)pst_minima_find(&b->minima);
        bytes->then[e] =
            b->allowed[e] ? pst_minima_least(&b->minima) : HUGE_VAL;
    }
    bytes->then[0] = HUGE_VAL;
}

static enum pst_status find_bytes(struct balance *b, double *ret)
{
    const size_t n = b->n + 2;
    struct bytes bytes = {
        .now = pst_arena_calloc(&b->arena, n, sizeof(double)),
        .then = pst_arena_calloc(&b->arena, n, sizeof(double)),
        .dies = pst_arena_calloc(&b->arena, n, sizeof(size_t)),
        .next = pst_arena_calloc(&b->arena, n, sizeof(size_t)),
    };

    if (bytes.now == NULL || bytes.then == NULL || bytes.dies == NULL ||
        bytes.next == NULL)
        return pst_diag_nomem(b->s->diag, n * sizeof(double));
    for (size_t i = 0; i < b->n; i++) {
        bytes.next[i] = bytes.dies[b->end[i] + 1];
        bytes.dies[b->end[i] + 1] = i + 1;
        bytes.now[i + 1] = HUGE_VAL;
    }
    for (unsigned k = 0; k < b->n_stages; k++) {
        double *swap = bytes.now;

        add_stage(b, k, &bytes);
        bytes.now = bytes.then;
        bytes.then = swap;
    }
    *ret = bytes.now[b->n];
    return PST_OK;
}

static void set_stages(struct balance *b)
{
    size_t end = b->n;

    for (unsigned k = b->n_stages; k-- > 0;) {
        const size_t begin = b->from[k * (b->n + 1) + end];

        for (size_t i = begin; i < end; i++)
            b->s->graph->nodes.at[i]->stage = (int)k;
        end = begin;
    }
}

/* --- cuts --------------------------------------------------------------- */

static unsigned most_stages(const struct balance *b)
{
    unsigned n = 0;
    size_t place = 0;

    for (;;) {
        size_t e = b->first[place];

        while (e < b->n && !b->allowed[e])
            e++;
        if (e > b->n)
            return n;
        n++;
        place = e;
    }
}

static enum pst_status find_cuts(struct balance *b, const bool *allowed)
{
    enum pst_status status = prepare_tables(b, allowed);
    double limit, bytes, fewer;
    unsigned most;

    if (status != PST_OK)
        return status;
    most = most_stages(b);
    if (most < b->n_stages)
        return pst_diag_set(b->s->diag, PST_E_CUT_TOO_MANY,
                            "%u stages are too many: this model can be cut "
                            "into at most %u%s",
                            b->n_stages, PST_MAX(most, 1u),
                            allowed == NULL ? "" : ", by layers");
    limit = find_limit(b);
    find_ends(b, limit);
    status = find_bytes(b, &bytes);
    if (status != PST_OK)
        return status;
    set_stages(b);
    if (b->cost->slack <= 0.0)
        return PST_OK;
    find_ends(b, limit * (1.0 + b->cost->slack));
    status = find_bytes(b, &fewer);
    if (status == PST_OK && fewer < bytes)
        set_stages(b);
    return status;
}

enum pst_status pst_split_balance(struct pst_splitter *s,
                                  const struct pst_cost_model *cost,
                                  unsigned n_stages, const bool *allowed)
{
    struct balance b = {.s = s, .cost = cost, .n_stages = n_stages};
    enum pst_status status = PST_OK;

    s->n_stages = n_stages;
    b.n = s->graph->nodes.n;
    if (n_stages == 1) { /* also for a model without work */
        for (size_t i = 0; i < b.n; i++)
            s->graph->nodes.at[i]->stage = 0;
        return PST_OK;
    }
    pst_arena_init(&b.arena, TAG);
    status = find_cuts(&b, allowed);
    pst_arena_fini(&b.arena);
    return status;
}
