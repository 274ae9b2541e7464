// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_REGIONS_REGIONS_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_REGIONS_REGIONS_H
/*
 * Regions of torch.func.vmap and jvp in training exports. The file only has
 * nodes at the beginning and end of a region: between them, one tensor of the
 * file stands for many tensors (lanes). The imported value contains all lanes.
 * Its batch dimensions come first, in the order of their levels. One thread.
 */
#include "stages/frontend/import/nodes.h"

#define PST_MAX_LEVELS 8

/* The lanes of a name; its value has batch dimensions that the file's does not.
 * In the graph's arena. */
struct pst_vmap_lanes {
    unsigned n; /* number of batch dimensions of the value */
    /* level of each batch dimension, ascending */
    int64_t level[PST_MAX_LEVELS];
    bool tangent; /* the name is a derivative in jvp and has no value */
};

/* The bound arguments of a node, with the lanes of each. */
struct pst_lane_args {
    const struct pst_target *target;
    struct pst_arg *at; /* in the order of the schema */
    unsigned n;
    const struct pst_vmap_lanes **lanes; /* lanes of argument i; NULL: none */
    const struct pst_vmap_lanes *
        *item; /* lanes of tensor k in the only list; NULL: none */
};

/* --- vmap.c -------------------------------------------------------------- */

/* Classifies a function of torch._functorch.predispatch. NONE with *ret_reason:
 * rejected; NONE with NULL there: the node calls no such function. */
enum pst_target_kind pst_import_functorch_kind(const struct pst_doc_node *node,
                                               const char **ret_reason);

/* --- rules.c ------------------------------------------------------------- */

/* Emits the operator for all lanes at once. Returns its first result, with its
 * lanes in *ret; NULL if there is no rule or the builder has failed. */
struct pst_value *pst_import_apply_rule(struct pst_import *import,
                                        const struct pst_lane_args *args,
                                        struct pst_vmap_lanes *ret);
/* Permutes the dimensions of v. */
struct pst_value *pst_import_reorder(struct pst_import *import,
                                     struct pst_value *v,
                                     const unsigned *order);

/* --- fold.c -------------------------------------------------------------- */

#define PST_FOLD_NODES 256 /* maximum number of nodes that compute a number */

/* Computes the number in a tensor of one element. *ret_known: false if it
 * depends on anything but constants of the file. */
enum pst_status pst_import_fold(struct pst_import *import, struct pst_value *v,
                                bool *ret_known, double *ret) PST_MUST_CHECK;

#endif
