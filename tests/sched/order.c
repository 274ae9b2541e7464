// SPDX-License-Identifier: Apache-2.0
/*
 * Proves for lists without messages that one order exists in which every value
 * is computed before it is used. Then lowering can add messages that do not
 * deadlock. Also for lists too long to be lowered at once: needs two bits per
 * (stage, microbatch), and visits each action a few times.
 */
#include "tests/sched/order.h"

#include "stages/sched/generate.h"

#include <string.h>

enum { FORWARD = 1, BACKWARD = 2 };

struct order {
    const struct pst_schedule *sched;
    struct pst_link_index links;
    unsigned char *done; /* per (stage, microbatch): FORWARD, BACKWARD */
    size_t *next;        /* per rank: its next action */
    /* Ranks that may be able to continue; each at most once. */
    unsigned *queue, head, n_queued;
    bool *queued;
};

static unsigned char *cell_at(const struct order *o, int stage, int microbatch)
{
    return &o->done[(size_t)stage * o->sched->n_microbatches +
                    (size_t)microbatch];
}

static void queue_rank(struct order *o, unsigned rank)
{
    if (o->queued[rank])
        return;
    o->queued[rank] = true;
    o->queue[(o->head + o->n_queued++) % o->sched->n_ranks] = rank;
}

static bool is_ready(const struct order *o, const struct pst_action *a)
{
    const struct pst_link_index *l = &o->links;

    if (a->kind == PST_ACT_F) {
        for (size_t i = l->first_to[a->stage]; i < l->first_to[a->stage + 1];
             i++) {
            const int from = a->microbatch - pst_link_carries(&l->by_to[i]);

            if (from >= 0 && !(*cell_at(o, l->by_to[i].from, from) & FORWARD))
                return false;
        }
    } else if (a->kind != PST_ACT_W) {
        for (size_t i = l->first_from[a->stage];
             i < l->first_from[a->stage + 1]; i++)
            if (l->by_from[i].grad &&
                !(*cell_at(o, l->by_from[i].to, a->microbatch) & BACKWARD))
                return false;
    }
    return true;
}

static void take_action(struct order *o, const struct pst_action *a)
{
    const struct pst_link_index *l = &o->links;

    if (a->kind == PST_ACT_F) {
        *cell_at(o, a->stage, a->microbatch) |= FORWARD;
        for (size_t i = l->first_from[a->stage];
             i < l->first_from[a->stage + 1]; i++)
            queue_rank(o, (unsigned)o->sched->rank_of[l->by_from[i].to]);
    } else if (a->kind != PST_ACT_W) {
        *cell_at(o, a->stage, a->microbatch) |= BACKWARD;
        for (size_t i = l->first_to[a->stage]; i < l->first_to[a->stage + 1];
             i++)
            queue_rank(o, (unsigned)o->sched->rank_of[l->by_to[i].from]);
    }
}

static enum pst_status play_lists(struct order *o, struct pst_diag *diag)
{
    const struct pst_schedule *s = o->sched;
    struct pst_str text = {0};

    for (unsigned r = 0; r < s->n_ranks; r++)
        queue_rank(o, r);
    while (o->n_queued) {
        const unsigned r = o->queue[o->head];

        o->head = (o->head + 1) % s->n_ranks;
        o->n_queued--;
        o->queued[r] = false;
        for (; o->next[r] < s->ranks[r].n; o->next[r]++) {
            const struct pst_action *a = &s->ranks[r].at[o->next[r]];

            if (!is_ready(o, a))
                break;
            take_action(o, a);
        }
    }
    pst_sched_add_stuck(s, o->next, &text);
    if (!text.len && !text.failed)
        return PST_OK;
    (void)pst_diag_set(diag, PST_E_SCHEDULE_STUCK,
                       "the schedule deadlocks, each of these actions waits "
                       "for one that comes later%s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

enum pst_status check_order(const struct pst_schedule *sched,
                            const struct pst_link *links, size_t n_links,
                            struct pst_diag *diag)
{
    const size_t cells = (size_t)sched->n_stages * sched->n_microbatches;
    struct order o = {.sched = sched};
    enum pst_status status = pst_sched_check_compute(sched, diag);

    if (status == PST_OK && (sched->idle || sched->messages))
        status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                              "not a list of compute actions alone");
    if (status == PST_OK)
        status = pst_link_index_init(&o.links, links, n_links, sched->n_stages,
                                     diag);
    if (status != PST_OK)
        return status;
    o.done = pst_calloc(PST_TAG_PLAN, cells, sizeof(*o.done));
    o.next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*o.next));
    o.queue = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*o.queue));
    o.queued = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*o.queued));
    if (!o.done || !o.next || !o.queue || !o.queued)
        status = pst_diag_nomem(diag, cells);
    else
        status = play_lists(&o, diag);
    pst_free(o.queued);
    pst_free(o.queue);
    pst_free(o.next);
    pst_free(o.done);
    pst_link_index_fini(&o.links);
    return status;
}

enum pst_status check_held(const struct pst_schedule *sched,
                           const unsigned *limits, struct pst_diag *diag)
{
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        unsigned held = 0;

        for (size_t i = 0; i < sched->ranks[r].n; i++) {
            const unsigned kind = sched->ranks[r].at[i].kind;
            struct pst_str text = {0};

            held -= held && (kind == PST_ACT_B || kind == PST_ACT_W);
            held += kind == PST_ACT_F;
            if (held <= limits[r])
                continue;
            pst_sched_add_place(sched, r, i, false, &text);
            pst_str_addf(&text,
                         ": the rank holds %u (stage, microbatch) pairs, its "
                         "slots are %u",
                         held, limits[r]);
            pst_sched_add_place(sched, r, i, true, &text);
            (void)pst_diag_set(diag, PST_E_SCHEDULE_STUCK, "schedule: %s",
                               pst_str_text(&text));
            pst_str_fini(&text);
            return PST_ERR_INPUT;
        }
    }
    return PST_OK;
}
