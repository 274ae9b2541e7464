// SPDX-License-Identifier: Apache-2.0
/* Makes the messages of an action that sends or receives, with their addresses,
 * from its channel (channels.h). */
#include "stages/run/rank/bind.h"

static unsigned *counter_of(const struct pst_binding *b,
                            const struct pst_rank_action *x, unsigned region)
{
    const struct pst_action *a = &x->a;
    const struct pst_slot_pool *pool =
        &b->layout->stages[a->stage].pools[region];
    const int slot = x->slot[region];

    if (a->kind == PST_ACT_RECV_F || a->kind == PST_ACT_RECV_B)
        return pst_counter_arriving(b->counters, a->stage,
                                    a->kind == PST_ACT_RECV_B, a->microbatch);
    return slot >= 0 ? pst_counter_leaving(b->counters, pool, slot) : NULL;
}

static enum pst_status fill_message(const struct pst_binding *b,
                                    const struct pst_rank_action *x,
                                    const struct pst_passage *p,
                                    struct pst_message *m)
{
    const struct pst_action *a = &x->a;
    const int64_t tag = p->tag + a->microbatch;

    if (tag > PST_MSG_EDGES_LAST)
        return pst_diag_set(b->diag, PST_E_SCHEDULE_LIMITS,
                            "too many messages: microbatch %d from stage %d to "
                            "stage %d",
                            a->microbatch, a->stage, a->peer_stage);
    m->len = p->len;
    m->data = pst_layout_address(b->layout, b->device->mem.base, a->stage,
                                 p->at, x->slot[p->at.region]);
    if (m->data == NULL && m->len == 0) /* an empty region has no slots */
        m->data = pst_rank_at(b->device, 0);
    if (m->data == NULL)
        return pst_diag_set(b->diag, PST_E_INTERNAL_BUG,
                            "a message of microbatch %d, stage %d has no slot",
                            a->microbatch, a->stage);
    m->space = b->device->mem.device->space;
    m->tag = (int)tag;
    m->peer = pst_role_first(b->role) + (unsigned)a->peer;
    m->send = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_SEND_B;
    m->counter = counter_of(b, x, p->at.region);
    return PST_OK;
}

static enum pst_status fill_all(const struct pst_binding *b,
                                struct pst_rank_action *x)
{
    const struct pst_channel *channel;
    enum pst_status status =
        pst_channel_of(b->channels, &x->a, &channel, b->diag);

    if (status != PST_OK)
        return status;
    x->messages =
        pst_arena_calloc(b->heap, channel->n + 1, sizeof(*x->messages));
    if (x->messages == NULL)
        return pst_diag_nomem(b->diag, channel->n * sizeof(*x->messages));
    for (unsigned i = 0; i < channel->n && status == PST_OK; i++)
        status = fill_message(b, x, &channel->at[i], &x->messages[i]);
    x->n_messages = channel->n;
    return status;
}

enum pst_status pst_bind_messages(const struct pst_binding *b, unsigned *ret_n)
{
    enum pst_status status = PST_OK;
    unsigned n = 0;

    for (unsigned i = 0; i < b->actions->n && status == PST_OK; i++) {
        struct pst_rank_action *x = &b->actions->at[i];

        if (x->a.kind != PST_ACT_SEND_F && x->a.kind != PST_ACT_RECV_F &&
            x->a.kind != PST_ACT_SEND_B && x->a.kind != PST_ACT_RECV_B)
            continue;
        status = fill_all(b, x);
        n += x->n_messages;
    }
    if (status == PST_OK)
        *ret_n = n;
    return status;
}
