// SPDX-License-Identifier: Apache-2.0
/* Pass two of the proof: all lists together. */
#include "stages/sched/check/check.h"

#include <stdio.h>

size_t pst_check_cell(const struct pst_check *c, int row, int microbatch)
{
    return (size_t)row * c->sched->n_microbatches + (size_t)microbatch;
}

int pst_check_link_of(const struct pst_check *c, const struct pst_action *a)
{
    const bool peer_is_from = a->kind == PST_ACT_RECV_F ||
                              a->kind == PST_ACT_SEND_B ||
                              a->kind == PST_ACT_COPY_B;

    return peer_is_from ? pst_link_find(&c->links, a->peer_stage, a->stage)
                        : pst_link_find(&c->links, a->stage, a->peer_stage);
}

/* Returns a stage that has not yet sent an input of this action; -1 if there is
 * none. */
static int find_awaited_stage(const struct pst_check *c,
                              const struct pst_action *a)
{
    const bool backward = a->kind != PST_ACT_F;
    const size_t *first = backward ? c->links.first_from : c->links.first_to;

    if (a->kind == PST_ACT_W)
        return -1;
    for (size_t k = first[a->stage]; k < first[a->stage + 1]; k++) {
        const struct pst_link *link =
            backward ? &c->links.by_from[k] : &c->links.by_to[k];
        const int other = backward ? link->to : link->from;
        const size_t at = pst_check_cell(
            c, pst_link_find(&c->links, link->from, link->to), a->microbatch);

        if ((backward && !link->grad) ||
            (a->microbatch == 0 && pst_link_carries(link)) ||
            c->sched->rank_of[link->from] == c->sched->rank_of[link->to])
            continue;
        if (!(c->run[at] & PST_BIT(backward ? PST_ACT_SEND_B : PST_ACT_SEND_F)))
            return other;
    }
    return -1;
}

/* Returns an owner that has not reached this reduction; -1 if there is none. */
static int find_awaited_owner(const struct pst_check *c,
                              const struct pst_action *a)
{
    const struct pst_schedule *s = c->sched;
    size_t k = 0;

    while (c->shared[k].param != a->param)
        k++;
    for (unsigned j = 0; j < c->shared[k].n_stages; j++) {
        const int r = s->rank_of[c->shared[k].stages[j]];
        const struct pst_action *b = &s->ranks[r].at[c->next[r]];

        if (c->reduced[k * s->n_ranks + (unsigned)r] == 2)
            continue; /* all owners have reached this reduction before */
        if (c->next[r] == s->ranks[r].n || b->kind != PST_ACT_REDUCE ||
            b->param != a->param)
            return r;
    }
    for (unsigned j = 0; j < c->shared[k].n_stages; j++)
        c->reduced[k * s->n_ranks +
                   (unsigned)s->rank_of[c->shared[k].stages[j]]] = 2;
    return -1;
}

/* Runs the next action of a rank if possible; else writes what it waits for to
 * `why`. */
static bool play_action(const struct pst_check *c, unsigned rank, char *why,
                        size_t size)
{
    const struct pst_action *a = &c->sched->ranks[rank].at[c->next[rank]];
    unsigned short *run;
    unsigned posted;
    int other;

    if (a->kind == PST_ACT_REDUCE) {
        other = find_awaited_owner(c, a);
        (void)snprintf(why, size, "waits for rank %d to reduce parameter %d",
                       other, a->param);
        return other < 0;
    }
    if (pst_action_is_compute(a)) {
        other = find_awaited_stage(c, a);
        (void)snprintf(why, size, "waits for stage %d", other);
        return other < 0;
    }
    if (!pst_action_has_peer(a->kind))
        return true;
    run = &c->run[pst_check_cell(c, pst_check_link_of(c, a), a->microbatch)];
    posted = a->kind == PST_ACT_SEND_F   ? PST_BIT(PST_ACT_RECV_F)
             : a->kind == PST_ACT_SEND_B ? PST_BIT(PST_ACT_RECV_B)
                                         : 0;
    if ((*run & posted) != posted) {
        (void)snprintf(why, size, "waits until rank %d posts its receive",
                       a->peer);
        return false;
    }
    *run |= (unsigned short)PST_BIT(a->kind);
    return true;
}

enum pst_status pst_check_simulate(const struct pst_check *c)
{
    const struct pst_schedule *s = c->sched;
    struct pst_str text = {0};
    unsigned stuck = s->n_ranks;
    char why[128];
    bool moved;

    do {
        moved = false;
        for (unsigned r = 0; r < s->n_ranks; r++)
            while (c->next[r] < s->ranks[r].n &&
                   play_action(c, r, why, sizeof(why))) {
                c->next[r]++;
                moved = true;
            }
    } while (moved);
    for (unsigned r = 0; r < s->n_ranks; r++) {
        if (c->next[r] == s->ranks[r].n)
            continue;
        stuck = PST_MIN(stuck, r);
        (void)play_action(c, r, why, sizeof(why));
        if (text.len < 512) {
            pst_str_add(&text, text.len ? "; " : "");
            pst_sched_add_place(s, r, c->next[r], false, &text);
            pst_str_addf(&text, " %s", why);
        }
    }
    if (stuck == s->n_ranks)
        return PST_OK;
    for (unsigned r = 0; r < s->n_ranks && text.len < 1024; r++)
        if (c->next[r] < s->ranks[r].n)
            pst_sched_add_place(s, r, c->next[r], true, &text);
    (void)pst_diag_set(c->diag, PST_E_SCHEDULE_STUCK,
                       "schedule: the ranks wait for each other: %s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}
