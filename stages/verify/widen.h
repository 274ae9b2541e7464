// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_WIDEN_H
#define PENSTOCK_STAGES_VERIFY_WIDEN_H
/* A forward graph in f64, for slopes of the loss. One thread. */
#include "stages/ops/core/call.h"

/*
 * The loss whose slopes are measured must not move where no gradient passes
 * though numbers do: under torch.no_grad(), behind detach, through the padding
 * row of an embedding. There the graph that grows reads the numbers of the base
 * point, which are inputs of it.
 */
struct pst_frozen_value {
    struct pst_value *value; /* of the graph that grows */
    void *data;
};
struct pst_frozen {
    const struct pst_graph *from; /* in f64 */
    const struct pst_eval *eval;  /* of `from`, after a run */
    struct pst_arena *arena;      /* for the numbers */
    struct PST_VEC(struct pst_frozen_value) values;
};

/* Would something of the node be frozen? */
bool pst_widen_freezes(const struct pst_node *node);

/* A copy of `from` with f64 for all floats; values that no node makes keep
 * their ids. frozen may be NULL. Returns owned. */
enum pst_status pst_widen(const struct pst_graph *from,
                          struct pst_frozen *frozen, struct pst_graph **ret,
                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
