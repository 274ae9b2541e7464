// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_AUTODIFF_H
#define PENSTOCK_STAGES_PASSES_AUTODIFF_H
/*
 * Reverse-mode differentiation of a functional graph, in place.
 *
 * Appends the backward nodes after the forward ones. Nodes that a wanted input
 * gradient depends on get phase I, all others phase W. Both are in reverse
 * order of the forward nodes, and B runs I and W nodes in list order. A forward
 * node whose operator has another row for training (pst_mode_saving) becomes
 * one of that row if it is differentiated: it gets results that only its
 * backward reads.
 *
 * The order of sums is a contract, since the bits depend on it: contributions
 * to a value are added from left to right in the order in which they arise.
 * First come the seeds of the value in the order given, then its consumers from
 * the last node to the first, and within a node its arguments from first to
 * last. Rules that sum parts of a gradient receive it contiguous, as it would
 * arrive from another stage, because the order of their sums follows strides.
 */
#include "stages/graph/graph.h"

struct pst_seed {
    struct pst_value *value; /* value whose gradient is given */
    struct pst_value *seed;  /* the gradient: SEED or other, same meta */
};

/* Gradients of wanted values and parameters. Each contribution to a parameter's
 * gradient is one appended node "penstock.accumulate_grad(Tensor grad, Tensor
 * contribution) -> ()" of phase W, where grad is a GRAD value with the
 * parameter's fqn. A parameter with several contributions has several nodes. */
struct pst_autodiff_result {
    /* Gradient of wanted[i], NULL if there is none. In the graph's arena. */
    struct pst_value **wanted;
    /* grads[i]: GRAD value of graph->params[i]; NULL: it has no contribution or
     * does not require a gradient. */
    struct pst_value **grads;
};

/*
 * Differentiates the graph. wanted: values (mostly inputs or views of inputs)
 * to compute gradients for; propagation stops at them. Integer and bool values,
 * nodes under no_grad and operators with pst_vjp_none also stop it.
 */
enum pst_status pst_autodiff(struct pst_graph *graph,
                             const struct pst_seed *seeds, size_t n_seeds,
                             struct pst_value *const *wanted, size_t n_wanted,
                             struct pst_autodiff_result *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
