// SPDX-License-Identifier: Apache-2.0
/* Chooses the kernel of a node; inserts nodes before others. */
#include "stages/base/vec.h"
#include "stages/compile/compile.h"
#include "stages/graph/build.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/rewrite.h"

bool pst_node_executes(const struct pst_node *node)
{
    if (!pst_op_runs(node->op) || pst_node_is_empty(node))
        return false;
    for (unsigned i = 0; i < node->n_outs; i++)
        if (node->outs[i] != NULL && node->outs[i]->base == NULL)
            return true;
    return node->n_outs == 0; /* accumulate_grad has no result */
}

static void record_rounded(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct pst_value *storage = pst_value_storage(*slot);
    bool *any = ctx;

    (void)arg;
    if (storage->def != NULL && storage->def->op == &pst_op_round_bf16)
        *any = true;
}

/* True if the node's operands are already rounded to bf16. If one of them is,
 * all are. */
static bool reads_rounded(const struct pst_node *node)
{
    bool any = false;

    pst_node_uses((struct pst_node *)node, record_rounded, &any);
    return any;
}

enum pst_status pst_node_kernel(const struct pst_node *node,
                                const struct pst_program_options *options,
                                struct pst_call *call,
                                const struct pst_kernel **ret,
                                struct pst_diag *diag)
{
    *ret = NULL;
    if (!pst_node_executes(node))
        return PST_OK;
    call->args = node->args;
    call->chain = node->chain;
    call->bf16 = options->bf16 && !reads_rounded(node);
    call->tf32 = options->tf32;
    call->n_in = pst_call_count_in(node->schema, node->args);
    call->n_out = node->n_outs;
    if (call->n_in > PST_MAX_OPERANDS || call->n_out > PST_MAX_OPERANDS)
        return pst_diag_set(diag, PST_E_OP_TOO_MANY,
                            "%s in module '%s' has %u operands, at most %u "
                            "are possible",
                            pst_node_origin(node), node->call->name, call->n_in,
                            (unsigned)PST_MAX_OPERANDS);
    if (pst_op_kernels(options->device, node->op).n == 0)
        return pst_diag_set(diag, PST_E_OP_NO_KERNEL,
                            "device %s has no kernel of %s (module '%s', %s)",
                            options->device->name, pst_node_origin(node),
                            node->call->name, node->source);
    pst_call_bind_metas(node->schema, node->args, call->in);
    for (unsigned i = 0; i < node->n_outs; i++)
        call->out[i] = (struct pst_operand){.meta = &node->outs[i]->meta};
    *ret = pst_kernel_find(options->device, node->op, call, options->isa, NULL);
    if (*ret == NULL)
        return pst_diag_set(diag, PST_E_OP_NO_KERNEL,
                            "no kernel of %s for these dtypes and shapes "
                            "(module '%s', %s)",
                            pst_node_origin(node), node->call->name,
                            node->source);
    return PST_OK;
}

static enum pst_status rewrite_node(struct pst_program *program,
                                    struct pst_build *build, pst_node_fn fn,
                                    void *ctx, struct pst_node *node)
{
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_kernel *kernel;
    enum pst_status status;

    status =
        pst_node_kernel(node, &program->options, &call, &kernel, build->diag);
    if (status != PST_OK || kernel == NULL)
        return status;
    pst_build_at(build, node);
    status = fn(ctx, node, &call, kernel);
    return status == PST_OK ? build->status : status;
}

struct rewrite {
    struct pst_program *program;
    struct pst_build *build;
    pst_node_fn fn;
    void *ctx;
};

static enum pst_status rewrite_and_keep(void *ctx, struct pst_node *node)
{
    const struct rewrite *w = ctx;
    enum pst_status status =
        rewrite_node(w->program, w->build, w->fn, w->ctx, node);

    if (status == PST_OK &&
        !pst_vec_push(PST_TAG_GRAPH, &w->program->graph->nodes, node))
        status = pst_diag_nomem(w->build->diag, sizeof(node));
    return status;
}

enum pst_status pst_rewrite_nodes(struct pst_program *program,
                                  struct pst_build *build, pst_node_fn fn,
                                  void *ctx)
{
    struct rewrite w = {program, build, fn, ctx};

    return pst_graph_rewrite(program->graph, rewrite_and_keep, &w);
}
