// SPDX-License-Identifier: Apache-2.0
/* Fuses matmuls with the accumulation of their results into gradients. */
#include "stages/compile/compile.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/devices.h"
#include "stages/ops/rates/rates.h"

bool pst_is_accumulate(const struct pst_node *node)
{
    return node->op == &pst_op_accumulate_grad;
}

struct counting {
    unsigned *uses; /* by id of a storage: number of uses except by views */
    const struct pst_node *node;
};

static void count_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counting *c = ctx;
    const struct pst_value *storage = pst_value_storage(*slot);

    (void)arg;
    if (c->node->n_outs == 0 || c->node->outs[0]->base != storage)
        c->uses[storage->id]++;
}

static void count_every_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counting *c = ctx;

    (void)arg;
    c->uses[(*slot)->id]++;
}

/* --- matmuls in 16 bits -------------------------------------------------- */

static bool is_matmul(const struct pst_node *node)
{
    return node != NULL && node->n_outs == 1 &&
           (node->op == &pst_op_matmul || node->op == &pst_op_mm) &&
           node->args[0].value->meta.dtype == PST_BF16 &&
           node->args[1].value->meta.dtype == PST_BF16;
}

/* Returns the conversion to f32 between a matmul in bf16 and the gradient that
 * its result is added to; NULL: `add` adds something else. */
static struct pst_node *find_conversion(const struct pst_node *add,
                                        const unsigned *uses)
{
    struct pst_value *sum = pst_is_accumulate(add) ? add->args[1].value : NULL;
    struct pst_node *node = sum != NULL ? sum->def : NULL;
    const struct pst_value *from;

    if (node == NULL || node->op != &pst_op__to_copy ||
        sum->meta.dtype != PST_F32 || uses[sum->id] != 1)
        return NULL;
    from = node->args[0].value;
    return uses[from->id] == 1 && is_matmul(from->def) &&
                   from->def->phase == node->phase &&
                   pst_meta_same(&from->meta, &from->def->outs[0]->meta)
               ? node
               : NULL;
}

static bool has_matmul(const struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (is_matmul(graph->nodes.at[i]))
            return true;
    return false;
}

enum pst_status pst_pass_sums(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_graph *graph = c->p->graph;
    const size_t n = graph->nodes.n;
    struct counting counting;

    /* pst_rates_use_bf16() comes last: it has oneDNN make a bf16 matmul, to
     * find out whether the machine supports bf16. */
    if (c->p->options.device != &pst_device_cpu || !has_matmul(graph) ||
        !pst_rates_use_bf16())
        return PST_OK;
    counting.uses =
        pst_calloc(PST_TAG_EXEC, graph->values.n + 1, sizeof(unsigned));
    if (counting.uses == NULL)
        return pst_diag_nomem(diag, n * sizeof(unsigned));
    for (size_t i = 0; i < n; i++) {
        counting.node = graph->nodes.at[i];
        pst_node_uses(graph->nodes.at[i], count_every_use, &counting);
    }
    for (size_t i = 0; i < n; i++) {
        struct pst_node *add = graph->nodes.at[i];
        struct pst_node *node = find_conversion(add, counting.uses);

        if (node == NULL)
            continue;
        add->args[1] = node->args[0];
        add->args[1].value->meta.dtype = PST_F32;
        node->outs[0]->def = NULL;
        node->op = NULL;
    }
    graph->nodes.n = 0;
    for (size_t i = 0; i < n; i++)
        if (graph->nodes.at[i]->op != NULL)
            graph->nodes.at[graph->nodes.n++] = graph->nodes.at[i];
    pst_free(counting.uses);
    return PST_OK;
}

/* --- accumulation --------------------------------------------------------- */

/* True if kernels of such nodes may add result 0 into a gradient: nodes of
 * phase W with one result, and heads of language models. This does not depend
 * on the schedule, so the bits do not, either. */
static bool may_add(const struct pst_node *node)
{
    return node->op == &pst_op_linear_cross_entropy_backward ||
           node->op == &pst_op_linear_cross_entropy_weight ||
           (node->n_outs == 1 && node->phase == PST_PHASE_W);
}

/*
 * True if the node that computes `contribution` may add into the gradient
 * directly: its result has no other use and has the gradient's layout (the same
 * elements in row-major order).
 */
static bool can_fuse(const struct pst_compiler *c,
                     const struct pst_value *contribution, const unsigned *uses)
{
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_value *storage = pst_value_storage((void *)contribution);
    const struct pst_kernel *kernel;

    if (storage->def == NULL || storage->def_index != 0 ||
        !may_add(storage->def) || contribution->offset != 0 ||
        !pst_meta_is_contiguous(&contribution->meta) ||
        pst_meta_numel(&contribution->meta) != pst_meta_numel(&storage->meta))
        return false;
    return uses[storage->id] == 1 &&
           pst_node_kernel(storage->def, &c->p->options, &call, &kernel,
                           NULL) == PST_OK &&
           kernel != NULL && (kernel->flags & PST_K_ACCUMULATE);
}

enum pst_status pst_pass_fusion(struct pst_compiler *c, struct pst_diag *diag)
{
    const struct pst_graph *graph = c->p->graph;
    const size_t n = graph->values.n;
    struct counting counting = {
        .uses = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(unsigned))};

    c->fused = pst_arena_calloc(&c->p->arena, n + 1, sizeof(*c->fused));
    if (counting.uses == NULL || c->fused == NULL) {
        pst_free(counting.uses);
        return pst_diag_nomem(diag, n * sizeof(*c->fused));
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        counting.node = graph->nodes.at[i];
        pst_node_uses(graph->nodes.at[i], count_use, &counting);
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];

        if (pst_is_accumulate(node) &&
            can_fuse(c, node->args[1].value, counting.uses))
            c->fused[pst_value_storage(node->args[1].value)->id] =
                node->args[0].value;
    }
    pst_free(counting.uses);
    return PST_OK;
}
