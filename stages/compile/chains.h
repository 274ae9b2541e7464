// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_CHAINS_H
#define PENSTOCK_STAGES_COMPILE_CHAINS_H
/* Makes nodes of penstock.chain from elementwise nodes. */
#include "stages/compile/compile.h"
#include "stages/ops/pointwise/chain.h"

/* A node, and its kernel. */
struct pst_chain_item {
    struct pst_node *node;
    const struct pst_kernel *kernel;
    const void *owner; /* as in struct pst_call */
};

/* Which results of the nodes are read outside of the chain. */
struct pst_chain_kept {
    bool is[PST_CHAIN_PARTS];
};

/* A chain to be made. */
struct pst_chain_spec {
    const struct pst_chain_item *const *items; /* in order */
    unsigned n;
    const struct pst_chain_kept *kept;
    int64_t cols;  /* length of rows; 0: operands have no rows */
    int64_t block; /* elements of a block */
};

/* Strides of an operand, in elements, for the elements of a result in row-major
 * order: one stride (cols 0), or rows of cols elements. */
struct pst_chain_strides {
    int64_t cols, row, col;
};
/* Returns false if the operand has neither. */
bool pst_chain_strides(const struct pst_meta *out, const struct pst_meta *in,
                       struct pst_chain_strides *ret);

/* Makes the node, which is not yet in the graph. Results that are not kept have
 * no node from then on. */
enum pst_status pst_chain_make(struct pst_program *p,
                               const struct pst_chain_spec *spec,
                               struct pst_node **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
