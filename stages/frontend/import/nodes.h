// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
/*
 * Functions shared by the import of operators (nodes.c) and of nodes with
 * sub-graphs (subgraph.c). Names are borrowed from the document. One thread.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

/* Names of a node's results, with lists flattened. */
struct pst_names {
    const char *at[PST_MAX_OUTS]; /* NULL: the result is None or a number */
    unsigned n;
};

/* --- nodes.c ------------------------------------------------------------ */

/* Returns the value of that name; NULL if there is none or name is NULL. */
struct pst_value *pst_import_find(const struct pst_scope *scope,
                                  const char *name);
/* Returns the meta that the file records for the value of that name. */
enum pst_status pst_import_meta(struct pst_import *import,
                                const struct pst_scope *scope, const char *name,
                                struct pst_doc_meta *ret) PST_MUST_CHECK;
/* Gives a value its name in the document and checks the meta recorded there. */
enum pst_status pst_import_define(struct pst_import *import,
                                  struct pst_scope *scope, const char *name,
                                  struct pst_value *value,
                                  const struct pst_meta *meta) PST_MUST_CHECK;

/* --- dropout.c ---------------------------------------------------------- */

/* For the last node of a decomposed dropout: replaces its first result, *value,
 * by a value that evaluation turns into the dropout's input. */
enum pst_status pst_import_dropout(struct pst_import *import,
                                   const struct pst_node *node,
                                   struct pst_value **value) PST_MUST_CHECK;

/* --- layout/layout.c ----------------------------------------------------- */

/* Records that results of op may be views of its arguments. */
enum pst_status pst_import_joins_storages(struct pst_import *import,
                                          const struct pst_op *op,
                                          const struct pst_arg *args,
                                          unsigned n_args,
                                          struct pst_value *const *outs,
                                          unsigned n_outs) PST_MUST_CHECK;

/* --- collectives.c ------------------------------------------------------ */

/* Reason for rejecting programs of several processes. */
extern const char pst_import_several[];
/* Classifies a node on a process group. OP: any other node; NONE: rejected. */
enum pst_target_kind pst_import_collective_kind(
    const struct pst_doc_node *node);
enum pst_status pst_import_collective(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
enum pst_status pst_import_copy_in(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
enum pst_status pst_import_copy_out(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;

/* --- subgraph.c --------------------------------------------------------- */

/* Returns a scope for a sub-graph with the settings of the scope around it. */
struct pst_scope pst_import_inherit(const struct pst_scope *scope);
/* Opens the scope of a sub-graph; close it with pst_import_leave_scope. */
void pst_import_enter_scope(struct pst_scope *inner,
                            const struct pst_doc_graph *body);
void pst_import_leave_scope(struct pst_scope *inner);
/* Returns result i of the sub-graph; NULL if it is not one of its tensors. */
struct pst_value *pst_import_result(const struct pst_scope *inner, unsigned i);

/* Inlines the sub-graph of a node that enables or disables gradients. */
enum pst_status pst_import_set_grad(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* Under no_grad, PyTorch returns some operands themselves as results: flatten()
 * of one dimension, a dropout or native_dropout that is off,
 * broadcast_tensors() of a tensor with that shape. Defines such results as
 * their operands and removes their names from *names. *ret_all: no name is
 * left. */
enum pst_status pst_import_operands(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_target *target,
                                    struct pst_names *names,
                                    bool *ret_all) PST_MUST_CHECK;
/* Inlines a sub-graph under torch.utils.checkpoint as a region to recompute. */
enum pst_status pst_import_checkpoint(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;

/* Inlines a sub-graph under autocast and inserts the casts. */
enum pst_status pst_import_autocast_region(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* Imports both branches; the bool selects between their results. */
enum pst_status pst_import_cond(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_names *names) PST_MUST_CHECK;

/* --- regions/vmap.c ------------------------------------------------------ */

/* True if the node reads a name that stands for several tensors (lanes). */
bool pst_import_has_lanes(const struct pst_scope *scope,
                          const struct pst_doc_node *node);
/* Imports _add_batch_dim(tensor, dim, level). */
enum pst_status pst_import_batch(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_names *names) PST_MUST_CHECK;
/* Imports _remove_batch_dim(tensor, level, size, dim). */
enum pst_status pst_import_unbatch(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* Imports _unpack_dual(tensor) -> (tensor, its tangent). */
enum pst_status pst_import_unpack(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *node,
                                  const struct pst_names *names) PST_MUST_CHECK;
/* Imports any other node that has lanes. */
enum pst_status pst_import_on_lanes(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;

/* --- regions/loops.c ----------------------------------------------------- */

enum pst_status pst_import_scan_loop(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
enum pst_status pst_import_map_loop(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
enum pst_status pst_import_while_loop(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;

#endif
