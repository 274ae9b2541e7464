// SPDX-License-Identifier: Apache-2.0
/*
 * Adds sends and receives in PyTorch's order. The ranks take turns; each takes
 * its next action if it is ready; after F, B or I the send follows, and the
 * receive is appended to the neighbor's list at the same time. Every action
 * takes a turn, also an idle slot, which sends nothing.
 */
#include "tests/sched/torch/torch.h"

#include "stages/sched/generate.h"

#include <string.h>

struct sender {
    struct pst_schedule *sched;
    /* Per (stage, microbatch): whether F, and B or I, are done, and whether the
     * receives of their inputs are in the list. */
    bool *forward, *backward, *got_forward, *got_backward;
    size_t *next;
    struct PST_VEC(struct pst_action) * out;
    bool failed;
};

static size_t cell(const struct sender *s, int stage, int microbatch)
{
    return (size_t)stage * s->sched->n_microbatches + (size_t)microbatch;
}

static void push(struct sender *s, int rank, struct pst_action action)
{
    if (!s->failed && !pst_vec_push(PST_TAG_PLAN, &s->out[rank], action))
        s->failed = true;
}

static bool is_backward(const struct pst_action *a)
{
    return a->kind == PST_ACT_B || a->kind == PST_ACT_I;
}

static bool is_ready(const struct sender *s, const struct pst_action *a)
{
    const int *rank_of = s->sched->rank_of;
    const int other = a->kind == PST_ACT_F ? a->stage - 1 : a->stage + 1;

    if (a->kind != PST_ACT_F && !is_backward(a))
        return true;
    if (other < 0 || other == (int)s->sched->n_stages)
        return true;
    if (rank_of[other] == rank_of[a->stage])
        return (a->kind == PST_ACT_F
                    ? s->forward
                    : s->backward)[cell(s, other, a->microbatch)];
    return (a->kind == PST_ACT_F
                ? s->got_forward
                : s->got_backward)[cell(s, a->stage, a->microbatch)];
}

static void send(struct sender *s, const struct pst_action *a)
{
    const int *rank_of = s->sched->rank_of;
    const bool backward = is_backward(a);
    const int to = backward ? a->stage - 1 : a->stage + 1;
    const int from_rank = rank_of[a->stage];
    int to_rank;

    if (a->kind != PST_ACT_F && !backward)
        return;
    (backward ? s->backward : s->forward)[cell(s, a->stage, a->microbatch)] =
        true;
    if (to < 0 || to == (int)s->sched->n_stages)
        return;
    to_rank = rank_of[to];
    if (to_rank == from_rank)
        return;
    push(s, from_rank,
         (struct pst_action){backward ? PST_ACT_SEND_B : PST_ACT_SEND_F,
                             a->stage, a->microbatch, (int16_t)to,
                             (int16_t)to_rank, -1});
    push(s, to_rank,
         (struct pst_action){backward ? PST_ACT_RECV_B : PST_ACT_RECV_F,
                             (int16_t)to, a->microbatch, a->stage,
                             (int16_t)from_rank, -1});
    (backward ? s->got_backward : s->got_forward)[cell(s, to, a->microbatch)] =
        true;
}

/* Runs one turn of a rank: an idle slot, an action or a compound. */
static bool run_turn(struct sender *s, int rank)
{
    const struct pst_action *at = s->sched->ranks[rank].at + s->next[rank];
    const unsigned n = at->overlap ? 2 : 1;

    for (unsigned i = 0; i < n; i++)
        if (!is_ready(s, &at[i]))
            return false;
    for (unsigned i = 0; i < n; i++)
        if (at[i].kind != PST_ACT_IDLE)
            push(s, rank, at[i]);
    for (unsigned i = 0; i < n; i++)
        send(s, &at[i]);
    s->next[rank] += n;
    return true;
}

static enum pst_status refuse_stuck(const struct sender *s,
                                    struct pst_diag *diag)
{
    struct pst_str text = {0};

    pst_sched_add_stuck(s->sched, s->next, &text);
    (void)pst_diag_set(diag, PST_E_SCHEDULE_STUCK,
                       "the schedule deadlocks, each of these actions waits "
                       "for one that comes later%s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static enum pst_status add_all(struct sender *s, struct pst_diag *diag)
{
    bool moved, left;

    do {
        moved = left = false;
        for (unsigned r = 0; r < s->sched->n_ranks; r++) {
            if (s->next[r] == s->sched->ranks[r].n)
                continue;
            left = true;
            moved = run_turn(s, (int)r) || moved;
        }
    } while (moved && !s->failed);
    if (s->failed)
        return pst_diag_nomem(diag, sizeof(struct pst_action));
    return left ? refuse_stuck(s, diag) : PST_OK;
}

enum pst_status pst_torch_messages(struct pst_schedule *sched,
                                   struct pst_diag *diag)
{
    const size_t n = (size_t)sched->n_stages * sched->n_microbatches;
    bool *cells = pst_calloc(PST_TAG_PLAN, n, 4 * sizeof(*cells));
    struct sender s = {
        .sched = sched,
        .forward = cells,
        .backward = cells + n,
        .got_forward = cells + 2 * n,
        .got_backward = cells + 3 * n,
        .next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*s.next)),
        .out = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*s.out)),
    };
    enum pst_status status = PST_OK;

    if (!cells || !s.next || !s.out)
        status = pst_diag_nomem(diag, n * 4);
    if (status == PST_OK)
        status = add_all(&s, diag);
    for (unsigned r = 0; r < sched->n_ranks && s.out; r++) {
        if (status == PST_OK) {
            pst_vec_fini(&sched->ranks[r]);
            memcpy(&sched->ranks[r], &s.out[r], sizeof(s.out[r]));
        } else {
            pst_vec_fini(&s.out[r]);
        }
    }
    pst_free(s.out);
    pst_free(s.next);
    pst_free(cells);
    if (status == PST_OK) {
        sched->messages = true;
        sched->idle = false;
    }
    return status;
}
