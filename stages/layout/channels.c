// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/channels.h"

#include "stages/net/tags.h"

/* The two stages of a channel: its edges lead from `from` to `to`. */
struct ends {
    unsigned from, to;
};

static struct ends ends_of(const struct pst_channel *c)
{
    const bool up = c->kind == PST_ACT_SEND_F || c->kind == PST_ACT_COPY_F ||
                    c->kind == PST_ACT_RECV_B;

    return up ? (struct ends){(unsigned)c->stage, (unsigned)c->peer_stage}
              : (struct ends){(unsigned)c->peer_stage, (unsigned)c->stage};
}

static bool joins_stages(const struct pst_edge *edge, struct ends ends)
{
    return edge->from_stage == ends.from && edge->to_stage == ends.to;
}

static const struct pst_program *program_of(const struct pst_channels *t,
                                            int stage, bool tail)
{
    const struct pst_rank_stage *s = &t->layout->stages[stage];

    return tail && s->tail != NULL ? s->tail : s->program;
}

/* Counts the tags of all edges: an edge has one tag for the value, then one for
 * each part of its gradient. All ranks get the same tags, since their plans are
 * equal. */
static enum pst_status count_tags(struct pst_channels *t, struct pst_diag *diag)
{
    const size_t n = t->role->plan->edges.n;
    int64_t id = 0;

    t->edge_tag = pst_arena_calloc(t->heap, n + 1, sizeof(*t->edge_tag));
    if (t->edge_tag == NULL)
        return pst_diag_nomem(diag, n * sizeof(*t->edge_tag));
    for (size_t i = 0; i < n; i++) {
        t->edge_tag[i] = id;
        id += 1 + (int64_t)t->role->plan->edges.at[i].grad_parts;
    }
    return PST_OK;
}

static void add_passage(const struct pst_channels *t, struct pst_channel *c,
                        const struct pst_value *value, unsigned edge,
                        unsigned part)
{
    c->at[c->n++] = (struct pst_passage){
        .at = pst_program_loc(program_of(t, c->stage, c->tail), value),
        .len = pst_meta_span(&value->meta),
        .tag = PST_MSG_EDGES +
               (t->edge_tag[edge] + part) * t->role->sched->n_microbatches,
    };
}

static void add_forward(const struct pst_channels *t, struct pst_channel *c)
{
    const struct ends ends = ends_of(c);
    const struct pst_graph *graph = program_of(t, c->stage, c->tail)->graph;

    for (size_t i = 0; i < t->role->plan->edges.n; i++) {
        const struct pst_edge *e = &t->role->plan->edges.at[i];

        if (!joins_stages(e, ends))
            continue;
        add_passage(t, c,
                    c->kind == PST_ACT_RECV_F
                        ? graph->inputs.at[e->to_input]
                        : graph->outputs.at[e->from_output].arg.value,
                    e->id, 0);
        if (c->kind == PST_ACT_COPY_F) {
            const struct pst_program *peer =
                program_of(t, c->peer_stage, c->peer_tail);

            c->at[c->n - 1].peer_at =
                pst_program_loc(peer, peer->graph->inputs.at[e->to_input]);
        }
    }
}

/* Returns the seed that receives a part of an edge's gradient in the joint
 * graph; NULL: none. Linked lists by edge: `head` has the first index in
 * joint->seeds of each edge, `next` the one after each seed. */
static const struct pst_value *seed_of(const struct pst_joint *joint,
                                       const int *head, const int *next,
                                       const struct pst_joint_grad *grad)
{
    for (int i = head[grad->edge]; i >= 0; i = next[i])
        if (joint->seeds.at[i].part == grad->part)
            return joint->seeds.at[i].seed;
    return NULL;
}

static enum pst_status add_copies_back(struct pst_channels *t,
                                       struct pst_channel *c,
                                       struct pst_diag *diag)
{
    const struct pst_joint *joint = program_of(t, c->stage, c->tail)->joint;
    const struct pst_program *peer = program_of(t, c->peer_stage, c->peer_tail);
    const size_t n_seeds = peer->joint->seeds.n;
    const struct ends ends = ends_of(c);
    int *head = pst_calloc(PST_TAG_EXEC, t->role->plan->edges.n + n_seeds + 1,
                           sizeof(*head));
    int *next = head + t->role->plan->edges.n;

    if (head == NULL)
        return pst_diag_nomem(diag, t->role->plan->edges.n * sizeof(*head));
    for (size_t i = 0; i < t->role->plan->edges.n; i++)
        head[i] = -1;
    for (size_t i = 0; i < n_seeds; i++) {
        const int edge = peer->joint->seeds.at[i].edge;

        if (edge < 0)
            continue;
        next[i] = head[edge];
        head[edge] = (int)i;
    }
    for (size_t i = 0; i < joint->input_grads.n; i++) {
        const struct pst_joint_grad *g = &joint->input_grads.at[i];
        const struct pst_value *seed = seed_of(peer->joint, head, next, g);

        if (seed == NULL ||
            !joins_stages(&t->role->plan->edges.at[g->edge], ends))
            continue;
        add_passage(t, c, g->value, g->edge, 1 + g->part);
        c->at[c->n - 1].peer_at = pst_program_loc(peer, seed);
    }
    pst_free(head);
    return PST_OK;
}

static void add_backward(const struct pst_channels *t, struct pst_channel *c)
{
    const struct pst_joint *joint = program_of(t, c->stage, c->tail)->joint;
    const struct ends ends = ends_of(c);

    for (size_t i = 0; c->kind == PST_ACT_SEND_B && i < joint->input_grads.n;
         i++) {
        const struct pst_joint_grad *g = &joint->input_grads.at[i];

        if (joins_stages(&t->role->plan->edges.at[g->edge], ends))
            add_passage(t, c, g->value, g->edge, 1 + g->part);
    }
    for (size_t i = 0; c->kind == PST_ACT_RECV_B && i < joint->seeds.n; i++) {
        const struct pst_joint_seed *s = &joint->seeds.at[i];

        if (s->edge >= 0 &&
            joins_stages(&t->role->plan->edges.at[s->edge], ends))
            add_passage(t, c, s->seed, (unsigned)s->edge, 1 + s->part);
    }
}

static enum pst_status make_channel(struct pst_channels *t,
                                    struct pst_channel *c,
                                    struct pst_diag *diag)
{
    const struct ends ends = ends_of(c);
    size_t most = 0;

    for (size_t i = 0; i < t->role->plan->edges.n; i++)
        if (joins_stages(&t->role->plan->edges.at[i], ends))
            most += 1 + t->role->plan->edges.at[i].grad_parts;
    c->at = pst_arena_calloc(t->heap, most + 1, sizeof(*c->at));
    if (c->at == NULL)
        return pst_diag_nomem(diag, most * sizeof(*c->at));
    switch (c->kind) {
    case PST_ACT_SEND_F:
    case PST_ACT_RECV_F:
    case PST_ACT_COPY_F:
        add_forward(t, c);
        return PST_OK;
    case PST_ACT_COPY_B:
        return add_copies_back(t, c, diag);
    default:
        add_backward(t, c);
        return PST_OK;
    }
}

enum pst_status pst_channel_of(struct pst_channels *t,
                               const struct pst_action *a,
                               const struct pst_channel **ret,
                               struct pst_diag *diag)
{
    struct pst_channel new = {
        .kind = a->kind,
        .stage = a->stage,
        .peer_stage = a->peer_stage,
        .tail = pst_role_is_tail(t->role, pst_action_own_microbatch(a)),
        .peer_tail = pst_role_is_tail(t->role, a->microbatch),
    };
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < t->all.n; i++) {
        const struct pst_channel *c = &t->all.at[i];

        if (c->kind == new.kind && c->stage == new.stage &&
            c->peer_stage == new.peer_stage && c->tail == new.tail &&
            c->peer_tail == new.peer_tail) {
            *ret = c;
            return PST_OK;
        }
    }
    if (t->edge_tag == NULL)
        status = count_tags(t, diag);
    if (status == PST_OK)
        status = make_channel(t, &new, diag);
    if (status != PST_OK)
        return status;
    if (!pst_vec_push(PST_TAG_EXEC, &t->all, new))
        return pst_diag_nomem(diag, sizeof(new));
    *ret = &t->all.at[t->all.n - 1];
    return PST_OK;
}

void pst_channels_fini(struct pst_channels *t)
{
    pst_vec_fini(&t->all);
}
