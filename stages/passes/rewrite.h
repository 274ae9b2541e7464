// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_REWRITE_H
#define PENSTOCK_STAGES_PASSES_REWRITE_H
/*
 * Edits that walk the nodes of a graph in order. One thread.
 */
#include "stages/graph/build.h"

/* Takes the list of nodes away and gives each to `each`, which appends to the
 * graph what is to stand there: it, and what it makes before and behind it. */
typedef enum pst_status (*pst_rewrite_node_fn)(void *ctx,
                                               struct pst_node *node);
enum pst_status pst_graph_rewrite(struct pst_graph *graph,
                                  pst_rewrite_node_fn each,
                                  void *ctx) PST_MUST_CHECK;

/* v in that dtype, for the node that comes next: of its call and stage. NULL:
 * build->status says why not. */
struct pst_value *pst_rewrite_dtype(struct pst_build *build,
                                    const struct pst_node *node,
                                    struct pst_value *v, enum pst_dtype dtype);

#endif
