// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/heads.h"

#include "stages/graph/build.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/rewrite.h"

#include <math.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

/* --- operands of a loss --------------------------------------------------- */

/* Values of PyTorch's argument `reduction`. */
enum { REDUCE_MEAN = 1, REDUCE_SUM = 2 };

struct loss {
    struct pst_value *logits;
    struct pst_arg target, reduction, ignore, smoothing;
    /* the node that reads the logits: the loss, or a log_softmax before it */
    const struct pst_node *reader;
};

static const struct pst_arg *arg_of(const struct pst_node *node,
                                    const char *name)
{
    const int i = pst_schema_arg(node->schema, name);

    return i < 0 ? NULL : &node->args[i];
}

/* True if log_softmax is over the last dimension, without another dtype. */
static bool is_over_last(const struct pst_node *node)
{
    const struct pst_value *in = node->args[0].value;
    const int64_t rank = in->meta.rank, dim = node->args[1].i;

    return node->outs[0]->meta.dtype == in->meta.dtype &&
           (dim == -1 || dim == rank - 1);
}

static bool is_log_softmax(const struct pst_node *node)
{
    return node != NULL && (node->op == &pst_op_log_softmax_int ||
                            node->op == &pst_op__log_softmax);
}

/* If the node is a cross entropy, sets *ret to its operands and options; else
 * returns false. */
static bool read_loss(const struct pst_node *node, struct loss *ret)
{
    struct pst_value *self = node->args[0].value;

    *ret = (struct loss){
        .logits = self, .smoothing = {.kind = PST_ARG_FLOAT}, .reader = node};
    if (node->op == &pst_op_cross_entropy_loss) {
        ret->smoothing = *arg_of(node, "label_smoothing");
    } else if (node->op == &pst_op_nll_loss ||
               node->op == &pst_op_nll_loss_nd ||
               node->op == &pst_op_nll_loss_forward) {
        if (!is_log_softmax(self->def))
            return false;
        ret->reader = self->def;
        ret->logits = self->def->args[0].value;
    } else {
        return false;
    }
    ret->target = *arg_of(node, "target");
    ret->reduction = *arg_of(node, "reduction");
    ret->ignore = *arg_of(node, "ignore_index");
    return true;
}

/* True if the loss is one that the operator computes: rows of f32 logits,
 * classes as indices and without weights, a sum or a mean. */
static bool is_supported_loss(const struct pst_node *node,
                              const struct loss *loss)
{
    const struct pst_meta *x = &loss->logits->meta;

    return !node->no_grad && x->rank == 2 && x->dtype == PST_F32 &&
           x->size[1] >= PST_HEAD_CLASSES &&
           arg_of(node, "weight")->kind == PST_ARG_NONE &&
           pst_dtype_kind(loss->target.value->meta.dtype) == PST_KIND_INT &&
           (loss->reduction.i == REDUCE_MEAN ||
            loss->reduction.i == REDUCE_SUM);
}

/* --- between the linear layer and the loss -------------------------------- */

/* True if the result has the elements of the operand, in the same order. */
static bool is_view(const struct pst_node *node)
{
    static const struct pst_op *const views[] = {
        &pst_op_view,         &pst_op_reshape,
        &pst_op__unsafe_view, &pst_op_flatten_using_ints,
        &pst_op_unsqueeze,    &pst_op_unflatten_int,
        &pst_op_squeeze_dim,  &pst_op_squeeze_dims,
        &pst_op_squeeze,      &pst_op_contiguous,
        &pst_op_clone,        &pst_op_alias};

    for (size_t i = 0; i < PST_COUNT(views); i++)
        if (node->op == views[i])
            return true;
    return false;
}

static int64_t last_size(const struct pst_value *value)
{
    const struct pst_meta *meta = &value->meta;

    return meta->rank > 0 ? meta->size[meta->rank - 1] : 1;
}

/* True if the node keeps rows whole: a view with the same last dimension, or a
 * slice of another dimension. */
static bool keeps_rows(const struct pst_node *node)
{
    const struct pst_value *in = node->args[0].value, *out = node->outs[0];
    const int64_t rank = in->meta.rank;

    if (node->op == &pst_op_slice_Tensor)
        return node->args[1].i != -1 && node->args[1].i != rank - 1;
    return is_view(node) && last_size(in) == last_size(out);
}

/* Returns the factor of a multiplication or division by a number; 0: it is
 * another node. */
static double factor_of(const struct pst_node *node)
{
    double by;

    if (node->op != &pst_op_mul_Scalar && node->op != &pst_op_div_Scalar)
        return 0.0;
    if (node->args[1].kind == PST_ARG_FLOAT)
        by = node->args[1].f;
    else if (node->args[1].kind == PST_ARG_INT)
        by = (double)node->args[1].i;
    else
        return 0.0;
    if (node->op == &pst_op_div_Scalar)
        by = by != 0.0 ? 1.0 / by : 0.0;
    return isfinite(by) ? by : 0.0;
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

/* Operands of a linear layer. */
struct layer {
    struct pst_value *x, *weight, *bias; /* bias NULL: there is none */
};

/* Returns the matrix of which the value is the transpose; NULL: it is not the
 * transpose of a whole one, by one view through which its gradient goes. */
static struct pst_value *find_transposed(const struct pst_value *value)
{
    const struct pst_meta *t = &value->meta;
    struct pst_value *of = value->base;

    return of != NULL && value->def != NULL && !value->def->no_grad &&
                   value->def->args[0].kind == PST_ARG_VALUE &&
                   value->def->args[0].value == of && value->offset == 0 &&
                   t->rank == 2 && of->meta.rank == 2 &&
                   of->meta.dtype == t->dtype &&
                   pst_meta_is_contiguous(&of->meta) &&
                   t->size[0] == of->meta.size[1] &&
                   t->size[1] == of->meta.size[0] && t->stride[0] == 1 &&
                   t->stride[1] == t->size[0]
               ? of
               : NULL;
}

static bool is_one(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_FLOAT ? arg->f == 1.0
                                      : arg->kind == PST_ARG_INT && arg->i == 1;
}

/* Sets the operands if the node is a linear layer, or a product with a
 * transposed weight, to which exports decompose it. */
static bool read_layer(const struct pst_node *node, struct layer *ret)
{
    const struct pst_arg *a = node->args;

    *ret = (struct layer){0};
    if (node->op == &pst_op_linear) {
        *ret = (struct layer){a[0].value, a[1].value,
                              a[2].kind == PST_ARG_VALUE ? a[2].value : NULL};
    } else if (node->op == &pst_op_mm || node->op == &pst_op_matmul) {
        *ret = (struct layer){a[0].value, find_transposed(a[1].value), NULL};
    } else if (node->op == &pst_op_addmm && is_one(&a[3]) && is_one(&a[4])) {
        *ret =
            (struct layer){a[1].value, find_transposed(a[2].value), a[0].value};
    }
    return ret->weight != NULL && ret->weight->meta.dtype == PST_F32 &&
           ret->weight->meta.rank == 2 &&
           (ret->bias == NULL ||
            (ret->bias->meta.rank == 1 &&
             ret->bias->meta.size[0] == ret->weight->meta.size[0]));
}

/* True if the loss alone reads its log_softmax, if it has one. */
static bool is_private(const struct pst_node *node, const struct loss *loss,
                       const unsigned *uses, const bool *read)
{
    const struct pst_value *self = node->args[0].value;

    return (loss->reader == node ||
            (uses[self->id] == 1 && !loss->reader->no_grad &&
             is_over_last(loss->reader) &&
             (read == NULL || !read[self->id]))) &&
           (node->n_outs == 1 || uses[node->outs[1]->id] == 0);
}

/* Follows the logits back to their linear layer; returns NULL if there is none,
 * or if something else reads them. */
static const struct pst_node *find_linear(const struct loss *loss,
                                          const unsigned *uses,
                                          const bool *read,
                                          struct pst_head_found *ret)
{
    const struct pst_value *value = loss->logits;
    double pre = 1.0, post = 1.0;
    bool capped = false;

    for (;;) {
        const struct pst_node *node = value->def;
        struct layer layer;
        double by;

        if (node == NULL || node->n_outs != 1 || node->no_grad ||
            uses[value->id] != 1 || (read != NULL && read[value->id]))
            return NULL;
        if (read_layer(node, &layer))
            return set_cap(ret, pre, post, capped) ? node : NULL;
        by = factor_of(node);
        if (by != 0.0 && capped)
            pre *= by;
        else if (by != 0.0)
            post *= by;
        else if (node->op == &pst_op_tanh && !capped)
            capped = true;
        else if (!keeps_rows(node))
            return NULL;
        value = node->args[0].value;
    }
}

/* --- finding -------------------------------------------------------------- */

/* Uses in a graph. Dead nodes do not count: the splitter finds heads before it
 * removes these nodes, a stage after that. */
struct used {
    unsigned *uses; /* readers, by value id */
    bool *values;   /* by value id: a live node or an output reads it */
    bool *nodes;    /* by node index: the node is live */
};

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

/* Sets the first node of the head. A view that transposes the weight must come
 * just before the layer, since no cut may come between, and nothing else may
 * read it: the head adds its gradient to the weight itself. */
static bool set_first(const struct pst_graph *graph, const struct used *used,
                      const bool *read, struct pst_head_found *head)
{
    const struct pst_node *linear = graph->nodes.at[head->linear];
    const struct pst_value *b =
        linear->args[linear->op == &pst_op_addmm ? 2 : 1].value;

    head->first = head->linear;
    if (linear->op == &pst_op_linear)
        return true;
    if (used->uses[b->id] != 1 || (read != NULL && read[b->id]))
        return false;
    while (graph->nodes.at[head->first] != b->def) {
        const struct pst_node *before = graph->nodes.at[--head->first];

        if (used->nodes[head->first] &&
            (before->n_outs == 0 || before->outs[0]->base == NULL))
            return false;
    }
    return true;
}

/* Adds the head whose loss is node `at`, if there is one. */
static bool add_head(const struct pst_graph *graph, size_t at,
                     const struct used *used, const bool *read,
                     struct pst_heads *ret)
{
    const struct pst_node *node = graph->nodes.at[at], *linear;
    struct pst_head_found head = {.loss = at};
    struct loss loss;

    if (!read_loss(node, &loss) || !is_supported_loss(node, &loss) ||
        !is_private(node, &loss, used->uses, read))
        return true;
    linear = find_linear(&loss, used->uses, read, &head);
    if (linear == NULL)
        return true;
    head.linear = index_of(graph, linear);
    return !set_first(graph, used, read, &head) ||
           pst_vec_push(TAG, &ret->list, head);
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

    do {
        marks[node->args[0].value->id] = true;
        node = node->args[0].value->def;
    } while (node != linear);
}

/* --- folding -------------------------------------------------------------- */

struct folder {
    struct pst_graph *graph;
    const struct pst_heads *heads;
    struct pst_node **linears; /* by head: its linear layer */
    struct pst_build build;
    size_t place, next; /* indices of the current node and of the next head */
};

/* Emits on x what the value went through on its way from the linear layer:
 * slices, and views with x's last dimension. */
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
    if (x == NULL || factor_of(node) != 0.0 || node->op == &pst_op_tanh)
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
    size[value->meta.rank - 1] = last_size(x);
    return pst_emit(&f->build, &pst_op_reshape,
                    PST_ARGS(pst_v(x), pst_ints(size, value->meta.rank)));
}

/* Makes the value of the old loss the result of the node that replaces it. */
static void replace_result(struct pst_node *node, struct pst_node *old)
{
    node->outs[0]->def = NULL;
    node->outs[0] = old->outs[0];
    node->outs[0]->def = node;
    for (unsigned k = 1; k < old->n_outs; k++)
        old->outs[k]->def = NULL;
}

static enum pst_status fold_head(struct folder *f, struct pst_node *old,
                                 const struct pst_head_found *head,
                                 const struct pst_node *linear)
{
    struct layer layer;
    struct pst_value *x;
    struct pst_node *node;
    struct loss loss;

    (void)read_loss(old, &loss);
    (void)read_layer(linear, &layer);
    pst_build_at(&f->build, old);
    f->build.call = linear->call; /* most of its time is the layer's */
    f->build.node_id = UINT32_MAX;
    x = replay_views(f, loss.logits, linear, layer.x);
    f->build.node_id = old->id;
    node = pst_emit_node(&f->build, &pst_op_linear_cross_entropy,
                         PST_ARGS(pst_v(x), pst_v(layer.weight),
                                  pst_v(layer.bias), loss.target,
                                  pst_f(head->scale), pst_f(head->cap),
                                  loss.reduction, loss.ignore, loss.smoothing));
    if (node != NULL)
        replace_result(node, old);
    return f->build.status;
}

static enum pst_status fold_node(void *ctx, struct pst_node *node)
{
    struct folder *f = ctx;
    const size_t at = f->place++, k = f->next;

    if (k < f->heads->list.n && f->heads->list.at[k].loss == at) {
        f->next++;
        return fold_head(f, node, &f->heads->list.at[k], f->linears[k]);
    }
    if (!pst_vec_push(TAG, &f->graph->nodes, node))
        return pst_diag_nomem(f->build.diag, sizeof(struct pst_node *));
    return PST_OK;
}

enum pst_status pst_heads_fold(struct pst_graph *graph,
                               const struct pst_heads *heads,
                               struct pst_diag *diag)
{
    const size_t n = heads->list.n;
    struct folder f = {.graph = graph, .heads = heads};
    enum pst_status status;

    f.linears = pst_calloc(TAG, n + 1, sizeof(struct pst_node *));
    if (f.linears == NULL)
        return pst_diag_nomem(diag, n * sizeof(struct pst_node *));
    for (size_t k = 0; k < n; k++)
        f.linears[k] = graph->nodes.at[heads->list.at[k].linear];
    pst_build_init(&f.build, graph, diag);
    status = pst_graph_rewrite(graph, fold_node, &f);
    pst_free(f.linears);
    return status;
}
