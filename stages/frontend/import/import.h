// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
/*
 * The parts of pst_model_open: from the document's records to a functional
 * graph. Nodes are imported in program order through the builder and the
 * functionaliser; sub-graphs are inlined on the way. One thread.
 */
#include "stages/files/pt2/document.h"
#include "stages/files/zip.h"
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/target.h"
#include "stages/frontend/model.h"
#include "stages/graph/build.h"
#include "stages/graph/sizes/extent.h"

/* State of a storage, by id of the value that owns it. */
struct pst_storage_note {
    /* Key of the storage's first name whose strides differ from PyTorch's;
     * NULL: there is none. */
    const char *origin;
    bool doubtful; /* a view of it may be a copy in PyTorch, or the reverse */
    bool written;
    /* for an input: number of elements before it in PyTorch's storage */
    int64_t shift;
};

/* PyTorch's strides of a value. */
struct pst_import_strides {
    bool known;
    bool corrected; /* eager.h replaced the file's strides, which differed */
    unsigned rank;
    int64_t stride[PST_MAX_RANK];
};

/* Names whose results get PyTorch's storage order (layout/layout.c). They are
 * kept when the import starts again. */
struct pst_layouts {
    struct pst_map wanted; /* keys of names ("GRAPH NAME") */
    bool again;            /* an entry was added: start the import again */
};

/* The names of one graph of the document. Writes do not change a name's value
 * here: readers call pst_functionalise_read. */
struct pst_scope {
    struct pst_map values;  /* name -> struct pst_value */
    struct pst_map read;    /* name of a number read from data -> its tensor */
    struct pst_map numbers; /* name of a number -> struct pst_doc_node */
    struct pst_map
        lanes; /* name -> struct pst_vmap_lanes (regions/regions.h) */
    const struct pst_doc_graph *graph; /* graph of the document; borrowed */
    bool no_grad;
    const char *region; /* region to recompute; NULL: none */
    enum pst_autocast_lists autocast;
    enum pst_dtype low; /* 16-bit dtype of autocast */
    bool pure;          /* branch: must not write values of other scopes */
    bool inner;         /* branch or loop body: part of the caller's call */
};

/* A name of the state that is a view of another value. */
struct pst_import_window {
    const char *placeholder; /* NULL: not among the graph's inputs */
    const struct pst_weight *weight;
    struct pst_value *base, *view;
    int64_t offset;
};

/* A complex view and its conjugate (conjugate.c). */
struct pst_mirror {
    struct pst_value *of, *conjugate;
    bool lazy; /* PyTorch's conjugate shares the memory of `of` */
};

/* A node whose PyTorch gradient is missing from the file. */
struct pst_lost_node {
    struct pst_node *node;
    const struct pst_doc_place *place;
};

struct pst_names;

struct pst_import {
    struct pst_model *model;
    struct pst_zip *zip;
    const struct pst_document *doc; /* borrowed */
    struct pst_build build;
    struct pst_sizes sizes; /* build.sizes points to it */
    struct pst_functionalise *functional;
    struct pst_diag *diag;
    struct pst_map used;    /* names of values that the outer graph reads */
    struct pst_map numbers; /* names of numbers that tensors depend on */
    struct pst_map state;   /* FQN of parameter, buffer, constant -> value */
    /* FQN -> FQN of another tensor that shares its memory */
    struct pst_map shared;
    struct pst_layouts layouts;
    struct PST_VEC(struct pst_storage_note) notes;
    /* By value id: PyTorch's strides, where they differ from ours or were
     * corrected (layout/eager.h). */
    struct PST_VEC(struct pst_import_strides) strides;
    struct pst_import_strides expected; /* for the next result to get a name */
    const struct pst_doc_place *place;  /* source of the current node */
    const struct pst_doc_stack *stack;  /* stack that build.call belongs to */
    const struct pst_doc_place *cut;    /* first node with a broken stack */
    struct pst_scope outer;             /* scope of the outermost graph */
    struct PST_VEC(struct pst_import_window) windows;
    struct PST_VEC(struct pst_mirror) mirrors;
    struct PST_VEC(struct pst_lost_node) lost; /* in the order of nodes */
    /* number of entries of the model's lists before the import */
    size_t n_modules, n_ties, n_notes;
    /* number of checkpoint regions so far; also the number of the next one */
    unsigned n_regions;
};

/* --- weights.c ---------------------------------------------------------- */

/* Reads data/<folder>/<model>_<folder>_config.json into model->weights and adds
 * the digest of its text to *digests. */
enum pst_status pst_import_weights(struct pst_model *model, struct pst_zip *zip,
                                   const char *name, const char *folder,
                                   struct pst_str *digests,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* --- guards.c ----------------------------------------------------------- */

/* Turns a comparison of inputs' sizes into a constraint. *ret is false if the
 * guard is no such comparison. */
enum pst_status pst_import_add_guard(struct pst_model *model,
                                     const struct pst_document *doc,
                                     const char *guard, bool *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* --- lost.c ------------------------------------------------------------- */

/* Records the graph's nodes from number `first` on, all made by the node at
 * import->place, if the file lacks the gradient of that node. */
enum pst_status pst_import_note_lost(struct pst_import *import,
                                     size_t first) PST_MUST_CHECK;
/* Adds a note and sets model->lost if a gradient passes through a recorded
 * node. */
enum pst_status pst_import_report_lost(struct pst_import *import)
    PST_MUST_CHECK;

/* --- symbols.c ---------------------------------------------------------- */

/* Reads symbols, their values at export and their ranges into
 * model->symbols. */
enum pst_status pst_import_symbols(struct pst_model *model,
                                   const struct pst_document *doc,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the graph's number with that name, and its expression. */
enum pst_status pst_import_symbol(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const char *name, const char *where,
                                  struct pst_arg *ret) PST_MUST_CHECK;
/* True if the expression does not depend on data; also for NULL, which is a
 * plain number. Errors go to the builder. */
bool pst_import_is_known(struct pst_import *import,
                         const struct pst_doc_expr *expr);
/* As pst_import_is_known, for the number with that name. */
bool pst_import_knows_number(struct pst_import *import,
                             const struct pst_scope *scope, const char *name);
/* False if the result of a node is a named number that nothing uses. True for
 * all other results. */
bool pst_import_number_needed(const struct pst_import *import,
                              const struct pst_doc_arg *output);
/* True if the node reads from data a number whose value the file fixes. */
bool pst_import_is_fixed(struct pst_import *import,
                         const struct pst_doc_graph *graph,
                         const struct pst_doc_node *node);
/* True if the node reads a number from data that only the exporter's assertions
 * use; import->numbers must be filled. */
bool pst_import_is_idle(const struct pst_import *import,
                        const struct pst_doc_node *node);

/* --- constants.c --------------------------------------------------------- */

/* Sets `constant` of the symbols that the outer graph reads from constants of
 * the file. */
enum pst_status pst_import_mark_constants(struct pst_import *import)
    PST_MUST_CHECK;
/* If the number is such a symbol, sets its value to the content of v. */
enum pst_status pst_import_compute_constant(struct pst_import *import,
                                            const struct pst_doc_number *number,
                                            struct pst_value *v) PST_MUST_CHECK;

/* --- asserts.c ---------------------------------------------------------- */

/* Records the node that a number comes from: a read of data, or arithmetic. */
enum pst_status pst_import_note_number(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* Records a number that is fixed in the file and checks that the tensor has
 * this value: now if the tensor is constant, else in each step. */
enum pst_status pst_import_fix_number(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* For a node with a number that is read from data: returns the operator that
 * takes a tensor in its place. NULL if the node has no such number or there is
 * no such operator. */
const struct pst_op *pst_import_tensor_row(struct pst_import *import,
                                           const struct pst_doc_graph *graph,
                                           const struct pst_doc_node *node);
/* Returns a number that the node reads from data, as a 0-dim tensor without
 * gradient, in the dtype of the node's result; NULL after a failure, which the
 * builder reports. */
struct pst_value *pst_import_number(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_doc_arg *arg);
/* Imports an assertion on a number. */
enum pst_status pst_import_assert(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;

/* --- pytree.c ----------------------------------------------------------- */

struct pst_paths {
    const char **at; /* one per leaf, depth first; in the given arena */
    size_t n, cap;
};

/* Returns the paths of the leaves of a model's results ("x", "d.b.c", "0"). */
enum pst_status pst_pytree_results(const struct pst_doc_tree *tree,
                                   struct pst_arena *arena,
                                   struct pst_paths *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the paths of the leaves of a model's arguments, a tree (positional,
 * keywords). `names` are the names of the positional arguments; it may be NULL
 * or have NULL entries. */
enum pst_status pst_pytree_arguments(const struct pst_doc_tree *tree,
                                     const char *const *names, unsigned n_names,
                                     struct pst_arena *arena,
                                     struct pst_paths *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* --- classify.c ------------------------------------------------------- */

/* Reason for rejecting sizes that depend on data. */
extern const char pst_import_unbacked[];

/* Classifies a node; graph may be NULL. */
struct pst_target pst_import_target(const struct pst_doc_node *node,
                                    const struct pst_doc_graph *graph);

/* --- resolve.c ---------------------------------------------------------- */

/* Classifies every node of the document once. with_effects(token, operator,
 * ...) becomes the operator itself: nodes are in the order that tokens
 * enforce. */
enum pst_status pst_import_resolve(struct pst_document *doc,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* --- pairs/complex.c ----------------------------------------------------- */

/* True if the node reads or makes complex numbers. */
bool pst_import_complex(const struct pst_doc_node *node,
                        const struct pst_doc_graph *graph);
bool pst_import_is_complex(const struct pst_doc_graph *graph,
                           const struct pst_doc_arg *arg);
/* Returns the row for pairs that corresponds to an operator on complex numbers.
 * *ret_mover: rule that keeps the operator off the last dimension (real and
 * imaginary part); NULL: not needed. */
const struct pst_op *pst_import_complex_row(const char *name,
                                            const struct pst_mover **ret_mover);
/* Converts the bound arguments of a node with complex operands to the types
 * that its row takes. */
enum pst_status pst_import_pairs(struct pst_import *import,
                                 const struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_target *target,
                                 struct pst_arg *args) PST_MUST_CHECK;

/* --- pairs/conjugate.c --------------------------------------------------- */

/* Imports a node that makes a conjugate or a copy of one. For other nodes does
 * nothing and sets *ret_done to false. */
enum pst_status pst_import_conjugate(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_target *target,
                                     const struct pst_names *names,
                                     const struct pst_arg *args,
                                     bool *ret_done) PST_MUST_CHECK;
/* Updates the mirrors (conjugates) of a value; called after each write. */
enum pst_status pst_import_update_mirrors(
    struct pst_import *import, struct pst_value *written) PST_MUST_CHECK;

/* --- pairs/movers.c ------------------------------------------------------ */

/* Returns the rule of an operator that treats both parts of complex numbers
 * alike; NULL if it does not. */
const struct pst_mover *pst_import_mover(const char *name);
/* Adapts dimensions and sizes among an operator's arguments to the additional
 * last dimension of pairs. */
enum pst_status pst_import_adapt_dims(struct pst_import *import,
                                      const struct pst_mover *m,
                                      const struct pst_schema *schema,
                                      struct pst_arg *args) PST_MUST_CHECK;

/* --- scan.c ------------------------------------------------------------- */

/* Scans all nodes before anything is built and reports everything unsupported
 * in one message. Fills import->used. */
enum pst_status pst_import_scan(struct pst_import *import) PST_MUST_CHECK;

/* --- state.c ------------------------------------------------------------ */

/* Makes the values of parameters, buffers and constants, one per tensor. */
enum pst_status pst_import_state(struct pst_import *import,
                                 struct pst_scope *scope) PST_MUST_CHECK;

/* --- windows.c ---------------------------------------------------------- */

/* Turns names of the state that share bytes into views of a common value. */
enum pst_status pst_import_windows(struct pst_import *import,
                                   struct pst_scope *scope) PST_MUST_CHECK;
/* Moves each view of pst_import_windows before its first reader, so that it
 * gets the reader's stage; called when all nodes exist. */
void pst_import_sink_windows(struct pst_import *import);

/* --- bind.c ------------------------------------------------------------- */

/* Converts one argument of the document to a value or literal. */
enum pst_status pst_import_value(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_arg *arg,
                                 const char *where,
                                 struct pst_arg *ret) PST_MUST_CHECK;
/* Returns the index of an argument in the schema, also by the names that other
 * variants of the operator use; -1 if there is none. */
int pst_import_find_arg(const struct pst_schema *schema, const char *name);
/* Puts the node's arguments in schema order; *ret is in the graph's arena. raw
 * (for a write): names are bound to their first values, not to their newest
 * versions. */
enum pst_status pst_import_bind(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_target *target, bool raw,
                                struct pst_arg **ret) PST_MUST_CHECK;

/* --- calls.c ------------------------------------------------------------ */

/* Returns a module's path without the "_export_root" that torch.export prepends
 * in the bodies of regions. */
const char *pst_import_user_path(const char *path);
/* Sets the call and source of the nodes that follow. */
enum pst_status pst_import_set_place(struct pst_import *import,
                                     const struct pst_doc_place *place)
    PST_MUST_CHECK;
/* Assigns nodes whose stacks are lost to a call if they lie between two nodes
 * of it. Called when all nodes exist. Adds a note on cut stacks. */
enum pst_status pst_import_assign_calls(struct pst_import *import)
    PST_MUST_CHECK;
/* Converts a literal; the result is IGNORED if its kind is not supported.
 * Strings are borrowed. */
struct pst_arg pst_import_literal(const struct pst_doc_arg *arg);
/* Sets the signatures of calls that the export kept; called when all nodes
 * exist. */
enum pst_status pst_import_signatures(
    struct pst_import *import, const struct pst_scope *scope) PST_MUST_CHECK;

/* --- autocast.c --------------------------------------------------------- */

/* Returns what autocast does to an operator, by its target
 * "aten.NAME.OVERLOAD". */
enum pst_autocast pst_import_autocast_kind(enum pst_autocast_lists lists,
                                           const char *target);
/* Casts the arguments of a target as autocast does in the scope. result: the
 * file's dtype of the first result, or PST_N_DTYPES. args: one per argument of
 * the schema. Counts the casts in the model. */
enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const char *target, enum pst_dtype result,
                                    const struct pst_schema *schema,
                                    struct pst_arg *args) PST_MUST_CHECK;
/* With --autocast, casts the values of an index_put_ to the dtype of what it
 * writes: the file has the number of `x[mask] = 0` in the dtype that x had when
 * it was exported. args[0] is a tensor. */
enum pst_status pst_import_autocast_write(struct pst_import *import,
                                          const struct pst_op *op,
                                          struct pst_arg *args) PST_MUST_CHECK;
/* True if, because of --autocast, a result may have the dtype `ours` where the
 * file has `file`. */
bool pst_import_may_cast(const struct pst_import *import, enum pst_dtype file,
                         enum pst_dtype ours);
/* Reads the mode of a region's node; false if it is not supported. *dtype is
 * only set if the region casts. */
bool pst_import_autocast_mode(const struct pst_doc_node *node,
                              enum pst_autocast_lists *lists,
                              enum pst_dtype *dtype) PST_MUST_CHECK;

/* --- nodes.c ------------------------------------------------------------ */

/* Imports all nodes of the scope's graph into the builder's graph. */
enum pst_status pst_import_nodes(struct pst_import *import,
                                 struct pst_scope *scope) PST_MUST_CHECK;

/* --- layout/layout.c ----------------------------------------------------- */

void pst_layouts_init(struct pst_layouts *l);
void pst_layouts_fini(struct pst_layouts *l);
/* Gives *value PyTorch's storage order if an earlier import requested that;
 * else records whether its strides differ. Called before the value gets its
 * name. */
enum pst_status pst_import_reorder_storage(
    struct pst_import *import, const struct pst_scope *scope, const char *name,
    const struct pst_doc_meta *t, struct pst_value **value) PST_MUST_CHECK;
/* Calls pst_import_reorder_storage for all inputs of the graph, including
 * state. */
enum pst_status pst_import_reorder_inputs(
    struct pst_import *import, struct pst_scope *scope) PST_MUST_CHECK;
/* Records that the node reads the storage of `self` by explicit strides. */
enum pst_status pst_import_reads_storage(
    struct pst_import *import, const struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* Records a write through v. */
enum pst_status pst_import_writes_storage(struct pst_import *import,
                                          struct pst_value *v) PST_MUST_CHECK;

/* --- resize.c ----------------------------------------------------------- */

/* Imports resize_storage_bytes_(tensor, bytes). */
enum pst_status pst_import_resize(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* Imports fsdp.copy_(tensor, source), _foreach_copy_(tensors, sources). */
enum pst_status pst_import_fill(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node) PST_MUST_CHECK;

/* --- sizes.c ------------------------------------------------------------ */

/* Sets model->fixed to the first number that depends on symbolic sizes in an
 * unknown way, and removes the expressions of such numbers. */
enum pst_status pst_import_sizes(struct pst_import *import) PST_MUST_CHECK;

/* --- graph.c ------------------------------------------------------------ */

/* The steps that build model->graph from a document with classified nodes, in
 * this order. pst_import_scan comes after pst_import_init. Errors are in diag.
 */
void pst_import_init(struct pst_import *import, struct pst_model *model,
                     struct pst_zip *zip, const struct pst_document *doc,
                     struct pst_diag *diag);
void pst_import_fini(struct pst_import *import);
/* Makes a new graph with the values of inputs and state. */
enum pst_status pst_import_inputs(struct pst_import *import) PST_MUST_CHECK;
/* Imports the nodes. If a storage turns out to need PyTorch's order, starts
 * again from the inputs. */
enum pst_status pst_import_body(struct pst_import *import) PST_MUST_CHECK;
/* Adds outputs and the updates of buffers and inputs. */
enum pst_status pst_import_results(struct pst_import *import) PST_MUST_CHECK;

#endif
