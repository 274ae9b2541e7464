// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_CALL_H
#define PENSTOCK_STAGES_OPS_CORE_CALL_H
/*
 * Runs a graph node by node on the heap: for tests, constant folding and as the
 * reference. A training step does not use it (stages/run plans memory).
 */
#include "stages/ops/core/op.h"

/* Returns the number of tensor entries in call->in for these arguments. */
unsigned pst_call_count_in(const struct pst_schema *schema,
                           const struct pst_arg *args);
/* Returns the number of these entries that belong to argument i. */
unsigned pst_call_count_arg(const struct pst_schema *schema, unsigned i,
                            const struct pst_arg *arg);
/* Fills in[k].meta (data NULL) from the arguments; in has n_in elements. */
void pst_call_bind_metas(const struct pst_schema *schema,
                         const struct pst_arg *args, struct pst_operand *in);

struct pst_eval; /* values of one graph on the heap */

enum pst_status pst_eval_new(const struct pst_graph *graph,
                             struct pst_eval **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_eval_free(struct pst_eval *eval);
/* Sets the pool whose threads kernels use; NULL (the default): one thread.
 * Borrowed until free. */
void pst_eval_set_pool(struct pst_eval *eval, struct pst_pool *pool);
/* Sets the data of a value, contiguous or with meta's strides. Borrowed until
 * free. */
enum pst_status pst_eval_set(struct pst_eval *eval, struct pst_value *value,
                             const void *data,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* Runs all nodes, with the reference kernels or with the best ones. A fault of
 * a kernel is PST_ERR_RANGE with the node's name. */
enum pst_status pst_eval_run(struct pst_eval *eval, bool reference,
                             const struct pst_rng_key *key,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* Runs one node of the graph in the same way. */
enum pst_status pst_eval_node(struct pst_eval *eval, struct pst_node *node,
                              bool reference, const struct pst_rng_key *key,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the data of a value after the run, with value->meta's strides; NULL
 * if unset. */
const void *pst_eval_get(const struct pst_eval *eval,
                         const struct pst_value *value);

#endif
