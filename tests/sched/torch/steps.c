// SPDX-License-Identifier: Apache-2.0
/*
 * PyTorch's measure of a schedule: in each tick every rank runs one action if
 * it is ready; ranks that were not ready get a second chance after the others.
 * A rank that waits uses up the tick.
 */
#include "stages/sched/generate.h"
#include "tests/sched/torch/torch.h"

struct ticker {
    const struct pst_schedule *sched;
    /* per (stage, microbatch): a bit for each kind that is done */
    unsigned short *done;
    size_t *next, *ticks; /* per rank */
    bool *moved;          /* per rank: has run an action in this tick */
};

static bool has_run(const struct ticker *t, int stage, int microbatch,
                    unsigned kinds)
{
    if (stage < 0 || stage >= (int)t->sched->n_stages)
        return false;
    return t->done[(size_t)stage * t->sched->n_microbatches +
                   (size_t)microbatch] &
           kinds;
}

static bool is_ready(const struct ticker *t, const struct pst_action *a)
{
    const unsigned backward = 1u << PST_ACT_B | 1u << PST_ACT_I;
    const int s = a->stage, m = a->microbatch, last = (int)t->sched->n_stages;
    const int *rank_of = t->sched->rank_of;

    switch (a->kind) {
    case PST_ACT_F:
        return s == 0 || has_run(t, s, m, 1u << PST_ACT_RECV_F) ||
               (rank_of[s - 1] == rank_of[s] &&
                has_run(t, s - 1, m, 1u << PST_ACT_F));
    case PST_ACT_B:
    case PST_ACT_I:
        return s == last - 1 || has_run(t, s, m, 1u << PST_ACT_RECV_B) ||
               (rank_of[s + 1] == rank_of[s] && has_run(t, s + 1, m, backward));
    case PST_ACT_SEND_F:
        return has_run(t, s, m, 1u << PST_ACT_F);
    case PST_ACT_SEND_B:
        return has_run(t, s, m, backward);
    case PST_ACT_RECV_F:
        return has_run(t, s - 1, m, 1u << PST_ACT_SEND_F);
    case PST_ACT_RECV_B:
        return has_run(t, s + 1, m, 1u << PST_ACT_SEND_B);
    default:
        return true; /* W and idle slots */
    }
}

static bool move(struct ticker *t, unsigned rank)
{
    const struct pst_action *a = &t->sched->ranks[rank].at[t->next[rank]];

    if (!is_ready(t, a))
        return false;
    if (a->kind != PST_ACT_IDLE)
        t->done[(size_t)a->stage * t->sched->n_microbatches +
                (size_t)a->microbatch] |= (unsigned short)(1u << a->kind);
    t->next[rank]++;
    return true;
}

static bool tick(struct ticker *t)
{
    bool any = false;

    for (unsigned r = 0; r < t->sched->n_ranks; r++) {
        t->moved[r] = t->next[r] == t->sched->ranks[r].n;
        if (t->moved[r])
            continue;
        t->moved[r] = move(t, r);
        t->ticks[r]++;
        any = any || t->moved[r];
    }
    for (unsigned r = 0; r < t->sched->n_ranks; r++)
        if (!t->moved[r])
            (void)move(t, r);
    return any;
}

static enum pst_status run(struct ticker *t, struct pst_diag *diag)
{
    struct pst_str text = {0};
    bool left;

    while (tick(t))
        ;
    left = false;
    for (unsigned r = 0; r < t->sched->n_ranks; r++)
        left = left || t->next[r] < t->sched->ranks[r].n;
    if (!left)
        return PST_OK;
    pst_sched_add_stuck(t->sched, t->next, &text);
    (void)pst_diag_set(diag, PST_E_SCHEDULE_STUCK, "the schedule deadlocks%s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static enum pst_status check_kinds(const struct pst_schedule *sched,
                                   struct pst_diag *diag)
{
    for (unsigned r = 0; r < sched->n_ranks; r++)
        for (size_t i = 0; i < sched->ranks[r].n; i++) {
            const struct pst_action *a = &sched->ranks[r].at[i];
            struct pst_str text = {0};

            if (a->kind == PST_ACT_IDLE ||
                (a->kind <= PST_ACT_RECV_B && !a->overlap && a->stage >= 0 &&
                 a->stage < (int)sched->n_stages && a->microbatch >= 0 &&
                 a->microbatch < (int)sched->n_microbatches))
                continue;
            pst_sched_add_place(sched, r, i, false, &text);
            (void)pst_diag_set(diag, PST_E_SCHEDULE_LIMITS,
                               "%s takes no tick in PyTorch's simulator",
                               pst_str_text(&text));
            pst_str_fini(&text);
            return PST_ERR_UNSUPPORTED;
        }
    return PST_OK;
}

enum pst_status pst_torch_steps(const struct pst_schedule *sched,
                                size_t *ret_steps, struct pst_diag *diag)
{
    const size_t cells = (size_t)sched->n_stages * sched->n_microbatches;
    struct ticker t = {
        .sched = sched,
        .done = pst_calloc(PST_TAG_PLAN, cells, sizeof(*t.done)),
        .next = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*t.next)),
        .ticks = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*t.ticks)),
        .moved = pst_calloc(PST_TAG_PLAN, sched->n_ranks, sizeof(*t.moved)),
    };
    enum pst_status status = check_kinds(sched, diag);
    size_t most = 0;

    if (!t.done || !t.next || !t.ticks || !t.moved)
        status = pst_diag_nomem(diag, cells * sizeof(*t.done));
    if (status == PST_OK)
        status = run(&t, diag);
    for (unsigned r = 0; r < sched->n_ranks && status == PST_OK; r++)
        most = PST_MAX(most, t.ticks[r]);
    if (status == PST_OK)
        *ret_steps = most;
    pst_free(t.moved);
    pst_free(t.ticks);
    pst_free(t.next);
    pst_free(t.done);
    return status;
}
