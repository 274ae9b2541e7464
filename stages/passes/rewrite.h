// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_REWRITE_H
#define PENSTOCK_STAGES_PASSES_REWRITE_H
/*
 * Rewrites the nodes of a graph in order. One thread.
 */
#include "stages/graph/build.h"

/* Empties the node list and calls `each` for every node, which appends the node
 * itself and any nodes before and after it. */
typedef enum pst_status (*pst_rewrite_node_fn)(void *ctx,
                                               struct pst_node *node);
enum pst_status pst_graph_rewrite(struct pst_graph *graph,
                                  pst_rewrite_node_fn each,
                                  void *ctx) PST_MUST_CHECK;

/* Converts v to a dtype for the next node `node`, in its call and stage. NULL
 * on failure, with the reason in build->status. */
struct pst_value *pst_rewrite_dtype(struct pst_build *build,
                                    const struct pst_node *node,
                                    struct pst_value *v, enum pst_dtype dtype);

#endif
