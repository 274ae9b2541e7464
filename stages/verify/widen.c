// SPDX-License-Identifier: Apache-2.0
#include "stages/verify/widen.h"

#include "stages/ops/core/rows.h"
#include "stages/passes/replay.h"

/* True if the node passes values but no gradients: torch.no_grad(), detach. */
static bool blocks_gradient(const struct pst_node *node)
{
    return node->n_outs > 0 &&
           pst_dtype_kind(node->outs[0]->meta.dtype) == PST_KIND_FLOAT &&
           (node->no_grad || node->op->vjp == pst_vjp_none);
}

/* Returns the row of an embedding that has no gradient in PyTorch
 * (padding_idx); -1: none. */
static int64_t padding_of(const struct pst_node *node)
{
    if (node->op != &pst_op_embedding)
        return -1;
    return node->args[2].i;
}

/* Adds a graph input that holds a contiguous copy of the values in `data`,
 * which have the meta `from`. */
static struct pst_value *add_frozen(struct pst_replay *replay,
                                    struct pst_frozen *frozen, const char *name,
                                    const struct pst_meta *from,
                                    const void *data)
{
    struct pst_meta meta = *from;
    struct pst_frozen_value f;

    pst_meta_set_contiguous(&meta);
    f.value = pst_graph_add_value(replay->build.graph, PST_VALUE_INPUT, name,
                                  NULL, &meta);
    f.data = pst_arena_alloc(frozen->arena, pst_meta_bytes(&meta) + 1);
    if (f.value == NULL || f.data == NULL ||
        !pst_vec_push(PST_TAG_EXEC, &frozen->values, f)) {
        pst_diag_nomem(replay->build.diag, pst_meta_bytes(&meta));
        return NULL;
    }
    pst_copy_strided(from, data, &meta, f.data);
    return f.value;
}

/* Copies the node so that it reads a table whose padding row has the values at
 * the original parameters. */
static enum pst_status freeze_padding(struct pst_replay *replay,
                                      struct pst_frozen *frozen,
                                      const struct pst_node *node)
{
    const struct pst_value *table = node->args[0].value;
    struct pst_value **copy = &replay->map[table->id], *whole = *copy, *row;
    const struct pst_value *old = pst_graph_find(frozen->from, table->name);
    const int64_t padding = padding_of(node);
    struct pst_meta meta = {.rank = 1};
    const char *data;
    enum pst_status status;

    if (old == NULL || padding >= old->meta.size[0])
        return pst_diag_set(replay->build.diag, PST_E_INTERNAL_BUG,
                            "no row %lld in %s", (long long)padding,
                            table->name);
    meta.dtype = old->meta.dtype;
    meta.size[0] = old->meta.size[1];
    meta.stride[0] = old->meta.stride[1];
    data = (const char *)pst_eval_get(frozen->eval, old) +
           padding * old->meta.stride[0] * (int64_t)pst_dtype_size(meta.dtype);
    row = add_frozen(replay, frozen, "padding_row", &meta, data);
    if (row == NULL)
        return replay->build.diag->status;
    replay->build.node_id = UINT32_MAX;
    *copy =
        pst_emit(&replay->build, &pst_op_select_scatter,
                 PST_ARGS(pst_v(whole), pst_v(row), pst_i(0), pst_i(padding)));
    status =
        *copy == NULL ? replay->build.status : pst_replay_node(replay, node);
    *copy = whole;
    return status;
}

/* Replaces the node's results by inputs, with the results' values in
 * frozen->eval. */
static enum pst_status freeze_results(struct pst_replay *replay,
                                      struct pst_frozen *frozen,
                                      const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *value =
            pst_graph_find(frozen->from, node->outs[k]->name);
        struct pst_value *copy;

        if (value == NULL)
            return pst_diag_set(replay->build.diag, PST_E_INTERNAL_BUG,
                                "no value %s", node->outs[k]->name);
        copy = add_frozen(replay, frozen, value->name, &value->meta,
                          pst_eval_get(frozen->eval, value));
        if (copy == NULL)
            return replay->build.diag->status;
        replay->map[node->outs[k]->id] = copy;
    }
    return PST_OK;
}

static enum pst_status widen_node(struct pst_replay *replay,
                                  struct pst_frozen *frozen,
                                  const struct pst_node *node)
{
    if (frozen != NULL && blocks_gradient(node))
        return freeze_results(replay, frozen, node);
    if (frozen != NULL && padding_of(node) >= 0)
        return freeze_padding(replay, frozen, node);
    return pst_replay_node(replay, node);
}

bool pst_widen_freezes(const struct pst_node *node)
{
    return blocks_gradient(node) || padding_of(node) >= 0;
}

static enum pst_status copy_widened(struct pst_replay *replay,
                                    struct pst_frozen *frozen,
                                    const struct pst_graph *from)
{
    struct pst_graph *to = replay->build.graph;
    struct pst_diag *diag = replay->build.diag;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < from->values.n; i++) {
        const struct pst_value *value = from->values.at[i];
        struct pst_meta meta = value->meta;
        struct pst_value *copy;

        if (value->kind == PST_VALUE_NODE)
            continue;
        meta.dtype = pst_replay_dtype(replay, meta.dtype);
        copy = pst_graph_add_value(to, value->kind, value->name, value->fqn,
                                   &meta);
        if (copy == NULL)
            return pst_diag_nomem(diag, sizeof(*copy));
        copy->requires_grad = value->requires_grad;
        replay->map[i] = copy;
    }
    for (size_t i = 0; i < from->nodes.n && status == PST_OK; i++)
        status = widen_node(replay, frozen, from->nodes.at[i]);
    for (size_t i = 0; i < from->outputs.n && status == PST_OK; i++) {
        struct pst_output output = from->outputs.at[i];

        output.arg = pst_v(replay->map[output.arg.value->id]);
        if (output.target != NULL)
            output.target = replay->map[output.target->id];
        status = pst_graph_add_output(to, &output, diag);
    }
    return status;
}

enum pst_status pst_widen(const struct pst_graph *from,
                          struct pst_frozen *frozen, struct pst_graph **ret,
                          struct pst_diag *diag)
{
    struct pst_replay replay = {.widen = true};
    struct pst_graph *graph;
    enum pst_status status = pst_graph_new(&graph, diag);

    if (status != PST_OK)
        return status;
    pst_build_init(&replay.build, graph, diag);
    replay.map = pst_arena_calloc(&graph->arena, from->values.n + 1,
                                  sizeof(struct pst_value *));
    status = replay.map == NULL ? pst_diag_nomem(diag, from->values.n)
                                : copy_widened(&replay, frozen, from);
    if (status == PST_OK)
        *ret = graph;
    else
        pst_graph_free(graph);
    return status;
}
