// SPDX-License-Identifier: Apache-2.0
/*
 * Extends compute actions to full lists. The ranks take turns; each takes its
 * next action if the inputs of that action have arrived. The messages of an F,
 * B or I follow it immediately, and each receive is appended to the peer's list
 * at the same time. So a global order exists in which every receive is posted
 * just before its send: no deadlock, even if every send blocks. Posting
 * receives earlier than that, at the end, preserves this.
 */
#include "stages/sched/lower/lower.h"

#include <stdlib.h>
#include <string.h>

static size_t cell_index(const struct pst_lower *l, int stage, int microbatch)
{
    return (size_t)stage * l->sched->n_microbatches + (size_t)microbatch;
}

static enum pst_status append_action(struct pst_lower *l, int rank,
                                     struct pst_action action)
{
    if (!pst_vec_push(PST_TAG_PLAN, &l->out[rank], action))
        return pst_diag_nomem(l->diag, sizeof(action));
    return PST_OK;
}

/* Adds a message or local copy. from, to: in the direction of the message. */
static enum pst_status add_message(struct pst_lower *l, int from, int to,
                                   int microbatch, bool backward)
{
    const int *rank_of = l->sched->rank_of;
    const int a = rank_of[from], b = rank_of[to];
    struct pst_action send = {backward ? PST_ACT_SEND_B : PST_ACT_SEND_F,
                              (int16_t)from,
                              microbatch,
                              (int16_t)to,
                              (int16_t)b,
                              -1};
    struct pst_action recv = {backward ? PST_ACT_RECV_B : PST_ACT_RECV_F,
                              (int16_t)to,
                              microbatch,
                              (int16_t)from,
                              (int16_t)a,
                              -1};
    enum pst_status status;

    if (pst_given_has(l, from, to, microbatch, backward))
        return PST_OK;
    (backward ? l->grads : l->inputs)[cell_index(l, to, microbatch)]++;
    if (a == b) {
        send.kind = backward ? PST_ACT_COPY_B : PST_ACT_COPY_F;
        return append_action(l, a, send);
    }
    status = append_action(l, a, send);
    return status == PST_OK ? append_action(l, b, recv) : status;
}

static bool is_ready(const struct pst_lower *l, const struct pst_action *a)
{
    const size_t i = cell_index(l, a->stage, a->microbatch);

    if (!pst_action_is_compute(a))
        return pst_given_is_ready(l, a);
    if (a->kind == PST_ACT_F)
        return l->inputs[i] ==
               l->links.first_to[a->stage + 1] - l->links.first_to[a->stage] -
                   (a->microbatch == 0 ? l->carried[a->stage] : 0);
    return a->kind == PST_ACT_W || l->grads[i] == l->need_grads[a->stage];
}

/* Sends the result of an F to its readers, in this microbatch or the next
 * one. */
static enum pst_status send_forward(struct pst_lower *l,
                                    const struct pst_action *a)
{
    const struct pst_link_index *links = &l->links;
    enum pst_status status = PST_OK;

    for (size_t i = links->first_from[a->stage];
         i < links->first_from[a->stage + 1] && status == PST_OK; i++) {
        const int for_mb = a->microbatch + pst_link_carries(&links->by_from[i]);

        if (for_mb < (int)l->sched->n_microbatches)
            status =
                add_message(l, a->stage, links->by_from[i].to, for_mb, false);
    }
    return status;
}

static enum pst_status take_action(struct pst_lower *l, int rank,
                                   const struct pst_action *a)
{
    const struct pst_link_index *links = &l->links;
    struct pst_action own = *a;
    enum pst_status status;

    own.overlap = false; /* messages come between the parts */
    status = append_action(l, rank, own);
    if (!pst_action_is_compute(a)) {
        pst_given_take(l, a);
    } else if (a->kind == PST_ACT_F) {
        if (status == PST_OK)
            status = send_forward(l, a);
    } else if (a->kind != PST_ACT_W) {
        /* The nearest stage comes first, since it runs its backward next. */
        for (size_t i = links->first_to[a->stage + 1];
             i-- > links->first_to[a->stage] && status == PST_OK;)
            if (links->by_to[i].grad)
                status = add_message(l, a->stage, links->by_to[i].from,
                                     a->microbatch, true);
    }
    return status;
}

static enum pst_status refuse_stuck(const struct pst_lower *l)
{
    struct pst_str text = {0};

    pst_sched_add_stuck(l->sched, l->next, &text);
    (void)pst_diag_set(l->diag, PST_E_SCHEDULE_STUCK,
                       "the schedule deadlocks, each of these actions waits "
                       "for one that comes later%s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static enum pst_status add_messages(struct pst_lower *l)
{
    const unsigned n_ranks = l->sched->n_ranks;
    enum pst_status status = PST_OK;
    bool moved, left;

    do {
        moved = left = false;
        for (unsigned r = 0; r < n_ranks && status == PST_OK; r++) {
            const struct pst_action *a;

            if (l->next[r] == l->sched->ranks[r].n)
                continue;
            a = &l->sched->ranks[r].at[l->next[r]];
            left = true;
            if (!is_ready(l, a))
                continue;
            status = take_action(l, (int)r, a);
            l->next[r]++;
            moved = true;
        }
    } while (moved && status == PST_OK);
    return status == PST_OK && left ? refuse_stuck(l) : status;
}

static int compare_param(const void *a, const void *b)
{
    const struct pst_shared *x = a, *y = b;

    return (x->param > y->param) - (x->param < y->param);
}

static enum pst_status add_reductions(struct pst_lower *l,
                                      const struct pst_shared *shared, size_t n)
{
    struct pst_shared *sorted = pst_calloc(PST_TAG_PLAN, n, sizeof(*sorted));
    enum pst_status status = PST_OK;

    if (!sorted)
        return pst_diag_nomem(l->diag, n * sizeof(*sorted));
    if (n) {
        memcpy(sorted, shared, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare_param);
    }
    for (size_t i = 0; i < n; i++) {
        int last = -1; /* stages of a rank are not always consecutive */

        for (unsigned r = 0; r < l->sched->n_ranks; r++) {
            for (unsigned k = 0; k < sorted[i].n_stages; k++)
                if (l->sched->rank_of[sorted[i].stages[k]] == (int)r)
                    last = (int)r;
            if (last == (int)r && status == PST_OK)
                status = append_action(
                    l, last,
                    (struct pst_action){PST_ACT_REDUCE,
                                        (int16_t)sorted[i].stages[0], -1, -1,
                                        -1, sorted[i].param});
        }
    }
    pst_free(sorted);
    return status;
}

static enum pst_status lower_schedule(struct pst_lower *l,
                                      const struct pst_shared *shared,
                                      size_t n_shared, unsigned early)
{
    struct pst_schedule *sched = l->sched;
    enum pst_status status;

    for (size_t i = 0; i < l->links.n; i++) {
        l->need_grads[l->links.by_from[i].from] += l->links.by_from[i].grad;
        l->carried[l->links.by_from[i].to] +=
            pst_link_carries(&l->links.by_from[i]);
    }
    status = add_messages(l);
    for (unsigned r = 0; r < sched->n_ranks && status == PST_OK; r++)
        if (!sched->messages) /* lists with messages keep their positions */
            status = pst_lower_early(l->out[r].at, l->out[r].n, early, l->diag);
    if (status == PST_OK && sched->train)
        status = add_reductions(l, shared, n_shared);
    if (status != PST_OK)
        return status;
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        pst_vec_fini(&sched->ranks[r]);
        memcpy(&sched->ranks[r], &l->out[r], sizeof(l->out[r]));
        memset(&l->out[r], 0, sizeof(l->out[r]));
    }
    sched->messages = sched->lowered = true;
    return PST_OK;
}

enum pst_status pst_schedule_lower(struct pst_schedule *sched,
                                   const struct pst_link *links, size_t n_links,
                                   const struct pst_shared *shared,
                                   size_t n_shared, unsigned early,
                                   struct pst_diag *diag)
{
    const size_t cells = (size_t)sched->n_stages * sched->n_microbatches;
    struct pst_lower l = {.sched = sched, .diag = diag};
    enum pst_status status;

    if (sched->lowered)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "the schedule has its messages already");
    status = pst_sched_check_shared(sched, shared, n_shared, diag);
    if (status == PST_OK)
        status = pst_link_index_init(&l.links, links, n_links, sched->n_stages,
                                     diag);
    if (status != PST_OK)
        return status;
    pst_sched_pack(sched);
    if (sched->messages)
        status = pst_given_read(&l);
    if (status == PST_OK)
        status = pst_sched_check_compute(sched, diag);
    l.inputs = pst_calloc(PST_TAG_PLAN, cells, sizeof(*l.inputs));
    l.grads = pst_calloc(PST_TAG_PLAN, cells, sizeof(*l.grads));
    l.need_grads =
        pst_calloc(PST_TAG_PLAN, sched->n_stages, sizeof(*l.need_grads));
    l.carried = pst_calloc(PST_TAG_PLAN, sched->n_stages, sizeof(*l.carried));
    l.next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*l.next));
    l.out = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*l.out));
    if (status == PST_OK && (!l.inputs || !l.grads || !l.need_grads ||
                             !l.carried || !l.next || !l.out))
        status = pst_diag_nomem(diag, cells * 2 * sizeof(unsigned));
    if (status == PST_OK)
        status = lower_schedule(&l, shared, n_shared, early);
    for (unsigned r = 0; l.out && r < sched->n_ranks; r++)
        pst_vec_fini(&l.out[r]);
    pst_free(l.given);
    pst_free(l.out);
    pst_free(l.next);
    pst_free(l.carried);
    pst_free(l.need_grads);
    pst_free(l.grads);
    pst_free(l.inputs);
    pst_link_index_fini(&l.links);
    return status;
}
