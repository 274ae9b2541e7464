// SPDX-License-Identifier: Apache-2.0
/* Pass one: messages, local copies and reductions. */
#include "stages/sched/check/check.h"

#include <string.h>

static bool is_backward(enum pst_action_kind kind)
{
    return kind == PST_ACT_SEND_B || kind == PST_ACT_RECV_B ||
           kind == PST_ACT_COPY_B;
}

static bool has_arrived(const struct pst_check *c, size_t link, int microbatch,
                        bool backward)
{
    const unsigned moved = c->moved[pst_check_cell(c, (int)link, microbatch)];

    return moved &
           (backward ? PST_BIT(PST_ACT_RECV_B) | PST_BIT(PST_ACT_COPY_B)
                     : PST_BIT(PST_ACT_RECV_F) | PST_BIT(PST_ACT_COPY_F));
}

/* Checks that F comes after its inputs, and B and I after their gradients. */
enum pst_status pst_check_arrived(const struct pst_check *c, unsigned rank,
                                  size_t i)
{
    const struct pst_action *a = &c->sched->ranks[rank].at[i];
    const size_t *first = c->links.first_to;

    if (a->kind == PST_ACT_W)
        return PST_OK;
    if (a->kind == PST_ACT_F) {
        for (size_t k = first[a->stage]; k < first[a->stage + 1]; k++) {
            const int from = c->links.by_to[k].from;
            const int link = pst_link_find(&c->links, from, a->stage);

            if (a->microbatch == 0 && pst_link_carries(&c->links.by_to[k]))
                continue;
            if (!has_arrived(c, (size_t)link, a->microbatch, false))
                return pst_check_refuse(
                    c, rank, i, "no RECV_F or COPY_F from stage %d before it",
                    from);
        }
        return PST_OK;
    }
    first = c->links.first_from;
    for (size_t k = first[a->stage]; k < first[a->stage + 1]; k++)
        if (c->links.by_from[k].grad && !has_arrived(c, k, a->microbatch, true))
            return pst_check_refuse(
                c, rank, i, "no RECV_B or COPY_B from stage %d before it",
                c->links.by_from[k].to);
    return PST_OK;
}

enum pst_status pst_check_message(const struct pst_check *c, unsigned rank,
                                  size_t i)
{
    const struct pst_schedule *s = c->sched;
    const struct pst_action *a = &s->ranks[rank].at[i];
    const bool backward = is_backward(a->kind);
    const bool copy = a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B;
    const bool recv = a->kind == PST_ACT_RECV_F || a->kind == PST_ACT_RECV_B;
    const int own = pst_action_own_microbatch(a);
    const unsigned after =
        backward ? PST_BIT(PST_ACT_B) | PST_BIT(PST_ACT_I) : PST_BIT(PST_ACT_F);
    const int link = pst_check_link_of(c, a);
    unsigned short *moved;
    unsigned done;

    if (link < 0)
        return pst_check_refuse(c, rank, i,
                                "no link between stages %d and %d in this "
                                "direction",
                                a->stage, a->peer_stage);
    if (pst_link_carries(&c->links.by_from[link]) && a->microbatch == 0)
        return pst_check_refuse(c, rank, i,
                                "no microbatch comes before the first");
    done = c->done[pst_check_cell(c, a->stage, own)];
    if (backward && !s->train)
        return pst_check_refuse(c, rank, i,
                                "a gradient, but nothing is trained");
    if (backward && !c->links.by_from[link].grad)
        return pst_check_refuse(c, rank, i, "no gradient travels on this link");
    if (a->peer != s->rank_of[a->peer_stage])
        return pst_check_refuse(
            c, rank, i, "names rank %d, but stage %d is on rank %d", a->peer,
            a->peer_stage, s->rank_of[a->peer_stage]);
    if (copy != (a->peer == (int)rank))
        return pst_check_refuse(c, rank, i,
                                copy ? "a local copy to another rank"
                                     : "a message to the rank itself");
    if (recv && (done & after))
        return pst_check_refuse(c, rank, i, "received after its use");
    if (!recv && !(done & after))
        return pst_check_refuse(c, rank, i, "sent before it is computed");
    moved = &c->moved[pst_check_cell(c, link, a->microbatch)];
    if (*moved & PST_BIT(a->kind))
        return pst_check_refuse(c, rank, i, "done a second time");
    *moved |= (unsigned short)PST_BIT(a->kind);
    return PST_OK;
}

enum pst_status pst_check_reduce(const struct pst_check *c, unsigned rank,
                                 size_t i)
{
    const struct pst_schedule *s = c->sched;
    const struct pst_action *a = &s->ranks[rank].at[i];
    const struct pst_shared *shared = NULL;
    bool owner = false;
    size_t k;

    if (!s->train)
        return pst_check_refuse(c, rank, i,
                                "a gradient, but nothing is trained");
    for (k = 0; k < c->n_shared && !shared; k++)
        if (c->shared[k].param == a->param)
            shared = &c->shared[k];
    if (!shared)
        return pst_check_refuse(c, rank, i, "parameter %d is not shared",
                                a->param);
    if (a->stage != (int)shared->stages[0])
        return pst_check_refuse(c, rank, i,
                                "the lowest owner of parameter %d is stage "
                                "%u",
                                a->param, shared->stages[0]);
    for (unsigned j = 0; j < shared->n_stages; j++) {
        if (s->rank_of[shared->stages[j]] != (int)rank)
            continue;
        owner = true;
        for (unsigned m = 0; m < s->n_microbatches; m++)
            if (!pst_check_backward_done(c, (int)shared->stages[j], (int)m))
                return pst_check_refuse(c, rank, i,
                                        "before the backward of stage %u, "
                                        "microbatch %u",
                                        shared->stages[j], m);
    }
    if (!owner)
        return pst_check_refuse(
            c, rank, i, "no stage of this rank uses parameter %d", a->param);
    if (c->reduced[(k - 1) * s->n_ranks + rank]++)
        return pst_check_refuse(
            c, rank, i, "parameter %d is reduced a second time", a->param);
    return PST_OK;
}

/* Reports a missing send, with the place where the stage computes the value and
 * the place where the value is used. */
static enum pst_status refuse_missing(const struct pst_check *c, int stage,
                                      int to, unsigned microbatch,
                                      const char *kind)
{
    const struct pst_schedule *s = c->sched;
    const int stages[] = {stage, to};
    struct pst_str text = {0};

    for (unsigned k = 0; k < 2; k++) {
        const unsigned rank = (unsigned)s->rank_of[stages[k]];

        for (size_t i = 0; i < s->ranks[rank].n; i++) {
            const struct pst_action *a = &s->ranks[rank].at[i];
            const bool back = a->kind == PST_ACT_B || a->kind == PST_ACT_I;

            if (a->stage != stages[k] || a->microbatch != (int)microbatch ||
                !(strchr(kind, 'F') ? a->kind == PST_ACT_F : back))
                continue;
            if (k == 0) {
                pst_str_add(&text, "schedule: ");
                pst_sched_add_place(s, rank, i, false, &text);
                pst_str_addf(&text, ": %d%s%u to stage %d is missing", stage,
                             kind, microbatch, to);
            }
            pst_sched_add_place(s, rank, i, true, &text);
            break;
        }
    }
    (void)pst_diag_set(c->diag, PST_E_SCHEDULE_STUCK, "%s",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

/* Checks that every link has all its messages, and every owner all its
 * reductions. */
enum pst_status pst_check_messages_all(const struct pst_check *c)
{
    const struct pst_schedule *s = c->sched;

    for (size_t k = 0; k < c->links.n; k++) {
        const struct pst_link *link = &c->links.by_from[k];
        const bool near = s->rank_of[link->from] == s->rank_of[link->to];

        for (unsigned m = pst_link_carries(link); m < s->n_microbatches; m++) {
            const unsigned moved = c->moved[pst_check_cell(c, (int)k, (int)m)];

            if (!(moved & PST_BIT(near ? PST_ACT_COPY_F : PST_ACT_SEND_F)))
                return refuse_missing(c, link->from, link->to, m,
                                      near ? "COPY_F" : "SEND_F");
            if (link->grad && s->train &&
                !(moved & PST_BIT(near ? PST_ACT_COPY_B : PST_ACT_SEND_B)))
                return refuse_missing(c, link->to, link->from, m,
                                      near ? "COPY_B" : "SEND_B");
        }
    }
    for (size_t k = 0; k < c->n_shared && s->train; k++)
        for (unsigned j = 0; j < c->shared[k].n_stages; j++) {
            const unsigned r = (unsigned)s->rank_of[c->shared[k].stages[j]];

            if (!c->reduced[k * s->n_ranks + r])
                return pst_check_refuse(
                    c, r, s->ranks[r].n,
                    "the reduction of parameter %d is missing",
                    c->shared[k].param);
        }
    return PST_OK;
}
