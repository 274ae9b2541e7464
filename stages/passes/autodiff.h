// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_AUTODIFF_H
#define PENSTOCK_STAGES_PASSES_AUTODIFF_H
/*
 * Reverse-mode differentiation of a functional graph, in place: appends the
 * backward nodes behind the forward ones. Nodes on which a wanted input
 * gradient depends get phase I, all others phase W; both lists are in reverse
 * order of the forward nodes, so B = I and W nodes in list order.
 *
 * Order of sums (the bits depend on it, so it is a contract): contributions to
 * a value are added in the order in which they come up: first the seeds of
 * that value in the order given, then consumers from the last node to the
 * first, and within a node arguments from first to last. A left fold. The
 * rules of nodes that add up parts of a gradient are given it contiguous, as it
 * would arrive from another stage: the order of their sums follows strides.
 */
#include "stages/graph/graph.h"

struct pst_seed {
    struct pst_value *value; /* what this is the gradient of */
    struct pst_value *seed;  /* value of kind SEED (or any value), same meta */
};

/* A contribution to a parameter's gradient: one node
 * "penstock.accumulate_grad(Tensor grad, Tensor contribution) -> ()" of phase W
 * was appended for it, grad being a value of kind GRAD with the parameter's
 * fqn. Parameters with several contributions have several nodes. */
struct pst_autodiff_result {
    /* Gradient of wanted[i], NULL if none reaches it. Arena of the graph. */
    struct pst_value **wanted;
    /* grads[i]: GRAD value of graph->params[i], NULL: nothing reaches it or
     * it does not require grad. */
    struct pst_value **grads;
};

/*
 * wanted: values (mostly inputs or alias views of inputs) whose gradients are
 * asked for; propagation stops at them.  Integer and bool values, nodes under
 * no_grad and rows with pst_vjp_none end a path.
 */
enum pst_status pst_autodiff(struct pst_graph *graph,
                             const struct pst_seed *seeds, size_t n_seeds,
                             struct pst_value *const *wanted, size_t n_wanted,
                             struct pst_autodiff_result *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
