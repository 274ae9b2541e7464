// SPDX-License-Identifier: Apache-2.0
/* Events of a simulation: a queue of ranks by the time at which they can
 * continue, messages, work. */
#include "stages/sched/simulation.h"

#include <math.h>

/* --- the queue of ranks -------------------------------------------------- */

static bool is_earlier(const struct pst_simulation *m, unsigned a, unsigned b)
{
    const double x = m->ranks[a].clock, y = m->ranks[b].clock;

    return x != y ? x < y : a < b;
}

static void push_rank(struct pst_simulation *m, unsigned rank, double at)
{
    unsigned i = m->n_heap++;

    m->ranks[rank].clock = at;
    m->ranks[rank].blocked = false;
    for (; i > 0 && is_earlier(m, rank, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = rank;
}

static unsigned pop(struct pst_simulation *m)
{
    const unsigned first = m->heap[0], last = m->heap[--m->n_heap];
    unsigned i = 0;

    for (;;) {
        unsigned child = 2 * i + 1;

        if (child + 1 < m->n_heap &&
            is_earlier(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (child >= m->n_heap || is_earlier(m, last, m->heap[child]))
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return first;
}

/* --- messages ------------------------------------------------------------ */

/* Returns the index of the link in by_from; -1 if there is no such link. */
long pst_sim_find_link(const struct pst_simulation *m, int from, int to)
{
    for (size_t i = m->links.first_from[from];
         i < m->links.first_from[from + 1]; i++)
        if (m->links.by_from[i].to == to)
            return (long)i;
    return -1;
}

static struct pst_sim_message *message_of(const struct pst_simulation *m,
                                          enum pst_sim_direction d, size_t link,
                                          int microbatch)
{
    return &m->messages[((size_t)d * m->links.n + link) *
                            m->sched->n_microbatches +
                        (size_t)microbatch];
}

static struct pst_wire wire_of(const struct pst_simulation *m, int from, int to)
{
    return m->costs->wires
               ? m->costs->wires[(size_t)from * m->sched->n_ranks + (size_t)to]
               : m->costs->wire;
}

static void wake_rank(struct pst_simulation *m, int rank, double at)
{
    if (m->ranks[rank].blocked)
        push_rank(m, (unsigned)rank, at);
}

/* Determines when a message leaves and arrives, once it is sent and its receive
 * is posted; called at both events. */
static void time_message(struct pst_simulation *m, enum pst_sim_direction d,
                         size_t link, int microbatch)
{
    const struct pst_link *l = &m->links.by_from[link];
    const int a = m->sched->rank_of[d == PST_SIM_FORWARD ? l->from : l->to];
    const int b = m->sched->rank_of[d == PST_SIM_FORWARD ? l->to : l->from];
    struct pst_sim_message *msg = message_of(m, d, link, microbatch);
    const struct pst_wire wire = wire_of(m, a, b);
    double start;

    if (msg->sent < 0.0 || msg->posted < 0.0)
        return;
    start = fmax(msg->sent, msg->posted);
    /* the sender has already spent the time of the transfer */
    if (a == b || !m->costs->overlap) {
        msg->arrives = start;
    } else {
        start = fmax(start, m->ranks[a].line_free);
        if (wire.bandwidth > 0.0)
            start += m->bytes[d][link] / wire.bandwidth;
        m->ranks[a].line_free = start;
        msg->arrives = start + wire.latency;
    }
    wake_rank(m, b, msg->arrives);
}

/* Returns the seconds for which a message keeps the sender busy. */
static double send_cost(const struct pst_simulation *m,
                        enum pst_sim_direction d, size_t link)
{
    const struct pst_link *l = &m->links.by_from[link];
    const int a = m->sched->rank_of[l->from], b = m->sched->rank_of[l->to];
    const struct pst_wire wire =
        d == PST_SIM_FORWARD ? wire_of(m, a, b) : wire_of(m, b, a);

    if (m->costs->overlap || a == b)
        return 0.0;
    return wire.latency +
           (wire.bandwidth > 0.0 ? m->bytes[d][link] / wire.bandwidth : 0.0);
}

/* --- actions ------------------------------------------------------------- */

void pst_sim_add_span(struct pst_simulation *m, unsigned rank,
                      enum pst_span_kind kind, const struct pst_action *a,
                      double start, double end)
{
    if (end > start || pst_span_class(kind) == PST_CLASS_WORK)
        m->failed |= !pst_timeline_add(&m->sim->timeline, (int)rank, kind,
                                       a->stage, a->microbatch, start, end);
}

static void set_bytes(struct pst_simulation *m, unsigned rank, double change,
                      double at)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const struct pst_level level = {at, (int)rank, r->bytes + change};

    if (change == 0.0)
        return;
    r->bytes += change;
    m->sim->ranks[rank].peak_bytes =
        fmax(m->sim->ranks[rank].peak_bytes, r->bytes);
    m->failed |= !pst_vec_push(PST_TAG_PLAN, &m->sim->timeline.levels, level);
}

static double cost_of(const struct pst_simulation *m,
                      const struct pst_action *a)
{
    const struct pst_stage_cost *c = &m->costs->stages[a->stage];

    switch (a->kind) {
    case PST_ACT_F:
        return c->seconds.forward;
    case PST_ACT_I:
        return c->seconds.input;
    case PST_ACT_W:
        return c->seconds.weight;
    default:
        return c->backward > 0.0 ? c->backward
                                 : c->seconds.input + c->seconds.weight;
    }
}

/* Returns the time when the last input of the action arrives; -1 if unknown. */
static double inputs_at(const struct pst_simulation *m,
                        const struct pst_action *a)
{
    const struct pst_link_index *x = &m->links;
    const size_t s = (size_t)a->stage;
    double at = 0.0;

    if (a->kind == PST_ACT_W)
        return at;
    if (a->kind == PST_ACT_F) {
        for (size_t i = x->first_to[s]; i < x->first_to[s + 1] && at >= 0.0;
             i++) {
            const size_t link =
                (size_t)pst_sim_find_link(m, x->by_to[i].from, a->stage);
            const double t =
                message_of(m, PST_SIM_FORWARD, link, a->microbatch)->arrives;

            if (a->microbatch > 0 || !pst_link_carries(&x->by_to[i]))
                at = t < 0.0 ? t : fmax(at, t);
        }
        return at;
    }
    for (size_t i = x->first_from[s]; i < x->first_from[s + 1] && at >= 0.0;
         i++) {
        double t;

        if (!x->by_from[i].grad)
            continue;
        t = message_of(m, PST_SIM_BACKWARD, i, a->microbatch)->arrives;
        at = t < 0.0 ? t : fmax(at, t);
    }
    return at;
}

/* Sends the results of this action now, for a schedule without messages.
 * Returns the seconds for which sending keeps the rank busy. */
static double send_all(struct pst_simulation *m, const struct pst_action *a,
                       double now)
{
    const struct pst_link_index *x = &m->links;
    const size_t s = (size_t)a->stage;
    const bool forward = a->kind == PST_ACT_F;
    const size_t begin = forward ? x->first_from[s] : x->first_to[s];
    const size_t end = forward ? x->first_from[s + 1] : x->first_to[s + 1];
    double busy = 0.0;

    if (a->kind == PST_ACT_W)
        return busy;
    for (size_t i = begin; i < end; i++) {
        const enum pst_sim_direction d =
            forward ? PST_SIM_FORWARD : PST_SIM_BACKWARD;
        const size_t link =
            forward ? i
                    : (size_t)pst_sim_find_link(m, x->by_to[i].from, a->stage);
        const int for_mb = a->microbatch + pst_link_carries(&x->by_from[link]);

        if ((!forward && !x->by_to[i].grad) || !pst_sim_is_implied(m, link) ||
            for_mb >= (int)m->sched->n_microbatches)
            continue;
        busy += send_cost(m, d, link);
        message_of(m, d, link, for_mb)->sent = now + busy;
        time_message(m, d, link, for_mb);
    }
    return busy;
}

/* Begins the copies of the stash that may begin after the rank's newest action:
 * evictions of its results, and reloads. */
static void begin_copies(struct pst_simulation *m, unsigned rank)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const double rate = m->costs->stash_bandwidth;

    for (; r->copied && r->issued < m->sched->copies[rank].n; r->issued++) {
        const struct pst_stash_copy *c = &m->sched->copies[rank].at[r->issued];
        const double free = r->issued > 0 ? r->copied[r->issued - 1] : 0.0;

        if (c->issue >= r->computed)
            return;
        r->copied[r->issued] =
            fmax(free, r->clock) + (rate > 0.0 ? c->bytes / rate : 0.0);
    }
}

/* Returns the time when all copies have ended that the next action needs. */
static double copies_at(const struct pst_simulation *m, unsigned rank)
{
    const struct pst_sim_state *r = &m->ranks[rank];

    for (size_t i = r->copied ? r->issued : 0; i-- > 0;)
        if (m->sched->copies[rank].at[i].need <= r->computed)
            return r->copied[i];
    return 0.0;
}

static void begin_work(struct pst_simulation *m, unsigned rank,
                       const struct pst_action *a)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const double end = r->clock + cost_of(m, a);

    r->computed++;
    pst_sim_add_span(m, rank, pst_span_of_action(a->kind), a, r->clock, end);
    if (a->kind == PST_ACT_F) {
        set_bytes(m, rank, m->costs->stages[a->stage].stash, r->clock);
        r->held++;
        m->sim->ranks[rank].peak_held =
            PST_MAX(m->sim->ranks[rank].peak_held, r->held);
    }
    r->running = true;
    push_rank(m, rank, end);
}

/* Ends the rank's running action. False: the rank stays busy, sending
 * results. */
static bool end_work(struct pst_simulation *m, unsigned rank)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const struct pst_action *a = &m->sched->ranks[rank].at[r->next - 1];
    const struct pst_stage_cost *c = &m->costs->stages[a->stage];
    double busy;

    r->running = false;
    if (!pst_action_is_compute(a))
        return true;
    begin_copies(m, rank);
    if (a->kind == PST_ACT_B)
        set_bytes(m, rank, -c->stash, r->clock);
    else if (a->kind == PST_ACT_I)
        set_bytes(m, rank, c->keep - c->stash, r->clock);
    else if (a->kind == PST_ACT_W)
        set_bytes(m, rank, -c->keep, r->clock);
    if (a->kind == PST_ACT_B || a->kind == PST_ACT_W)
        r->held--;
    busy = send_all(m, a, r->clock);
    if (busy == 0.0)
        return true;
    pst_sim_add_span(m, rank, PST_SPAN_SEND, a, r->clock, r->clock + busy);
    push_rank(m, rank, r->clock + busy);
    return false;
}

bool pst_sim_is_backward(enum pst_action_kind kind)
{
    return kind == PST_ACT_SEND_B || kind == PST_ACT_RECV_B ||
           kind == PST_ACT_COPY_B;
}

/* Executes a message or local copy. False: the rank stays busy. */
static bool run_message(struct pst_simulation *m, unsigned rank,
                        const struct pst_action *a)
{
    const enum pst_sim_direction d =
        pst_sim_is_backward(a->kind) ? PST_SIM_BACKWARD : PST_SIM_FORWARD;
    const bool receives =
        a->kind == PST_ACT_RECV_F || a->kind == PST_ACT_RECV_B;
    const int other = a->peer_stage;
    const long link = (d == PST_SIM_FORWARD) != receives
                          ? pst_sim_find_link(m, a->stage, other)
                          : pst_sim_find_link(m, other, a->stage);
    struct pst_sim_state *r = &m->ranks[rank];
    struct pst_sim_message *msg;
    double busy;

    if (link < 0) /* a link that is not in the costs: nothing waits for it */
        return true;
    msg = message_of(m, d, (size_t)link, a->microbatch);
    if (receives) {
        msg->posted = r->clock;
        time_message(m, d, (size_t)link, a->microbatch);
        return true;
    }
    busy = send_cost(m, d, (size_t)link);
    if (a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B)
        msg->posted = r->clock;
    msg->sent = r->clock + busy;
    time_message(m, d, (size_t)link, a->microbatch);
    if (busy == 0.0)
        return true;
    pst_sim_add_span(m, rank, PST_SPAN_SEND, a, r->clock, r->clock + busy);
    r->running = true;
    push_rank(m, rank, r->clock + busy);
    return false;
}

struct pst_sim_meeting *pst_sim_meeting_of(struct pst_simulation *m,
                                           const struct pst_action *a)
{
    for (size_t i = 0; i < m->meetings.n; i++)
        if (m->meetings.at[i].stage == a->stage &&
            m->meetings.at[i].param == a->param)
            return &m->meetings.at[i];
    return NULL;
}

/* Ends a reduction on all its owners together, since all have reached it. */
static void end_reduction(struct pst_simulation *m, const struct pst_action *a,
                          double now)
{
    const struct pst_sim_meeting *meeting = pst_sim_meeting_of(m, a);
    const double end =
        now + (meeting->owners > 1 ? m->costs->stages[a->stage].reduce : 0.0);

    for (unsigned k = 0; k < m->sched->n_ranks; k++) {
        struct pst_sim_state *r = &m->ranks[k];
        const struct pst_action *b = m->sched->ranks[k].at + r->next;

        if (r->next == m->sched->ranks[k].n || b->kind != a->kind ||
            b->stage != a->stage || b->param != a->param)
            continue;
        pst_sim_add_span(m, k, PST_SPAN_REDUCE, b, now, end);
        r->next++;
        r->running = true;
        push_rank(m, k, end);
    }
}

/* Reduces a stage over its replicas, which are equally fast. With overlap the
 * reduction runs concurrently with work, and only the end of the list waits for
 * it. False: the reduction keeps the rank busy. */
static bool sum_stage(struct pst_simulation *m, unsigned rank,
                      const struct pst_action *a)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const double cost = m->costs->stages[a->stage].sum;

    if (m->costs->overlap) {
        r->line_free = fmax(r->line_free, r->clock) + cost;
        r->sums_end = r->line_free;
        return true;
    }
    if (cost <= 0.0)
        return true;
    pst_sim_add_span(m, rank, PST_SPAN_REDUCE, a, r->clock, r->clock + cost);
    r->running = true;
    push_rank(m, rank, r->clock + cost);
    return false;
}

static void wait_for_sums(struct pst_simulation *m, unsigned rank)
{
    struct pst_sim_state *r = &m->ranks[rank];
    const struct pst_action a = {.stage = -1, .microbatch = -1};
    const double end = r->sums_end;

    if (end <= r->clock)
        return;
    r->sums_end = 0.0;
    pst_sim_add_span(m, rank, PST_SPAN_REDUCE, &a, r->clock, end);
    push_rank(m, rank, end);
}

/* Advances the rank from its clock until it has to wait. */
static void advance_rank(struct pst_simulation *m, unsigned rank)
{
    struct pst_sim_state *r = &m->ranks[rank];

    if (r->running && !end_work(m, rank))
        return;
    while (r->next < m->sched->ranks[rank].n) {
        const struct pst_action *a = &m->sched->ranks[rank].at[r->next];

        if (pst_action_is_compute(a)) {
            double at = inputs_at(m, a);

            /* The F also waits for the inputs of the B. Not in lists with
             * messages, which post the receives of these inputs after the F. */
            if (a->overlap && m->costs->parts_together && at >= 0.0 &&
                !m->sched->lowered && !m->sched->messages &&
                r->next + 1 < m->sched->ranks[rank].n) {
                const double other = inputs_at(m, a + 1);

                at = other < 0.0 ? other : fmax(at, other);
            }
            if (at >= 0.0 && copies_at(m, rank) > fmax(at, r->clock)) {
                const double since = fmax(at, r->clock);

                at = copies_at(m, rank);
                m->sim->ranks[rank].stash_wait += at - since;
            }
            if (at > r->clock) {
                push_rank(m, rank, at);
            } else if (at < 0.0) {
                r->blocked = true;
            } else {
                r->next++;
                begin_work(m, rank, a);
            }
            return;
        }
        if (a->kind == PST_ACT_REDUCE && a->param >= 0) {
            struct pst_sim_meeting *meeting = pst_sim_meeting_of(m, a);

            if (++meeting->n_arrived == meeting->owners)
                end_reduction(m, a, r->clock);
            return; /* the last owner to arrive wakes the others */
        }
        r->next++;
        if (a->kind == PST_ACT_REDUCE && !sum_stage(m, rank, a))
            return;
        /* Idle slots, UNSHARD and RESHARD take no time. */
        if (a->peer_stage >= 0 && !run_message(m, rank, a))
            return;
    }
    wait_for_sums(m, rank);
}

void pst_sim_run(struct pst_simulation *m)
{
    for (unsigned r = 0; r < m->sched->n_ranks; r++)
        push_rank(m, r, 0.0);
    while (m->n_heap > 0 && !m->failed)
        advance_rank(m, pop(m));
}
