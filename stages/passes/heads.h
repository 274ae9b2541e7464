// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_HEADS_H
#define PENSTOCK_STAGES_PASSES_HEADS_H
/*
 * Heads of language models: a linear layer whose results (logits) only a cross
 * entropy reads, through views, slices of rows, a factor, a soft cap
 * (c tanh(x / c)) or, under autocast, a conversion of bf16 or f16 to f32. A
 * z-loss may read them, too: the sum or mean of the squares
 * of their logsumexp, which may be multiplied by a mask. Outputs of the model
 * may read them. A stage computes a head as one operator, chunk by chunk
 * (stages/ops/loss/head.h).
 *
 * The splitter cuts no head, so whether the operator is used does not depend on
 * the cut. One thread.
 */
#include "stages/graph/graph.h"

/* A loss with fewer classes is no head: its logits are small. */
#define PST_HEAD_CLASSES 1024

#define PST_HEAD_NO_Z SIZE_MAX

struct pst_head_found {
    /* Indices of nodes in the graph. first: the linear layer, or the first node
     * that transposes or casts its weight or casts its bias; z: the sum or mean
     * of a z-loss, PST_HEAD_NO_Z: there is none; last: the later one of loss
     * and z. */
    size_t first, linear, loss, z, last;
    double scale, cap; /* as in stages/ops/loss/head.h */
};
struct pst_heads {
    struct PST_VEC(struct pst_head_found) list; /* in order of the losses */
};

/* Finds the heads of a forward graph. read: by value id, values that other
 * stages read, so that they are no logits of a head; NULL: none. */
enum pst_status pst_heads_find(const struct pst_graph *graph, const bool *read,
                               struct pst_heads *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_heads_fini(struct pst_heads *heads);

/* Marks the logits of a head, by value id: the results of the linear layer and
 * of what follows it, up to the loss and the logsumexp. */
void pst_heads_mark(const struct pst_graph *graph,
                    const struct pst_head_found *head, bool *marks);
/* Replaces each loss, and z, by penstock.linear_cross_entropy, at the index of
 * the later one; nodes in between that depend on the other one are moved after
 * it. The linear layer and the nodes between it and the loss stay, without
 * readers except outputs. */
enum pst_status pst_heads_fold(struct pst_graph *graph,
                               const struct pst_heads *heads,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
