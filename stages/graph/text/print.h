// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TEXT_PRINT_H
#define PENSTOCK_STAGES_GRAPH_TEXT_PRINT_H
/* Arguments as the graph's text has them: equal texts have equal bits. */
#include "stages/graph/graph.h"

/* Writes what stands for a value; never called with NULL. */
typedef void (*pst_print_value_fn)(void *ctx, const struct pst_value *value,
                                   struct pst_str *out);
/* The line of a node; "%x: f32[2, 3]". */
void pst_node_print(const struct pst_node *node, struct pst_str *out);
void pst_value_print(const struct pst_value *value, bool with_meta,
                     struct pst_str *out);
void pst_arg_print(const struct pst_arg *arg, pst_print_value_fn fn, void *ctx,
                   struct pst_str *out);

#endif
