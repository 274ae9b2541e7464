// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_NODES_H
/*
 * What the import of operators (nodes.c) and of nodes that hold sub-graphs
 * (subgraph.c) share. Names are borrowed from the document. One thread.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

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

/* --- layout/layout.c ----------------------------------------------------------- */

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

/* What holds inside of a sub-graph whose node says nothing else. */
struct pst_scope pst_import_inherit(const struct pst_scope *scope);
/* The names of its graph; leave the scope after it. */
void pst_import_enter_scope(struct pst_scope *inner,
                            const struct pst_doc_graph *body);
void pst_import_leave_scope(struct pst_scope *inner);
/* Result i of the sub-graph; NULL: it is no tensor of it. */
struct pst_value *pst_import_result(const struct pst_scope *inner, unsigned i);

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

/* --- regions/vmap.c ------------------------------------------------------ */

/* Does the node read a name that has lanes? */
bool pst_import_has_lanes(const struct pst_scope *scope,
                          const struct pst_doc_node *node);
/* _add_batch_dim(tensor, dim, level) */
enum pst_status pst_import_batch(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_names *names) PST_MUST_CHECK;
/* _remove_batch_dim(tensor, level, size, dim) */
enum pst_status pst_import_unbatch(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node,
    const struct pst_names *names) PST_MUST_CHECK;
/* _unpack_dual(tensor) -> (tensor, its tangent) */
enum pst_status pst_import_unpack(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *node,
                                  const struct pst_names *names) PST_MUST_CHECK;
/* Any other node that has lanes. */
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
