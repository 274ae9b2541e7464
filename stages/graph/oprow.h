// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_OPROW_H
#define PENSTOCK_STAGES_GRAPH_OPROW_H
/*
 * What the graph must know of an operator's row: name, schema, inference.
 * stages/ops/core/registry.c implements it over struct pst_op, so that this
 * folder includes nothing of the operators. Constant after pst_registry_init.
 */
#include "stages/graph/schema.h"

#define PST_MAX_OUTS   512
#define PST_MAX_WRITES 8

/* Filled by infer. out[k] is contiguous unless alias_of[k] is set; then out[k]
 * is a view with its own strides of the storage of that value at `offset`
 * elements from THAT VALUE's first element. */
/* A node's arguments, and what infer says of its results. Kilobytes, of which
 * most nodes use the first row: callers set schema, args, hint and diag and
 * leave the rest as it is. */
struct pst_infer {
    const struct pst_schema *schema;
    const struct pst_arg *args;
    unsigned n_outs; /* preset to schema->n_returns; lists set it */
    struct pst_meta out[PST_MAX_OUTS];
    struct pst_value *alias_of[PST_MAX_OUTS];
    int64_t offset[PST_MAX_OUTS];
    /* Dtype that the file records for result 0, for factories without dtype;
     * PST_N_DTYPES if unknown (then f32). */
    enum pst_dtype hint;
    struct pst_diag *diag;
};

const struct pst_schema *pst_op_schema(const struct pst_op *op);
/* "aten.add.Tensor"; NULL if there is no such row. */
const struct pst_op *pst_op_find(const char *name);
/* Runs the row's infer on c, whose schema, args, hint and diag are set, with
 * the rows of its results zeroed; checks what it returned (ranks, sizes, number
 * of results). */
enum pst_status pst_op_infer(const struct pst_op *op,
                             struct pst_infer *c) PST_MUST_CHECK;
/* Is the row a composition of others, which never becomes a node? */
bool pst_op_is_rewrite(const struct pst_op *op);
struct pst_build;
struct pst_node;
/* Gives the results of a node, which depend on free sizes, their expressions
 * (value->dims). */
void pst_op_sizes(const struct pst_op *op, struct pst_build *build,
                  struct pst_node *node);
struct pst_rewrite;
/* Emits such a row's composition. ret has the results and what is written. */
enum pst_status pst_op_rewrite(const struct pst_op *op, struct pst_build *build,
                               const struct pst_arg *args, unsigned n_args,
                               struct pst_rewrite *ret) PST_MUST_CHECK;
/* The same for a caller that wants the first result alone. */
enum pst_status pst_op_rewrite_first(const struct pst_op *op,
                                     struct pst_build *build,
                                     const struct pst_arg *args,
                                     unsigned n_args,
                                     struct pst_value **ret) PST_MUST_CHECK;
/* Are its results windows on its operand? */
bool pst_op_is_view(const struct pst_op *op);
/* Kept though nothing uses it: asserts, markers. */
bool pst_op_has_effect(const struct pst_op *op);
/* Of these, does it do something in a step? Asserts on data. */
bool pst_op_runs_for_effect(const struct pst_op *op);
/* Do its nodes keep what the file calls them (node->origin)? */
bool pst_op_keeps_origin(const struct pst_op *op);

#endif
