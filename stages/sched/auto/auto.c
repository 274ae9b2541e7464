// SPDX-License-Identifier: Apache-2.0
/*
 * The schedule "auto": simulates every schedule by name and many that the list
 * scheduler makes, with stages in several places, and takes the fastest that
 * fits into memory. The same for equal costs: nothing is timed or drawn.
 */
#include "stages/sched/auto/greedy.h"
#include "stages/sched/generate.h"
#include "stages/sched/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Looks at stages and ranks that all searches together may take: a second. */
#define EFFORT 2e8
#define MIB    1048576.0

struct search {
    struct pst_schedule *into;
    const struct pst_schedule_options *o;
    const struct pst_costs *costs;
    struct pst_costs own; /* if there is no model */
    struct pst_schedule *best;
    struct pst_candidate best_is;
    struct PST_VEC(struct pst_candidate) tried;
    struct pst_diag *diag;
};

/* Fits first, then fast, then small; the earlier one of equals. */
static bool is_better(const struct pst_candidate *a,
                      const struct pst_candidate *b)
{
    const double same = 1e-9 * fmax(a->step, b->step);

    if (a->possible != b->possible)
        return a->possible;
    if (a->fits != b->fits)
        return a->fits;
    if (!a->fits && a->peak != b->peak)
        return a->peak < b->peak;
    if (fabs(a->step - b->step) > same)
        return a->step < b->step;
    return a->peak < b->peak;
}

static enum pst_status note(struct search *x, struct pst_candidate *c,
                            const char *text)
{
    if (text) {
        c->note = pst_strdup(PST_TAG_PLAN, text);
        if (!c->note)
            return pst_diag_nomem(x->diag, strlen(text));
    }
    if (pst_vec_push(PST_TAG_PLAN, &x->tried, *c))
        return PST_OK;
    pst_free(c->note);
    return pst_diag_nomem(x->diag, sizeof(*c));
}

/* A schedule that a placement does not suit cannot run: no fault. */
static enum pst_status note_impossible(struct search *x, const char *name,
                                       enum pst_status status,
                                       const struct pst_diag *why)
{
    struct pst_candidate c = {.name = name};

    return status == PST_ERR_NOMEM ? pst_diag_nomem(x->diag, 0)
                                   : note(x, &c, why->text);
}

static void measure(const struct search *x, const struct pst_sim *sim,
                    struct pst_candidate *c)
{
    c->possible = true;
    c->step = sim->step;
    c->bubble = sim->bubble;
    for (unsigned r = 0; r < x->o->ranks; r++)
        if (sim->ranks[r].peak_bytes > c->peak) {
            c->peak = sim->ranks[r].peak_bytes;
            c->rank = r;
        }
    c->fits = x->o->memory_limit <= 0.0 || c->peak <= x->o->memory_limit;
}

/* Simulates; takes sched. */
static enum pst_status try(struct search *x, struct pst_schedule *sched,
                           const char *name, const char *text)
{
    struct pst_candidate c = {.name = name};
    struct pst_sim sim;
    struct pst_diag why;
    enum pst_status status;

    pst_diag_init(&why);
    status = pst_schedule_order(sched, &why);
    if (status == PST_OK)
        status = pst_schedule_simulate(sched, x->costs, &sim, &why);
    if (status != PST_OK) {
        pst_schedule_free(sched);
        return note_impossible(x, name, status, &why);
    }
    measure(x, &sim, &c);
    pst_sim_fini(&sim);
    status = note(x, &c, text);
    if (status == PST_OK && (!x->best || is_better(&c, &x->best_is))) {
        pst_schedule_free(x->best);
        x->best = sched;
        x->best_is = c; /* its note is the list's */
        return PST_OK;
    }
    pst_schedule_free(sched);
    return status;
}

static enum pst_status try_names(struct search *x)
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
            status = try(x, sched, rows[i].name, text.text);
        else
            status = note_impossible(x, rows[i].name, status, &why);
        pst_str_fini(&text);
    }
    return status;
}

/* --- the search ---------------------------------------------------------- */

static double work_of(const struct search *x, unsigned stage)
{
    const struct pst_stage_cost *c = &x->costs->stages[stage];

    return c->seconds.forward + (c->backward > 0.0
                                     ? c->backward
                                     : c->seconds.input + c->seconds.weight);
}

/* Costliest stage first, each to the rank with the least work so far. */
static void spread(const struct search *x, int *rank_of, double *load)
{
    const unsigned stages = x->o->stages, ranks = x->o->ranks;

    for (unsigned s = 0; s < stages; s++)
        rank_of[s] = -1;
    memset(load, 0, ranks * sizeof(*load));
    for (unsigned k = 0; k < stages; k++) {
        unsigned rank = 0;
        int next = -1;

        for (unsigned s = 0; s < stages; s++)
            if (rank_of[s] < 0 &&
                (next < 0 || work_of(x, s) > work_of(x, (unsigned)next)))
                next = (int)s;
        for (unsigned r = 1; r < ranks; r++)
            if (load[r] < load[rank])
                rank = r;
        /* A stage that costs nothing still gives an idle rank one. */
        rank_of[next] = (int)rank;
        load[rank] += fmax(work_of(x, (unsigned)next), 1e-30);
    }
}

struct places {
    int *rank_of[4];
    const char *names[4];
    unsigned n;
};

static enum pst_status find_places(struct search *x, struct places *p)
{
    static const char *const names[] = {"in groups", "in a loop",
                                        "there and back"};
    const struct pst_schedule_options *o = x->o;
    double *buf =
        pst_calloc(PST_TAG_PLAN, PST_MAX(o->stages, o->ranks), sizeof(*buf));
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < PST_COUNT(p->rank_of); i++) {
        p->rank_of[i] = pst_calloc(PST_TAG_PLAN, o->stages, sizeof(int));
        if (!p->rank_of[i] || !buf)
            status = pst_diag_nomem(x->diag, o->stages * sizeof(int));
    }
    if (status == PST_OK && o->place) {
        p->names[p->n] = "as asked";
        status = pst_sched_parse_place(o->place, o->stages, o->ranks,
                                       p->rank_of[p->n++], x->diag);
    } else if (status == PST_OK) {
        for (unsigned s = 0; s < o->stages; s++)
            buf[s] = work_of(x, s);
        for (unsigned i = 0; i < PST_COUNT(names) && status == PST_OK; i++) {
            /* One stage on each rank: all tables are one. */
            if (i > PST_PLACE_GROUPS &&
                (o->stages == o->ranks || o->stages % o->ranks != 0))
                continue;
            p->names[p->n] = names[i];
            status = pst_schedule_place(i, o->stages, o->ranks, buf,
                                        p->rank_of[p->n++], x->diag);
        }
        if (status == PST_OK && o->stages > o->ranks) {
            p->names[p->n] = "where there is least work";
            spread(x, p->rank_of[p->n++], buf);
        }
    }
    pst_free(buf);
    return status;
}

static enum pst_status run_greedy(struct search *x, const int *rank_of,
                                  const struct pst_greedy_options *options,
                                  struct pst_schedule **ret, double *makespan)
{
    struct pst_schedule_options o = *x->o;
    struct pst_schedule *sched;
    enum pst_status status = pst_sched_new(&o, &sched, x->diag);

    if (status != PST_OK)
        return status;
    memcpy(sched->rank_of, rank_of, o.stages * sizeof(*rank_of));
    status = pst_greedy_generate(sched, x->costs, options, makespan, x->diag);
    if (status == PST_OK)
        *ret = sched;
    else
        pst_schedule_free(sched);
    return status;
}

/* Limits to the microbatches in flight: few, about the number of ranks, all. */
static unsigned find_limits(const struct search *x, unsigned limits[12])
{
    const unsigned p = x->o->ranks, n = x->o->microbatches;
    const unsigned wanted[] = {1,         2,         p / 2, p - 1, p, p + 1,
                               p * 3 / 2, 2 * p - 1, 2 * p, 3 * p, n};
    unsigned count = 0;

    for (size_t i = 0; i < PST_COUNT(wanted); i++) {
        const unsigned k = PST_MIN(PST_MAX(wanted[i], 1), n);

        if (count == 0 || k > limits[count - 1])
            limits[count++] = k;
    }
    return count;
}

/* The best list for one placement. */
static enum pst_status search_place(struct search *x, const int *rank_of,
                                    const char *place, double effort)
{
    static const double patience[] = {0.0, 1.0, 0.5};
    const double each = 6.0 * x->o->stages * x->o->microbatches *
                        (x->o->ranks + 4.0 * x->o->stages);
    struct pst_greedy_options best_o = {0};
    struct pst_schedule *best = NULL;
    double best_time = INFINITY;
    enum pst_status status = PST_OK;
    unsigned limits[12];
    unsigned n = find_limits(x, limits);
    char text[160];

    /* From the most in flight on: those are fastest without a limit. */
    for (unsigned v = 0; v < 8 && status == PST_OK; v++)
        for (unsigned k = n; k-- > 0 && status == PST_OK;) {
            /* v: 0-2 patience; 3-5 and forward first; 6, 7 whole backward. */
            const struct pst_greedy_options o = {
                .in_flight = limits[k],
                .memory_limit = x->o->memory_limit,
                .forward_first = v < 6 ? v >= 3 : v == 7,
                .split = v < 6,
                .patience = v < 6 ? patience[v % 3] : 0.0,
            };
            struct pst_schedule *sched;
            double makespan;

            effort -= each;
            if (best && effort < 0.0)
                break;
            status = run_greedy(x, rank_of, &o, &sched, &makespan);
            if (status != PST_OK)
                break;
            if (makespan < best_time * (1.0 - 1e-9) ||
                (makespan <= best_time * (1.0 + 1e-9) &&
                 o.in_flight < best_o.in_flight)) {
                pst_schedule_free(best);
                best = sched;
                best_time = makespan;
                best_o = o;
            } else {
                pst_schedule_free(sched);
            }
        }
    if (status != PST_OK) {
        pst_schedule_free(best);
        return status;
    }
    (void)snprintf(text, sizeof(text),
                   "stages %s, %s first, %s, at most %u microbatches in "
                   "flight",
                   place, best_o.forward_first ? "forward" : "backward",
                   best_o.split ? "parameter gradients in gaps"
                                : "whole backwards",
                   best_o.in_flight);
    return try(x, best, "greedy", text);
}

static enum pst_status search(struct search *x)
{
    struct places places = {.n = 0};
    enum pst_status status = find_places(x, &places);

    for (unsigned i = 0; i < places.n && status == PST_OK; i++)
        status = search_place(x, places.rank_of[i], places.names[i],
                              EFFORT / places.n);
    for (unsigned i = 0; i < PST_COUNT(places.rank_of); i++)
        pst_free(places.rank_of[i]);
    return status;
}

/* --- the result ---------------------------------------------------------- */

static enum pst_status refuse(const struct search *x)
{
    const struct pst_candidate *c = &x->best_is;
    const double limit = x->o->memory_limit;
    double fixed = 0.0;

    for (unsigned s = 0; s < x->o->stages; s++)
        if (x->best->rank_of[s] == (int)c->rank)
            fixed += x->costs->stages[s].fixed;
    return pst_diag_set(
        x->diag, PST_ERR_USAGE,
        "no schedule fits into a memory limit of %.2f MiB for each rank: the "
        "smallest, %s, needs %.2f MiB on rank %u, %.2f MiB more; %.2f MiB of "
        "them (parameters, gradients, optimizer states, workspace) every "
        "schedule needs%s; %s, or raise the limit",
        limit / MIB, c->name, c->peak / MIB, c->rank, (c->peak - limit) / MIB,
        fixed / MIB, fixed > limit ? ", too many alone" : "",
        fixed > limit ? "take more ranks, or an optimizer with fewer states"
                      : "take more stages and ranks, or export the model with "
                        "smaller microbatches");
}

static int compare_candidates(const void *a, const void *b)
{
    const struct pst_candidate *x = a, *y = b;

    return is_better(y, x) - is_better(x, y);
}

/* The best one's lists become those of the schedule at hand. */
static void adopt(struct search *x)
{
    struct pst_schedule *s = x->into, *b = x->best;

    if (strcmp(x->best_is.name, "greedy") != 0)
        s->name = b->name;
    memcpy(s->rank_of, b->rank_of, s->n_stages * sizeof(*s->rank_of));
    for (unsigned r = 0; r < s->n_ranks; r++) {
        pst_vec_fini(&s->ranks[r]);
        memcpy(&s->ranks[r], &b->ranks[r], sizeof(s->ranks[r]));
        memset(&b->ranks[r], 0, sizeof(b->ranks[r]));
    }
    s->n_deferred = b->n_deferred;
    qsort(x->tried.at, x->tried.n, sizeof(*x->tried.at), compare_candidates);
    memcpy(&s->candidates, &x->tried, sizeof(s->candidates));
    memset(&x->tried, 0, sizeof(x->tried));
}

/* Without a model: stages cost what places them. */
static enum pst_status find_costs(struct search *x)
{
    enum pst_status status;

    if (x->o->model) {
        x->costs = x->o->model;
        return x->costs->n_stages == x->o->stages
                   ? PST_OK
                   : pst_diag_set(x->diag, PST_ERR_MISMATCH,
                                  "the costs are of %u stages, the plan has "
                                  "%u",
                                  x->costs->n_stages, x->o->stages);
    }
    status = pst_costs_init(&x->own, x->o->stages, x->diag);
    for (unsigned s = 0; s < x->o->stages && status == PST_OK; s++) {
        const double third = (x->o->costs ? x->o->costs[s] : 1.0) / 3.0;

        x->own.stages[s].seconds = (struct pst_seconds){third, third, third};
    }
    x->costs = &x->own;
    return status;
}

enum pst_status pst_sched_generate_auto(struct pst_schedule *sched,
                                        struct pst_diag *diag)
{
    struct search x = {.into = sched, .o = sched->asked, .diag = diag};
    enum pst_status status = find_costs(&x);

    if (status != PST_OK)
        return status;
    status = try_names(&x);
    if (status == PST_OK)
        status = search(&x);
    if (status == PST_OK && !x.best_is.fits)
        status = refuse(&x);
    if (status == PST_OK)
        adopt(&x);
    for (size_t i = 0; i < x.tried.n; i++)
        pst_free(x.tried.at[i].note);
    pst_vec_fini(&x.tried);
    pst_schedule_free(x.best);
    if (x.costs == &x.own)
        pst_costs_fini(&x.own);
    return status;
}
