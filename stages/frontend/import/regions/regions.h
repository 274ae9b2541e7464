// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_REGIONS_REGIONS_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_REGIONS_REGIONS_H
/*
 * Regions of torch.func.vmap and jvp in the form for training, which has only
 * their borders: between these a tensor of the file stands for many. Its value
 * here has all of them, the batch dimensions first, in the order of their
 * levels. One thread.
 */
#include "stages/frontend/import/nodes.h"

#define PST_MAX_LEVELS 8

/* Of a name whose value is not what the file says. In the graph's arena. */
struct pst_lanes {
    unsigned n;                    /* batch dimensions of the value */
    int64_t level[PST_MAX_LEVELS]; /* of each, ascending */
    bool tangent; /* the derivative of a jvp: there is no value */
};

/* The bound arguments of a node, with the lanes of each. */
struct pst_lane_args {
    const struct pst_target *target;
    struct pst_arg *at; /* in the order of the schema */
    unsigned n;
    const struct pst_lanes **of;   /* argument i; NULL: none */
    const struct pst_lanes **item; /* member k of the only list of tensors */
};

/* --- vmap.c -------------------------------------------------------------- */

/* What a function of torch._functorch.predispatch is to us; NONE: refused,
 * *ret_reason says why, or it is no such function and *ret_reason is NULL. */
enum pst_target_kind pst_import_functorch_kind(const struct pst_doc_node *node,
                                               const char **ret_reason);

/* --- rules.c ------------------------------------------------------------- */

/* The operator for all lanes at once: its first result, *ret has the lanes of
 * that. NULL: there is no rule for it, or the builder has failed. */
struct pst_value *pst_import_apply_rule(struct pst_import *import,
                                        const struct pst_lane_args *args,
                                        struct pst_lanes *ret);
/* The dimensions of v in that order. */
struct pst_value *pst_import_reorder(struct pst_import *import,
                                     struct pst_value *v,
                                     const unsigned *order);

/* --- fold.c -------------------------------------------------------------- */

/* The number of a tensor of one element; *ret_known: nothing but constants of
 * the file makes it. */
enum pst_status pst_import_fold(struct pst_import *import, struct pst_value *v,
                                bool *ret_known, double *ret) PST_MUST_CHECK;

#endif
