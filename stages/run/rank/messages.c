// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/rank.h"

static enum pst_status fill(struct pst_rank *r, struct pst_rank_action *x,
                            const struct pst_passage *p, struct pst_message *m,
                            struct pst_diag *diag)
{
    const struct pst_action *a = &x->a;
    const struct pst_rank_stage *stage = &r->layout.stages[a->stage];
    const int slot = x->slot[p->at.region];
    const int64_t tag = p->tag + a->microbatch;

    if (tag > PST_MSG_EDGES_LAST)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "too many messages: microbatch %d from stage %d to "
                            "stage %d",
                            a->microbatch, a->stage, a->peer_stage);
    m->len = p->len;
    m->data = pst_layout_address(&r->layout, r->arena, a->stage, p->at, slot);
    if (m->data == NULL && m->len == 0) /* a region of nothing has no slots */
        m->data = pst_rank_at(r, 0);
    if (m->data == NULL)
        return pst_diag_set(diag, PST_ERR_INTERNAL,
                            "a message of microbatch %d, stage %d has no slot",
                            a->microbatch, a->stage);
    m->space = r->mem.device->space;
    m->tag = (int)tag;
    m->peer = pst_role_first(&r->role) + (unsigned)a->peer;
    m->send = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_SEND_B;
    if (a->kind == PST_ACT_RECV_F)
        m->counter = &stage->waiting_f[a->microbatch];
    else if (a->kind == PST_ACT_RECV_B)
        m->counter = &stage->waiting_b[a->microbatch];
    else if (slot >= 0)
        m->counter = &stage->pools[p->at.region].outstanding[slot];
    return PST_OK;
}

static enum pst_status fill_all(struct pst_rank *r, struct pst_rank_action *x,
                                struct pst_diag *diag)
{
    const struct pst_channel *channel;
    enum pst_status status =
        pst_channel_of(&r->channels, &x->a, &channel, diag);

    if (status != PST_OK)
        return status;
    x->messages =
        pst_arena_calloc(&r->heap, channel->n + 1, sizeof(*x->messages));
    if (x->messages == NULL)
        return pst_diag_nomem(diag, channel->n * sizeof(*x->messages));
    for (unsigned i = 0; i < channel->n && status == PST_OK; i++)
        status = fill(r, x, &channel->at[i], &x->messages[i], diag);
    x->n_messages = channel->n;
    return status;
}

enum pst_status pst_rank_bind_messages(struct pst_rank *r,
                                       struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < r->actions.n && status == PST_OK; i++) {
        const enum pst_action_kind kind = r->actions.at[i].a.kind;

        if (kind != PST_ACT_SEND_F && kind != PST_ACT_RECV_F &&
            kind != PST_ACT_SEND_B && kind != PST_ACT_RECV_B)
            continue;
        status = fill_all(r, &r->actions.at[i], diag);
        r->n_messages += r->actions.at[i].n_messages;
    }
    if (status != PST_OK)
        return status;
    r->n_messages += pst_replicas_n_messages(r) + r->n_values;
    r->n_messages += 2 * pst_role_job_size(&r->role); /* agree.c */
    r->active = pst_arena_calloc(&r->heap, r->n_messages + 1,
                                 sizeof(struct pst_message *));
    return r->active != NULL ? PST_OK : pst_diag_nomem(diag, r->n_messages);
}

/* True if it goes by the host's copy of the data. Several sends of the same
 * bytes may be under way: they write what is there already. */
static bool is_staged(const struct pst_rank *r, const struct pst_message *m)
{
    return r->stages_messages && m->space != PST_SPACE_HOST;
}

enum pst_status pst_rank_post(struct pst_rank *r, struct pst_message *m)
{
    const struct pst_transport_ops *net = r->transport->ops;
    void *data = m->data;
    enum pst_status status;

    if (is_staged(r, m))
        data = m->send ? pst_device_pull(&r->mem, m->data, m->len)
                       : pst_device_host(&r->mem, m->data);
    if (m->send)
        status = net->isend(r->transport, pst_role_number(&r->role), m->peer,
                            m->tag, data, m->len, &m->request);
    else
        status = net->irecv(r->transport, pst_role_number(&r->role), m->peer,
                            m->tag, data, m->len, &m->request);
    if (status != PST_OK)
        return pst_diag_set(
            r->diag, status, "rank %u: a message %s rank %u could not start",
            pst_role_number(&r->role), m->send ? "to" : "from", m->peer);
    if (m->counter != NULL)
        (*m->counter)++;
    r->active[r->n_active++] = m;
    return PST_OK;
}

enum pst_status pst_rank_poll(struct pst_rank *r)
{
    for (unsigned i = 0; i < r->n_active;) {
        struct pst_message *m = r->active[i];
        enum pst_status status =
            r->transport->ops->test(r->transport, &m->request);

        if (status == PST_AGAIN) {
            i++;
            continue;
        }
        if (status != PST_OK)
            return pst_diag_set(r->diag, status,
                                "rank %u: a message %s rank %u failed (tag %d)",
                                pst_role_number(&r->role),
                                m->send ? "to" : "from", m->peer, m->tag);
        pst_rank_moved(r);
        if (!m->send && is_staged(r, m))
            pst_device_push(&r->mem, m->data, m->len);
        if (m->counter != NULL)
            (*m->counter)--;
        r->active[i] = r->active[--r->n_active];
        if (m->piece != NULL && *m->counter == 0)
            status = pst_piece_go_on(r, m->piece);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}
