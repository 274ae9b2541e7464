// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_TREE_OUTLINE_H
#define PENSTOCK_STAGES_MODULES_TREE_OUTLINE_H
/*
 * The calls of a graph as frames: the contents, inputs and results of each. One
 * thread; borrows the graph and the names.
 */
#include "stages/frontend/model.h"

/* A node of a call, or a nested call. */
struct pst_outline_item {
    const struct pst_node *node; /* NULL: a call */
    unsigned call;               /* id of the call */
};

struct pst_outline_frame {
    struct PST_VEC(struct pst_outline_item) items;
    /* inputs: values from outside other than attributes, in order of first use;
     * outs: values used outside, in order of computation. */
    struct PST_VEC(const struct pst_value *) inputs, outs;
    bool entered; /* its caller has an item for it */
};

struct pst_outline {
    const struct pst_graph *graph;
    struct pst_outline_frame *frames; /* by id of the call */
    struct pst_map names;             /* FQN of a value -> struct pst_tie */
    /* Ids of the calls that have items, in order of entry, without the root.
     * Other calls have no operators left: only signatures mention them. */
    struct PST_VEC(unsigned) order;
};

/* Divides a graph into a frame for each call. ties: other names of the graph's
 * state. */
enum pst_status pst_outline_init(struct pst_outline *outline,
                                 const struct pst_graph *graph,
                                 const struct pst_tie *ties, size_t n_ties,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_outline_fini(struct pst_outline *outline);

/* If the value is a new content of a buffer or input, returns the buffer or
 * input, whose name stands for all its contents; else the value. */
static inline const struct pst_value *pst_outline_source(
    const struct pst_value *value)
{
    return value->version_of != NULL ? value->version_of : value;
}
/* Returns the alphabetically first name of the value at or below the call's
 * module, relative to the module's path; NULL if there is none. */
const char *pst_outline_attribute(const struct pst_outline *outline,
                                  const struct pst_value *value,
                                  const struct pst_module_call *call);

#endif
