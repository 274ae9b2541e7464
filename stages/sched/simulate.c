// SPDX-License-Identifier: Apache-2.0
/*
 * Time of a step if messages cost nothing: each rank takes its actions in
 * order, an action begins when the rank is free and its inputs are ready. The
 * stages that a stage waits for are those that the messages name; a schedule
 * without messages is taken as a chain of neighbours.
 */
#include "stages/sched/generate.h"

#include <math.h>

struct simulation {
    const struct pst_schedule *sched;
    bool *needs;           /* [consumer][producer] forward; stages x stages */
    bool *needs_b;         /* [producer][consumer] backward */
    double *end_f, *end_b; /* per (stage, microbatch); -1: not yet */
    size_t *next;
    double *clock, *busy; /* per rank */
};

static void find_needs(struct simulation *m)
{
    const struct pst_schedule *s = m->sched;

    for (unsigned i = 1; i < s->n_stages && !s->lowered; i++) {
        m->needs[(size_t)i * s->n_stages + i - 1] = true;
        m->needs_b[(size_t)(i - 1) * s->n_stages + i] = true;
    }
    for (unsigned r = 0; r < s->n_ranks && s->lowered; r++)
        for (size_t i = 0; i < s->ranks[r].n; i++) {
            const struct pst_action *a = &s->ranks[r].at[i];
            const size_t ours =
                (size_t)a->stage * s->n_stages + (size_t)a->peer_stage;
            const size_t theirs =
                (size_t)a->peer_stage * s->n_stages + (size_t)a->stage;

            if (a->kind == PST_ACT_RECV_F)
                m->needs[ours] = true;
            else if (a->kind == PST_ACT_COPY_F)
                m->needs[theirs] = true;
            else if (a->kind == PST_ACT_RECV_B)
                m->needs_b[ours] = true;
            else if (a->kind == PST_ACT_COPY_B)
                m->needs_b[theirs] = true;
        }
}

/* When the inputs of an action are ready; negative: not known yet. */
static double ready_at(const struct simulation *m, const struct pst_action *a)
{
    const unsigned n = m->sched->n_stages;
    const size_t own =
        (size_t)a->stage * m->sched->n_microbatches + (size_t)a->microbatch;
    const bool forward = a->kind == PST_ACT_F;
    const bool *needs =
        (forward ? m->needs : m->needs_b) + a->stage * (size_t)n;
    double ready = forward ? 0.0 : m->end_f[own];

    if (a->kind == PST_ACT_W)
        return ready; /* I came before it on the same rank */
    for (unsigned k = 0; k < n && ready >= 0.0; k++) {
        const size_t at =
            (size_t)k * m->sched->n_microbatches + (size_t)a->microbatch;
        const double end = forward ? m->end_f[at] : m->end_b[at];

        if (needs[k])
            ready = end < 0.0 ? end : fmax(ready, end);
    }
    return ready;
}

static bool advance(struct simulation *m, unsigned rank, const double *cost_f,
                    const double *cost_b)
{
    const struct pst_action *a = &m->sched->ranks[rank].at[m->next[rank]];
    const size_t own =
        (size_t)a->stage * m->sched->n_microbatches + (size_t)a->microbatch;
    double ready, cost;

    if (!pst_action_is_compute(a))
        return true;
    ready = ready_at(m, a);
    if (ready < 0.0)
        return false;
    cost = a->kind == PST_ACT_F   ? cost_f[a->stage]
           : a->kind == PST_ACT_B ? cost_b[a->stage]
                                  : cost_b[a->stage] / 2;
    m->clock[rank] = fmax(m->clock[rank], ready) + cost;
    m->busy[rank] += cost;
    if (a->kind == PST_ACT_F)
        m->end_f[own] = m->clock[rank];
    else if (a->kind != PST_ACT_W)
        m->end_b[own] = m->clock[rank];
    return true;
}

static enum pst_status simulate(struct simulation *m, const double *cost_f,
                                const double *cost_b, struct pst_diag *diag)
{
    const struct pst_schedule *s = m->sched;
    bool moved, left;

    find_needs(m);
    for (size_t i = 0; i < (size_t)s->n_stages * s->n_microbatches; i++)
        m->end_f[i] = m->end_b[i] = -1.0;
    do {
        moved = left = false;
        for (unsigned r = 0; r < s->n_ranks; r++) {
            while (m->next[r] < s->ranks[r].n &&
                   advance(m, r, cost_f, cost_b)) {
                m->next[r]++;
                moved = true;
            }
            left = left || m->next[r] < s->ranks[r].n;
        }
    } while (moved && left);
    if (left)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "the schedule stands still: an action waits for "
                            "one that comes later");
    return PST_OK;
}

enum pst_status pst_schedule_simulate(const struct pst_schedule *sched,
                                      const double *cost_f,
                                      const double *cost_b, double *ret_step,
                                      double *ret_bubble, struct pst_diag *diag)
{
    const size_t stages = sched->n_stages, ranks = sched->n_ranks;
    const size_t cells = stages * sched->n_microbatches;
    struct simulation m = {
        sched,
        pst_calloc(PST_TAG_PLAN, stages * stages, sizeof(bool)),
        pst_calloc(PST_TAG_PLAN, stages * stages, sizeof(bool)),
        pst_calloc(PST_TAG_PLAN, cells, sizeof(double)),
        pst_calloc(PST_TAG_PLAN, cells, sizeof(double)),
        pst_calloc(PST_TAG_PLAN, ranks, sizeof(size_t)),
        pst_calloc(PST_TAG_PLAN, ranks, sizeof(double)),
        pst_calloc(PST_TAG_PLAN, ranks, sizeof(double)),
    };
    enum pst_status status;
    double step = 0.0;

    if (!m.needs || !m.needs_b || !m.end_f || !m.end_b || !m.next || !m.clock ||
        !m.busy) {
        (void)pst_diag_nomem(diag, cells * 2 * sizeof(double));
        status = PST_ERR_NOMEM;
    } else {
        status = simulate(&m, cost_f, cost_b, diag);
    }
    for (size_t r = 0; r < ranks && status == PST_OK; r++)
        step = fmax(step, m.clock[r]);
    if (status == PST_OK) {
        *ret_step = step;
        for (size_t r = 0; r < ranks; r++)
            ret_bubble[r] = step > 0.0 ? 1.0 - m.busy[r] / step : 0.0;
    }
    pst_free(m.busy);
    pst_free(m.clock);
    pst_free(m.next);
    pst_free(m.end_b);
    pst_free(m.end_f);
    pst_free(m.needs_b);
    pst_free(m.needs);
    return status;
}

unsigned pst_schedule_peak(const struct pst_schedule *sched, unsigned stage)
{
    const unsigned rank = (unsigned)sched->rank_of[stage];
    unsigned held = 0, peak = 0;

    for (size_t i = 0; i < sched->ranks[rank].n; i++) {
        const struct pst_action *a = &sched->ranks[rank].at[i];

        if (a->stage != (int)stage)
            continue;
        held += a->kind == PST_ACT_F;
        held -= a->kind == PST_ACT_B || a->kind == PST_ACT_W;
        peak = PST_MAX(peak, held);
    }
    return peak;
}
