// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/auto/search.h"

#include "stages/sched/auto/greedy.h"
#include "stages/sched/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Budget of all searches, in stages and ranks visited: about a second. */
#define EFFORT 2e8
/* Limits how many schedules are evaluated for one placement: EVALUATED is their
 * total work (stages times microbatches), LEAST_TRIES the minimum number. */
#define EVALUATED   20000
#define LEAST_TRIES 8

static double work_of(const struct pst_search *x, unsigned stage)
{
    const struct pst_stage_cost *c = &x->costs->stages[stage];

    return c->seconds.forward + (c->backward > 0.0
                                     ? c->backward
                                     : c->seconds.input + c->seconds.weight);
}

/* Assigns the stages to ranks, the costliest stage first, each to the rank with
 * the least work so far. */
static void assign_stages(const struct pst_search *x, int *rank_of,
                          double *load)
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
        /* A stage that costs nothing still counts, so that an idle rank gets
         * one. */
        rank_of[next] = (int)rank;
        load[rank] += fmax(work_of(x, (unsigned)next), 1e-30);
    }
}

struct places {
    int *rank_of[4];
    const char *names[4];
    unsigned n;
};

static enum pst_status find_places(struct pst_search *x, struct places *p)
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
            /* With one stage per rank all placements are equal; the other
             * placements need the same number of stages on each rank. */
            if (i > PST_PLACE_GROUPS &&
                (o->stages == o->ranks || o->stages % o->ranks != 0))
                continue;
            p->names[p->n] = names[i];
            status = pst_schedule_place(i, o->stages, o->ranks, buf,
                                        p->rank_of[p->n++], x->diag);
        }
        if (status == PST_OK && o->stages > o->ranks) {
            p->names[p->n] = "where there is least work";
            assign_stages(x, p->rank_of[p->n++], buf);
        }
    }
    pst_free(buf);
    return status;
}

static enum pst_status run_greedy(struct pst_search *x, const int *rank_of,
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

/* Sets the numbers of microbatches in flight to try: 1, 2, numbers around
 * multiples of the number of ranks, all. Returns the number of entries set. */
static unsigned find_limits(const struct pst_search *x, unsigned limits[12])
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

/* Options of the list scheduler; those that win most often come first. */
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
    struct pst_greedy_options options;
};
/* Pareto front: schedules that no other beats in both time and memory. */
struct front {
    struct PST_VEC(struct found) list;
};

static bool is_dominated(const struct found *f,
                         const struct pst_greedy_result *by)
{
    return f->result.makespan >= by->makespan * (1.0 - 1e-9) &&
           f->result.peak >= by->peak;
}

/* Adds a schedule to the front, and removes those that it beats; drops it if
 * one of the front beats it. Takes the schedule, also on failure. */
static bool keep_in_front(struct front *front, const struct found *f)
{
    size_t n = 0;

    for (size_t i = 0; i < front->list.n; i++)
        if (is_dominated(f, &front->list.at[i].result)) {
            pst_schedule_free(f->sched);
            return true;
        }
    for (size_t i = 0; i < front->list.n; i++)
        if (is_dominated(&front->list.at[i], &f->result))
            pst_schedule_free(front->list.at[i].sched);
        else
            front->list.at[n++] = front->list.at[i];
    front->list.n = n;
    if (pst_vec_push(PST_TAG_PLAN, &front->list, *f))
        return true;
    pst_schedule_free(f->sched);
    return false;
}

static void front_fini(struct front *front)
{
    for (size_t i = 0; i < front->list.n; i++)
        pst_schedule_free(front->list.at[i].sched);
    pst_vec_fini(&front->list);
}

static void describe_found(const struct found *f, const char *place,
                           struct pst_str *out)
{
    pst_str_addf(out, "stages %s, %s first, ", place,
                 f->options.forward_first ? "forward" : "backward");
    if (!f->options.split)
        pst_str_add(out, "whole backwards, ");
    else if (f->options.backlog == 0)
        pst_str_add(out, "parameter gradients in gaps, ");
    else
        pst_str_addf(out, "parameter gradients in gaps, at most %u delayed, ",
                     f->options.backlog);
    if (f->options.memory_limit > 0.0)
        pst_str_addf(out, "at most %.2f MiB",
                     f->options.memory_limit / 1048576.0);
    else
        pst_str_addf(out, "at most %u microbatch%s in flight",
                     f->options.in_flight,
                     f->options.in_flight == 1 ? "" : "es");
}

static enum pst_status evaluate_found(struct pst_search *x, struct found *f,
                                      const char *place)
{
    struct pst_schedule *sched = f->sched;
    struct pst_str text = {0};
    enum pst_status status;

    f->sched = NULL;
    describe_found(f, place, &text);
    if (text.failed) {
        pst_schedule_free(sched);
        status = pst_diag_nomem(x->diag, text.len);
    } else {
        status = pst_search_evaluate(x, sched, "greedy", pst_str_text(&text));
    }
    pst_str_fini(&text);
    return status;
}

static int compare_found(const void *a, const void *b)
{
    const struct pst_greedy_result *x = &((const struct found *)a)->result;
    const struct pst_greedy_result *y = &((const struct found *)b)->result;

    return (x->makespan > y->makespan) - (x->makespan < y->makespan);
}

/* Evaluates some schedules of the front, spread evenly from the fastest to the
 * one with least memory. */
static enum pst_status evaluate_front(struct pst_search *x, struct front *front,
                                      const char *place)
{
    const size_t n = front->list.n,
                 work = (size_t)x->o->stages * x->o->microbatches,
                 tries = PST_MIN(n, PST_MAX(EVALUATED / work, LEAST_TRIES));
    enum pst_status status = PST_OK;

    qsort(front->list.at, n, sizeof(*front->list.at), compare_found);
    for (size_t i = 0; i < tries && status == PST_OK; i++)
        status = evaluate_found(
            x, &front->list.at[tries == 1 ? 0 : i * (n - 1) / (tries - 1)],
            place);
    return status;
}

/* Returns the bytes of the rank that needs most memory, with this many
 * microbatches in flight. */
static double memory_for(const struct pst_search *x, const int *rank_of,
                         double in_flight)
{
    double most = 0.0;

    for (int r = 0; r < (int)x->o->ranks; r++) {
        double bytes = 0.0;

        for (unsigned s = 0; s < x->o->stages; s++)
            if (rank_of[s] == r)
                bytes += x->costs->stages[s].fixed +
                         in_flight * x->costs->stages[s].stash;
        most = fmax(most, bytes);
    }
    return most;
}

/* Searches one placement. Each try limits either the microbatches in flight on
 * every rank, or the memory: to the bytes of that many microbatches, or of half
 * a microbatch more, on the rank that needs most. */
static enum pst_status search_place(struct pst_search *x, const int *rank_of,
                                    const char *place, double effort)
{
    const double each = 6.0 * x->o->stages * x->o->microbatches *
                        (x->o->ranks + 4.0 * x->o->stages);
    struct front front = {.list = {0}};
    enum pst_status status = PST_OK;
    unsigned limits[12];
    const unsigned n = find_limits(x, limits);

    /* Begins with the most microbatches in flight, which is fastest. */
    for (size_t v = 0; v < PST_COUNT(ways); v++)
        for (unsigned k = 3 * n; k-- > 0 && status == PST_OK;) {
            const unsigned limit = limits[k / 3];
            struct found f = {.options = ways[v]};

            effort -= each;
            if (front.list.n > 0 && effort < 0.0)
                break;
            f.options.in_flight = limit;
            if (k % 3 < 2) {
                f.options.in_flight = x->o->microbatches;
                f.options.memory_limit =
                    memory_for(x, rank_of, limit + k % 3 * 0.5);
            }
            status = run_greedy(x, rank_of, &f.options, &f.sched, &f.result);
            if (status == PST_OK && !keep_in_front(&front, &f))
                status = pst_diag_nomem(x->diag, sizeof(f));
        }
    if (status == PST_OK)
        status = evaluate_front(x, &front, place);
    front_fini(&front);
    return status;
}

enum pst_status pst_search_places(struct pst_search *x)
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
