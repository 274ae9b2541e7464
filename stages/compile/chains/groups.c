// SPDX-License-Identifier: Apache-2.0
/*
 * Joins nodes to groups.
 *
 * Groups of nodes of one list grow along values that one node makes and another
 * reads, and among neighbours that read the same value. A group gets the index
 * of one of its nodes, after all nodes whose results it reads and before all
 * readers of its results. A node is only moved past nodes that cannot be parts
 * of chains if that does not keep more memory alive.
 */
#include "stages/compile/chains/chains.h"

/* Returns the index of the node's group, or of a node without a group. */
static size_t place_of(const struct pst_chainer *c, size_t node)
{
    const struct pst_chain_node *item = &c->items[node];

    return item->group != NULL ? item->group->at : node;
}

/* Two groups, and the range of indices for a chain of both. */
struct pair {
    struct pst_chainer *c;
    const struct pst_chain_group *a, *b;
    size_t low, high; /* possible indices: low <= index < high */
    unsigned whole;   /* operands from outside with the results' shape */
    const struct pst_meta *shape;
};

static bool is_inside(const struct pair *p, size_t node)
{
    const struct pst_chain_group *group = p->c->items[node].group;

    return group != NULL && (group == p->a || group == p->b);
}

static void look_at_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct pair *p = ctx;
    const struct pst_value *value = *slot;
    const size_t maker = p->c->maker[value->id];

    (void)arg;
    if (value->def != NULL && is_inside(p, maker))
        return;
    if (pst_meta_same_shape(&value->meta, p->shape))
        p->whole++;
    if (value->def != NULL && place_of(p->c, maker) + 1 > p->low)
        p->low = place_of(p->c, maker) + 1;
}

/* True if the value is read outside of both groups. Lowers p->high to the first
 * such reader. */
static bool look_at_readers(struct pair *p, const struct pst_value *value)
{
    const struct pst_chainer *c = p->c;
    bool any = c->leaves[value->id];

    for (size_t i = c->first[value->id]; i < c->first[value->id + 1]; i++) {
        const size_t reader = c->readers[i];

        if (is_inside(p, reader))
            continue;
        any = true;
        p->high = PST_MIN(p->high, place_of(c, reader));
    }
    return any;
}

/* True if moving the node to index `to` keeps no more memory alive. */
static bool may_move(struct pair *p, size_t node, size_t to)
{
    const struct pst_chain_node *items = p->c->items;

    if (items[node].hard == items[to].hard)
        return true;
    p->whole = 0;
    pst_node_uses(items[node].as.node, look_at_operand, p);
    return node < to ? p->whole <= 1
                     : !look_at_readers(p, items[node].as.node->outs[0]);
}

/* Finds the index for a chain of both groups; false: there is none. */
static bool find_place(struct pair *p, size_t *ret)
{
    const struct pst_chain_group *const both[] = {p->a, p->b};
    bool found = false;

    p->low = 0;
    p->high = SIZE_MAX;
    for (unsigned g = 0; g < 2; g++)
        for (size_t i = 0; i < both[g]->nodes.n; i++) {
            struct pst_node *node = p->c->items[both[g]->nodes.at[i]].as.node;

            pst_node_uses(node, look_at_operand, p);
            (void)look_at_readers(p, node->outs[0]);
        }
    for (unsigned g = 0; g < 2; g++)
        for (size_t i = 0; i < both[g]->nodes.n; i++) {
            const size_t at = both[g]->nodes.at[i];

            if (at < p->low || at >= p->high || (found && at < *ret))
                continue;
            *ret = at;
            found = true;
        }
    for (unsigned g = 0; g < 2 && found; g++)
        for (size_t i = 0; i < both[g]->nodes.n; i++)
            if (!may_move(p, both[g]->nodes.at[i], *ret))
                return false;
    return found;
}

/* Adds the nodes of group `from` to those of `to`, in order. */
static enum pst_status move_nodes(struct pst_chainer *c,
                                  struct pst_chain_group *to,
                                  struct pst_chain_group *from)
{
    for (size_t i = 0; i < from->nodes.n; i++) {
        const unsigned node = from->nodes.at[i];
        size_t at;

        if (!pst_vec_push(PST_TAG_EXEC, &to->nodes, node))
            return pst_diag_nomem(c->diag, sizeof(node));
        for (at = to->nodes.n - 1; at > 0 && to->nodes.at[at - 1] > node; at--)
            to->nodes.at[at] = to->nodes.at[at - 1];
        to->nodes.at[at] = node;
        c->items[node].group = to;
    }
    pst_vec_fini(&from->nodes);
    pst_free(from);
    return PST_OK;
}

/* Joins the groups of two nodes if they fit together. */
static enum pst_status join(struct pst_chainer *c, size_t x, size_t y)
{
    struct pst_chain_group *a = c->items[x].group, *b = c->items[y].group;
    const struct pst_node *first, *second;
    struct pair p = {.c = c, .a = a, .b = b};
    size_t at = 0;

    if (a == NULL || b == NULL || a == b ||
        a->nodes.n + b->nodes.n > PST_CHAIN_PARTS ||
        (a->cols != 0 && b->cols != 0 && a->cols != b->cols))
        return PST_OK;
    first = c->items[x].as.node;
    second = c->items[y].as.node;
    p.shape = &first->outs[0]->meta;
    if (pst_list_of(c->program, first) != pst_list_of(c->program, second) ||
        !pst_meta_same_shape(p.shape, &second->outs[0]->meta) ||
        !find_place(&p, &at))
        return PST_OK;
    a->cols = PST_MAX(a->cols, b->cols);
    a->at = at;
    return move_nodes(c, a, b);
}

struct joining {
    struct pst_chainer *c;
    size_t at; /* the node */
    enum pst_status status;
};

static void join_maker(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct joining *j = ctx;

    (void)arg;
    if (j->status == PST_OK && (*slot)->def != NULL)
        j->status = join(j->c, j->c->maker[(*slot)->id], j->at);
}

/* Joins the node with earlier readers of this operand, if the operand has the
 * result's shape and no kernel outside of chains runs in between. */
static void join_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct joining *j = ctx;
    struct pst_chainer *c = j->c;
    const struct pst_chain_node *item = &c->items[j->at];
    const unsigned id = (*slot)->id;

    (void)arg;
    if (!pst_meta_same_shape(&(*slot)->meta, &item->as.node->outs[0]->meta))
        return;
    for (size_t i = c->first[id]; i < c->first[id + 1]; i++)
        if (j->status == PST_OK && c->readers[i] < j->at &&
            c->items[c->readers[i]].hard == item->hard)
            j->status = join(c, c->readers[i], j->at);
}

enum pst_status pst_chain_join(struct pst_chainer *c)
{
    struct joining j = {.c = c};

    for (j.at = 0; j.at < c->n; j.at++) {
        if (c->items[j.at].group == NULL)
            continue;
        pst_node_uses(c->items[j.at].as.node, join_maker, &j);
        pst_node_uses(c->items[j.at].as.node, join_reader, &j);
        if (j.status != PST_OK)
            break;
    }
    return j.status;
}

bool pst_chain_is_kept(struct pst_chainer *c,
                       const struct pst_chain_group *group,
                       const struct pst_value *value)
{
    struct pair p = {.c = c, .a = group, .b = group};

    return look_at_readers(&p, value);
}
