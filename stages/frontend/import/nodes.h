// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
/*
 * What the import of operators (nodes.c) and of nodes that hold sub-graphs
 * (subgraph.c) share. Names are borrowed from the document. One thread.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/op.h"

/* Names of a node's results, lists flattened. */
struct pst_names {
    const char *at[PST_MAX_OUTS]; /* NULL: a result that is None or a number */
    unsigned n;
};

/* --- nodes.c ------------------------------------------------------------ */

/* The value that goes by the name; NULL: there is none, or no name. */
struct pst_value *pst_import_find(const struct pst_scope *scope,
                                  const char *name);
/* What the file says of that value. */
enum pst_status pst_import_meta(struct pst_import *import,
                                const struct pst_scope *scope, const char *name,
                                struct pst_doc_meta *ret) PST_MUST_CHECK;
/* Gives the value its name in the document, checks its recorded meta. */
enum pst_status pst_import_define(struct pst_import *import,
                                  struct pst_scope *scope, const char *name,
                                  struct pst_value *value,
                                  const struct pst_meta *meta) PST_MUST_CHECK;

/* --- dropout.c ---------------------------------------------------------- */

/* The node's first result, *value, if that is the last step of a decomposed
 * dropout: replaced by a value that evaluation can choose the input for. */
enum pst_status pst_import_dropout(struct pst_import *import,
                                   const struct pst_node *node,
                                   struct pst_value **value) PST_MUST_CHECK;

/* --- layout.c ----------------------------------------------------------- */

/* The results of op may be views of its arguments. */
enum pst_status pst_import_joins_storages(struct pst_import *import,
                                          const struct pst_op *op,
                                          const struct pst_arg *args,
                                          unsigned n_args,
                                          struct pst_value *const *outs,
                                          unsigned n_outs) PST_MUST_CHECK;

/* --- collectives.c ------------------------------------------------------ */

/* Why programs of several processes are refused. */
extern const char pst_import_several[];
/* What the node is, if it is of a process group; OP: it is not, NONE: refused.
 */
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

/* A sub-graph with or without gradients: inlined. */
enum pst_status pst_import_set_grad(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* A sub-graph that its author lets recompute: inlined, as a region of its own.
 */
enum pst_status pst_import_checkpoint(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;

/* A sub-graph under autocast: inlined, with the casts that it implies. */
enum pst_status pst_import_autocast_region(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* Both branches are computed, the bool chooses between their results. */
enum pst_status pst_import_cond(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_names *names) PST_MUST_CHECK;

#endif
