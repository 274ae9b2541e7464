// SPDX-License-Identifier: Apache-2.0
#include "stages/run/measure.h"

#include <string.h>

#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/ring.h"
#include "stages/tune/estimate.h"

/* Numbers of round trips of a measurement, of a short and of a long message;
 * the fastest one counts. */
#define PINGS     16
#define BIG_PINGS 4
/* Bytes of the long message, which measures bandwidth. */
#define BIG_BYTES ((size_t)4 << 20)

/*
 * --- clocks ---------------------------------------------------------------
 *
 * The clocks of two hosts differ by an offset, which drifts by a few
 * microseconds per second. All steps in the ring are recent, so the offset is
 * measured only once.
 */

struct ping {
    double offset; /* clock of the peer minus that of rank 0 */
    double trip;   /* seconds there and back */
};

static unsigned count_trips(size_t bytes)
{
    return bytes < BIG_BYTES ? PINGS : BIG_PINGS;
}

/* Measures, on rank 0, round trips of `bytes` bytes to rank `peer`, which calls
 * answer_trips. Each reply begins with the peer's clock. */
static enum pst_status measure_trips(struct pst_engine *engine, unsigned peer,
                                     void *data, size_t bytes, struct ping *ret,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    ret->trip = 1e9;
    for (unsigned i = 0; i < count_trips(bytes) && status == PST_OK; i++) {
        const double begin = pst_now();
        double there, trip;

        status = pst_engine_transfer(engine, true, peer, data, bytes, diag);
        if (status == PST_OK)
            status =
                pst_engine_transfer(engine, false, peer, data, bytes, diag);
        trip = pst_now() - begin;
        memcpy(&there, data, sizeof(there));
        if (trip < ret->trip)
            *ret = (struct ping){there - begin - trip / 2, trip};
    }
    return status;
}

static enum pst_status answer_trips(struct pst_engine *engine, void *data,
                                    size_t bytes, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < count_trips(bytes) && status == PST_OK; i++) {
        double now;

        status = pst_engine_transfer(engine, false, 0, data, bytes, diag);
        now = pst_now();
        memcpy(data, &now, sizeof(now));
        if (status == PST_OK)
            status = pst_engine_transfer(engine, true, 0, data, bytes, diag);
    }
    return status;
}

/* COLLECTIVE. Sets *ret to this rank's clock minus that of rank 0, in seconds.
 */
static enum pst_status measure_offset(struct pst_engine *engine, double *ret,
                                      struct pst_diag *diag)
{
    const bool alone = engine->n_local == pst_grid_size(engine->grid);
    enum pst_status status = PST_OK;
    double data;

    *ret = 0;
    if (!pst_engine_is_zero(engine)) {
        status = answer_trips(engine, &data, sizeof(data), diag);
        return status == PST_OK ? pst_engine_transfer(engine, false, 0, ret,
                                                      sizeof(*ret), diag)
                                : status;
    }
    for (unsigned k = 1;
         k < pst_grid_size(engine->grid) && !alone && status == PST_OK; k++) {
        struct ping best;

        status = measure_trips(engine, k, &data, sizeof(data), &best, diag);
        if (status == PST_OK)
            status = pst_engine_transfer(engine, true, k, &best.offset,
                                         sizeof(best.offset), diag);
    }
    return status;
}

/* --- one step of all ranks ------------------------------------------------ */

/* Times of a step on one rank, by the clock of rank 0. */
struct account {
    double begin, end;
    struct pst_mark prepare, optim;
    uint64_t n; /* number of marks; 0: the rank's ring does not have the step */
};

static struct pst_mark shift_mark(struct pst_mark mark, double offset)
{
    return (struct pst_mark){mark.start - offset, mark.end - offset};
}

static void fill_account(const struct pst_rank *r, uint64_t step, double offset,
                         struct account *ret, struct pst_mark *marks)
{
    const struct pst_ring_step *s = pst_ring_find(pst_rank_step_times(r), step);

    *ret = (struct account){0};
    if (s == NULL)
        return;
    ret->begin = s->all.start - offset;
    ret->end = s->all.end - offset;
    if (s->prepare.end > 0)
        ret->prepare = shift_mark(s->prepare, offset);
    if (s->optim.end > 0)
        ret->optim = shift_mark(s->optim, offset);
    ret->n = pst_rank_step_times(r)->n_actions;
    for (unsigned i = 0; i < ret->n; i++)
        marks[i] = shift_mark(s->marks[i], offset);
}

static const struct pst_schedule *list_of(const struct pst_engine *engine,
                                          unsigned rank)
{
    return pst_grid_schedule_of(engine->grid,
                                rank / engine->grid->options.ranks);
}

static size_t n_actions(const struct pst_engine *engine, unsigned rank)
{
    return list_of(engine, rank)->ranks[rank % engine->grid->options.ranks].n;
}

/* Gathers accounts and marks of all ranks on rank 0. */
static enum pst_status gather_accounts(struct pst_engine *engine, uint64_t step,
                                       double offset, struct account *accounts,
                                       struct pst_mark **marks,
                                       struct pst_diag *diag)
{
    const unsigned size = pst_grid_size(engine->grid);
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < size && status == PST_OK; k++) {
        const struct pst_rank *r = pst_engine_local_rank(engine, k);
        const size_t bytes = n_actions(engine, k) * sizeof(struct pst_mark);

        if (r == NULL && !pst_engine_is_zero(engine))
            continue;
        marks[k] = pst_alloc(PST_TAG_EXEC, bytes + 1);
        if (marks[k] == NULL)
            status = pst_diag_nomem(diag, bytes);
        else if (r != NULL)
            fill_account(r, step, offset, &accounts[k], marks[k]);
    }
    status = pst_engine_agree(engine, status, diag);
    for (unsigned k = 0; k < size && status == PST_OK; k++) {
        if (pst_engine_local_rank(engine, k) != NULL &&
            pst_engine_is_zero(engine))
            continue;
        status = pst_engine_fetch(engine, k, &accounts[k], &accounts[k],
                                  sizeof(*accounts), diag);
        if (status == PST_OK)
            status =
                pst_engine_fetch(engine, k, marks[k], marks[k],
                                 n_actions(engine, k) * sizeof(**marks), diag);
    }
    return status;
}

static bool add_actions(const struct pst_engine *engine, unsigned rank,
                        const struct pst_mark *marks, double zero,
                        struct pst_timeline *t)
{
    const struct pst_schedule *sched = list_of(engine, rank);
    const unsigned k = rank % engine->grid->options.ranks;
    bool ok = marks != NULL;

    for (size_t i = 0; i < sched->ranks[k].n && ok; i++) {
        const struct pst_action *a = &sched->ranks[k].at[i];

        /* Posting a receive takes no measurable time. */
        if (a->kind > PST_ACT_REDUCE || a->kind == PST_ACT_RECV_F ||
            a->kind == PST_ACT_RECV_B)
            continue;
        ok = pst_timeline_add(t, (int)k,
                              pst_span_of_action((enum pst_action_kind)a->kind),
                              a->stage, a->microbatch, marks[i].start - zero,
                              marks[i].end - zero);
    }
    return ok;
}

/* Adds a span for the mark unless it is empty. Returns false if out of memory.
 */
static bool add_mark(struct pst_timeline *t, unsigned rank,
                     enum pst_span_kind kind, struct pst_mark mark, double zero)
{
    return !(mark.end > 0) ||
           pst_timeline_add(t, (int)rank, kind, -1, -1, mark.start - zero,
                            mark.end - zero);
}

static enum pst_status add_replica(struct pst_engine *engine, unsigned replica,
                                   const struct account *accounts,
                                   struct pst_mark *const *marks, double zero,
                                   struct pst_timeline *ret,
                                   struct pst_diag *diag)
{
    const unsigned n = engine->grid->options.ranks;
    struct pst_timeline t = {.n_ranks = n, .step = ret->step};
    enum pst_status status = PST_OK;
    unsigned first_mb;
    bool ok = true;

    (void)pst_grid_share(engine->grid, replica, &first_mb);
    for (unsigned k = replica * n; k < (replica + 1) * n && ok; k++) {
        ok = add_actions(engine, k, marks[k], zero, &t);
        ok = ok &&
             add_mark(&t, k % n, PST_SPAN_PREPARE, accounts[k].prepare, zero) &&
             add_mark(&t, k % n, PST_SPAN_OPTIM, accounts[k].optim, zero);
    }
    if (ok)
        status = pst_timeline_explain(
            &t, engine->grid->sched->rank_of, engine->grid->sched->n_stages,
            engine->grid->links.at, engine->grid->links.n, diag);
    for (size_t i = 0; i < t.spans.n && ok && status == PST_OK; i++) {
        const struct pst_span *s = &t.spans.at[i];

        ok = pst_timeline_add(
            ret, s->rank + (int)(replica * n), s->kind, s->stage,
            s->microbatch < 0 ? -1 : s->microbatch + (int)first_mb, s->start,
            s->end);
    }
    if (status == PST_OK && !ok)
        status = pst_diag_nomem(diag, t.spans.n * sizeof(struct pst_span));
    pst_timeline_fini(&t);
    return status;
}

static enum pst_status draw_timeline(struct pst_engine *engine,
                                     const struct account *accounts,
                                     struct pst_mark *const *marks,
                                     struct pst_timeline *ret,
                                     struct pst_diag *diag)
{
    const unsigned size = pst_grid_size(engine->grid);
    enum pst_status status = PST_OK;
    double begin = accounts[0].begin, end = accounts[0].end;

    for (unsigned k = 0; k < size; k++) {
        if (accounts[k].n == 0)
            return PST_OK; /* not recorded: a fault ended the step early */
        begin = PST_MIN(begin, accounts[k].begin);
        end = PST_MAX(end, accounts[k].end);
    }
    ret->n_ranks = size;
    ret->step = end - begin;
    for (unsigned k = 0; k < engine->grid->options.replicas && status == PST_OK;
         k++)
        status = add_replica(engine, k, accounts, marks, begin, ret, diag);
    if (status != PST_OK)
        pst_timeline_fini(ret);
    return status;
}

static enum pst_status collect_timeline(struct pst_engine *engine,
                                        uint64_t step, double offset,
                                        struct pst_timeline *ret,
                                        struct pst_diag *diag)
{
    const unsigned size = pst_grid_size(engine->grid);
    struct account *accounts =
        pst_calloc(PST_TAG_EXEC, size, sizeof(*accounts));
    struct pst_mark **marks =
        pst_calloc(PST_TAG_EXEC, size, sizeof(struct pst_mark *));
    enum pst_status status = PST_OK;

    if (accounts == NULL || marks == NULL)
        status = pst_diag_nomem(diag, size * sizeof(*accounts));
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK && accounts != NULL && marks != NULL)
        status = gather_accounts(engine, step, offset, accounts, marks, diag);
    if (status == PST_OK && pst_engine_is_zero(engine) && accounts != NULL &&
        marks != NULL)
        status = draw_timeline(engine, accounts, marks, ret, diag);
    for (unsigned k = 0; marks != NULL && k < size; k++)
        pst_free(marks[k]);
    pst_free(marks);
    pst_free(accounts);
    return pst_engine_agree(engine, status, diag);
}

enum pst_status pst_engine_timeline(struct pst_engine *engine,
                                    struct pst_timeline *ret,
                                    struct pst_diag *diag)
{
    const struct pst_ring_step *median;
    uint64_t step;
    double offset;
    enum pst_status status;

    for (unsigned k = 0; k < engine->n_local; k++)
        pst_rank_await(engine->ranks[k]);
    median = pst_ring_median(pst_rank_step_times(engine->ranks[0]));
    step = median != NULL ? median->step : UINT64_MAX;
    *ret = (struct pst_timeline){.name = "measured"};
    status = pst_engine_broadcast(engine->transport, &step, sizeof(step), NULL,
                                  NULL, diag);
    if (status != PST_OK || step == UINT64_MAX)
        return status;
    status = measure_offset(engine, &offset, diag);
    return status == PST_OK ? collect_timeline(engine, step, offset, ret, diag)
                            : status;
}

/* --- costs ---------------------------------------------------------------- */

/* Seconds of the actions of one stage, summed over the steps in the ring. */
struct sums {
    double seconds[PST_ACT_W + 1], optim, reduce;
    unsigned n[PST_ACT_W + 1], n_optim, n_reduce;
};

static double bytes_of_stage(const struct pst_plan *plan, unsigned stage)
{
    return (double)plan->stages.at[stage].param_bytes + 1;
}

static void add_step(const struct pst_engine *engine, const struct pst_rank *r,
                     const struct pst_ring_step *s, struct sums *sums)
{
    const struct pst_actions *actions = pst_rank_actions(r);
    const struct pst_layout *layout = pst_rank_layout(r);
    double bytes = 0;

    for (unsigned i = 0; i < actions->n; i++) {
        const struct pst_action *a = &actions->at[i].a;
        const double seconds = s->marks[i].end - s->marks[i].start;

        if (a->kind <= PST_ACT_W) {
            sums[a->stage].seconds[a->kind] += seconds;
            sums[a->stage].n[a->kind]++;
        } else if (a->kind == PST_ACT_REDUCE && a->param >= 0) {
            sums[a->stage].reduce += seconds;
            sums[a->stage].n_reduce++;
        }
    }
    for (unsigned k = 0; k < engine->grid->sched->n_stages; k++)
        if (layout->stages[k].program != NULL)
            bytes += bytes_of_stage(engine->grid->plan, k);
    for (unsigned k = 0; k < engine->grid->sched->n_stages; k++) {
        if (layout->stages[k].program == NULL)
            continue;
        sums[k].optim += (s->optim.end - s->optim.start + s->prepare.end -
                          s->prepare.start) *
                         bytes_of_stage(engine->grid->plan, k) / bytes;
        sums[k].n_optim++;
    }
}

static double mean_seconds(double sum, unsigned n)
{
    return n > 0 ? sum / n : 0;
}

static void set_stage_cost(const struct sums *s, struct pst_stage_cost *cost)
{
    const double input = cost->seconds.input, weight = cost->seconds.weight;
    const double b = mean_seconds(s->seconds[PST_ACT_B], s->n[PST_ACT_B]);
    const double share = input + weight > 0 ? input / (input + weight) : 0.5;

    if (s->n[PST_ACT_F] > 0)
        cost->seconds.forward =
            mean_seconds(s->seconds[PST_ACT_F], s->n[PST_ACT_F]);
    if (s->n[PST_ACT_B] > 0) {
        cost->backward = b;
        cost->seconds.input = b * share;
        cost->seconds.weight = b - b * share;
    }
    if (s->n[PST_ACT_I] > 0 && s->n[PST_ACT_W] > 0) {
        cost->seconds.input =
            mean_seconds(s->seconds[PST_ACT_I], s->n[PST_ACT_I]);
        cost->seconds.weight =
            mean_seconds(s->seconds[PST_ACT_W], s->n[PST_ACT_W]);
        if (s->n[PST_ACT_B] == 0)
            cost->backward = 0; /* 0 means that B costs the sum of I and W */
    }
    if (s->n_optim > 0)
        cost->optim = mean_seconds(s->optim, s->n_optim);
    if (s->n_reduce > 0)
        cost->reduce = mean_seconds(s->reduce, s->n_reduce);
}

/* Measures latency and bandwidth between ranks 0 and 1, while both are idle. */
static enum pst_status measure_wire(struct pst_engine *engine,
                                    struct pst_wire *wire,
                                    struct pst_diag *diag)
{
    struct ping small, big;
    void *data = NULL;
    enum pst_status status = PST_OK;

    if (engine->n_local == pst_grid_size(engine->grid))
        return PST_OK;
    if (engine->first < 2)
        data = pst_calloc(PST_TAG_EXEC, BIG_BYTES, 1);
    if (engine->first < 2 && data == NULL)
        status = pst_diag_nomem(diag, BIG_BYTES);
    status = pst_engine_agree(engine, status, diag);
    if (status == PST_OK && engine->first == 1 && data != NULL) {
        status = answer_trips(engine, data, sizeof(double), diag);
        if (status == PST_OK)
            status = answer_trips(engine, data, BIG_BYTES, diag);
    }
    if (status == PST_OK && engine->first == 0 && data != NULL) {
        status = measure_trips(engine, 1, data, sizeof(double), &small, diag);
        if (status == PST_OK)
            status = measure_trips(engine, 1, data, BIG_BYTES, &big, diag);
        if (status == PST_OK && big.trip > small.trip)
            *wire =
                (struct pst_wire){small.trip / 2, 2 * (double)BIG_BYTES /
                                                      (big.trip - small.trip)};
    }
    pst_free(data);
    return status;
}

static void add_rank(const struct pst_engine *engine, const struct pst_rank *r,
                     struct sums *sums)
{
    const struct pst_ring *ring = pst_rank_step_times(r);

    for (unsigned i = 0; i < PST_RING_STEPS; i++)
        if (pst_ring_counts(ring, i))
            add_step(engine, r, &ring->steps[i], sums);
}

enum pst_status pst_engine_costs(struct pst_engine *engine,
                                 struct pst_costs *ret, struct pst_diag *diag)
{
    const unsigned n = engine->grid->sched->n_stages;
    struct sums *sums = pst_calloc(PST_TAG_EXEC, n, sizeof(*sums));
    enum pst_status status =
        pst_plan_costs(engine->grid->plan, &engine->grid->options, ret, diag);
    const bool made = status == PST_OK;

    if (made && sums == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*sums));
    for (unsigned k = 0; k < engine->n_local && sums != NULL; k++)
        if (pst_rank_role(engine->ranks[k])->replica == 0)
            add_rank(engine, engine->ranks[k], sums);
    status = pst_engine_agree(engine, status, diag);
    for (unsigned s = 0; s < n && sums != NULL && status == PST_OK; s++)
        status =
            pst_engine_fetch(engine, (unsigned)engine->grid->sched->rank_of[s],
                             &sums[s], &sums[s], sizeof(*sums), diag);
    for (unsigned s = 0; s < n && sums != NULL && status == PST_OK; s++)
        set_stage_cost(&sums[s], &ret->stages[s]);
    if (status == PST_OK)
        status = measure_wire(engine, &ret->wire, diag);
    status = pst_engine_agree(engine, status, diag);
    pst_free(sums);
    if (made && status != PST_OK)
        pst_costs_fini(ret);
    return status;
}
