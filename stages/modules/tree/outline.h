// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_TREE_OUTLINE_H
#define PENSTOCK_STAGES_MODULES_TREE_OUTLINE_H
/*
 * The calls of a graph as frames: what stands in each, and which values it is
 * given and gives. One thread; borrows the graph and the names.
 */
#include "stages/frontend/model.h"

/* A node of a call, or a call in it. */
struct pst_outline_item {
    const struct pst_node *node; /* NULL: a call */
    unsigned call;               /* its id */
};

struct pst_outline_frame {
    struct PST_VEC(struct pst_outline_item) items;
    /* What comes from outside and is no attribute, in the order in which it is
     * used first; what somebody outside uses, in the order in which it is made.
     */
    struct PST_VEC(const struct pst_value *) inputs, outs;
    bool entered; /* something stands in it */
};

struct pst_outline {
    const struct pst_graph *graph;
    struct pst_outline_frame *frames; /* by id of the call */
    struct pst_map names;             /* FQN of a value -> struct pst_tie */
    /* Ids of the calls in which something stands, in order of entry, without
     * the root's. Others left no operator: only signatures tell of them. */
    struct PST_VEC(unsigned) order;
};

/* ties: other names of the graph's state. */
enum pst_status pst_outline_init(struct pst_outline *outline,
                                 const struct pst_graph *graph,
                                 const struct pst_tie *ties, size_t n_ties,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_outline_fini(struct pst_outline *outline);

/* What a name of the state holds is told by the name, whatever was written. */
static inline const struct pst_value *pst_outline_told(
    const struct pst_value *value)
{
    return value->version_of != NULL ? value->version_of : value;
}
/* The first of the value's names, by letters, that is one of the call's module
 * or below, without the module's path; NULL: there is none. */
const char *pst_outline_attribute(const struct pst_outline *outline,
                                  const struct pst_value *value,
                                  const struct pst_module_call *call);

#endif
