// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/pointwise/chain.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/pointwise/nd.h"

/* --- the kernel ----------------------------------------------------------- */

/* The call of a part of the chain on a block, with its operands. */
struct part_call {
    struct pst_call call;
    struct pst_operand in[PST_CHAIN_OPERANDS], out;
};

static size_t scratch_of_thread(const struct pst_chain *chain)
{
    return chain->slots * chain->slot_size;
}

static size_t chain_scratch(const struct pst_call *c, unsigned threads)
{
    return scratch_of_thread(c->chain) * threads;
}

static void part_init(const struct pst_call *c,
                      const struct pst_chain_part *part, struct part_call *ret)
{
    ret->call = (struct pst_call){.in = ret->in,
                                  .out = &ret->out,
                                  .n_in = part->n_in,
                                  .n_out = 1,
                                  .args = part->node->args,
                                  .fault = c->fault,
                                  .site = c->site,
                                  .owner = part->owner};
}

/* Returns operand x in block number `at`. */
static struct pst_operand operand_at(const struct pst_call *c,
                                     const struct pst_chain_operand *x,
                                     int64_t at, char *scratch)
{
    char *data = x->place == PST_CHAIN_IN ? c->in[x->index].data
                 : x->place == PST_CHAIN_OUT
                     ? c->out[x->index].data
                     : scratch + x->index * c->chain->slot_size;

    return (struct pst_operand){
        data + at * x->step, at + 1 < c->chain->blocks ? &x->whole : &x->last};
}

static void run_block(const struct pst_call *c, struct part_call *calls,
                      int64_t at, char *scratch)
{
    for (unsigned i = 0; i < c->chain->n_parts; i++) {
        const struct pst_chain_part *part = &c->chain->parts[i];
        struct part_call *to = &calls[i];

        for (unsigned k = 0; k < part->n_in; k++)
            to->in[k] = operand_at(c, &part->in[k], at, scratch);
        to->out = operand_at(c, &part->out, at, scratch);
        part->kernel->run(&to->call);
    }
}

static void run_blocks(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_call *c = ctx;
    const struct pst_chain *chain = c->chain;
    PST_UNINIT struct part_call calls[PST_CHAIN_PARTS];
    char *scratch = c->scratch;
    int64_t begin, end;

    if (scratch != NULL)
        scratch += part * scratch_of_thread(chain);
    for (unsigned i = 0; i < chain->n_parts; i++)
        part_init(c, &chain->parts[i], &calls[i]);
    pst_pool_share(chain->blocks, 1, part, parts, &begin, &end);
    for (int64_t at = begin; at < end; at++)
        run_block(c, calls, at, scratch);
}

static void chain_run(const struct pst_call *c)
{
    pst_pool_run(pst_pool_if(c->pool, c->chain->numel >= PST_ND_SERIAL),
                 run_blocks, (void *)c);
}

bool pst_call_may_overwrite(const struct pst_call *call,
                            const struct pst_kernel *kernel, unsigned k,
                            unsigned i)
{
    if (call->chain != NULL)
        return call->chain->over[k * call->chain->n_in + i];
    return k == 0 && i == 0 && (kernel->flags & PST_K_INPLACE_0) != 0;
}

/* --- the row -------------------------------------------------------------- */

static enum pst_status infer_chain(struct pst_infer *c)
{
    return pst_infer_fail(c, "only the compiler makes chains");
}

static double chain_flops(const struct pst_node *node)
{
    double flops = 0.0;

    for (unsigned i = 0; node->chain != NULL && i < node->chain->n_parts; i++)
        flops += pst_node_flops(node->chain->parts[i].node);
    return flops;
}

static const struct pst_kernel chain_kernels[] = {
    {"chain", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, chain_scratch,
     chain_run, 0.0},
};

const struct pst_op pst_op_chain = {
    .schema = "penstock::chain(Tensor[] inputs, str parts) -> Tensor[]",
    .flags = PST_OP_ORIGIN | PST_OP_COMPILED,
    .infer = infer_chain,
    .vjp = pst_vjp_none,
    .flops = chain_flops,
};
PST_CPU_KERNELS(chain, chain_kernels);
