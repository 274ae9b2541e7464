// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_HEADS_READ_H
#define PENSTOCK_STAGES_PASSES_HEADS_READ_H
/* Reads the nodes of which a head consists (stages/passes/heads.h). Private to
 * the files heads*.c. Any thread. */
#include "stages/graph/graph.h"

/* Values of PyTorch's argument `reduction`. */
enum { PST_HEAD_MEAN = 1, PST_HEAD_SUM = 2 };

struct pst_head_loss {
    struct pst_value *logits;
    struct pst_arg target, reduction, ignore, smoothing;
    bool has_weights; /* classes are weighted */
    /* the node that reads the logits: the loss, or a log_softmax before it */
    const struct pst_node *reader;
};

/* If the node is a cross entropy, sets *ret to its operands and options; else
 * returns false. */
bool pst_head_read_loss(const struct pst_node *node, struct pst_head_loss *ret);
/* True if log_softmax is over the last dimension, without another dtype. */
bool pst_head_is_over_last(const struct pst_node *node);

struct pst_head_z {
    const struct pst_node *log_sum; /* the logsumexp */
    struct pst_value *mask;         /* NULL: there is none */
    int64_t reduction;
};

/* If the node is the sum or mean of a z-loss and nothing else reads the
 * intermediate values, sets *ret; else returns false. uses: number of readers,
 * by value id; NULL: readers are not checked. read: as for pst_heads_find(). */
bool pst_head_read_z(const struct pst_node *node, const unsigned *uses,
                     const bool *read, struct pst_head_z *ret);

/* Operands of a linear layer. */
struct pst_head_layer {
    struct pst_value *x, *weight, *bias; /* bias NULL: there is none */
    /* dtype of x and of the results: f32; or bf16 or f16, to which the nodes
     * before the layer cast weight and bias, which are f32 */
    enum pst_dtype dtype;
};

/* If the node is a linear layer, or a matmul with a transposed weight, into
 * which some exports decompose it, sets *ret to the operands; else returns
 * false. */
bool pst_head_read_layer(const struct pst_node *node,
                         struct pst_head_layer *ret);

/* True for the bf16 or f16 results of a linear layer under autocast. */
bool pst_head_is_low(enum pst_dtype dtype);
/* True for a conversion between two dtypes, through which the gradient goes. */
bool pst_head_is_cast(const struct pst_node *node, enum pst_dtype from,
                      enum pst_dtype to);
/* True for a conversion of bf16 or f16 logits to f32. */
bool pst_head_is_upcast(const struct pst_node *node);
/* True if the result has the elements of the operand, in the same order. */
bool pst_head_is_view(const struct pst_node *node);
int64_t pst_head_last_size(const struct pst_value *value);
/* Returns the factor of a multiplication or division by a number; 0: it is
 * another node. */
double pst_head_factor(const struct pst_node *node);
/* True if the node reads one of the values, which are marked by id. */
bool pst_head_reads_any(struct pst_node *node, const bool *values);

#endif
