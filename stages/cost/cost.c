// SPDX-License-Identifier: Apache-2.0
#include "stages/cost/cost.h"

#include "stages/ops/loss/head.h"

static const struct pst_rates *rates_of(const struct pst_cost_setup *s)
{
    return s->rates != NULL ? s->rates : &pst_rates_reference;
}

static double threads_of(const struct pst_cost_setup *s)
{
    return PST_MAX(s->threads, 1);
}

bool pst_node_is_work(const struct pst_node *node)
{
    return pst_op_runs(node->op) &&
           (node->n_outs == 0 || node->outs[0]->base == NULL);
}

/* Returns the operations per second of one thread for a node. The bf16 rate
 * applies only to matmuls, also inside heads, whose operands are bf16 or, with
 * --dtype bf16, f32. */
static double speed_of(const struct pst_cost_setup *s,
                       const struct pst_node *node)
{
    const struct pst_rates *r = rates_of(s);
    const enum pst_dtype dtype = pst_head_matmul_dtype(node);
    const bool rounds = (node->op->flags & PST_OP_PRODUCT) != 0;

    if (dtype == PST_F64)
        return r->f64;
    if (rounds && r->bf16 > r->f32 &&
        (dtype == PST_BF16 || (dtype == PST_F32 && s->bf16)))
        return r->bf16;
    return r->f32;
}

static void add_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    double *bytes = ctx;

    (void)arg;
    *bytes += (double)pst_meta_bytes(&(*slot)->meta);
}

double pst_cost_of_node(const struct pst_cost_setup *setup,
                        struct pst_node *node)
{
    double bytes = 0;

    if (!pst_node_is_work(node))
        return 0.0;
    pst_node_uses(node, add_use, &bytes);
    for (unsigned i = 0; i < node->n_outs; i++)
        bytes += (double)pst_meta_bytes(&node->outs[i]->meta);
    return rates_of(setup)->launch +
           pst_node_flops(node) / (speed_of(setup, node) * threads_of(setup)) +
           pst_cost_of_memory(setup, bytes);
}

double pst_cost_of_memory(const struct pst_cost_setup *setup, double bytes)
{
    const double rate = rates_of(setup)->bytes * threads_of(setup);

    return bytes < PST_COST_CACHE ? bytes / (PST_COST_CACHE_RATE * rate)
                                  : bytes / rate;
}

double pst_cost_of_wire(const struct pst_cost_setup *setup, double bytes)
{
    return bytes / rates_of(setup)->wire;
}
