// SPDX-License-Identifier: Apache-2.0
/* Replaces heads of language models by one operator. */
#include "stages/passes/heads.h"

#include "stages/graph/build.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/heads_read.h"
#include "stages/passes/rewrite.h"

#include <string.h>

#define TAG PST_TAG_GRAPH

struct folder {
    struct pst_graph *graph;
    const struct pst_heads *heads;
    /* by head: its linear layer, loss, and z or NULL */
    struct parts {
        struct pst_node *linear, *loss, *z;
    } * parts;
    struct pst_build build;
    size_t place; /* index of the current node */
    /* late: nodes that depend on a loss or z whose head is not yet folded, in
     * order; from_late: by value id, results of such a loss, z or node. */
    struct PST_VEC(struct pst_node *) late;
    bool *from_late;
};

/* Applies to x the slices and views that lie between the linear layer and the
 * value; views keep x's last dimension. */
static struct pst_value *replay_views(struct folder *f,
                                      const struct pst_value *value,
                                      const struct pst_node *linear,
                                      struct pst_value *x)
{
    const struct pst_node *node = value->def;
    int64_t size[PST_MAX_RANK];

    if (node == linear)
        return x;
    x = replay_views(f, node->args[0].value, linear, x);
    if (x == NULL || pst_head_factor(node) != 0.0 || node->op == &pst_op_tanh ||
        pst_head_is_upcast(node))
        return x;
    if (node->op == &pst_op_slice_Tensor)
        return pst_emit(&f->build, &pst_op_slice_Tensor,
                        PST_ARGS(pst_v(x), node->args[1], node->args[2],
                                 node->args[3], node->args[4]));
    if (value->meta.rank == x->meta.rank &&
        memcmp(value->meta.size, x->meta.size,
               (x->meta.rank - 1) * sizeof(size[0])) == 0)
        return x;
    for (unsigned d = 0; d < value->meta.rank; d++)
        size[d] = value->meta.size[d];
    size[value->meta.rank - 1] = pst_head_last_size(x);
    return pst_emit(&f->build, &pst_op_reshape,
                    PST_ARGS(pst_v(x), pst_ints(size, value->meta.rank)));
}

/* Makes the first result of `old` result k of `node`, which replaces `old`. */
static void replace_result(struct pst_node *node, unsigned k,
                           struct pst_node *old)
{
    node->outs[k]->def = NULL;
    node->outs[k] = old->outs[0];
    node->outs[k]->def = node;
    node->outs[k]->def_index = k;
    for (unsigned i = 1; i < old->n_outs; i++)
        old->outs[i]->def = NULL;
}

static enum pst_status fold_head(struct folder *f,
                                 const struct pst_head_found *head,
                                 const struct parts *parts)
{
    const struct pst_node *linear = parts->linear;
    struct pst_node *old = parts->loss;
    struct pst_head_z z = {0};
    struct pst_head_layer layer;
    struct pst_arg low = pst_none();
    struct pst_value *x;
    struct pst_node *node;
    struct pst_head_loss loss;

    (void)pst_head_read_loss(old, &loss);
    (void)pst_head_read_layer(linear, &layer);
    if (parts->z != NULL)
        (void)pst_head_read_z(parts->z, NULL, NULL, &z);
    pst_build_at(&f->build, old);
    f->build.call = linear->call; /* most of the head's time is its matmul */
    f->build.node_id = UINT32_MAX;
    x = replay_views(f, loss.logits, linear, layer.x);
    if (x != NULL && layer.dtype != PST_F32) {
        x = pst_emit(&f->build, &pst_op__to_copy,
                     PST_ARGS(pst_v(x), pst_dtype_arg(PST_F32)));
        low = pst_dtype_arg(layer.dtype);
    }
    f->build.node_id = old->id;
    node =
        pst_emit_node(&f->build, &pst_op_linear_cross_entropy,
                      PST_ARGS(pst_v(x), pst_v(layer.weight), pst_v(layer.bias),
                               loss.target, pst_v(z.mask), pst_f(head->scale),
                               pst_f(head->cap), loss.reduction, loss.ignore,
                               loss.smoothing, pst_i(z.reduction), low));
    if (node != NULL)
        replace_result(node, 0, old);
    if (node != NULL && parts->z != NULL)
        replace_result(node, 1, parts->z);
    return f->build.status;
}

static enum pst_status push_node(struct folder *f, struct pst_node *node)
{
    return pst_vec_push(TAG, &f->graph->nodes, node)
               ? PST_OK
               : pst_diag_nomem(f->build.diag, sizeof(struct pst_node *));
}

static void set_late(struct folder *f, const struct pst_node *node, bool late)
{
    for (unsigned k = 0; k < node->n_outs; k++)
        f->from_late[node->outs[k]->id] = late;
}

/* Appends the nodes that had to wait for a head that is now folded. */
static enum pst_status push_late(struct folder *f)
{
    enum pst_status status = PST_OK;
    size_t kept = 0;

    for (size_t i = 0; i < f->late.n && status == PST_OK; i++) {
        struct pst_node *node = f->late.at[i];

        if (pst_head_reads_any(node, f->from_late)) {
            f->late.at[kept++] = node;
            continue;
        }
        set_late(f, node, false);
        status = push_node(f, node);
    }
    f->late.n = kept;
    return status;
}

static enum pst_status fold_node(void *ctx, struct pst_node *node)
{
    struct folder *f = ctx;
    const size_t at = f->place++;

    for (size_t k = 0; k < f->heads->list.n; k++) {
        const struct pst_head_found *head = &f->heads->list.at[k];
        const struct parts *parts = &f->parts[k];
        enum pst_status status;

        if (at != head->loss && at != head->z)
            continue;
        if (at != head->last) {
            f->from_late[node->outs[0]->id] = true;
            return PST_OK;
        }
        status = fold_head(f, head, parts);
        f->from_late[parts->loss->outs[0]->id] = false;
        if (parts->z != NULL)
            f->from_late[parts->z->outs[0]->id] = false;
        return status == PST_OK ? push_late(f) : status;
    }
    if (!pst_head_reads_any(node, f->from_late))
        return push_node(f, node);
    set_late(f, node, true);
    return pst_vec_push(TAG, &f->late, node)
               ? PST_OK
               : pst_diag_nomem(f->build.diag, sizeof(struct pst_node *));
}

enum pst_status pst_heads_fold(struct pst_graph *graph,
                               const struct pst_heads *heads,
                               struct pst_diag *diag)
{
    const size_t n = heads->list.n;
    struct folder f = {.graph = graph, .heads = heads};
    enum pst_status status;

    f.parts = pst_calloc(TAG, n + 1, sizeof(*f.parts));
    f.from_late = pst_calloc(TAG, graph->values.n + 1, sizeof(bool));
    if (f.parts == NULL || f.from_late == NULL) {
        pst_free(f.parts);
        pst_free(f.from_late);
        return pst_diag_nomem(diag, graph->values.n);
    }
    for (size_t k = 0; k < n; k++) {
        const struct pst_head_found *head = &heads->list.at[k];

        f.parts[k] = (struct parts){
            graph->nodes.at[head->linear], graph->nodes.at[head->loss],
            head->z == PST_HEAD_NO_Z ? NULL : graph->nodes.at[head->z]};
    }
    pst_build_init(&f.build, graph, diag);
    status = pst_graph_rewrite(graph, fold_node, &f);
    pst_vec_fini(&f.late);
    pst_free(f.parts);
    pst_free(f.from_late);
    return status;
}
