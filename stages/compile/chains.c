// SPDX-License-Identifier: Apache-2.0
/*
 * Joins elementwise nodes to chains (stages/ops/pointwise/chain.h).
 *
 * Groups of nodes of one list grow along values that one node makes and another
 * reads, and among neighbours that read the same value. A group takes the place
 * of one of its nodes: after all nodes whose results it reads, before all nodes
 * that read its own. Nodes are only moved past nodes outside of chains if no
 * more memory is held meanwhile.
 */
#include "stages/compile/chains.h"

#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#include <stdlib.h>

/* A node that can be part of a chain is in a group, at first alone. */
struct group {
    struct PST_VEC(unsigned) nodes; /* places in the graph's list, ascending */
    size_t at;                      /* place of the group */
    int64_t cols; /* length of the rows of an operand with rows; 0: none */
};

struct item {
    struct pst_chain_item as;
    struct group *group; /* NULL: no part of chains */
    unsigned hard;       /* number of other kernels before it */
    int64_t cols;
};

struct chainer {
    struct pst_program *program;
    struct pst_graph *graph;
    struct pst_diag *diag;
    struct item *items; /* by place in the graph's list */
    size_t n;
    size_t *maker; /* by value id: place of the node that makes it */
    /* Places of the nodes that read value i: readers[first[i]..first[i + 1]) */
    size_t *first, *readers;
    bool *leaves; /* by value id: it is read after the list */
    int64_t block;
    struct pst_chain_kept kept;
};

/* --- uses ----------------------------------------------------------------- */

struct counter {
    struct chainer *c;
    size_t at;
    bool store;
};

static void count_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counter *counter = ctx;
    struct chainer *c = counter->c;

    (void)arg;
    if (counter->store)
        c->readers[c->first[(*slot)->id + 1]++] = counter->at;
    else
        c->first[(*slot)->id + 2]++;
}

/* Fills first and readers. */
static enum pst_status find_readers(struct chainer *c)
{
    const size_t n = c->graph->values.n;
    struct counter counter = {.c = c};

    for (size_t i = 0; i < c->n; i++)
        pst_node_uses(c->graph->nodes.at[i], count_reader, &counter);
    for (size_t i = 2; i < n + 2; i++)
        c->first[i] += c->first[i - 1];
    c->readers =
        pst_calloc(PST_TAG_EXEC, c->first[n + 1] + 1, sizeof(*c->readers));
    if (c->readers == NULL)
        return pst_diag_nomem(c->diag, c->first[n + 1] * sizeof(size_t));
    counter.store = true;
    for (counter.at = 0; counter.at < c->n; counter.at++)
        pst_node_uses(c->graph->nodes.at[counter.at], count_reader, &counter);
    return PST_OK;
}

static void mark_leaves(struct chainer *c)
{
    const struct pst_joint *joint = c->program->joint;

    for (size_t i = 0; i < c->graph->outputs.n; i++)
        if (c->graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            c->leaves[c->graph->outputs.at[i].arg.value->id] = true;
    for (size_t i = 0; joint != NULL && i < joint->input_grads.n; i++)
        c->leaves[joint->input_grads.at[i].value->id] = true;
}

/* --- which nodes ---------------------------------------------------------- */

/* True if the value is the whole of its storage under another name. */
static bool is_alias(const struct pst_value *value)
{
    return value->base != NULL && value->offset == 0 &&
           pst_meta_same_layout(&value->meta, &value->base->meta);
}

static void skip_alias(void *ctx, struct pst_value **slot, unsigned arg)
{
    (void)ctx;
    (void)arg;
    if (is_alias(*slot) && (*slot)->base->kind == PST_VALUE_NODE)
        *slot = (*slot)->base;
}

bool pst_chain_strides(const struct pst_meta *out, const struct pst_meta *in,
                       struct pst_chain_strides *ret)
{
    const struct pst_meta *const metas[] = {out, in};
    struct pst_nd nd;

    pst_nd_init(&nd, 2, metas);
    if (nd.rank > 2)
        return false;
    ret->cols = nd.rank == 2 ? nd.size[1] : 0;
    ret->row = nd.stride[1][0];
    ret->col = nd.rank == 2 ? nd.stride[1][1] : 0;
    return true;
}

/* True if the operands of the call are whole tensors, numbers, or rows of one
 * length; sets *ret_cols to that length, 0: there are no rows. */
static bool operands_fit(const struct chainer *c, const struct pst_call *call,
                         int64_t *ret_cols)
{
    struct pst_chain_strides strides;

    *ret_cols = 0;
    /* Copies take any shape, in row-major order. */
    if (call->n_in == 1 &&
        !pst_meta_same_shape(call->in[0].meta, call->out[0].meta))
        return false;
    for (unsigned i = 0; i < call->n_in; i++) {
        if (call->in[i].meta == &pst_meta_absent || call->in[i].meta == NULL ||
            !pst_chain_strides(call->out[0].meta, call->in[i].meta, &strides))
            return false;
        if (strides.cols == 0)
            continue;
        if (strides.cols > 4 * c->block ||
            (*ret_cols != 0 && *ret_cols != strides.cols))
            return false;
        *ret_cols = strides.cols;
    }
    return true;
}

static bool reads_lists(const struct pst_node *node)
{
    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (node->args[i].kind == PST_ARG_VALUES)
            return true;
    return false;
}

/* True if a gradient or a buffer takes the value: other passes then choose its
 * location. */
static bool is_taken(const struct chainer *c, const struct pst_value *value)
{
    for (size_t i = 0; i < c->graph->outputs.n; i++)
        if (c->graph->outputs.at[i].kind != PST_OUTPUT_USER &&
            c->graph->outputs.at[i].arg.kind == PST_ARG_VALUE &&
            pst_value_storage(c->graph->outputs.at[i].arg.value) == value)
            return true;
    for (size_t i = c->first[value->id]; i < c->first[value->id + 1]; i++) {
        const struct pst_node *node = c->graph->nodes.at[c->readers[i]];

        if (pst_is_accumulate(node) ||
            (node->n_outs > 0 && node->outs[0]->base == value &&
             is_taken(c, node->outs[0])))
            return true;
    }
    return false;
}

static bool can_join(const struct chainer *c, const struct pst_node *node,
                     const struct pst_call *call,
                     const struct pst_kernel *kernel, int64_t *ret_cols)
{
    const struct pst_value *out = node->outs[0];

    return (kernel->flags & PST_K_ELEMENTWISE) != 0 &&
           kernel->scratch == NULL && node->n_outs == 1 && out->base == NULL &&
           call->n_in > 0 && call->n_in <= PST_CHAIN_OPERANDS &&
           !reads_lists(node) && pst_meta_is_contiguous(&out->meta) &&
           pst_meta_numel(&out->meta) >= 2 * c->block &&
           pst_list_of(c->program, node) != PST_LIST_P &&
           operands_fit(c, call, ret_cols) && !is_taken(c, out);
}

/* Sets items[at], and *hard to the number of other kernels so far. */
static enum pst_status add_item(struct chainer *c, size_t at, unsigned *hard)
{
    struct pst_node *node = c->graph->nodes.at[at];
    struct item *item = &c->items[at];
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    enum pst_status status = pst_node_kernel(node, &c->program->options, &call,
                                             &item->as.kernel, c->diag);

    item->hard = *hard;
    item->as.node = node;
    item->as.owner = call.owner;
    for (unsigned k = 0; k < node->n_outs; k++)
        c->maker[node->outs[k]->id] = at;
    if (status != PST_OK || item->as.kernel == NULL)
        return status;
    if (!can_join(c, node, &call, item->as.kernel, &item->cols)) {
        ++*hard;
        return PST_OK;
    }
    item->group = pst_calloc(PST_TAG_EXEC, 1, sizeof(*item->group));
    if (item->group == NULL ||
        !pst_vec_push(PST_TAG_EXEC, &item->group->nodes, (unsigned)at)) {
        pst_free(item->group);
        item->group = NULL;
        return pst_diag_nomem(c->diag, sizeof(*item->group));
    }
    item->group->at = at;
    item->group->cols = item->cols;
    return PST_OK;
}

/* --- groups --------------------------------------------------------------- */

/* Place of a node, or of its group. */
static size_t place_of(const struct chainer *c, size_t node)
{
    const struct item *item = &c->items[node];

    return item->group != NULL ? item->group->at : node;
}

/* Two groups, and where one of both could be. */
struct pair {
    struct chainer *c;
    const struct group *a, *b;
    size_t low, high; /* the place is between both, exclusive */
    unsigned whole;   /* tensors of full size that a node reads from outside */
    const struct pst_meta *shape;
};

static bool is_inside(const struct pair *p, size_t node)
{
    const struct group *group = p->c->items[node].group;

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

/* True if a node outside of both groups reads the value. */
static bool look_at_readers(struct pair *p, const struct pst_value *value)
{
    const struct chainer *c = p->c;
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

/* True if moving the node to the place does not hold more memory. */
static bool may_move(struct pair *p, size_t node, size_t to)
{
    const struct item *items = p->c->items;

    if (items[node].hard == items[to].hard)
        return true;
    p->whole = 0;
    pst_node_uses(items[node].as.node, look_at_operand, p);
    return node < to ? p->whole <= 1
                     : !look_at_readers(p, items[node].as.node->outs[0]);
}

/* Finds the place of both groups as one; false: there is none. */
static bool find_place(struct pair *p, size_t *ret)
{
    const struct group *const both[] = {p->a, p->b};
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
static enum pst_status move_nodes(struct chainer *c, struct group *to,
                                  struct group *from)
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

/* Makes one group of those of two nodes, if they fit together. */
static enum pst_status join(struct chainer *c, size_t x, size_t y)
{
    struct group *a = c->items[x].group, *b = c->items[y].group;
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
    struct chainer *c;
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

/* Joins a neighbour that reads the same tensor of full size. */
static void join_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct joining *j = ctx;
    struct chainer *c = j->c;
    const struct item *item = &c->items[j->at];
    const unsigned id = (*slot)->id;

    (void)arg;
    if (!pst_meta_same_shape(&(*slot)->meta, &item->as.node->outs[0]->meta))
        return;
    for (size_t i = c->first[id]; i < c->first[id + 1]; i++)
        if (j->status == PST_OK && c->readers[i] < j->at &&
            c->items[c->readers[i]].hard == item->hard)
            j->status = join(c, c->readers[i], j->at);
}

static enum pst_status join_all(struct chainer *c)
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

/* --- the graph ------------------------------------------------------------ */

/* Marks the results of a group that something else reads. */
static void mark_kept(struct chainer *c, const struct group *group)
{
    struct pair p = {.c = c, .a = group, .b = group};

    for (size_t i = 0; i < group->nodes.n; i++) {
        const struct pst_node *node = c->items[group->nodes.at[i]].as.node;

        c->kept.is[i] = look_at_readers(&p, node->outs[0]);
    }
}

static enum pst_status make_chain(struct chainer *c, struct group *group,
                                  struct pst_node **ret)
{
    const struct pst_chain_item *items[PST_CHAIN_PARTS];
    const struct pst_chain_spec spec = {.items = items,
                                        .n = (unsigned)group->nodes.n,
                                        .kept = &c->kept,
                                        .cols = group->cols,
                                        .block = c->block};

    for (unsigned i = 0; i < spec.n; i++)
        items[i] = &c->items[group->nodes.at[i]].as;
    mark_kept(c, group);
    return pst_chain_make(c->program, &spec, ret, c->diag);
}

/* Replaces the nodes of groups by chains, and drops aliases that nothing
 * reads. */
static enum pst_status rebuild(struct chainer *c)
{
    struct pst_node **old = c->graph->nodes.at;
    enum pst_status status = PST_OK;

    c->graph->nodes.at = NULL;
    c->graph->nodes.n = c->graph->nodes.cap = 0;
    for (size_t i = 0; i < c->n && status == PST_OK; i++) {
        struct pst_node *node = old[i];
        struct group *group = c->items[i].group;

        if (group != NULL && group->nodes.n > 1) {
            if (group->at != i)
                continue;
            status = make_chain(c, group, &node);
        }
        if (status == PST_OK &&
            !pst_vec_push(PST_TAG_GRAPH, &c->graph->nodes, node))
            status = pst_diag_nomem(c->diag, sizeof(node));
    }
    pst_free(old);
    return status;
}

/* Lets readers of an alias read its storage, and drops the alias. */
static void drop_aliases(struct chainer *c)
{
    struct pst_graph *graph = c->graph;
    size_t n = 0;

    for (size_t i = 0; i < graph->nodes.n; i++)
        pst_node_uses(graph->nodes.at[i], skip_alias, NULL);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        if (node->n_outs == 1 && is_alias(node->outs[0]) &&
            node->outs[0]->base->kind == PST_VALUE_NODE &&
            !c->leaves[node->outs[0]->id])
            node->outs[0]->def = NULL;
        else
            graph->nodes.at[n++] = node;
    }
    graph->nodes.n = n;
}

static bool has_own_kernel(const struct pst_device *device)
{
    struct pst_device own = *device;

    own.fallback = NULL;
    return pst_op_kernels(&own, &pst_op_chain).n > 0;
}

static enum pst_status chainer_init(struct chainer *c)
{
    const size_t n = c->graph->values.n;

    c->items =
        pst_calloc(PST_TAG_EXEC, c->graph->nodes.n + 1, sizeof(*c->items));
    c->maker = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*c->maker));
    c->first = pst_calloc(PST_TAG_EXEC, n + 2, sizeof(*c->first));
    c->leaves = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*c->leaves));
    if (c->items == NULL || c->maker == NULL || c->first == NULL ||
        c->leaves == NULL)
        return pst_diag_nomem(c->diag, n * sizeof(size_t));
    mark_leaves(c);
    drop_aliases(c);
    c->n = c->graph->nodes.n;
    return find_readers(c);
}

static void chainer_fini(struct chainer *c)
{
    for (size_t i = 0; c->items != NULL && i < c->n; i++) {
        struct group *group = c->items[i].group;

        if (group != NULL && group->nodes.at[group->nodes.n - 1] == i) {
            pst_vec_fini(&group->nodes);
            pst_free(group);
        }
    }
    pst_free(c->items);
    pst_free(c->maker);
    pst_free(c->first);
    pst_free(c->readers);
    pst_free(c->leaves);
}

/* PST_CHAIN_BLOCK=N is for tests, whose models are small. */
static int64_t block_of(const struct pst_program_options *options)
{
    const char *text = getenv("PST_CHAIN_BLOCK");
    const int64_t n = text != NULL ? strtoll(text, NULL, 10) : 0;

    return n > 0                      ? n
           : options->chain_block > 0 ? options->chain_block
                                      : PST_CHAIN_BLOCK;
}

enum pst_status pst_pass_chains(struct pst_compiler *compiler,
                                struct pst_diag *diag)
{
    struct pst_program *p = compiler->p;
    struct chainer c = {.program = p,
                        .graph = p->graph,
                        .diag = diag,
                        .block = block_of(&p->options)};
    unsigned hard = 0;
    enum pst_status status;

    if (p->options.no_chains || !has_own_kernel(p->options.device))
        return PST_OK;
    status = chainer_init(&c);
    for (size_t i = 0; i < c.n && status == PST_OK; i++)
        status = add_item(&c, i, &hard);
    if (status == PST_OK)
        status = join_all(&c);
    if (status == PST_OK)
        status = rebuild(&c);
    chainer_fini(&c);
    return status;
}
