// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TEXT_PRINT_H
#define PENSTOCK_STAGES_GRAPH_TEXT_PRINT_H
/* Prints nodes, values and arguments as graph text. Numbers with different bits
 * have different texts. */
#include "stages/graph/graph.h"

/* Prints a reference to a value, which is never NULL. */
typedef void (*pst_print_value_fn)(void *ctx, const struct pst_value *value,
                                   struct pst_str *out);
/* Prints the line of a node. */
void pst_node_print(const struct pst_node *node, struct pst_str *out);
void pst_value_print(const struct pst_value *value, bool with_meta,
                     struct pst_str *out);
void pst_arg_print(const struct pst_arg *arg, pst_print_value_fn fn, void *ctx,
                   struct pst_str *out);

#endif
