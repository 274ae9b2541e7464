// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/heads.h"

#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/heads_read.h"

#include <math.h>

#define TAG PST_TAG_GRAPH

/* True if penstock.linear_cross_entropy can compute the loss: a sum or mean, in
 * f32, over rows of logits, of class indices without class weights. */
static bool is_supported_loss(const struct pst_node *node,
                              const struct pst_head_loss *loss)
{
    const struct pst_meta *x = &loss->logits->meta;

    return !node->no_grad && x->rank == 2 &&
           node->outs[0]->meta.dtype == PST_F32 &&
           (x->dtype == PST_F32 || pst_head_is_low(x->dtype)) &&
           x->size[1] >= PST_HEAD_CLASSES && !loss->has_weights &&
           pst_dtype_kind(loss->target.value->meta.dtype) == PST_KIND_INT &&
           (loss->reduction.i == PST_HEAD_MEAN ||
            loss->reduction.i == PST_HEAD_SUM);
}

/* --- between the linear layer and the loss -------------------------------- */

/* True for a view with the same last dimension. */
static bool has_same_rows(const struct pst_node *node)
{
    return pst_head_is_view(node) && pst_head_last_size(node->args[0].value) ==
                                         pst_head_last_size(node->outs[0]);
}

/* True if the node keeps rows whole: a view with the same rows, a slice of
 * another dimension, or a cast. */
static bool keeps_rows(const struct pst_node *node)
{
    const int64_t rank = node->args[0].value->meta.rank;

    if (node->op == &pst_op_slice_Tensor)
        return node->args[1].i != -1 && node->args[1].i != rank - 1;
    return pst_head_is_upcast(node) || has_same_rows(node);
}

/* Sets scale and cap of post * tanh(pre * x), or of post * x. */
static bool set_cap(struct pst_head_found *head, double pre, double post,
                    bool capped)
{
    head->scale = capped ? pre * post : post;
    head->cap = capped ? post : 0.0;
    if (fabs(head->scale - 1.0) < 1e-12)
        head->scale = 1.0;
    return !capped || post > 0.0;
}

/* True if the loss alone reads its log_softmax, if it has one. */
static bool is_private(const struct pst_node *node,
                       const struct pst_head_loss *loss, const unsigned *uses,
                       const bool *read)
{
    const struct pst_value *self = node->args[0].value;

    return (loss->reader == node ||
            (uses[self->id] == 1 && !loss->reader->no_grad &&
             pst_head_is_over_last(loss->reader) &&
             (read == NULL || !read[self->id]))) &&
           (node->n_outs == 1 || uses[node->outs[1]->id] == 0);
}

/* True if the node reads the value through views with the same rows, or casts,
 * which nothing else reads. */
static bool reads_rows_of(const struct pst_node *node,
                          const struct pst_value *value, const unsigned *uses,
                          const bool *read)
{
    const struct pst_value *at = node->args[0].value;

    while (at != value) {
        const struct pst_node *view = at->def;

        if (view == NULL || view->no_grad || uses[at->id] != 1 ||
            (read != NULL && read[at->id]) ||
            !(pst_head_is_upcast(view) || has_same_rows(view)))
            return false;
        at = view->args[0].value;
    }
    return true;
}

/* Returns the index of the sum or mean of a z-loss of these logits;
 * PST_HEAD_NO_Z: there is none. */
static size_t find_z(const struct pst_graph *graph,
                     const struct pst_value *logits, const unsigned *uses,
                     const bool *read, const bool *live)
{
    struct pst_head_z z;

    for (size_t i = 0; i < graph->nodes.n; i++)
        if (live[i] && pst_head_read_z(graph->nodes.at[i], uses, read, &z) &&
            reads_rows_of(z.log_sum, logits, uses, read))
            return i;
    return PST_HEAD_NO_Z;
}

/* Readers of values. Dead nodes do not count: the splitter finds heads before
 * dead nodes are removed, a stage after that, and both must find the same
 * heads. */
struct used {
    unsigned *uses; /* readers, by value id */
    bool *values;   /* by value id: a live node or an output reads it */
    bool *nodes;    /* by node index: the node is live */
};

/* True if nothing but the head reads a value between the linear layer and the
 * loss. rows: the loss has the same rows as the value. Sets ret->z if a z-loss
 * reads the value, too. */
static bool is_read_once(const struct pst_graph *graph,
                         const struct pst_value *value, const struct used *used,
                         const bool *read, bool rows,
                         struct pst_head_found *ret)
{
    if (read != NULL && read[value->id])
        return false;
    if (used->uses[value->id] == 1)
        return true;
    if (used->uses[value->id] != 2 || !rows || ret->z != PST_HEAD_NO_Z)
        return false;
    ret->z = find_z(graph, value, used->uses, read, used->nodes);
    return ret->z != PST_HEAD_NO_Z;
}

/* Follows the logits back to their linear layer; returns NULL if there is none,
 * or if something else reads them. */
static const struct pst_node *find_linear(const struct pst_graph *graph,
                                          const struct pst_head_loss *loss,
                                          const struct used *used,
                                          const bool *read,
                                          struct pst_head_found *ret)
{
    const struct pst_value *value = loss->logits;
    double pre = 1.0, post = 1.0;
    bool capped = false, rows = true;

    for (;;) {
        const struct pst_node *node = value->def;
        struct pst_head_layer layer;
        double by;

        if (node == NULL || node->n_outs != 1 || node->no_grad ||
            !is_read_once(graph, value, used, read, rows, ret))
            return NULL;
        if (pst_head_read_layer(node, &layer))
            return set_cap(ret, pre, post, capped) ? node : NULL;
        by = pst_head_factor(node);
        if (by != 0.0 && capped)
            pre *= by;
        else if (by != 0.0)
            post *= by;
        else if (node->op == &pst_op_tanh && !capped)
            capped = true;
        else if (!keeps_rows(node))
            return NULL;
        rows = rows && (pst_head_is_view(node) || pst_head_is_upcast(node));
        value = node->args[0].value;
    }
}

/* --- finding -------------------------------------------------------------- */

static void mark_used(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct used *used = ctx;

    (void)arg;
    used->values[(*slot)->id] = true;
}

static void count_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct used *used = ctx;

    mark_used(ctx, slot, arg);
    used->uses[(*slot)->id]++;
}

static void count_uses(const struct pst_graph *graph, struct used *used)
{
    for (size_t i = 0; i < graph->outputs.n; i++)
        pst_arg_uses(&graph->outputs.at[i].arg, 0, mark_used, used);
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];

        used->nodes[i] = pst_op_runs_for_effect(node->op);
        for (unsigned k = 0; k < node->n_outs; k++)
            used->nodes[i] = used->nodes[i] || used->values[node->outs[k]->id];
        if (used->nodes[i])
            pst_node_uses(node, count_use, used);
    }
}

static size_t index_of(const struct pst_graph *graph,
                       const struct pst_node *node)
{
    size_t i = 0;

    while (graph->nodes.at[i] != node)
        i++;
    return i;
}

/* True if the node is a view or a cast from f32 to 16 bits, as between a weight
 * and its linear layer. */
static bool is_preparation(const struct pst_node *node)
{
    return node->n_outs == 1 && (node->outs[0]->base != NULL ||
                                 pst_head_is_cast(node, PST_F32, PST_BF16) ||
                                 pst_head_is_cast(node, PST_F32, PST_F16));
}

/* Moves the first node of the head back to the nodes that compute `operand` of
 * the linear layer from `from`, its weight or bias. Only such nodes may lie
 * between them and the layer, so that no cut comes between, and nothing else
 * may read their results, since the head adds its gradient to `from` itself. */
static bool move_first(const struct pst_graph *graph, const struct used *used,
                       const bool *read, const struct pst_value *operand,
                       const struct pst_value *from,
                       struct pst_head_found *head)
{
    for (; operand != from; operand = operand->def->args[0].value) {
        size_t at = head->linear;

        if (used->uses[operand->id] != 1 || (read != NULL && read[operand->id]))
            return false;
        while (graph->nodes.at[at] != operand->def)
            if (used->nodes[--at] && !is_preparation(graph->nodes.at[at]))
                return false;
        head->first = PST_MIN(head->first, at);
    }
    return true;
}

/* Sets the first node of the head. */
static bool set_first(const struct pst_graph *graph, const struct used *used,
                      const bool *read, struct pst_head_found *head)
{
    const struct pst_node *linear = graph->nodes.at[head->linear];
    const struct pst_arg *a = linear->args;
    const bool added = linear->op == &pst_op_addmm;
    struct pst_head_layer layer;

    head->first = head->linear;
    return pst_head_read_layer(linear, &layer) &&
           move_first(graph, used, read, a[added ? 2 : 1].value, layer.weight,
                      head) &&
           (layer.bias == NULL ||
            move_first(graph, used, read, a[added ? 0 : 2].value, layer.bias,
                       head));
}

/* Sets the last node of the head. Nodes between loss and z that depend on the
 * first of the two will be moved after the head, so they must have no effects
 * and not be random. Returns false if they cannot be moved, or if out of memory
 * (*ret_fine is false). */
static bool set_last(const struct pst_graph *graph, struct pst_head_found *head,
                     bool *ret_fine)
{
    const size_t begin = PST_MIN(head->loss, head->z);
    bool *late, good = true;

    head->last = head->loss;
    if (head->z == PST_HEAD_NO_Z)
        return true;
    head->last = PST_MAX(head->loss, head->z);
    late = pst_calloc(TAG, graph->values.n + 1, sizeof(*late));
    *ret_fine = late != NULL;
    if (late == NULL)
        return false;
    late[graph->nodes.at[begin]->outs[0]->id] = true;
    for (size_t i = begin + 1; i < head->last && good; i++) {
        struct pst_node *node = graph->nodes.at[i];

        if (!pst_head_reads_any(node, late))
            continue;
        good = node->n_outs > 0 &&
               (node->op->flags & (PST_OP_RANDOM | PST_OP_EFFECT)) == 0;
        for (unsigned k = 0; k < node->n_outs; k++)
            late[node->outs[k]->id] = true;
    }
    /* The later one of loss and z must not depend on the other one. */
    good = good && !pst_head_reads_any(graph->nodes.at[head->last], late);
    pst_free(late);
    return good;
}

/* Adds the head whose loss is node `at`, if there is one. */
static bool add_head(const struct pst_graph *graph, size_t at,
                     const struct used *used, const bool *read,
                     struct pst_heads *ret)
{
    const struct pst_node *node = graph->nodes.at[at], *linear;
    struct pst_head_found head = {.loss = at, .z = PST_HEAD_NO_Z};
    struct pst_head_loss loss;
    bool fine = true;

    if (!pst_head_read_loss(node, &loss) || !is_supported_loss(node, &loss) ||
        !is_private(node, &loss, used->uses, read))
        return true;
    linear = find_linear(graph, &loss, used, read, &head);
    if (linear == NULL)
        return true;
    head.linear = index_of(graph, linear);
    if (!set_first(graph, used, read, &head) || !set_last(graph, &head, &fine))
        return fine;
    return pst_vec_push(TAG, &ret->list, head);
}

enum pst_status pst_heads_find(const struct pst_graph *graph, const bool *read,
                               struct pst_heads *ret, struct pst_diag *diag)
{
    struct used used = {
        pst_calloc(TAG, graph->values.n + 1, sizeof(*used.uses)),
        pst_calloc(TAG, graph->values.n + 1, sizeof(*used.values)),
        pst_calloc(TAG, graph->nodes.n + 1, sizeof(*used.nodes))};
    bool fine = used.uses != NULL && used.values != NULL && used.nodes != NULL;

    *ret = (struct pst_heads){0};
    if (fine)
        count_uses(graph, &used);
    for (size_t i = 0; i < graph->nodes.n && fine; i++)
        fine = add_head(graph, i, &used, read, ret);
    pst_free(used.uses);
    pst_free(used.values);
    pst_free(used.nodes);
    if (fine)
        return PST_OK;
    pst_heads_fini(ret);
    return pst_diag_nomem(diag, graph->values.n * sizeof(*used.uses));
}

void pst_heads_fini(struct pst_heads *heads)
{
    pst_vec_fini(&heads->list);
}

void pst_heads_mark(const struct pst_graph *graph,
                    const struct pst_head_found *head, bool *marks)
{
    const struct pst_node *linear = graph->nodes.at[head->linear];
    const struct pst_node *node = graph->nodes.at[head->loss];
    struct pst_head_z z;

    do {
        marks[node->args[0].value->id] = true;
        node = node->args[0].value->def;
    } while (node != linear);
    if (head->z == PST_HEAD_NO_Z)
        return;
    (void)pst_head_read_z(graph->nodes.at[head->z], NULL, NULL, &z);
    for (node = z.log_sum; !marks[node->args[0].value->id];
         node = node->args[0].value->def)
        marks[node->args[0].value->id] = true;
}
