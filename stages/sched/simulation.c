// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/simulation.h"

#include <math.h>

struct links {
    struct PST_VEC(struct pst_link) list;
    bool failed;
};

static void record_link(struct links *links, int from, int to, bool grad)
{
    const struct pst_link link = {from, to, grad};

    for (size_t i = 0; i < links->list.n; i++)
        if (links->list.at[i].from == link.from &&
            links->list.at[i].to == link.to) {
            links->list.at[i].grad |= grad;
            return;
        }
    links->failed |= !pst_vec_push(PST_TAG_PLAN, &links->list, link);
}

/* Determines the links: those of the costs; else those that appear in the
 * lists; else, or if lists have no local copies, a chain of the stages. */
static enum pst_status find_links(struct pst_simulation *m)
{
    const struct pst_schedule *s = m->sched;
    const bool named = s->lowered || s->messages;
    struct links links = {.failed = false};
    enum pst_status status;

    for (size_t i = 0; i < m->costs->n_links; i++)
        record_link(&links, m->costs->links[i].link.from,
                    m->costs->links[i].link.to, m->costs->links[i].link.grad);
    if (!m->costs->links) {
        for (unsigned r = 0; r < s->n_ranks && named; r++)
            for (size_t i = 0; i < s->ranks[r].n; i++) {
                const struct pst_action *a = &s->ranks[r].at[i];

                const bool back = pst_sim_is_backward(a->kind);
                /* Links point forward: `stage` is the source if it sends F or
                 * receives B. */
                const bool is_from = back == (a->kind == PST_ACT_RECV_B ||
                                              a->kind == PST_ACT_RECV_F);

                if (a->peer_stage >= 0)
                    record_link(&links, is_from ? a->stage : a->peer_stage,
                                is_from ? a->peer_stage : a->stage, back);
            }
        for (int i = 1; i < (int)s->n_stages && !s->lowered; i++)
            if (!named || s->rank_of[i - 1] == s->rank_of[i])
                record_link(&links, i - 1, i, s->train);
    }
    status = links.failed
                 ? pst_diag_nomem(m->diag, sizeof(struct pst_link))
                 : pst_link_index_init(&m->links, links.list.at, links.list.n,
                                       s->n_stages, m->diag);
    pst_vec_fini(&links.list);
    return status;
}

bool pst_sim_is_implied(const struct pst_simulation *m, size_t link)
{
    const struct pst_schedule *s = m->sched;
    const struct pst_link *l = &m->links.by_from[link];

    return !s->lowered &&
           (!s->messages || s->rank_of[l->from] == s->rank_of[l->to]);
}

static bool record_meetings(struct pst_simulation *m)
{
    for (unsigned r = 0; r < m->sched->n_ranks; r++)
        for (size_t i = 0; i < m->sched->ranks[r].n; i++) {
            const struct pst_action *a = &m->sched->ranks[r].at[i];
            struct pst_sim_meeting *old;

            if (a->kind != PST_ACT_REDUCE || a->param < 0)
                continue;
            old = pst_sim_meeting_of(m, a);
            if (old)
                old->owners++;
            else if (!pst_vec_push(
                         PST_TAG_PLAN, &m->meetings,
                         ((struct pst_sim_meeting){a->stage, a->param, 1, 0})))
                return false;
        }
    return true;
}

static enum pst_status prepare_state(struct pst_simulation *m)
{
    const struct pst_schedule *s = m->sched;
    enum pst_status status = find_links(m);
    size_t n;

    if (status != PST_OK)
        return status;
    n = 2 * m->links.n * s->n_microbatches;
    m->bytes[0] = pst_calloc(PST_TAG_PLAN, m->links.n, sizeof(double));
    m->bytes[1] = pst_calloc(PST_TAG_PLAN, m->links.n, sizeof(double));
    m->messages = pst_calloc(PST_TAG_PLAN, n, sizeof(*m->messages));
    m->ranks = pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*m->ranks));
    m->heap = pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*m->heap));
    m->sim->ranks =
        pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*m->sim->ranks));
    m->sim->shares =
        pst_calloc(PST_TAG_PLAN, s->n_ranks, sizeof(*m->sim->shares));
    if (!m->bytes[0] || !m->bytes[1] || !m->messages || !m->ranks || !m->heap ||
        !m->sim->ranks || !m->sim->shares || !record_meetings(m))
        return pst_diag_nomem(m->diag, n * sizeof(*m->messages));
    for (size_t i = 0; i < n; i++)
        m->messages[i] = (struct pst_sim_message){
            -1.0,
            pst_sim_is_implied(m, i / s->n_microbatches % m->links.n) ? 0.0
                                                                      : -1.0,
            -1.0};
    for (size_t i = 0; i < m->costs->n_links; i++) {
        const struct pst_link_cost *l = &m->costs->links[i];
        const long at = pst_sim_find_link(m, l->link.from, l->link.to);

        m->bytes[PST_SIM_FORWARD][at] = l->bytes_f;
        m->bytes[PST_SIM_BACKWARD][at] = l->bytes_b;
    }
    for (unsigned r = 0; r < s->n_ranks && s->copies != NULL; r++) {
        m->ranks[r].copied =
            pst_calloc(PST_TAG_PLAN, s->copies[r].n + 1, sizeof(double));
        if (!m->ranks[r].copied)
            return pst_diag_nomem(m->diag, s->copies[r].n * sizeof(double));
    }
    for (unsigned i = 0; i < s->n_stages; i++)
        m->ranks[s->rank_of[i]].bytes += m->costs->stages[i].fixed;
    for (unsigned r = 0; r < s->n_ranks; r++) {
        const struct pst_level level = {0.0, (int)r, m->ranks[r].bytes};

        m->sim->ranks[r].peak_bytes = level.bytes;
        if (level.bytes > 0.0)
            m->failed |=
                !pst_vec_push(PST_TAG_PLAN, &m->sim->timeline.levels, level);
    }
    return PST_OK;
}

static enum pst_status refuse_stuck(const struct pst_simulation *m)
{
    struct pst_str text = {0};

    for (unsigned r = 0; r < m->sched->n_ranks && text.len < 1024; r++) {
        if (m->ranks[r].next == m->sched->ranks[r].n)
            continue;
        pst_str_add(&text, text.len ? "; " : "");
        pst_sched_add_place(m->sched, r, m->ranks[r].next, false, &text);
    }
    (void)pst_diag_set(m->diag, PST_E_SCHEDULE_STUCK,
                       "the schedule deadlocks, each of these actions waits "
                       "for one that comes later: %s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static void add_optimizer(struct pst_simulation *m)
{
    struct pst_sim *sim = m->sim;

    sim->step = sim->makespan;
    for (unsigned r = 0; r < m->sched->n_ranks; r++) {
        double at = sim->makespan;

        for (unsigned s = 0; s < m->sched->n_stages; s++) {
            const struct pst_action a = {.stage = (int16_t)s, .microbatch = -1};
            const double cost = m->costs->stages[s].optim;

            if (m->sched->rank_of[s] != (int)r || cost <= 0.0)
                continue;
            pst_sim_add_span(m, r, PST_SPAN_OPTIM, &a, at, at + cost);
            at += cost;
        }
        sim->step = fmax(sim->step, at);
    }
}

static enum pst_status play_schedule(struct pst_simulation *m)
{
    const struct pst_schedule *s = m->sched;
    enum pst_status status = prepare_state(m);

    if (status != PST_OK)
        return status;
    pst_sim_run(m);
    for (unsigned r = 0; r < s->n_ranks && !m->failed; r++) {
        if (m->ranks[r].next < s->ranks[r].n)
            return refuse_stuck(m);
        m->sim->makespan = fmax(m->sim->makespan, m->ranks[r].clock);
    }
    if (s->train && !m->failed)
        add_optimizer(m);
    m->sim->step = fmax(m->sim->step, m->sim->makespan);
    m->sim->timeline.step = m->sim->step;
    if (m->failed)
        return pst_diag_nomem(m->diag, sizeof(struct pst_span));
    status = pst_timeline_explain(&m->sim->timeline, s->rank_of, s->n_stages,
                                  m->links.by_from, m->links.n, m->diag);
    if (status != PST_OK)
        return status;
    pst_timeline_shares(&m->sim->timeline, m->sim->shares);
    for (unsigned r = 0; r < s->n_ranks; r++)
        m->sim->bubble += m->sim->shares[r].bubble / s->n_ranks;
    return PST_OK;
}

enum pst_status pst_schedule_simulate(const struct pst_schedule *sched,
                                      const struct pst_costs *costs,
                                      struct pst_sim *ret,
                                      struct pst_diag *diag)
{
    struct pst_sim sim = {
        .timeline = {.name = "predicted", .n_ranks = sched->n_ranks}};
    struct pst_simulation m = {
        .sched = sched, .costs = costs, .sim = &sim, .diag = diag};
    enum pst_status status;

    if (costs->n_stages != sched->n_stages)
        return pst_diag_set(diag, PST_E_COSTS_OTHER,
                            "the costs are of %u stages, the schedule has %u",
                            costs->n_stages, sched->n_stages);
    status = play_schedule(&m);
    pst_vec_fini(&m.meetings);
    for (unsigned r = 0; m.ranks && r < sched->n_ranks; r++)
        pst_free(m.ranks[r].copied);
    pst_free(m.heap);
    pst_free(m.ranks);
    pst_free(m.messages);
    pst_free(m.bytes[0]);
    pst_free(m.bytes[1]);
    pst_link_index_fini(&m.links);
    if (status == PST_OK)
        *ret = sim;
    else
        pst_sim_fini(&sim);
    return status;
}

void pst_sim_fini(struct pst_sim *sim)
{
    pst_timeline_fini(&sim->timeline);
    pst_free(sim->ranks);
    pst_free(sim->shares);
    sim->ranks = NULL;
    sim->shares = NULL;
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
