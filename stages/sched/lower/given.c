// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/lower/lower.h"

/* Bits of l->given for a message of forwards; those of a message of backwards
 * are shifted by BACKWARD. */
enum { SENT = 1, RECEIVED = 2, POSTED = 4, BACKWARD = 3 /* shift */ };

static bool is_backward(const struct pst_action *a)
{
    return a->kind == PST_ACT_SEND_B || a->kind == PST_ACT_RECV_B;
}

/* Returns the flags of a message; NULL if the stages exchange nothing. from,
 * to: in the direction of the message. */
static unsigned char *find_given(const struct pst_lower *l, int from, int to,
                                 int microbatch, bool backward)
{
    const int link = backward ? pst_link_find(&l->links, to, from)
                              : pst_link_find(&l->links, from, to);

    if (link < 0 || !l->given ||
        (backward && !(l->sched->train && l->links.by_from[link].grad)))
        return NULL;
    return &l->given[(size_t)link * l->sched->n_microbatches +
                     (size_t)microbatch];
}

static unsigned char *flags_of(const struct pst_lower *l,
                               const struct pst_action *a)
{
    const bool receives = pst_action_receives(a->kind);

    return find_given(l, receives ? a->peer_stage : a->stage,
                      receives ? a->stage : a->peer_stage, a->microbatch,
                      is_backward(a));
}

static unsigned direction_bits(const struct pst_action *a,
                               unsigned bits_forward)
{
    return is_backward(a) ? bits_forward << BACKWARD : bits_forward;
}

static bool is_message(const struct pst_action *a)
{
    return a->kind >= PST_ACT_SEND_F && a->kind <= PST_ACT_RECV_B;
}

static enum pst_status refuse_action(const struct pst_lower *l, unsigned rank,
                                     size_t index, const char *why)
{
    struct pst_str text = {0};

    pst_sched_add_place(l->sched, rank, index, false, &text);
    pst_str_addf(&text, ": %s", why);
    pst_sched_add_place(l->sched, rank, index, true, &text);
    (void)pst_diag_set(l->diag, PST_E_SCHEDULE_CSV, "schedule: %s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static enum pst_status read_message(struct pst_lower *l, unsigned rank,
                                    size_t i, bool *ret_keep)
{
    const struct pst_action *a = &l->sched->ranks[rank].at[i];
    unsigned char *given;
    unsigned bit;

    if (a->stage < 0 || a->stage >= (int)l->sched->n_stages ||
        a->microbatch < 0 || a->microbatch >= (int)l->sched->n_microbatches)
        return refuse_action(l, rank, i, "no such stage or microbatch");
    if (l->sched->rank_of[a->stage] != (int)rank)
        return refuse_action(l, rank, i, "the stage is on another rank");
    given = flags_of(l, a);
    *ret_keep = given != NULL;
    if (!given)
        return PST_OK;
    if (a->peer != l->sched->rank_of[a->peer_stage] || a->peer == (int)rank)
        return refuse_action(l, rank, i, "a message to the wrong rank");
    bit = direction_bits(a, pst_action_receives(a->kind) ? RECEIVED : SENT);
    if (*given & bit)
        return refuse_action(l, rank, i, "done a second time");
    *given |= (unsigned char)bit;
    return PST_OK;
}

/* Refuses a send without a receive, or vice versa, which would deadlock. */
static enum pst_status check_pairs(const struct pst_lower *l)
{
    for (unsigned r = 0; r < l->sched->n_ranks; r++)
        for (size_t i = 0; i < l->sched->ranks[r].n; i++) {
            const struct pst_action *a = &l->sched->ranks[r].at[i];

            if (is_message(a) &&
                (*flags_of(l, a) & direction_bits(a, SENT | RECEIVED)) !=
                    direction_bits(a, SENT | RECEIVED))
                return refuse_action(l, r, i,
                                     pst_action_receives(a->kind)
                                         ? "nothing sends what it receives"
                                         : "nothing receives what it sends");
        }
    return PST_OK;
}

enum pst_status pst_given_read(struct pst_lower *l)
{
    const size_t n = l->sched->n_microbatches;
    enum pst_status status = PST_OK;

    l->given = pst_calloc(PST_TAG_PLAN, l->links.n + 1, n);
    if (!l->given)
        return pst_diag_nomem(l->diag, (l->links.n + 1) * n);
    for (unsigned r = 0; r < l->sched->n_ranks; r++) {
        struct pst_action *at = l->sched->ranks[r].at;
        size_t kept = 0;

        for (size_t i = 0; i < l->sched->ranks[r].n && status == PST_OK; i++) {
            bool keep = pst_action_is_compute(&at[i]);

            if (is_message(&at[i]))
                status = read_message(l, r, i, &keep);
            if (keep)
                at[kept++] = at[i];
        }
        if (status != PST_OK)
            return status;
        l->sched->ranks[r].n = kept;
    }
    return check_pairs(l);
}

bool pst_given_has(const struct pst_lower *l, int from, int to, int microbatch,
                   bool backward)
{
    const unsigned char *given = find_given(l, from, to, microbatch, backward);

    return given && (*given & (backward ? SENT << BACKWARD : SENT));
}

bool pst_given_is_ready(const struct pst_lower *l, const struct pst_action *a)
{
    return pst_action_receives(a->kind) ||
           (*flags_of(l, a) & direction_bits(a, POSTED));
}

void pst_given_take(struct pst_lower *l, const struct pst_action *a)
{
    if (pst_action_receives(a->kind))
        *flags_of(l, a) |= (unsigned char)direction_bits(a, POSTED);
    else
        (is_backward(a)
             ? l->grads
             : l->inputs)[(size_t)a->peer_stage * l->sched->n_microbatches +
                          (size_t)a->microbatch]++;
}
