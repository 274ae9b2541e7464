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
                                  struct pst_schedule **ret,
                                  struct pst_greedy_result *result)
{
    struct pst_schedule_options o = *x->o;
    struct pst_schedule *sched;
    enum pst_status status = pst_sched_new(&o, &sched, x->diag);

    if (status != PST_OK)
        return status;
    memcpy(sched->rank_of, rank_of, o.stages * sizeof(*rank_of));
    status = pst_greedy_generate(sched, x->costs, options, result, x->diag);
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

/* Ways to choose; those that win most come first. */
static const struct pst_greedy_options ways[] = {
    {.split = true, .patience = 0.0},
    {.split = true, .patience = 1.0},
    {.split = true, .backlog = 2, .patience = 0.0},
    {.split = true, .backlog = 3, .patience = 1.0},
    {.split = true, .forward_first = true},
    {.split = true, .backlog = 1},
    {.split = true, .backlog = 2, .forward_first = true},
    {.split = true, .patience = 0.5},
    {.split = true, .backlog = 4, .patience = 0.0},
    {.split = true, .backlog = 8, .patience = 0.0},
    {.split = true, .patience = 1.0, .forward_first = true},
    {.split = true, .backlog = 1, .forward_first = true},
    {.split = false},
    {.split = false, .forward_first = true},
};

struct found {
    struct pst_schedule *sched;
    struct pst_greedy_result result;
    struct pst_greedy_options how;
};

/* Faster, or as fast with less memory. Takes sched. */
static void keep_better(struct found *best, struct pst_schedule *sched,
                        const struct pst_greedy_result *r,
                        const struct pst_greedy_options *how)
{
    const double time = best->result.makespan;

    if (best->sched && (r->makespan > time * (1.0 + 1e-9) ||
                        (r->makespan >= time * (1.0 - 1e-9) &&
                         r->peak >= best->result.peak))) {
        pst_schedule_free(sched);
        return;
    }
    pst_schedule_free(best->sched);
    *best = (struct found){sched, *r, *how};
}

static void describe(const struct found *f, const char *place,
                     struct pst_str *out)
{
    pst_str_addf(out, "stages %s, %s first, ", place,
                 f->how.forward_first ? "forward" : "backward");
    if (!f->how.split)
        pst_str_add(out, "whole backwards, ");
    else if (f->how.backlog == 0)
        pst_str_add(out, "parameter gradients in gaps, ");
    else
        pst_str_addf(out, "parameter gradients in gaps, at most %u behind, ",
                     f->how.backlog);
    pst_str_addf(out, "at most %u microbatches in flight", f->how.in_flight);
}

/* The best list for one placement. */
static enum pst_status search_place(struct search *x, const int *rank_of,
                                    const char *place, double effort)
{
    const double each = 6.0 * x->o->stages * x->o->microbatches *
                        (x->o->ranks + 4.0 * x->o->stages);
    struct found best = {.sched = NULL};
    enum pst_status status = PST_OK;
    struct pst_str text = {0};
    unsigned limits[12];
    const unsigned n = find_limits(x, limits);

    /* From the most in flight on: those are fastest without a limit. */
    for (size_t v = 0; v < PST_COUNT(ways); v++)
        for (unsigned k = n; k-- > 0 && status == PST_OK;) {
            struct pst_greedy_options how = ways[v];
            struct pst_greedy_result result;
            struct pst_schedule *sched;

            effort -= each;
            if (best.sched && effort < 0.0)
                break;
            how.in_flight = limits[k];
            how.memory_limit = x->o->memory_limit;
            status = run_greedy(x, rank_of, &how, &sched, &result);
            if (status == PST_OK)
                keep_better(&best, sched, &result, &how);
        }
    if (status != PST_OK) {
        pst_schedule_free(best.sched);
        return status;
    }
    describe(&best, place, &text);
    if (text.failed) {
        pst_schedule_free(best.sched);
        status = pst_diag_nomem(x->diag, text.len);
    } else {
        status = try(x, best.sched, "greedy", pst_str_text(&text));
    }
    pst_str_fini(&text);
    return status;
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
