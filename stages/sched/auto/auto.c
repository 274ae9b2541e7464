// SPDX-License-Identifier: Apache-2.0
/*
 * Schedule "auto": simulates every named schedule and many schedules of the
 * list scheduler, with several placements of stages. Takes the fastest that
 * fits into memory. If several are about as fast, takes the one with least
 * memory, but never one that is slower than the best named schedule.
 * Deterministic for equal costs: nothing is timed or random. The candidates do
 * not depend on the memory limit, so a larger limit never results in a slower
 * schedule.
 */
#include "stages/sched/auto/search.h"
#include "stages/sched/generate.h"
#include "stages/sched/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

static bool is_usable(const struct pst_tried *t)
{
    return t->candidate.possible && t->candidate.fits;
}

/* Records a candidate and takes ownership of its schedule, also on failure. */
static enum pst_status record_candidate(struct pst_search *x,
                                        struct pst_candidate is,
                                        struct pst_schedule *sched,
                                        const char *text)
{
    if (text)
        is.note = pst_strdup(PST_TAG_PLAN, text);
    if ((!text || is.note) &&
        pst_vec_push(PST_TAG_PLAN, &x->tried, ((struct pst_tried){is, sched})))
        return PST_OK;
    pst_free(is.note);
    pst_schedule_free(sched);
    return pst_diag_nomem(x->diag, sizeof(struct pst_tried));
}

/* Records that a schedule does not support these numbers of ranks, stages and
 * microbatches, the placement or the model, which is not an error. */
static enum pst_status record_impossible(struct pst_search *x, const char *name,
                                         enum pst_status status,
                                         const struct pst_diag *why)
{
    return status == PST_ERR_NOMEM
               ? pst_diag_nomem(x->diag, 0)
               : record_candidate(x, (struct pst_candidate){.name = name}, NULL,
                                  why->text);
}

/* Simulates a schedule as its generator made it, without messages and
 * reductions. */
static enum pst_status simulate_candidate(const struct pst_search *x,
                                          const struct pst_schedule *sched,
                                          struct pst_candidate *c,
                                          struct pst_diag *diag)
{
    struct pst_sim sim;
    enum pst_status status = pst_schedule_simulate(sched, x->costs, &sim, diag);

    if (status != PST_OK)
        return status;
    c->step = sim.step;
    c->bubble = sim.bubble;
    c->peak = -1.0;
    for (unsigned r = 0; r < x->o->ranks; r++)
        if (sim.ranks[r].peak_bytes > c->peak) {
            c->peak = sim.ranks[r].peak_bytes;
            c->rank = r;
        }
    for (unsigned s = 0; s < x->o->stages; s++)
        if (sched->rank_of[s] == (int)c->rank)
            c->fixed += x->costs->stages[s].fixed;
    pst_sim_fini(&sim);
    return PST_OK;
}

enum pst_status pst_search_evaluate(struct pst_search *x,
                                    struct pst_schedule *sched,
                                    const char *name, const char *text)
{
    struct pst_candidate c = {.name = name};
    struct pst_diag why;
    enum pst_status status;

    pst_diag_init(&why);
    status = pst_schedule_order(sched, &why);
    if (status == PST_OK)
        status = x->o->evaluate
                     ? x->o->evaluate(x->o->evaluate_ctx, sched, &c, &why)
                     : simulate_candidate(x, sched, &c, &why);
    if (status != PST_OK) {
        pst_schedule_free(sched);
        if (x->why.status == PST_OK)
            x->why = why;
        return record_impossible(x, name, status, &why);
    }
    c.possible = true;
    c.fits = x->o->memory_limit <= 0.0 || c.peak <= x->o->memory_limit;
    return record_candidate(x, c, sched, text);
}

static enum pst_status simulate_named(struct pst_search *x)
{
    enum pst_status status = PST_OK;
    const struct pst_sched_row *rows;
    size_t n;

    rows = pst_sched_rows(&n);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        struct pst_schedule_options o = *x->o;
        struct pst_str text = {0};
        struct pst_schedule *sched;
        struct pst_diag why;

        if (!rows[i].trains || rows[i].generate == pst_sched_generate_auto)
            continue;
        o.name = rows[i].name;
        pst_diag_init(&why);
        status = pst_schedule_make(&o, &sched, &why);
        if (status == PST_OK)
            status = pst_schedule_explain(sched, &o, &text, &why);
        if (status == PST_OK)
            status = pst_search_evaluate(x, sched, rows[i].name, text.text);
        else
            status = record_impossible(x, rows[i].name, status, &why);
        pst_str_fini(&text);
    }
    return status;
}

/* --- the choice ----------------------------------------------------------- */

static enum pst_status refuse_all(const struct pst_search *x,
                                  const struct pst_candidate *c)
{
    const double limit = x->o->memory_limit;

    if (!c->possible)
        return pst_diag_pass(x->diag, &x->why, "%s", x->why.text);
    return pst_diag_set(
        x->diag, PST_E_SCHEDULE_MEMORY,
        "no schedule fits into a memory limit of %.2f MiB for each rank: the "
        "smallest, %s, needs %.2f MiB on rank %u, %.2f MiB more; %.2f MiB of "
        "them (parameters, gradients, optimizer states, workspace) every "
        "schedule needs%s; %s, or raise the limit",
        limit / MIB, c->name, c->peak / MIB, c->rank, (c->peak - limit) / MIB,
        c->fixed / MIB, c->fixed > limit ? ", too many alone" : "",
        c->fixed > limit ? "take more ranks, or an optimizer with fewer states"
                         : "take more stages and ranks, or export the model "
                           "with smaller microbatches");
}

/* Sorts usable candidates first, by time; impossible ones last. */
static int compare(const void *a, const void *b)
{
    const struct pst_tried *x = a, *y = b;

    if (x->candidate.possible != y->candidate.possible)
        return x->candidate.possible ? -1 : 1;
    if (is_usable(x) != is_usable(y))
        return is_usable(x) ? -1 : 1;
    if (x->candidate.step != y->candidate.step)
        return x->candidate.step < y->candidate.step ? -1 : 1;
    return (x->candidate.peak > y->candidate.peak) -
           (x->candidate.peak < y->candidate.peak);
}

static bool is_greedy(const struct pst_tried *t)
{
    return strcmp(t->candidate.name, "greedy") == 0;
}

/* Sorts the candidates and moves the chosen one to the front. */
static enum pst_status choose_candidate(struct pst_search *x)
{
    struct pst_tried *at = x->tried.at, chosen;
    size_t best = 0;
    double near, named = INFINITY;

    qsort(at, x->tried.n, sizeof(*at), compare);
    if (!is_usable(&at[0])) {
        for (size_t i = 1; i < x->tried.n && at[i].candidate.possible; i++)
            if (at[i].candidate.peak < at[best].candidate.peak)
                best = i;
        return refuse_all(x, &at[best].candidate);
    }
    for (size_t i = x->tried.n; i-- > 0;)
        if (is_usable(&at[i]) && !is_greedy(&at[i]))
            named = at[i].candidate.step;
    near = fmin(at[0].candidate.step * (1.0 + PST_AUTO_NEAR),
                named * (1.0 + 1e-9));
    for (size_t i = 1; i < x->tried.n && is_usable(&at[i]); i++)
        if (at[i].candidate.step <= near &&
            at[i].candidate.peak < at[best].candidate.peak)
            best = i;
    chosen = at[best];
    memmove(&at[1], &at[0], best * sizeof(*at));
    at[0] = chosen;
    return PST_OK;
}

/* Moves the lists of the chosen candidate into the schedule to return. */
static enum pst_status adopt_schedule(struct pst_search *x,
                                      struct pst_schedule *s)
{
    struct pst_schedule *b = x->tried.at[0].sched;

    if (!pst_vec_reserve(PST_TAG_PLAN, &s->candidates, x->tried.n))
        return pst_diag_nomem(x->diag, x->tried.n * sizeof(*s->candidates.at));
    if (!is_greedy(&x->tried.at[0]))
        s->name = b->name;
    memcpy(s->rank_of, b->rank_of, s->n_stages * sizeof(*s->rank_of));
    for (unsigned r = 0; r < s->n_ranks; r++) {
        pst_vec_fini(&s->ranks[r]);
        memcpy(&s->ranks[r], &b->ranks[r], sizeof(s->ranks[r]));
        memset(&b->ranks[r], 0, sizeof(b->ranks[r]));
    }
    s->n_deferred = b->n_deferred;
    for (size_t i = 0; i < x->tried.n; i++) {
        s->candidates.at[s->candidates.n++] = x->tried.at[i].candidate;
        x->tried.at[i].candidate.note = NULL;
    }
    return PST_OK;
}

/* Sets x->costs to the costs of the model; without a model, to own, where F, I
 * and W each take a third of a stage's cost for placement. */
static enum pst_status find_costs(struct pst_search *x, struct pst_costs *own)
{
    enum pst_status status;

    if (x->o->model) {
        x->costs = x->o->model;
        return x->costs->n_stages == x->o->stages
                   ? PST_OK
                   : pst_diag_set(x->diag, PST_E_COSTS_OTHER,
                                  "the costs are of %u stages, the plan has "
                                  "%u",
                                  x->costs->n_stages, x->o->stages);
    }
    status = pst_costs_init(own, x->o->stages, x->diag);
    for (unsigned s = 0; s < x->o->stages && status == PST_OK; s++) {
        const double third = (x->o->costs ? x->o->costs[s] : 1.0) / 3.0;

        own->stages[s].seconds = (struct pst_seconds){third, third, third};
    }
    x->costs = own;
    return status;
}

enum pst_status pst_sched_generate_auto(struct pst_schedule *sched,
                                        struct pst_diag *diag)
{
    struct pst_search x = {.o = sched->asked, .diag = diag};
    struct pst_costs own = {.plan = ""};
    enum pst_status status = find_costs(&x, &own);

    if (status == PST_OK)
        status = simulate_named(&x);
    if (status == PST_OK)
        status = pst_search_places(&x);
    if (status == PST_OK)
        status = choose_candidate(&x);
    if (status == PST_OK)
        status = adopt_schedule(&x, sched);
    for (size_t i = 0; i < x.tried.n; i++) {
        pst_free(x.tried.at[i].candidate.note);
        pst_schedule_free(x.tried.at[i].sched);
    }
    pst_vec_fini(&x.tried);
    pst_costs_fini(&own);
    return status;
}
