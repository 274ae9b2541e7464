// SPDX-License-Identifier: Apache-2.0
/*
 * Finds values that depend on parameters and constants alone. They are the same
 * in every microbatch of a step, so they are computed once and stored: mostly
 * converted and transposed weights, masks and tables of angles.
 */
#include "stages/compile/compile.h"

#include <string.h>

static bool is_given(const struct pst_program *p, const bool *updated,
                     const struct pst_value *value)
{
    switch (value->kind) {
    case PST_VALUE_PARAM:
        return !p->options.params_on_demand || !value->requires_grad;
    case PST_VALUE_CONST:
        return true;
    case PST_VALUE_BUFFER:
        return !updated[value->id];
    default:
        return false;
    }
}

struct marks {
    /* By id of the storage; leaves: the storage is sent, returned or added to a
     * gradient. */
    bool *constant, *leaves;
    bool all;
};

static void check_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct marks *m = ctx;

    (void)arg;
    m->all = m->all && m->constant[pst_value_storage(*slot)->id];
}

/* Marks the values that a microbatch sends, returns or adds to gradients: they
 * must be in its slots. */
static void mark_leaving(const struct pst_program *p, struct marks *m)
{
    const struct pst_graph *graph = p->graph;

    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            m->leaves[pst_value_storage(graph->outputs.at[i].arg.value)->id] =
                true;
    for (size_t i = 0; p->joint != NULL && i < p->joint->input_grads.n; i++)
        m->leaves[pst_value_storage(p->joint->input_grads.at[i].value)->id] =
            true;
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (pst_is_accumulate(graph->nodes.at[i]))
            m->leaves[pst_value_storage(graph->nodes.at[i]->args[1].value)
                          ->id] = true;
}

static bool is_constant(struct marks *m, struct pst_node *node)
{
    if (node->op->flags & (PST_OP_RANDOM | PST_OP_EFFECT | PST_OP_MARKER))
        return false;
    m->all = node->n_outs > 0;
    for (unsigned i = 0; i < node->n_outs; i++)
        if (node->outs[i] == NULL || m->leaves[node->outs[i]->id])
            return false;
    pst_node_uses(node, check_use, m);
    return m->all;
}

enum pst_status pst_pass_constants(struct pst_compiler *c,
                                   struct pst_diag *diag)
{
    struct pst_program *p = c->p;
    const struct pst_graph *graph = p->graph;
    const size_t n = graph->values.n;
    struct marks m = {.constant = pst_arena_calloc(&p->arena, n + 1, 1),
                      .leaves = pst_arena_calloc(&p->arena, n + 1, 1)};
    bool *updated = NULL;
    enum pst_status status = pst_find_updated(p, &updated, diag);

    if (status != PST_OK)
        return status;
    if (m.constant == NULL || m.leaves == NULL)
        return pst_diag_nomem(diag, n);
    for (size_t i = 0; i < n; i++)
        m.constant[i] = is_given(p, updated, graph->values.at[i]);
    mark_leaving(p, &m);
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (is_constant(&m, graph->nodes.at[i]))
            for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++)
                m.constant[graph->nodes.at[i]->outs[k]->id] = true;
    p->constant = m.constant;
    p->n_constant = n;
    return PST_OK;
}

bool pst_is_constant(const struct pst_program *p, const struct pst_value *value)
{
    const unsigned id = pst_value_storage((struct pst_value *)value)->id;

    return id < p->n_constant && p->constant[id];
}

static bool same_tensor(const struct pst_value *a, const struct pst_value *b)
{
    const struct pst_value *x = pst_value_storage((void *)a);
    const struct pst_value *y = pst_value_storage((void *)b);

    return x->kind != PST_VALUE_NODE && y->kind != PST_VALUE_NODE &&
           x->fqn != NULL && y->fqn != NULL && strcmp(x->fqn, y->fqn) == 0 &&
           a->offset == b->offset && pst_meta_same_layout(&a->meta, &b->meta);
}

bool pst_prepared_same(const struct pst_value *a, const struct pst_value *b)
{
    const struct pst_node *x = a->def, *y = b->def;

    if (x->op != y->op || a->def_index != b->def_index ||
        !pst_meta_same_layout(&a->meta, &b->meta))
        return false;
    for (unsigned i = 0; i < x->schema->n_args; i++) {
        const struct pst_arg *p = &x->args[i], *q = &y->args[i];
        const bool tensors =
            p->kind == PST_ARG_VALUE && q->kind == PST_ARG_VALUE;

        if (tensors ? !same_tensor(p->value, q->value) : !pst_arg_same(p, q))
            return false;
    }
    return true;
}

enum pst_list pst_list_of(const struct pst_program *p,
                          const struct pst_node *node)
{
    if (node->n_outs > 0 && pst_is_constant(p, node->outs[0]))
        return PST_LIST_P;
    if (node->phase == PST_PHASE_F)
        return PST_LIST_F;
    if (node->phase == PST_PHASE_W && p->options.split_iw)
        return PST_LIST_W;
    return PST_LIST_B;
}
