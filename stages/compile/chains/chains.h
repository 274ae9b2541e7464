// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_CHAINS_CHAINS_H
#define PENSTOCK_STAGES_COMPILE_CHAINS_CHAINS_H
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
/* Returns false if the operand has neither one stride nor rows. */
bool pst_chain_strides(const struct pst_meta *out, const struct pst_meta *in,
                       struct pst_chain_strides *ret);

/* Nodes that become one chain. Each node that can be part of a chain is in a
 * group, at first alone. */
struct pst_chain_group {
    struct PST_VEC(unsigned) nodes; /* indices in the graph's list, ascending */
    size_t at;                      /* place of the group */
    int64_t cols; /* length of the rows of an operand with rows; 0: none */
};

struct pst_chain_node {
    struct pst_chain_item as;
    struct pst_chain_group *group; /* NULL: it cannot be part of a chain */
    unsigned hard;                 /* earlier kernels that no chain can hold */
    int64_t cols;
};

struct pst_chainer {
    struct pst_program *program;
    struct pst_graph *graph;
    struct pst_diag *diag;
    struct pst_chain_node *items; /* by index in the graph's list */
    size_t n;
    size_t *maker; /* by value id: index of the node that makes it */
    /* Nodes that read value i, by index: readers[first[i]..first[i + 1]) */
    size_t *first, *readers;
    bool *leaves; /* by value id: an output or a sent gradient */
    int64_t block;
    struct pst_chain_kept kept;
};

/* Joins groups as far as they fit together. */
enum pst_status pst_chain_join(struct pst_chainer *c) PST_MUST_CHECK;
/* True if something outside of the group reads the value. */
bool pst_chain_is_kept(struct pst_chainer *c,
                       const struct pst_chain_group *group,
                       const struct pst_value *value);

/* Lets backward nodes that can be parts of chains compute cheap results of the
 * forward again, if the operands of these are kept anyway. can: by node index,
 * whether the node can be part of a chain; leaves: by value id, whether the
 * value is read after the lists. */
enum pst_status pst_chain_recompute(struct pst_program *p, const bool *can,
                                    const bool *leaves,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Makes the node of a chain, without adding it to the graph. Afterwards results
 * of parts that are not kept have no node. */
enum pst_status pst_chain_make(struct pst_program *p,
                               const struct pst_chain_spec *spec,
                               struct pst_node **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
