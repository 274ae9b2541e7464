// SPDX-License-Identifier: Apache-2.0
#include "stages/exec/rank/rank.h"

/* One message of an edge: the value (part 0) or a part of its gradient. Equal
 * on both sides because plans are. */
static int64_t tag_of(const struct pst_rank *r, unsigned edge, unsigned part,
                      int microbatch)
{
    int64_t id = 0;

    for (unsigned i = 0; i < edge; i++)
        id += 1 + r->plan->edges.at[i].grad_parts;
    return PST_TAG_EDGES + (id + part) * r->sched->n_microbatches + microbatch;
}

static unsigned char *address(const struct pst_rank *r, int stage,
                              struct pst_loc loc, int slot,
                              unsigned **ret_outstanding)
{
    struct pst_slot_pool *pool = &r->stages[stage].pools[loc.region];

    *ret_outstanding = NULL;
    if (loc.region == PST_R_FIXED)
        return pst_rank_at(r, loc.offset);
    if (slot < 0)
        return NULL;
    *ret_outstanding = &pool->outstanding[slot];
    return pst_rank_at(r, pool->base + (size_t)slot * pool->size + loc.offset);
}

struct filler {
    struct pst_rank *r;
    struct pst_rank_action *x;
    unsigned n, cap;
    struct pst_diag *diag;
};

static enum pst_status add(struct filler *f, const struct pst_value *value,
                           unsigned edge, unsigned part)
{
    const struct pst_action *a = &f->x->a;
    const struct pst_rank_stage *stage = &f->r->stages[a->stage];
    struct pst_loc loc =
        pst_program_loc(pst_rank_program(f->r, a->stage, a->microbatch), value);
    struct pst_message *m;
    int64_t tag = tag_of(f->r, edge, part, a->microbatch);

    if (f->n >= f->cap || tag >= PST_TAG_USER)
        return pst_diag_set(f->diag, PST_ERR_UNSUPPORTED,
                            "too many messages: edge %u, microbatch %d", edge,
                            a->microbatch);
    m = &f->x->messages[f->n++];
    m->len = pst_meta_span(&value->meta);
    m->data = address(f->r, a->stage, loc, f->x->slot[loc.region], &m->counter);
    if (m->data == NULL && m->len == 0) /* a region of nothing has no slots */
        m->data = pst_rank_at(f->r, 0);
    if (m->data == NULL)
        return pst_diag_set(f->diag, PST_ERR_INTERNAL,
                            "message of edge %u, microbatch %d has no slot",
                            edge, a->microbatch);
    m->tag = (int)tag;
    m->peer = f->r->first + (unsigned)a->peer;
    m->send = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_SEND_B;
    if (a->kind == PST_ACT_RECV_F)
        m->counter = &stage->waiting_f[a->microbatch];
    if (a->kind == PST_ACT_RECV_B)
        m->counter = &stage->waiting_b[a->microbatch];
    return PST_OK;
}

static enum pst_status fill_forward(struct filler *f,
                                    const struct pst_edge *edge)
{
    const struct pst_action *a = &f->x->a;
    const struct pst_program *p =
        pst_rank_program(f->r, a->stage, a->microbatch);

    if (f->x->a.kind == PST_ACT_SEND_F)
        return add(f, p->graph->outputs.at[edge->from_output].arg.value,
                   edge->id, 0);
    return add(f, p->graph->inputs.at[edge->to_input], edge->id, 0);
}

static enum pst_status fill_backward(struct filler *f,
                                     const struct pst_edge *edge)
{
    const struct pst_action *a = &f->x->a;
    const struct pst_joint *joint =
        pst_rank_program(f->r, a->stage, a->microbatch)->joint;
    enum pst_status status = PST_OK;

    if (f->x->a.kind == PST_ACT_SEND_B) {
        for (size_t i = 0; i < joint->input_grads.n && status == PST_OK; i++)
            if (joint->input_grads.at[i].edge == edge->id)
                status = add(f, joint->input_grads.at[i].value, edge->id,
                             1 + joint->input_grads.at[i].part);
        return status;
    }
    for (size_t i = 0; i < joint->seeds.n && status == PST_OK; i++)
        if (joint->seeds.at[i].edge == (int)edge->id)
            status = add(f, joint->seeds.at[i].seed, edge->id,
                         1 + joint->seeds.at[i].part);
    return status;
}

/* Edges between the two stages of a message action. */
static bool joins(const struct pst_edge *edge, const struct pst_action *a)
{
    bool up = a->kind == PST_ACT_SEND_F || a->kind == PST_ACT_RECV_B;
    int from = up ? a->stage : a->peer_stage;
    int to = up ? a->peer_stage : a->stage;

    return (int)edge->from_stage == from && (int)edge->to_stage == to;
}

static enum pst_status fill(struct filler *f)
{
    const struct pst_plan *plan = f->r->plan;
    const enum pst_action_kind kind = f->x->a.kind;
    bool forward = kind == PST_ACT_SEND_F || kind == PST_ACT_RECV_F;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->edges.n; i++)
        if (joins(&plan->edges.at[i], &f->x->a))
            f->cap += forward ? 1 : plan->edges.at[i].grad_parts;
    f->x->messages =
        pst_arena_calloc(&f->r->heap, f->cap + 1, sizeof(*f->x->messages));
    if (f->x->messages == NULL)
        return pst_diag_nomem(f->diag, f->cap * sizeof(*f->x->messages));
    for (size_t i = 0; i < plan->edges.n && status == PST_OK; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];

        if (joins(edge, &f->x->a))
            status = forward ? fill_forward(f, edge) : fill_backward(f, edge);
    }
    f->x->n_messages = f->n;
    return status;
}

enum pst_status pst_rank_bind_messages(struct pst_rank *r,
                                       struct pst_diag *diag)
{
    r->n_messages = pst_reduce_n_messages(r);
    r->reduce_messages = pst_arena_calloc(&r->heap, r->n_messages + 1,
                                          sizeof(*r->reduce_messages));
    if (r->reduce_messages == NULL)
        return pst_diag_nomem(diag, r->n_messages);
    for (unsigned i = 0; i < r->n_actions; i++) {
        struct filler f = {.r = r, .x = &r->actions[i], .diag = diag};
        const enum pst_action_kind kind = r->actions[i].a.kind;
        enum pst_status status;

        if (kind != PST_ACT_SEND_F && kind != PST_ACT_RECV_F &&
            kind != PST_ACT_SEND_B && kind != PST_ACT_RECV_B)
            continue;
        status = fill(&f);
        if (status != PST_OK)
            return status;
        r->n_messages += f.n;
    }
    r->n_messages += pst_replicas_n_messages(r) + pst_transmit_n_messages(r);
    r->n_messages += 2 * pst_rank_job_size(r); /* agree.c */
    r->active = pst_arena_calloc(&r->heap, r->n_messages + 1,
                                 sizeof(struct pst_message *));
    return r->active != NULL ? PST_OK : pst_diag_nomem(diag, r->n_messages);
}

enum pst_status pst_rank_post(struct pst_rank *r, struct pst_message *m)
{
    const struct pst_transport_ops *net = r->transport->ops;
    enum pst_status status;

    if (m->send)
        status = net->isend(r->transport, pst_rank_number(r), m->peer, m->tag,
                            m->data, m->len, &m->request);
    else
        status = net->irecv(r->transport, pst_rank_number(r), m->peer, m->tag,
                            m->data, m->len, &m->request);
    if (status != PST_OK)
        return pst_diag_set(
            r->diag, status, "rank %u: a message %s rank %u could not start",
            pst_rank_number(r), m->send ? "to" : "from", m->peer);
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
                                pst_rank_number(r), m->send ? "to" : "from",
                                m->peer, m->tag);
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
