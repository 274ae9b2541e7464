// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps fewer values for the backward: chains of the backward that read the
 * result of a cheap elementwise node of the forward compute it again, block by
 * block. This is done only if the node's operands are kept anyway or are small,
 * so that it saves memory and costs no more than the reads that it saves. If
 * the group of a copy is too short for a chain, the copy is a node of its own:
 * that saves the memory, but not the time.
 */
#include "stages/compile/chains/chains.h"
#include "stages/passes/rewrite.h"

/* An operand may be kept for computing a value again if it has at most 1 /
 * SMALL_SHARE of the value's bytes. */
#define SMALL_SHARE 8

struct recomputer {
    struct pst_program *program;
    struct pst_build build;
    const bool *can, *leaves;
    size_t n_values; /* number of values before the pass */
    /* by value id: bits of the lists that read it; a storage also has those of
     * its views */
    unsigned *lists;
    bool *parts; /* by value id: all backward readers can be parts */
    bool *again; /* by value id: the backward computes it again */
    /* by value id and list: the value computed again, or NULL */
    struct pst_value *(*copies)[PST_N_LISTS];
    size_t at;          /* the current node */
    enum pst_list list; /* its list */
};

#define BACKWARD (1u << PST_LIST_B | 1u << PST_LIST_W)

static void note_read(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct recomputer *r = ctx;
    const struct pst_node *node = r->program->graph->nodes.at[r->at];
    const bool runs = pst_node_executes(node) || pst_is_accumulate(node);

    (void)arg;
    if (runs) {
        r->lists[(*slot)->id] |= 1u << r->list;
        r->lists[pst_value_storage(*slot)->id] |= 1u << r->list;
    }
    if (!runs || (r->list != PST_LIST_F && !r->can[r->at]) ||
        (r->list != PST_LIST_F &&
         !pst_meta_same_shape(&(*slot)->meta, &node->outs[0]->meta)))
        r->parts[(*slot)->id] = false;
}

/* True if the operand exists wherever the backward reads `value`, or is small
 * enough to be kept for that. */
static bool is_there(const struct recomputer *r, struct pst_value *operand,
                     const struct pst_value *value)
{
    const struct pst_program *p = r->program;
    const struct pst_value *storage = pst_value_storage(operand);
    const unsigned wanted = r->lists[value->id] & BACKWARD;

    if (r->again[storage->id])
        return storage == operand && (wanted & ~r->lists[operand->id]) == 0;
    if (pst_is_constant(p, operand))
        return true;
    if (storage->kind == PST_VALUE_PARAM)
        return !p->options.params_on_demand || !storage->requires_grad;
    if (storage->kind != PST_VALUE_NODE && storage->kind != PST_VALUE_INPUT)
        return false;
    return (wanted & ~r->lists[storage->id]) == 0 ||
           pst_meta_bytes(&storage->meta) * SMALL_SHARE <=
               pst_meta_bytes(&value->meta);
}

struct operands {
    const struct recomputer *r;
    const struct pst_value *value;
    bool all;
};

static void check_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct operands *o = ctx;

    (void)arg;
    o->all = o->all && is_there(o->r, *slot, o->value);
}

/* True if the backward may compute the node's result again: the node is cheap,
 * and its operands exist there. */
static bool is_cheap(const struct recomputer *r, size_t at)
{
    struct pst_node *node = r->program->graph->nodes.at[at];
    const struct pst_value *out = node->n_outs > 0 ? node->outs[0] : NULL;
    struct operands o = {r, out, true};

    if (!r->can[at] || (node->op->flags & PST_OP_CHEAP) == 0 ||
        pst_list_of(r->program, node) != PST_LIST_F || r->leaves[out->id] ||
        !r->parts[out->id] || (r->lists[out->id] & BACKWARD) == 0)
        return false;
    pst_node_uses(node, check_operand, &o);
    return o.all;
}

static bool find_cheap(struct recomputer *r)
{
    const struct pst_graph *graph = r->program->graph;
    bool any = false;

    for (size_t i = 0; i < r->n_values; i++)
        r->parts[i] = true;
    for (r->at = 0; r->at < graph->nodes.n; r->at++) {
        r->list = pst_list_of(r->program, graph->nodes.at[r->at]);
        pst_node_uses(graph->nodes.at[r->at], note_read, r);
    }
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (is_cheap(r, i)) {
            r->again[graph->nodes.at[i]->outs[0]->id] = true;
            any = true;
        }
    return any;
}

/* --- copies --------------------------------------------------------------- */

/* Emits the copy of a value for the current list. Does nothing if there is one,
 * or if an operand's copy is missing. */
static void copy_value(struct recomputer *r, const struct pst_value *value,
                       enum pst_phase phase)
{
    const struct pst_node *node = value->def;
    struct pst_arg args[8];
    struct pst_value *copy;

    if (r->copies[value->id][r->list] != NULL ||
        node->schema->n_args > PST_COUNT(args))
        return;
    for (unsigned i = 0; i < node->schema->n_args; i++) {
        args[i] = node->args[i];
        if (args[i].kind == PST_ARG_VALUE && r->again[args[i].value->id])
            args[i].value = r->copies[args[i].value->id][r->list];
        if (args[i].kind == PST_ARG_VALUE && args[i].value == NULL)
            return;
    }
    pst_build_like(&r->build, node);
    r->build.phase = phase;
    r->build.prefix = value->name;
    copy = pst_emit(&r->build, node->op, args, node->schema->n_args);
    if (copy == NULL)
        return;
    copy->def->stage = node->stage;
    r->copies[value->id][r->list] = copy;
}

/* A node of the backward that reads values. */
struct reading {
    struct recomputer *r;
    const struct pst_node *node;
};

/* Makes the copies of operands before that of the value itself. */
static void copy_operands(struct recomputer *r, const struct pst_value *value,
                          const struct pst_node *reader, unsigned depth)
{
    const struct pst_node *node = value->def;

    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (node->args[i].kind == PST_ARG_VALUE && depth < PST_CHAIN_PARTS &&
            node->args[i].value->id < r->n_values &&
            r->again[node->args[i].value->id])
            copy_operands(r, node->args[i].value, reader, depth + 1);
    copy_value(r, value, reader->phase);
}

static void use_copy(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct reading *reading = ctx;
    struct recomputer *r = reading->r;
    const struct pst_value *value = *slot;

    (void)arg;
    if (value->id >= r->n_values || !r->again[value->id])
        return;
    copy_operands(r, value, reading->node, 0);
    if (r->copies[value->id][r->list] != NULL)
        *slot = r->copies[value->id][r->list];
}

static enum pst_status rewrite_reader(void *ctx, struct pst_node *node)
{
    struct recomputer *r = ctx;
    struct reading reading = {r, node};

    r->list = pst_list_of(r->program, node);
    if (r->list == PST_LIST_B || r->list == PST_LIST_W)
        pst_node_uses(node, use_copy, &reading);
    if (r->build.status != PST_OK)
        return r->build.status;
    return pst_vec_push(PST_TAG_GRAPH, &r->program->graph->nodes, node)
               ? PST_OK
               : pst_diag_nomem(r->build.diag, sizeof(node));
}

enum pst_status pst_chain_recompute(struct pst_program *p, const bool *can,
                                    const bool *leaves, struct pst_diag *diag)
{
    const size_t n = p->graph->values.n;
    struct recomputer r = {
        .program = p,
        .can = can,
        .leaves = leaves,
        .n_values = n,
        .lists = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*r.lists)),
        .parts = pst_calloc(PST_TAG_EXEC, n + 1, 1),
        .again = pst_calloc(PST_TAG_EXEC, n + 1, 1),
        .copies = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*r.copies))};
    enum pst_status status = PST_OK;

    pst_build_init(&r.build, p->graph, diag);
    if (r.lists == NULL || r.parts == NULL || r.again == NULL ||
        r.copies == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*r.copies));
    else if (find_cheap(&r))
        status = pst_graph_rewrite(p->graph, rewrite_reader, &r);
    pst_free(r.lists);
    pst_free(r.parts);
    pst_free(r.again);
    pst_free(r.copies);
    return status;
}
