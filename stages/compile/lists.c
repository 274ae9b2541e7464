// SPDX-License-Identifier: Apache-2.0
/* Builds the kernel sequence of each action, with call templates. */
#include "stages/compile/compile.h"
#include "stages/ops/core/call.h"

/* Returns the gradient that the node's kernel adds into, or NULL. */
static struct pst_value *fused_into(const struct pst_compiler *c,
                                    const struct pst_node *node)
{
    return node->n_outs > 0 ? c->fused[node->outs[0]->id] : NULL;
}

/* True if another node's kernel does this accumulation. */
static bool is_fused_away(const struct pst_compiler *c,
                          const struct pst_node *accumulate)
{
    return c->fused[pst_value_storage(accumulate->args[1].value)->id] != NULL;
}

static enum pst_status make_exec_node(struct pst_compiler *c,
                                      struct pst_node *node,
                                      struct pst_exec_node *x, bool *ret_runs,
                                      struct pst_diag *diag)
{
    struct pst_value *fused = fused_into(c, node);
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    struct pst_arena *arena = &c->p->arena;
    enum pst_status status;

    status = pst_node_kernel(node, &c->p->options, &call, &x->kernel, diag);
    *ret_runs = status == PST_OK && x->kernel != NULL;
    if (!*ret_runs)
        return status;
    x->node = node;
    x->call = call;
    x->call.in = pst_arena_memdup(arena, in, call.n_in * sizeof(*in) + 1);
    x->call.out = pst_arena_memdup(arena, out, call.n_out * sizeof(*out) + 1);
    x->in = pst_arena_calloc(arena, call.n_in + 1, sizeof(*x->in));
    x->out = pst_arena_calloc(arena, call.n_out + 1, sizeof(*x->out));
    if (x->call.in == NULL || x->call.out == NULL || x->in == NULL ||
        x->out == NULL)
        return pst_diag_nomem(diag, sizeof(*x));
    x->call.rng.node = node->id;
    if (fused != NULL) {
        x->role = PST_GRAD_FUSED;
        x->grad = fused;
    } else if (pst_is_accumulate(node)) {
        x->role = PST_GRAD_ADD;
        x->grad = node->args[0].value;
    }
    if (x->kernel->scratch != NULL)
        x->call.scratch_size =
            x->kernel->scratch(&x->call, c->p->options.threads);
    return PST_OK;
}

static enum pst_status add_node(struct pst_compiler *c, struct pst_node *node,
                                struct pst_diag *diag)
{
    const enum pst_list l = pst_list_of(c->p, node);
    struct pst_exec_list *list = &c->p->lists[l];
    enum pst_status status;
    bool runs;

    if (pst_is_accumulate(node) && is_fused_away(c, node))
        return PST_OK;
    status = make_exec_node(c, node, &list->at[list->n], &runs, diag);
    if (status != PST_OK || !runs)
        return status;
    list->n++;
    return PST_OK;
}

enum pst_status pst_pass_kernels(struct pst_compiler *c, struct pst_diag *diag)
{
    const struct pst_graph *graph = c->p->graph;
    size_t n[PST_N_LISTS] = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->nodes.n; i++)
        n[pst_list_of(c->p, graph->nodes.at[i])]++;
    for (int l = 0; l < PST_N_LISTS; l++) {
        c->p->lists[l].at = pst_arena_calloc(&c->p->arena, n[l] + 1,
                                             sizeof(struct pst_exec_node));
        if (c->p->lists[l].at == NULL)
            return pst_diag_nomem(diag, n[l] * sizeof(struct pst_exec_node));
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++)
        status = add_node(c, graph->nodes.at[i], diag);
    return status;
}
