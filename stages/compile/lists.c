// SPDX-License-Identifier: Apache-2.0
/* What an action runs: kernels in order, products fused into gradients. */
#include <string.h>

#include "stages/compile/compile.h"
#include "stages/ops/call.h"

struct counting {
    size_t uses;
    const struct pst_value *storage, *value;
};

static void count_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counting *c = ctx;

    (void)arg;
    if (pst_value_storage(*slot) == c->storage)
        c->uses++;
}

/*
 * The node whose result `contribution` is, if its kernel can add straight into
 * the gradient: the result is used nowhere else and is stored as the gradient
 * is (the same elements in row-major order).
 */
static struct pst_node *fusable(struct pst_compiler *c,
                                const struct pst_node *accumulate)
{
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_value *value = accumulate->args[1].value;
    const struct pst_value *storage = pst_value_storage((void *)value);
    const struct pst_graph *graph = c->p->graph;
    struct counting counting = {.storage = storage, .value = value};
    const struct pst_kernel *kernel;

    if (storage->def == NULL || storage->def_index != 0 ||
        storage->def->n_outs != 1 || storage->def->phase != PST_PHASE_W ||
        value->offset != 0 || !pst_meta_is_contiguous(&value->meta) ||
        pst_meta_numel(&value->meta) != pst_meta_numel(&storage->meta))
        return NULL;
    if (pst_node_kernel(storage->def, &c->p->options, &call, &kernel, NULL) !=
            PST_OK ||
        kernel == NULL || !(kernel->flags & PST_K_ACCUMULATE))
        return NULL;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        bool view = node->n_outs > 0 && node->outs[0]->base == storage;

        if (!view)
            pst_node_uses(node, count_use, &counting);
    }
    return counting.uses == 1 ? storage->def : NULL;
}

bool pst_is_accumulate(const struct pst_node *node)
{
    return strcmp(node->schema->name, "penstock.accumulate_grad.default") == 0;
}

/* Marks which nodes are fused into which gradient: by node pointer. */
struct fusion {
    struct pst_node *node;
    struct pst_value *grad;
};

static enum pst_status find_fusions(struct pst_compiler *c, struct fusion **ret,
                                    size_t *ret_n)
{
    const struct pst_graph *graph = c->p->graph;
    struct fusion *f =
        pst_arena_calloc(&c->p->arena, graph->nodes.n + 1, sizeof(*f));
    size_t n = 0;

    if (f == NULL)
        return pst_diag_nomem(c->diag, graph->nodes.n * sizeof(*f));
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i], *target;

        if (!pst_is_accumulate(node))
            continue;
        target = fusable(c, node);
        if (target != NULL)
            f[n++] = (struct fusion){target, node->args[0].value};
    }
    *ret = f;
    *ret_n = n;
    return PST_OK;
}

static struct pst_value *fused_grad(const struct fusion *fusions, size_t n,
                                    const struct pst_node *node)
{
    for (size_t i = 0; i < n; i++)
        if (fusions[i].node == node)
            return fusions[i].grad;
    return NULL;
}

/* Does this accumulate node's work happen inside another node's kernel? */
static bool is_fused_away(const struct fusion *fusions, size_t n,
                          const struct pst_node *accumulate)
{
    const struct pst_node *def =
        pst_value_storage(accumulate->args[1].value)->def;

    return def != NULL && fused_grad(fusions, n, def) != NULL;
}

static enum pst_status make_exec_node(struct pst_compiler *c,
                                      struct pst_node *node,
                                      struct pst_value *fused,
                                      struct pst_exec_node *x, bool *ret_runs)
{
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    struct pst_arena *arena = &c->p->arena;
    enum pst_status status;

    status = pst_node_kernel(node, &c->p->options, &call, &x->kernel, c->diag);
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
        return pst_diag_nomem(c->diag, sizeof(*x));
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

enum pst_status pst_compile_lists(struct pst_compiler *c)
{
    const struct pst_graph *graph = c->p->graph;
    struct fusion *fusions = NULL;
    size_t n_fusions = 0;
    enum pst_status status = pst_mark_constants(c->p, c->diag);

    if (status == PST_OK)
        status = find_fusions(c, &fusions, &n_fusions);

    for (int l = 0; l < PST_N_LISTS && status == PST_OK; l++) {
        c->p->lists[l].at = pst_arena_calloc(&c->p->arena, graph->nodes.n + 1,
                                             sizeof(struct pst_exec_node));
        if (c->p->lists[l].at == NULL)
            return pst_diag_nomem(c->diag, graph->nodes.n);
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct pst_exec_list *list = &c->p->lists[pst_list_of(c->p, node)];
        bool runs;

        if (pst_is_accumulate(node) && is_fused_away(fusions, n_fusions, node))
            continue;
        status = make_exec_node(c, node, fused_grad(fusions, n_fusions, node),
                                &list->at[list->n], &runs);
        if (status == PST_OK && runs) {
            if (pst_list_of(c->p, node) == PST_LIST_F)
                c->p->flops_f += pst_node_flops(node);
            else if (pst_list_of(c->p, node) != PST_LIST_P)
                c->p->flops_b += pst_node_flops(node);
            list->n++;
        }
    }
    return status;
}
