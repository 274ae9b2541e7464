// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_OPROW_H
#define PENSTOCK_STAGES_GRAPH_OPROW_H
/*
 * Operator properties that the graph needs: name, schema, shape inference.
 *
 * stages/ops/core/registry.c implements these functions over struct pst_op, so
 * this folder includes no operator header. Constant after pst_registry_init.
 */
#include "stages/graph/schema.h"

#define PST_MAX_OUTS   512
#define PST_MAX_WRITES 8

/* Input and output of shape inference for one node. out[k] is contiguous, or,
 * if alias_of[k] is set, a view of that value's storage with its own strides,
 * which begins `offset[k]` elements after the value's first element.
 * The struct takes kilobytes, and most nodes use only the first entries:
 * callers set schema, args, hint and diag and leave the rest uninitialised. */
struct pst_infer {
    const struct pst_schema *schema;
    const struct pst_arg *args;
    unsigned n_outs; /* preset; inference sets it for a list result */
    struct pst_meta out[PST_MAX_OUTS];
    struct pst_value *alias_of[PST_MAX_OUTS];
    int64_t offset[PST_MAX_OUTS];
    /* Dtype that the file records for result 0, for factories without a dtype
     * argument; PST_N_DTYPES if unknown (then f32 is used). */
    enum pst_dtype hint;
    struct pst_diag *diag;
};

const struct pst_schema *pst_op_schema(const struct pst_op *op);
/* Finds an operator by a name such as "aten.add.Tensor"; NULL if there is
 * none. */
const struct pst_op *pst_op_find(const char *name);
/* Runs the operator's shape inference on c; the caller has set schema, args,
 * hint and diag. Clears the result entries first and checks them afterwards
 * (ranks, sizes, number of results). */
enum pst_status pst_op_infer(const struct pst_op *op,
                             struct pst_infer *c) PST_MUST_CHECK;
/* True if the operator is decomposed into others and never becomes a node. */
bool pst_op_is_rewrite(const struct pst_op *op);
struct pst_build;
struct pst_node;
/* Sets the size expressions (value->dims) of a node's results that depend on
 * symbolic sizes. */
void pst_op_sizes(const struct pst_op *op, struct pst_build *build,
                  struct pst_node *node);
struct pst_rewrite;
/* Emits the nodes that an operator is decomposed into. ret receives its results
 * and the new contents of the arguments that it writes. */
enum pst_status pst_op_rewrite(const struct pst_op *op, struct pst_build *build,
                               const struct pst_arg *args, unsigned n_args,
                               struct pst_rewrite *ret) PST_MUST_CHECK;
/* As pst_op_rewrite, for a caller that needs only the first result. */
enum pst_status pst_op_rewrite_first(const struct pst_op *op,
                                     struct pst_build *build,
                                     const struct pst_arg *args,
                                     unsigned n_args,
                                     struct pst_value **ret) PST_MUST_CHECK;
/* True if the results are views of the operand. */
bool pst_op_is_view(const struct pst_op *op);
/* True if dead code elimination keeps the node: asserts, markers. */
bool pst_op_has_effect(const struct pst_op *op);
/* True if the node has an effect in each step, as asserts on data do. Markers
 * only affect the compiler. */
bool pst_op_runs_for_effect(const struct pst_op *op);
/* True if nodes keep the operator's name in the user's file (node->origin). */
bool pst_op_keeps_origin(const struct pst_op *op);

#endif
