// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_POINTWISE_CHAIN_H
#define PENSTOCK_STAGES_OPS_POINTWISE_CHAIN_H
/*
 * Chains of elementwise nodes (penstock.chain), which only the compiler creates
 * (stages/compile/chains/). The kernels of all nodes run on a block of the
 * operands before the next block begins, so that values between the nodes stay
 * in the cache. Other devices have kernels of their own, for which the sizes of
 * blocks mean nothing (stages/ops/cuda/elements/chain.c). The bits are those of
 * the separate nodes.
 *
 * A chain is constant and lives in the arena of its program.
 */
#include "stages/ops/core/op.h"

#define PST_CHAIN_OPERANDS 4 /* maximum number of operands of a part */
#define PST_CHAIN_PARTS    32

/* Elements of a block, unless the program sets another number. */
#define PST_CHAIN_BLOCK 8192

enum pst_chain_place {
    PST_CHAIN_IN,   /* operand of the chain */
    PST_CHAIN_OUT,  /* result of the chain */
    PST_CHAIN_SLOT, /* scratch */
};

/* An operand or the result of a part. */
struct pst_chain_operand {
    enum pst_chain_place place;
    unsigned index; /* number of the operand, result or slot */
    int64_t step;   /* bytes from a block to the next; 0 in a slot */
    /* shape of the operand in a block, and its shape in the last block, which
     * may have fewer rows */
    struct pst_meta whole, last;
};

/* A node of the chain, and the operands of its call on a block. */
struct pst_chain_part {
    const struct pst_node *node;
    const struct pst_kernel *kernel;
    const void *owner; /* as in struct pst_call */
    unsigned n_in;
    struct pst_chain_operand *in, out;
};

struct pst_chain {
    struct pst_chain_part *parts;
    unsigned n_parts;
    int64_t numel;
    /* A block has `block` rows of `cols` elements; the last one may have fewer
     * rows. */
    int64_t cols, block, blocks;
    unsigned slots;
    size_t slot_size;
    unsigned n_in; /* operands of the chain */
    /* over[k * n_in + i]: true if result k may use the memory of operand i. */
    const bool *over;
};

/* True if the kernel may write result k of the call over operand i. */
bool pst_call_may_overwrite(const struct pst_call *call,
                            const struct pst_kernel *kernel, unsigned k,
                            unsigned i);

#endif
