// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_WIDEN_H
#define PENSTOCK_STAGES_VERIFY_WIDEN_H
/* Copies a forward graph to f64, for numerical derivatives of the loss. One
 * thread. */
#include "stages/ops/core/call.h"

/*
 * Values that are kept constant while the loss is differentiated numerically.
 * Where values change but no gradient passes (torch.no_grad(), detach, the
 * padding row of an embedding), the loss must not change either. The new graph
 * has inputs for such values, which hold them as computed at the original
 * parameters.
 */
struct pst_frozen_value {
    struct pst_value *value; /* input of the new graph */
    void *data;
};
struct pst_frozen {
    /* graph in f64 that has computed the values */
    const struct pst_graph *from;
    const struct pst_eval *eval; /* data of `from` after a run */
    struct pst_arena *arena;     /* arena of the data */
    struct PST_VEC(struct pst_frozen_value) values;
};

/* True if the node has values that must be kept constant. */
bool pst_widen_freezes(const struct pst_node *node);

/* Copies `from` with f64 for all floats; inputs and state keep their ids.
 * frozen may be NULL. Returns owned. */
enum pst_status pst_widen(const struct pst_graph *from,
                          struct pst_frozen *frozen, struct pst_graph **ret,
                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
