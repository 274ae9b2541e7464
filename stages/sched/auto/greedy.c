// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/auto/greedy.h"

#include "stages/sched/generate.h"

#include <math.h>
#include <stdlib.h>

/* Inputs that a (stage, microbatch) waits for in one direction. */
struct inputs {
    unsigned missing;
    double at; /* time when the last of the inputs sent so far arrives */
};

struct stage_state {
    /* next microbatch of each kind; B counts as I */
    unsigned next[PST_ACT_W + 1];
    bool sends_back; /* another stage waits for its gradients */
};

struct greedy_rank {
    double clock, line_free;
    double free_since;         /* start of the idle time */
    bool blocked;              /* idle until all inputs of some work are sent */
    struct pst_action running; /* kind PST_ACT_IDLE: none */
    unsigned begun, ended;     /* microbatches begun, and ended */
    unsigned backlog;          /* number of W that are ready */
    double bytes, peak;
};

struct greedy {
    struct pst_schedule *sched;
    const struct pst_costs *costs;
    const struct pst_greedy_options *o;
    struct pst_link_index links;
    /* bytes of a message per link: bytes_f in the order of links.by_from,
     * bytes_b in that of links.by_to */
    double *bytes_f, *bytes_b;
    struct stage_state *stages;
    struct inputs *forward, *backward; /* per (stage, microbatch) */
    struct greedy_rank *ranks;
    bool failed;
};

static size_t cell_index(const struct greedy *g, unsigned stage,
                         unsigned microbatch)
{
    return (size_t)stage * g->sched->n_microbatches + microbatch;
}

static bool is_on_rank(const struct greedy *g, unsigned stage, unsigned rank)
{
    return g->sched->rank_of[stage] == (int)rank;
}

static double action_seconds(const struct greedy *g, unsigned stage,
                             enum pst_action_kind kind)
{
    const struct pst_stage_cost *c = &g->costs->stages[stage];

    if (kind == PST_ACT_F)
        return c->seconds.forward;
    if (kind == PST_ACT_W)
        return c->seconds.weight;
    if (kind == PST_ACT_I)
        return c->seconds.input;
    return c->backward > 0.0 ? c->backward
                             : c->seconds.input + c->seconds.weight;
}

/* --- messages ------------------------------------------------------------ */

/* Makes an idle rank look for work at time `at`, when a message arrives. */
static void wake_rank(struct greedy *g, int rank, double at)
{
    struct greedy_rank *r = &g->ranks[rank];

    if (r->running.kind != PST_ACT_IDLE)
        return;
    if (r->blocked || at < r->clock)
        r->clock = fmax(at, r->free_since);
    r->blocked = false;
}

/* Sends one value at `now`. Returns the seconds for which sending keeps the
 * sender busy. */
static double send_value(struct greedy *g, unsigned rank, struct inputs *in,
                         int peer, double bytes, double now)
{
    struct greedy_rank *r = &g->ranks[rank];
    struct pst_wire wire = g->costs->wire;
    double busy = 0.0, at = now;

    if (peer != (int)rank) {
        double way;

        if (g->costs->wires)
            wire = g->costs
                       ->wires[(size_t)rank * g->sched->n_ranks + (size_t)peer];
        way = wire.bandwidth > 0.0 ? bytes / wire.bandwidth : 0.0;
        if (g->costs->overlap) {
            r->line_free = fmax(r->line_free, now) + way;
            at = r->line_free + wire.latency;
        } else {
            busy = way + wire.latency;
            at = now + busy;
        }
    }
    in->missing--;
    in->at = fmax(in->at, at);
    if (in->missing == 0)
        wake_rank(g, peer, in->at);
    return busy;
}

static double send_all(struct greedy *g, unsigned rank,
                       const struct pst_action *a, double now)
{
    const struct pst_link_index *x = &g->links;
    const size_t s = (size_t)a->stage;
    const unsigned m = (unsigned)a->microbatch;
    double busy = 0.0;

    if (a->kind == PST_ACT_F) {
        for (size_t i = x->first_from[s]; i < x->first_from[s + 1]; i++) {
            const unsigned to = (unsigned)x->by_from[i].to;
            const unsigned for_mb = m + pst_link_carries(&x->by_from[i]);

            if (for_mb < g->sched->n_microbatches)
                busy += send_value(
                    g, rank, &g->forward[cell_index(g, to, for_mb)],
                    g->sched->rank_of[to], g->bytes_f[i], now + busy);
        }
        return busy;
    }
    for (size_t i = x->first_to[s];
         i < x->first_to[s + 1] && a->kind != PST_ACT_W; i++) {
        const unsigned to = (unsigned)x->by_to[i].from;

        if (x->by_to[i].grad)
            busy +=
                send_value(g, rank, &g->backward[cell_index(g, to, m)],
                           g->sched->rank_of[to], g->bytes_b[i], now + busy);
    }
    return busy;
}

/* --- choice -------------------------------------------------------------- */

struct choice {
    int stage; /* -1: none */
    enum pst_action_kind kind;
    /* when the next waiting work becomes ready; infinite: unknown */
    double wait;
};

/* Returns the memory of the rank in bytes if each microbatch begun has run F on
 * all stages of the rank, and no further I or W has run. one_more: counts one
 * further microbatch. */
static double held_bytes(const struct greedy *g, unsigned rank, bool one_more)
{
    const unsigned begun = g->ranks[rank].begun + one_more;
    double bytes = 0.0;

    for (unsigned s = 0; s < g->sched->n_stages; s++) {
        const struct stage_state *st = &g->stages[s];
        const struct pst_stage_cost *c = &g->costs->stages[s];

        if (is_on_rank(g, s, rank))
            bytes += c->fixed + (begun - st->next[PST_ACT_I]) * c->stash +
                     (st->next[PST_ACT_I] - st->next[PST_ACT_W]) * c->keep;
    }
    return bytes;
}

static bool may_begin(const struct greedy *g, unsigned rank,
                      unsigned microbatch)
{
    const struct greedy_rank *r = &g->ranks[rank];
    bool keeps = false;

    if (microbatch < r->begun)
        return true;
    for (unsigned s = 0; s < g->sched->n_stages; s++)
        keeps = keeps || (is_on_rank(g, s, rank) &&
                          g->stages[s].next[PST_ACT_W] < r->begun);
    if (!keeps) /* no other microbatch is in memory */
        return true;
    return r->begun - r->ended < g->o->in_flight &&
           (g->o->memory_limit <= 0.0 ||
            held_bytes(g, rank, true) <= g->o->memory_limit);
}

/* Finds ready work of this kind: that of the oldest microbatch, and for this
 * microbatch that of the last stage. */
static void find_ready(const struct greedy *g, unsigned rank,
                       enum pst_action_kind kind, struct choice *choice)
{
    const struct inputs *all = kind == PST_ACT_F ? g->forward : g->backward;
    unsigned best = g->sched->n_microbatches;

    choice->stage = -1;
    for (unsigned s = 0; s < g->sched->n_stages; s++) {
        const struct stage_state *st = &g->stages[s];
        const unsigned m = st->next[kind];
        const struct inputs *in;

        if (!is_on_rank(g, s, rank) || m >= g->sched->n_microbatches ||
            (kind == PST_ACT_I && m >= st->next[PST_ACT_F]) ||
            (kind == PST_ACT_W && m >= st->next[PST_ACT_I]))
            continue;
        in = &all[cell_index(g, s, m)];
        if (kind != PST_ACT_W) {
            if (in->missing > 0 ||
                (kind == PST_ACT_F && !may_begin(g, rank, m)))
                continue;
            if (in->at > g->ranks[rank].clock) {
                choice->wait = fmin(choice->wait, in->at);
                continue;
            }
        }
        if (m <= best) {
            best = m;
            choice->stage = (int)s;
            choice->kind = kind;
        }
    }
}

static struct choice choose_action(const struct greedy *g, unsigned rank)
{
    const double now = g->ranks[rank].clock;
    struct choice c = {.wait = INFINITY};

    if (g->o->backlog > 0 && g->ranks[rank].backlog >= g->o->backlog) {
        find_ready(g, rank, PST_ACT_W, &c);
        return c;
    }
    find_ready(g, rank, g->o->forward_first ? PST_ACT_F : PST_ACT_I, &c);
    if (c.stage < 0)
        find_ready(g, rank, g->o->forward_first ? PST_ACT_I : PST_ACT_F, &c);
    if (c.stage >= 0)
        return c;
    find_ready(g, rank, PST_ACT_W, &c);
    if (c.stage >= 0 &&
        c.wait < now + g->o->patience *
                           action_seconds(g, (unsigned)c.stage, PST_ACT_W))
        c.stage = -1;
    return c;
}

/* --- simulation ----------------------------------------------------------- */

static void end_action(struct greedy *g, unsigned rank)
{
    struct greedy_rank *r = &g->ranks[rank];
    const struct pst_action a = r->running;
    unsigned ended = g->sched->n_microbatches;
    double busy;

    r->running.kind = PST_ACT_IDLE;
    if (a.kind == PST_ACT_IDLE)
        return;
    if (a.kind == PST_ACT_B)
        r->bytes -= g->costs->stages[a.stage].stash;
    else if (a.kind == PST_ACT_I)
        r->bytes -=
            g->costs->stages[a.stage].stash - g->costs->stages[a.stage].keep;
    else if (a.kind == PST_ACT_W)
        r->bytes -= g->costs->stages[a.stage].keep;
    for (unsigned s = 0; s < g->sched->n_stages; s++)
        if (is_on_rank(g, s, rank))
            ended = PST_MIN(ended, g->stages[s].next[PST_ACT_I]);
    r->ended = ended;
    busy = send_all(g, rank, &a, r->clock);
    r->clock += busy;
    r->free_since = r->clock;
}

static void begin_action(struct greedy *g, unsigned rank,
                         const struct choice *c)
{
    struct greedy_rank *r = &g->ranks[rank];
    struct stage_state *st = &g->stages[c->stage];
    const unsigned m = st->next[c->kind]++;
    const bool whole = c->kind == PST_ACT_I && !g->o->split;
    const struct pst_action a = {.kind = whole ? PST_ACT_B : c->kind,
                                 .stage = (int16_t)c->stage,
                                 .microbatch = (int32_t)m,
                                 .peer_stage = -1,
                                 .peer = -1,
                                 .param = -1};

    if (whole)
        st->next[PST_ACT_W]++;
    else if (c->kind == PST_ACT_I)
        r->backlog++;
    else if (c->kind == PST_ACT_W)
        r->backlog--;
    if (c->kind == PST_ACT_F) {
        r->begun = PST_MAX(r->begun, m + 1);
        r->bytes += g->costs->stages[c->stage].stash;
        r->peak = fmax(r->peak, r->bytes);
    }
    g->failed |= !pst_vec_push(PST_TAG_PLAN, &g->sched->ranks[rank], a);
    r->running = a;
    r->clock += action_seconds(g, (unsigned)c->stage, a.kind);
}

/* Returns the rank that can continue first; -1 if all are blocked. A linear
 * scan is enough: a step has few ranks, and each event scans all stages
 * anyway. */
static int first_rank(const struct greedy *g)
{
    int first = -1;

    for (unsigned r = 0; r < g->sched->n_ranks; r++)
        if (!g->ranks[r].blocked &&
            (first < 0 || g->ranks[r].clock < g->ranks[first].clock))
            first = (int)r;
    return first;
}

static void advance_rank(struct greedy *g, unsigned rank)
{
    struct greedy_rank *r = &g->ranks[rank];
    const double before = r->clock;
    struct choice c;

    end_action(g, rank);
    if (r->clock > before) /* busy sending: other ranks may come first */
        return;
    c = choose_action(g, rank);
    if (c.stage >= 0)
        begin_action(g, rank, &c);
    else if (isinf(c.wait))
        r->blocked = true; /* idle until all inputs of some work are sent */
    else
        r->clock = c.wait;
}

/* Replaces an I directly before its W by B, if no stage waits for the I. */
static void join_pairs(struct greedy *g)
{
    for (unsigned r = 0; r < g->sched->n_ranks; r++) {
        struct pst_action *at = g->sched->ranks[r].at;
        size_t n = 0;

        for (size_t i = 0; i < g->sched->ranks[r].n; i++) {
            struct pst_action *last = n ? &at[n - 1] : NULL;

            if (last && at[i].kind == PST_ACT_W && last->kind == PST_ACT_I &&
                last->stage == at[i].stage &&
                last->microbatch == at[i].microbatch &&
                !g->stages[at[i].stage].sends_back)
                last->kind = PST_ACT_B;
            else
                at[n++] = at[i];
        }
        g->sched->ranks[r].n = n;
    }
}

static int compare_from(const void *a, const void *b)
{
    const struct pst_link *x = &((const struct pst_link_cost *)a)->link;
    const struct pst_link *y = &((const struct pst_link_cost *)b)->link;

    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static int compare_to(const void *a, const void *b)
{
    const struct pst_link *x = &((const struct pst_link_cost *)a)->link;
    const struct pst_link *y = &((const struct pst_link_cost *)b)->link;

    return x->to != y->to ? (x->to > y->to) - (x->to < y->to)
                          : (x->from > y->from) - (x->from < y->from);
}

/* Indexes the links of the costs; without any, a chain of stages whose messages
 * cost nothing. */
static enum pst_status index_links(struct greedy *g, struct pst_diag *diag)
{
    const unsigned stages = g->sched->n_stages;
    const size_t n = g->costs->links ? g->costs->n_links : stages - 1;
    struct pst_link_cost *costs = pst_calloc(PST_TAG_PLAN, n, sizeof(*costs));
    struct pst_link *links = pst_calloc(PST_TAG_PLAN, n, sizeof(*links));
    enum pst_status status = PST_OK;

    g->bytes_f = pst_calloc(PST_TAG_PLAN, n, sizeof(double));
    g->bytes_b = pst_calloc(PST_TAG_PLAN, n, sizeof(double));
    if (!costs || !links || !g->bytes_f || !g->bytes_b) {
        (void)pst_diag_nomem(diag, n * sizeof(*costs));
        status = PST_ERR_NOMEM;
    }
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        if (g->costs->links)
            costs[i] = g->costs->links[i];
        else
            costs[i].link = (struct pst_link){(int)i, (int)i + 1, true};
        links[i] = costs[i].link;
    }
    if (status == PST_OK)
        status = pst_link_index_init(&g->links, links, n, stages, diag);
    if (status == PST_OK && n) {
        qsort(costs, n, sizeof(*costs), compare_from);
        for (size_t i = 0; i < n; i++)
            g->bytes_f[i] = costs[i].bytes_f;
        qsort(costs, n, sizeof(*costs), compare_to);
        for (size_t i = 0; i < n; i++)
            g->bytes_b[i] = costs[i].bytes_b;
    }
    pst_free(links);
    pst_free(costs);
    return status;
}

static enum pst_status prepare_state(struct greedy *g, struct pst_diag *diag)
{
    const struct pst_schedule *s = g->sched;
    const size_t cells = (size_t)s->n_stages * s->n_microbatches;
    enum pst_status status = index_links(g, diag);

    if (status != PST_OK)
        return status;
    g->stages = pst_calloc(PST_TAG_PLAN, s->n_stages, sizeof(*g->stages));
    g->forward = pst_calloc(PST_TAG_PLAN, cells, sizeof(*g->forward));
    g->backward = pst_calloc(PST_TAG_PLAN, cells, sizeof(*g->backward));
    g->ranks = pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*g->ranks));
    if (!g->stages || !g->forward || !g->backward || !g->ranks)
        return pst_diag_nomem(diag, cells * sizeof(struct inputs));
    for (size_t i = 0; i < g->links.n; i++) {
        const struct pst_link *l = &g->links.by_from[i];

        g->stages[l->to].sends_back |= l->grad;
        for (unsigned m = 0; m < s->n_microbatches; m++) {
            g->forward[cell_index(g, (unsigned)l->to, m)].missing +=
                m > 0 || !pst_link_carries(l);
            g->backward[cell_index(g, (unsigned)l->from, m)].missing += l->grad;
        }
    }
    for (unsigned r = 0; r < s->n_ranks; r++)
        g->ranks[r].running.kind = PST_ACT_IDLE;
    for (unsigned k = 0; k < s->n_stages; k++)
        g->ranks[s->rank_of[k]].bytes += g->costs->stages[k].fixed;
    return PST_OK;
}

static enum pst_status play_schedule(struct greedy *g,
                                     struct pst_greedy_result *ret,
                                     struct pst_diag *diag)
{
    enum pst_status status = prepare_state(g, diag);
    int rank;

    if (status != PST_OK)
        return status;
    while (!g->failed && (rank = first_rank(g)) >= 0)
        advance_rank(g, (unsigned)rank);
    if (g->failed)
        return pst_diag_nomem(diag, sizeof(struct pst_action));
    for (unsigned s = 0; s < g->sched->n_stages; s++)
        if (g->stages[s].next[PST_ACT_W] < g->sched->n_microbatches)
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "the search for a schedule deadlocks at "
                                "stage %u",
                                s);
    join_pairs(g);
    *ret = (struct pst_greedy_result){0};
    for (unsigned r = 0; r < g->sched->n_ranks; r++) {
        ret->makespan = fmax(ret->makespan, g->ranks[r].clock);
        ret->peak = fmax(ret->peak, g->ranks[r].peak);
    }
    return PST_OK;
}

enum pst_status pst_greedy_generate(struct pst_schedule *sched,
                                    const struct pst_costs *costs,
                                    const struct pst_greedy_options *options,
                                    struct pst_greedy_result *ret,
                                    struct pst_diag *diag)
{
    struct greedy g = {.sched = sched, .costs = costs, .o = options};
    const enum pst_status status = play_schedule(&g, ret, diag);

    pst_free(g.ranks);
    pst_free(g.backward);
    pst_free(g.forward);
    pst_free(g.stages);
    pst_free(g.bytes_b);
    pst_free(g.bytes_f);
    pst_link_index_fini(&g.links);
    return status;
}
