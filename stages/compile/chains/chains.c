// SPDX-License-Identifier: Apache-2.0
/* The pass: finds the nodes that can be parts of chains, and puts chains into
 * the graph. */
#include "stages/compile/chains/chains.h"

#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#include <stdlib.h>

/* Shorter chains save too little: with two nodes, silu and mul, a step of a
 * Llama took 2 % longer than without. */
#define LEAST_NODES 4

/* --- uses ----------------------------------------------------------------- */

struct counter {
    struct pst_chainer *c;
    size_t at;
    bool store;
};

static void count_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counter *counter = ctx;
    struct pst_chainer *c = counter->c;

    (void)arg;
    if (counter->store)
        c->readers[c->first[(*slot)->id + 1]++] = counter->at;
    else
        c->first[(*slot)->id + 2]++;
}

/* Fills first and readers. */
static enum pst_status find_readers(struct pst_chainer *c)
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

static void mark_leaves(struct pst_chainer *c)
{
    const struct pst_joint *joint = c->program->joint;

    for (size_t i = 0; i < c->graph->outputs.n; i++)
        if (c->graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            c->leaves[c->graph->outputs.at[i].arg.value->id] = true;
    for (size_t i = 0; joint != NULL && i < joint->input_grads.n; i++)
        c->leaves[joint->input_grads.at[i].value->id] = true;
}

/* --- which nodes ---------------------------------------------------------- */

/* True if the value is a view of its whole storage, with the same layout. */
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

/* True if the kernel can read each operand of the call with one stride (a whole
 * tensor, a number) or by rows, all of the same length; sets *ret_cols to that
 * length, 0: no operand has rows. */
static bool operands_fit(const struct pst_chainer *c,
                         const struct pst_call *call, int64_t *ret_cols)
{
    struct pst_chain_strides strides;

    *ret_cols = 0;
    /* A copy may have an operand of another shape, which chains cannot read. */
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

/* True if the value, or a view of it, is added to a gradient or is an output
 * other than a user output (a buffer's new content): other passes then choose
 * its location. */
static bool is_taken(const struct pst_chainer *c, const struct pst_value *value)
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

static bool can_join(const struct pst_chainer *c, const struct pst_node *node,
                     const struct pst_call *call,
                     const struct pst_kernel *kernel, int64_t *ret_cols)
{
    const struct pst_value *out = node->outs[0];
    const struct pst_device *device = c->program->options.device;

    return (kernel->flags & PST_K_ELEMENTWISE) != 0 &&
           kernel->scratch == NULL && node->n_outs == 1 && out->base == NULL &&
           call->n_in > 0 && call->n_in <= PST_CHAIN_OPERANDS &&
           !reads_lists(node) && pst_meta_is_contiguous(&out->meta) &&
           pst_meta_numel(&out->meta) >= 2 * c->block &&
           pst_list_of(c->program, node) != PST_LIST_P &&
           operands_fit(c, call, ret_cols) && !is_taken(c, out) &&
           (device->joins == NULL || device->joins(kernel, call));
}

/* Fills items[at]. Increments *hard if the node has a kernel but cannot be part
 * of a chain. */
static enum pst_status add_item(struct pst_chainer *c, size_t at,
                                unsigned *hard)
{
    struct pst_node *node = c->graph->nodes.at[at];
    struct pst_chain_node *item = &c->items[at];
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

/* --- the graph ------------------------------------------------------------ */

/* Marks the results of a group that are read outside of it. */
static void mark_kept(struct pst_chainer *c,
                      const struct pst_chain_group *group)
{
    for (size_t i = 0; i < group->nodes.n; i++)
        c->kept.is[i] = pst_chain_is_kept(
            c, group, c->items[group->nodes.at[i]].as.node->outs[0]);
}

static enum pst_status make_chain(struct pst_chainer *c,
                                  struct pst_chain_group *group,
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

/* Replaces groups of at least LEAST_NODES nodes by chains. */
static enum pst_status rebuild(struct pst_chainer *c)
{
    struct pst_node **old = c->graph->nodes.at;
    enum pst_status status = PST_OK;

    c->graph->nodes.at = NULL;
    c->graph->nodes.n = c->graph->nodes.cap = 0;
    for (size_t i = 0; i < c->n && status == PST_OK; i++) {
        struct pst_node *node = old[i];
        struct pst_chain_group *group = c->items[i].group;

        if (group != NULL && group->nodes.n >= LEAST_NODES) {
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

/* Makes readers of an alias read its storage, and removes the alias. */
static void drop_aliases(struct pst_chainer *c)
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

static enum pst_status chainer_init(struct pst_chainer *c)
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

static void chainer_fini(struct pst_chainer *c)
{
    for (size_t i = 0; c->items != NULL && i < c->n; i++) {
        struct pst_chain_group *group = c->items[i].group;

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
    c->items = NULL;
    c->maker = c->first = c->readers = NULL;
    c->leaves = NULL;
    c->n = 0;
}

/* Finds the nodes that can be parts of chains. */
static enum pst_status find_items(struct pst_chainer *c)
{
    enum pst_status status = chainer_init(c);
    unsigned hard = 0;

    for (size_t i = 0; i < c->n && status == PST_OK; i++)
        status = add_item(c, i, &hard);
    return status;
}

static enum pst_status recompute(const struct pst_chainer *c)
{
    bool *can = pst_calloc(PST_TAG_EXEC, c->n + 1, 1);
    enum pst_status status;

    if (can == NULL)
        return pst_diag_nomem(c->diag, c->n);
    for (size_t i = 0; i < c->n; i++)
        can[i] = c->items[i].group != NULL;
    status = pst_chain_recompute(c->program, can, c->leaves, c->diag);
    pst_free(can);
    return status;
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
    struct pst_chainer c = {.program = p,
                            .graph = p->graph,
                            .diag = diag,
                            .block = block_of(&p->options)};
    enum pst_status status;

    if (p->options.no_chains || !has_own_kernel(p->options.device))
        return PST_OK;
    status = find_items(&c);
    if (status == PST_OK && p->joint != NULL) {
        status = recompute(&c);
        chainer_fini(&c);
        if (status == PST_OK)
            status = find_items(&c);
    }
    if (status == PST_OK)
        status = pst_chain_join(&c);
    if (status == PST_OK)
        status = rebuild(&c);
    chainer_fini(&c);
    return status;
}
