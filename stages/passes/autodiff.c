// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/autodiff.h"

#include "stages/graph/low.h"

#include "stages/ops/core/call.h"
#include "stages/ops/core/mode.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#define TAG PST_TAG_GRAPH

/* State of a forward value. */
struct slot {
    struct pst_value *sum; /* sum of the contributions so far; NULL: none */
    bool needed;           /* is computed from a wanted value or parameter */
    bool wanted;           /* gradient is requested; propagation stops here */
};

/* Marks of values. LIVE: a kept node reads the value. INPUT: a wanted gradient
 * is computed from it. */
enum { MARK_LIVE = 1, MARK_INPUT = 2 };

struct differ {
    struct pst_graph *graph;
    struct pst_build build;
    const struct pst_op *add, *accumulate;
    struct slot *slots; /* slots of forward values, by id */
    size_t n_values, n_nodes;
    struct pst_value **grads; /* GRAD of each PARAM, by its id */
    /* Gradients of the results and of the tensor arguments of the node that is
     * being differentiated. */
    struct pst_value **out_grads, **in_grads;
    bool *in_needs;
};

static bool is_float(const struct pst_value *value)
{
    return pst_dtype_kind(value->meta.dtype) == PST_KIND_FLOAT;
}

/* --- values that need gradients ----------------------------------------- */

struct any_needed {
    const struct differ *d;
    bool ret;
};

static void record_if_needed(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct any_needed *any = ctx;

    (void)arg;
    any->ret = any->ret || any->d->slots[(*slot)->id].needed;
}

static void find_needed(struct differ *d, struct pst_value *const *wanted,
                        size_t n_wanted)
{
    for (size_t i = 0; i < d->graph->params.n; i++) {
        const struct pst_value *param = d->graph->params.at[i];

        d->slots[param->id].needed = param->requires_grad && is_float(param);
    }
    for (size_t i = 0; i < n_wanted; i++) {
        d->slots[wanted[i]->id].wanted = true;
        d->slots[wanted[i]->id].needed = is_float(wanted[i]);
    }
    for (size_t i = 0; i < d->n_nodes; i++) {
        struct pst_node *node = d->graph->nodes.at[i];
        struct any_needed any = {d, false};

        if (node->no_grad || node->op->vjp == pst_vjp_none)
            continue;
        pst_node_uses(node, record_if_needed, &any);
        for (unsigned k = 0; any.ret && k < node->n_outs; k++)
            if (is_float(node->outs[k]))
                d->slots[node->outs[k]->id].needed = true;
    }
}

/* --- contributions ------------------------------------------------------ */

/* Returns the accumulator of a parameter; creates it for the first
 * contribution. */
static struct pst_value *param_grad(struct differ *d,
                                    const struct pst_value *param)
{
    struct pst_graph *graph = d->graph;
    struct pst_meta meta = param->meta;
    char *name;

    if (d->grads[param->id] != NULL)
        return d->grads[param->id];
    pst_meta_set_contiguous(&meta);
    meta.dtype = pst_dtype_of_grad(meta.dtype);
    name = pst_arena_printf(&graph->arena, "grad_%s", param->name);
    if (name != NULL)
        d->grads[param->id] =
            pst_graph_add_value(graph, PST_VALUE_GRAD, name, param->fqn, &meta);
    if (d->grads[param->id] == NULL)
        d->build.status = pst_diag_nomem(d->build.diag, sizeof(*param));
    return d->grads[param->id];
}

/* Returns a contribution in the accumulator's dtype: if the contribution was
 * rounded from that dtype, the value before rounding. NULL: out of memory. */
static struct pst_value *unround(struct differ *d, struct pst_value *grad)
{
    const struct pst_node *cast = grad->def;
    const enum pst_dtype to = pst_dtype_of_grad(grad->meta.dtype);

    if (to == grad->meta.dtype)
        return grad;
    if (cast != NULL && cast->op == &pst_op__to_copy &&
        cast->args[0].value->meta.dtype == to)
        return cast->args[0].value;
    return pst_emit(&d->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(grad), pst_dtype_arg(to)));
}

static enum pst_status add_gradient(struct differ *d,
                                    const struct pst_value *value,
                                    struct pst_value *grad)
{
    struct slot *slot = &d->slots[value->id];
    char a[PST_META_TEXT], b[PST_META_TEXT];
    struct pst_value *into;

    if (!slot->needed || grad == NULL)
        return PST_OK;
    if (!pst_meta_same(&value->meta, &grad->meta))
        return pst_diag_set(d->build.diag, PST_E_INTERNAL_BUG,
                            "gradient %%%s of %%%s is %s, not %s", grad->name,
                            value->name, pst_meta_text(&grad->meta, a),
                            pst_meta_text(&value->meta, b));
    if (value->kind == PST_VALUE_PARAM && !slot->wanted) {
        into = param_grad(d, value);
        grad = unround(d, grad);
        if (into != NULL && grad != NULL)
            (void)pst_emit_node(&d->build, d->accumulate,
                                PST_ARGS(pst_v(into), pst_v(grad)));
    } else if (slot->sum == NULL) {
        slot->sum = grad;
    } else {
        slot->sum = pst_emit(&d->build, d->add,
                             PST_ARGS(pst_v(slot->sum), pst_v(grad)));
    }
    return d->build.status;
}

/* --- one node ----------------------------------------------------------- */

/* Collects the gradients of a node's results; false if there are none. */
static bool gather_out_grads(struct differ *d, const struct pst_node *node)
{
    bool any = false;

    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct slot *slot = &d->slots[node->outs[k]->id];

        d->out_grads[k] = slot->wanted ? NULL : slot->sum;
        any = any || d->out_grads[k] != NULL;
    }
    return any;
}

static void compare_shape(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct pst_meta *like = ctx;

    (void)arg;
    if (!pst_meta_same_shape(&(*slot)->meta, like))
        like->rank = PST_MAX_RANK + 1;
}

/* True if the strides of the result's gradient cannot change any bit of the
 * gradients of the arguments. */
static bool ignores_strides(const struct pst_node *node)
{
    const unsigned flags = node->op->flags;
    struct pst_meta like = node->outs[0]->meta;

    if ((flags & PST_OP_PASSES_ON) == 0)
        return false;
    if ((flags & (PST_OP_VIEW | PST_OP_MAYBE_VIEW)) == 0)
        pst_node_uses((struct pst_node *)node, compare_shape, &like);
    return like.rank <= PST_MAX_RANK;
}

/* Makes the gradients of results contiguous, as they arrive from another stage:
 * the order of a sum follows strides, and bits must not depend on the cut. */
static void make_grads_contiguous(struct differ *d, const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_value *grad = d->out_grads[k];

        if (grad != NULL && !pst_meta_is_contiguous(&grad->meta))
            d->out_grads[k] =
                pst_emit(&d->build, &pst_op_contiguous, PST_ARGS(pst_v(grad)));
    }
}

/* Returns tensor k of an argument, which may be a list; NULL if absent. */
static struct pst_value *flat_value(const struct pst_arg *arg, unsigned k)
{
    if (arg->kind == PST_ARG_VALUES)
        return arg->values[k];
    return arg->kind == PST_ARG_VALUE ? arg->value : NULL;
}

static bool find_node_needs(struct differ *d, const struct pst_node *node)
{
    unsigned flat = 0;
    bool any = false;

    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_arg *arg = &node->args[i];
        const unsigned n = pst_call_count_arg(node->schema, i, arg);

        for (unsigned k = 0; k < n; k++, flat++) {
            const struct pst_value *value = flat_value(arg, k);

            d->in_grads[flat] = NULL;
            d->in_needs[flat] = value != NULL && d->slots[value->id].needed;
            any = any || d->in_needs[flat];
        }
    }
    return any;
}

static enum pst_status contribute_all(struct differ *d,
                                      const struct pst_node *node)
{
    unsigned flat = 0;

    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_arg *arg = &node->args[i];
        const unsigned n = pst_call_count_arg(node->schema, i, arg);

        for (unsigned k = 0; k < n; k++, flat++) {
            const struct pst_value *value = flat_value(arg, k);
            enum pst_status status = PST_OK;

            if (value != NULL)
                status = add_gradient(d, value, d->in_grads[flat]);
            if (status != PST_OK)
                return status;
        }
    }
    return PST_OK;
}

/* Gives backward nodes the call, source and id of their forward node, so that
 * random operators draw the same numbers again. */
static enum pst_status enter_node(struct differ *d, const struct pst_node *node)
{
    d->build.source = node->source;
    d->build.call = node->call;
    d->build.node_id = node->id;
    d->build.prefix =
        pst_arena_printf(&d->graph->arena, "grad_%s", node->outs[0]->name);
    if (d->build.prefix == NULL)
        d->build.status = pst_diag_nomem(d->build.diag, 0);
    return d->build.status;
}

/* Replaces the node's row by the one for training, which also returns what the
 * vjp reads. The values of the existing results stay the same. */
static enum pst_status save_results(struct differ *d, struct pst_node *node)
{
    struct pst_graph *graph = d->graph;
    const char *origin = pst_node_origin(node);
    struct pst_build build = d->build;
    struct pst_node *made;

    pst_build_like(&build, node);
    build.prefix =
        pst_arena_printf(&graph->arena, "saved_%s", node->outs[0]->name);
    if (build.prefix == NULL)
        return pst_diag_nomem(build.diag, 0);
    made = pst_emit_node(&build, pst_mode_saving(node->op), node->args,
                         node->schema->n_args);
    if (made == NULL)
        return build.status;
    graph->nodes.n--;
    for (unsigned k = 0; k < made->n_outs; k++) {
        if (k < node->n_outs) {
            made->outs[k]->def = NULL;
            made->outs[k] = node->outs[k];
        }
        made->outs[k]->def = node;
        d->out_grads[k] = k < node->n_outs ? d->out_grads[k] : NULL;
    }
    node->op = made->op;
    node->schema = made->schema;
    node->args = made->args;
    node->outs = made->outs;
    node->n_outs = made->n_outs;
    node->origin = pst_arena_strdup(&graph->arena, origin);
    return node->origin != NULL ? PST_OK : pst_diag_nomem(build.diag, 0);
}

static enum pst_status differentiate_node(struct differ *d,
                                          struct pst_node *node)
{
    struct pst_vjp v = {.node = node,
                        .grads = d->out_grads,
                        .needs = d->in_needs,
                        .ret = d->in_grads};
    enum pst_status status;

    if (node->no_grad || node->op->vjp == pst_vjp_none ||
        !gather_out_grads(d, node) || !find_node_needs(d, node))
        return PST_OK;
    status = enter_node(d, node);
    if (status == PST_OK && !ignores_strides(node))
        make_grads_contiguous(d, node);
    if (status == PST_OK)
        status = d->build.status;
    if (status == PST_OK && pst_mode_saving(node->op) != NULL)
        status = save_results(d, node);
    if (status == PST_OK) {
        v.build = d->build;
        status = node->op->vjp(&v);
    }
    if (status == PST_OK)
        status = v.build.status;
    if (status == PST_OK)
        status = contribute_all(d, node);
    if (status != PST_OK)
        pst_diag_prefix(d->build.diag, "gradient of %%%s (%s, %s, %s)",
                        node->outs[0]->name, pst_node_origin(node),
                        node->call->name, node->source);
    return status;
}

/* --- phases and dead code ----------------------------------------------- */

struct marker {
    unsigned char *marks;
    unsigned char mark;
};

static void mark_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct marker *m = ctx;

    (void)arg;
    m->marks[(*slot)->id] |= m->mark;
}

/* Removes dead backward nodes and sets the phase of the others. */
static enum pst_status set_phases(struct differ *d,
                                  const struct pst_autodiff_result *result,
                                  size_t n_wanted)
{
    struct pst_graph *graph = d->graph;
    struct marker m = {.marks = pst_calloc(TAG, graph->values.n + 1, 1)};
    size_t kept = graph->nodes.n;

    if (m.marks == NULL)
        return pst_diag_nomem(d->build.diag, graph->values.n);
    for (size_t i = 0; i < n_wanted; i++)
        if (result->wanted[i] != NULL)
            m.marks[result->wanted[i]->id] = MARK_LIVE | MARK_INPUT;
    /* Moves the kept nodes to the end of the array. */
    for (size_t i = graph->nodes.n; i-- > d->n_nodes;) {
        struct pst_node *node = graph->nodes.at[i];

        m.mark = pst_op_has_effect(node->op) ? MARK_LIVE : 0;
        for (unsigned k = 0; k < node->n_outs; k++)
            m.mark |= m.marks[node->outs[k]->id];
        if (m.mark != 0) {
            node->phase = m.mark & MARK_INPUT ? PST_PHASE_I : PST_PHASE_W;
            pst_node_uses(node, mark_use, &m);
            graph->nodes.at[--kept] = node;
            continue;
        }
        for (unsigned k = 0; k < node->n_outs; k++)
            node->outs[k]->def = NULL;
    }
    for (size_t i = kept; i < graph->nodes.n; i++)
        graph->nodes.at[d->n_nodes + (i - kept)] = graph->nodes.at[i];
    graph->nodes.n -= kept - d->n_nodes;
    pst_free(m.marks);
    return PST_OK;
}

/* --- differentiation of a graph ----------------------------------------- */

static enum pst_status alloc_tables(struct differ *d)
{
    unsigned n_in = 0, n_out = 0;

    d->n_values = d->graph->values.n;
    d->n_nodes = d->graph->nodes.n;
    for (size_t i = 0; i < d->n_nodes; i++) {
        const struct pst_node *node = d->graph->nodes.at[i];
        const unsigned n = pst_call_count_in(node->schema, node->args);

        n_in = PST_MAX(n_in, n);
        n_out = PST_MAX(n_out, node->n_outs);
        if (pst_mode_saving(node->op) != NULL)
            n_out = PST_MAX(
                n_out, pst_op_schema(pst_mode_saving(node->op))->n_returns);
    }
    d->slots = pst_calloc(TAG, d->n_values + 1, sizeof(*d->slots));
    d->grads = pst_calloc(TAG, d->n_values + 1, sizeof(struct pst_value *));
    d->out_grads = pst_calloc(TAG, n_out + 1, sizeof(struct pst_value *));
    d->in_grads = pst_calloc(TAG, n_in + 1, sizeof(struct pst_value *));
    d->in_needs = pst_calloc(TAG, n_in + 1, sizeof(*d->in_needs));
    if (d->slots == NULL || d->grads == NULL || d->out_grads == NULL ||
        d->in_grads == NULL || d->in_needs == NULL)
        return pst_diag_nomem(d->build.diag, d->n_values * sizeof(*d->slots));
    d->add = &pst_op_add_Tensor;
    d->accumulate = &pst_op_accumulate_grad;
    return PST_OK;
}

static enum pst_status check_values(const struct differ *d,
                                    const struct pst_seed *seeds,
                                    size_t n_seeds,
                                    struct pst_value *const *wanted,
                                    size_t n_wanted)
{
    const struct pst_graph *graph = d->graph;

    for (size_t i = 0; i < n_seeds; i++)
        if (graph->values.at[seeds[i].value->id] != seeds[i].value)
            return pst_diag_set(d->build.diag, PST_E_INTERNAL_BUG,
                                "a seeded value is of another graph");
    for (size_t i = 0; i < n_wanted; i++)
        if (graph->values.at[wanted[i]->id] != wanted[i])
            return pst_diag_set(d->build.diag, PST_E_INTERNAL_BUG,
                                "a wanted value is of another graph");
    return PST_OK;
}

static enum pst_status propagate_gradients(struct differ *d,
                                           const struct pst_seed *seeds,
                                           size_t n_seeds)
{
    enum pst_status status = PST_OK;

    d->build.phase = PST_PHASE_W;
    d->build.prefix = "grad_seed";
    for (size_t i = 0; i < n_seeds && status == PST_OK; i++)
        status = add_gradient(d, seeds[i].value, seeds[i].seed);
    for (size_t i = d->n_nodes; i-- > 0 && status == PST_OK;)
        if (d->graph->nodes.at[i]->n_outs > 0)
            status = differentiate_node(d, d->graph->nodes.at[i]);
    return status;
}

static enum pst_status collect_results(struct differ *d,
                                       struct pst_value *const *wanted,
                                       size_t n_wanted,
                                       struct pst_autodiff_result *ret)
{
    struct pst_graph *graph = d->graph;

    ret->wanted =
        pst_arena_calloc(&graph->arena, n_wanted + 1, sizeof(*ret->wanted));
    ret->grads = pst_arena_calloc(&graph->arena, graph->params.n + 1,
                                  sizeof(*ret->grads));
    if (ret->wanted == NULL || ret->grads == NULL)
        return pst_diag_nomem(d->build.diag, n_wanted * sizeof(*ret->wanted));
    for (size_t i = 0; i < n_wanted; i++)
        ret->wanted[i] = d->slots[wanted[i]->id].sum;
    for (size_t i = 0; i < graph->params.n; i++)
        ret->grads[i] = d->grads[graph->params.at[i]->id];
    return PST_OK;
}

enum pst_status pst_autodiff(struct pst_graph *graph,
                             const struct pst_seed *seeds, size_t n_seeds,
                             struct pst_value *const *wanted, size_t n_wanted,
                             struct pst_autodiff_result *ret,
                             struct pst_diag *diag)
{
    struct differ d = {.graph = graph};
    struct pst_autodiff_result result = {0};
    enum pst_status status;

    pst_build_init(&d.build, graph, diag);
    status = alloc_tables(&d);
    if (status == PST_OK)
        status = check_values(&d, seeds, n_seeds, wanted, n_wanted);
    if (status == PST_OK) {
        find_needed(&d, wanted, n_wanted);
        status = propagate_gradients(&d, seeds, n_seeds);
    }
    if (status == PST_OK)
        status = collect_results(&d, wanted, n_wanted, &result);
    if (status == PST_OK)
        status = set_phases(&d, &result, n_wanted);
    pst_free(d.slots);
    pst_free(d.grads);
    pst_free(d.out_grads);
    pst_free(d.in_grads);
    pst_free(d.in_needs);
    if (status == PST_OK)
        *ret = result;
    return status;
}
