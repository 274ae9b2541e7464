// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
/*
 * The parts of pst_model_open: from the document's records to a functional
 * graph. Nodes are imported in program order straight through the builder and
 * the functionaliser; sub-graphs are inlined on the way. One thread.
 */
#include "stages/files/pt2/document.h"
#include "stages/files/zip.h"
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/target.h"
#include "stages/frontend/model.h"
#include "stages/graph/build.h"
#include "stages/graph/extent.h"

/* What is known of a storage, by the id of the value that owns it. */
struct pst_storage_note {
    const char *origin; /* key of the name from which on its strides are not
                           PyTorch's; NULL: they are */
    bool doubtful;      /* a view or a copy: ours may not be PyTorch's */
    bool written;
    int64_t shift; /* of an input: where PyTorch's storage had it begin */
};

/* PyTorch's strides of a value. */
struct pst_import_strides {
    bool known;
    bool put_right; /* the file says others */
    unsigned rank;
    int64_t stride[PST_MAX_RANK];
};

/* Names whose results get storages in the order of PyTorch's (layout/layout.c);
 * they stay from one import of a document to the next. */
struct pst_layouts {
    struct pst_map wanted; /* keys */
    bool again;            /* one was added */
};

/* The names of one graph of the document. Values stand for themselves through
 * all writes: readers go through pst_functionalise_read. */
struct pst_scope {
    struct pst_map values;  /* name -> struct pst_value */
    struct pst_map read;    /* name of a number read from data -> its tensor */
    struct pst_map numbers; /* name of a number -> struct pst_doc_node */
    struct pst_map lanes;   /* name -> struct pst_lanes (regions/regions.h) */
    const struct pst_doc_graph *graph; /* of the document; borrowed */
    bool no_grad;
    const char *region; /* that is recomputed; NULL: none */
    bool autocast;      /* products take dtype `low` */
    enum pst_dtype low;
    bool pure;  /* a branch: what stands before it may not be written */
    bool inner; /* a branch or a loop's body: done by the call that runs it */
};

/* A name of the state that looks into another value. */
struct pst_import_window {
    const char *placeholder; /* NULL: not among the graph's inputs */
    const struct pst_weight *weight;
    struct pst_value *base, *view;
    int64_t offset;
};

/* A complex view and its conjugate (conjugate.c). */
struct pst_mirror {
    struct pst_value *of, *conjugate;
    bool lazy; /* PyTorch's conjugate has of's numbers in memory */
};

/* A node whose gradient in PyTorch the file does not have. */
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
    struct pst_sizes sizes; /* of the builder */
    struct pst_functionalise *functional;
    struct pst_diag *diag;
    struct pst_map used;    /* value names that the outer graph reads */
    struct pst_map numbers; /* names of numbers that tensors depend on */
    struct pst_map state;   /* FQN of parameter, buffer, constant -> value */
    struct pst_map shared;  /* FQN -> FQN of another window on its memory */
    struct pst_layouts layouts;
    struct PST_VEC(struct pst_storage_note) notes;
    /* By the id of the value; where they are other ones than ours, or were put
     * right (layout/eager.h). */
    struct PST_VEC(struct pst_import_strides) strides;
    struct pst_import_strides expected; /* of the next result */
    const struct pst_doc_place *place;  /* of the node at work */
    const struct pst_doc_stack *stack;  /* whose call build.call is */
    const struct pst_doc_place *cut; /* the first whose stack is not nested */
    struct pst_scope outer;          /* of the outermost graph */
    struct PST_VEC(struct pst_import_window) windows;
    struct PST_VEC(struct pst_mirror) mirrors;
    struct PST_VEC(struct pst_lost_node) lost; /* in the order of the nodes */
    size_t n_modules, n_ties, n_notes; /* of the model before the import */
    unsigned n_regions;                /* that are recomputed */
};

/* --- weights.c ---------------------------------------------------------- */

/* Reads data/<folder>/<model>_<folder>_config.json into model->weights. The
 * text's digest is added to *digests. */
enum pst_status pst_import_weights(struct pst_model *model, struct pst_zip *zip,
                                   const char *name, const char *folder,
                                   struct pst_str *digests,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* --- guards.c ----------------------------------------------------------- */

/* What a comparison of inputs' sizes says becomes a limit; *ret: it did. */
enum pst_status pst_import_guard(struct pst_model *model,
                                 const struct pst_document *doc,
                                 const char *guard, bool *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* --- lost.c ------------------------------------------------------------- */

/* Remembers the graph's nodes from number `first` on, if the file lacks the
 * gradient of the place that they come from. */
enum pst_status pst_import_note_lost(struct pst_import *import,
                                     size_t first) PST_MUST_CHECK;
/* Notes where a gradient goes through them; model->lost. */
enum pst_status pst_import_lost(struct pst_import *import) PST_MUST_CHECK;

/* --- symbols.c ---------------------------------------------------------- */

/* Symbols, their values at export and their ranges into model->symbols. */
enum pst_status pst_import_symbols(struct pst_model *model,
                                   const struct pst_document *doc,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The number that goes by that name in the graph, with its expression. */
enum pst_status pst_import_symbol(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const char *name, const char *where,
                                  struct pst_arg *ret) PST_MUST_CHECK;
/* Does it not depend on data? NULL: a number. A failure is the builder's. */
bool pst_import_is_known(struct pst_import *import,
                         const struct pst_doc_expr *expr);
/* The same of the number of that name. */
bool pst_import_knows_number(struct pst_import *import,
                             const struct pst_scope *scope, const char *name);
/* Does something need the number that a node has as a result? */
bool pst_import_number_needed(const struct pst_import *import,
                              const struct pst_doc_arg *output);
/* A number read from data that the exporter has fixed: the file says it. */
bool pst_import_is_settled(struct pst_import *import,
                           const struct pst_doc_graph *graph,
                           const struct pst_doc_node *node);
/* A number read from data on which nothing depends but the exporter's
 * assertions; import->numbers must be filled. */
bool pst_import_is_idle(const struct pst_import *import,
                        const struct pst_doc_node *node);

/* --- asserts.c ---------------------------------------------------------- */

/* Remembers where a number comes from: a read of data, or arithmetic. */
enum pst_status pst_import_note_number(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* The same of one that the file says, which is compared: of constants now, of
 * data in each step. */
enum pst_status pst_import_settle(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* What a node of one of the kinds of assertions demands of a number. */
enum pst_status pst_import_assert(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;

/* --- pytree.c ----------------------------------------------------------- */

struct pst_paths {
    const char **at; /* one per leaf, depth first; in the given arena */
    size_t n, cap;
};

/* Paths of the leaves of a model's results ("x", "d.b.c", "0"). */
enum pst_status pst_pytree_results(const struct pst_doc_tree *tree,
                                   struct pst_arena *arena,
                                   struct pst_paths *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The same of (positional, keywords); names, which may be NULL or have holes,
 * are those of the positional ones. */
enum pst_status pst_pytree_arguments(const struct pst_doc_tree *tree,
                                     const char *const *names, unsigned n_names,
                                     struct pst_arena *arena,
                                     struct pst_paths *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* --- classify.c ------------------------------------------------------- */

/* Why sizes that are not known are refused. */
extern const char pst_import_unbacked[];

/* What a node of the graph is to us; graph may be NULL. */
struct pst_target pst_import_target(const struct pst_doc_node *node,
                                    const struct pst_doc_graph *graph);

/* --- resolve.c ---------------------------------------------------------- */

/* Gives every node of the document its target, once. with_effects(token,
 * operator, ...) becomes the operator itself: the order that tokens keep is the
 * order of nodes. */
enum pst_status pst_import_resolve(struct pst_document *doc,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* --- pairs/complex.c ----------------------------------------------------- */

/* Does it read or make complex numbers? */
bool pst_import_complex(const struct pst_doc_node *node,
                        const struct pst_doc_graph *graph);
bool pst_import_is_complex(const struct pst_doc_graph *graph,
                           const struct pst_doc_arg *arg);
/* The row that does to pairs what that operator does to complex numbers, and
 * how it is told to leave them together (NULL: it need not be told). */
const struct pst_op *pst_import_complex_row(const char *name,
                                            const struct pst_mover **ret_mover);
/* Changes bound arguments of such a node to what its row takes. */
enum pst_status pst_import_pairs(struct pst_import *import,
                                 const struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_target *target,
                                 struct pst_arg *args) PST_MUST_CHECK;

/* --- pairs/conjugate.c --------------------------------------------------- */

/* A node that makes a conjugate, or a copy of one; else *ret_done is false and
 * nothing is done. */
enum pst_status pst_import_conjugate(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_target *target,
                                     const struct pst_names *names,
                                     const struct pst_arg *args,
                                     bool *ret_done) PST_MUST_CHECK;
/* Behind each write: the other sides of mirrors follow. */
enum pst_status pst_import_reflect(struct pst_import *import,
                                   struct pst_value *written) PST_MUST_CHECK;

/* --- pairs/movers.c ------------------------------------------------------ */

/* Of an operator that only moves elements; else NULL. */
const struct pst_mover *pst_import_mover(const char *name);
/* Changes dimensions and sizes among its arguments to those of pairs. */
enum pst_status pst_import_move(struct pst_import *import,
                                const struct pst_mover *m,
                                const struct pst_schema *schema,
                                struct pst_arg *args) PST_MUST_CHECK;

/* --- scan.c ------------------------------------------------------------- */

/* One look at all nodes before anything is built: everything that is not
 * supported is named in one message. Fills import->used. */
enum pst_status pst_import_scan(struct pst_import *import) PST_MUST_CHECK;

/* --- state.c ------------------------------------------------------------ */

/* Makes the values of parameters, buffers and constants, one per tensor. */
enum pst_status pst_import_state(struct pst_import *import,
                                 struct pst_scope *scope) PST_MUST_CHECK;

/* --- windows.c ---------------------------------------------------------- */

/* Names of the state that share bytes become views of what has these. */
enum pst_status pst_import_windows(struct pst_import *import,
                                   struct pst_scope *scope) PST_MUST_CHECK;
/* When all nodes are there: each view goes in front of its first reader, so
 * that it is in its stage. */
void pst_import_sink_windows(struct pst_import *import);

/* --- bind.c ------------------------------------------------------------- */

/* One argument of the document as a value or literal. */
enum pst_status pst_import_value(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_arg *arg,
                                 const char *where,
                                 struct pst_arg *ret) PST_MUST_CHECK;
/* Index of the schema's argument; other names of rows and in-place forms name
 * some arguments differently. -1: there is none. */
int pst_import_find_arg(const struct pst_schema *schema, const char *name);
/* The node's arguments in the order of the schema; *ret in the graph's arena.
 * raw: values as they stand, for a write; else their newest versions. */
enum pst_status pst_import_bind(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_target *target, bool raw,
                                struct pst_arg **ret) PST_MUST_CHECK;

/* --- calls.c ------------------------------------------------------------ */

/* A module's path without the "_export_root" that torch.export puts in front of
 * it in the bodies of regions. */
const char *pst_import_user_path(const char *path);
/* What is built next stands at this place of the model. */
enum pst_status pst_import_enter(struct pst_import *import,
                                 const struct pst_doc_place *place)
    PST_MUST_CHECK;
/* When all nodes are there: what stands between two nodes of a call is done by
 * that call, whatever its own stack has lost. Notes stacks that were cut. */
enum pst_status pst_import_stay(struct pst_import *import) PST_MUST_CHECK;
/* Its arg is IGNORED if it is none of ours. Texts are borrowed. */
struct pst_arg pst_import_literal(const struct pst_doc_arg *arg);
/* When all nodes are there: what calls take and return, where it was kept. */
enum pst_status pst_import_signatures(
    struct pst_import *import, const struct pst_scope *scope) PST_MUST_CHECK;

/* --- autocast.c --------------------------------------------------------- */

/* What autocast does to the operator of target "aten.NAME.OVERLOAD". */
enum pst_autocast pst_import_autocast_kind(const char *target);
/* Casts the arguments of such an operator as the scope's region says; result:
 * the dtype that the file gives its first one, PST_N_DTYPES: none. */
enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    enum pst_autocast kind,
                                    enum pst_dtype result, struct pst_arg *args,
                                    unsigned n_args) PST_MUST_CHECK;
/* Of a region's node; false if it is of another kind than ours. */
bool pst_import_autocast_mode(const struct pst_doc_node *node, bool *enabled,
                              enum pst_dtype *dtype) PST_MUST_CHECK;

/* --- nodes.c ------------------------------------------------------------ */

/* Imports all nodes of the scope's graph into the builder's graph. */
enum pst_status pst_import_nodes(struct pst_import *import,
                                 struct pst_scope *scope) PST_MUST_CHECK;

/* --- layout/layout.c
 * ----------------------------------------------------------- */

void pst_layouts_init(struct pst_layouts *l);
void pst_layouts_fini(struct pst_layouts *l);
/* Before *value gets its name: it is laid out as recorded if an import before
 * wanted that; else it is noted where its strides are other ones. */
enum pst_status pst_import_lay_out(struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const char *name,
                                   const struct pst_doc_meta *t,
                                   struct pst_value **value) PST_MUST_CHECK;
/* The same of all inputs of the graph, state included. */
enum pst_status pst_import_lay_out_inputs(
    struct pst_import *import, struct pst_scope *scope) PST_MUST_CHECK;
/* The node reads the storage of its `self` by strides of its own. */
enum pst_status pst_import_reads_storage(
    struct pst_import *import, const struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* Something is written through v. */
enum pst_status pst_import_writes_storage(struct pst_import *import,
                                          struct pst_value *v) PST_MUST_CHECK;

/* --- resize.c ----------------------------------------------------------- */

/* resize_storage_bytes_(tensor, bytes) */
enum pst_status pst_import_resize(
    struct pst_import *import, struct pst_scope *scope,
    const struct pst_doc_node *node) PST_MUST_CHECK;
/* fsdp.copy_(tensor, source), _foreach_copy_(tensors, sources) */
enum pst_status pst_import_fill(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node) PST_MUST_CHECK;

/* --- sizes.c ------------------------------------------------------------ */

/* Says in model->fixed which number follows from free sizes in a way that
 * nobody knows, and takes the marks of such numbers away. */
enum pst_status pst_import_sizes(struct pst_import *import) PST_MUST_CHECK;

/* --- graph.c ------------------------------------------------------------ */

/* model->graph from the document, whose nodes are resolved; all but init and
 * fini in this order, pst_import_scan before. Failures are in diag. */
void pst_import_init(struct pst_import *import, struct pst_model *model,
                     struct pst_zip *zip, const struct pst_document *doc,
                     struct pst_diag *diag);
void pst_import_fini(struct pst_import *import);
/* A new graph with the values of inputs and state. */
enum pst_status pst_import_inputs(struct pst_import *import) PST_MUST_CHECK;
/* The nodes; if a storage turns out to need the recorded order, all is done
 * again from the inputs on. */
enum pst_status pst_import_body(struct pst_import *import) PST_MUST_CHECK;
/* Outputs, and what was written to buffers and inputs. */
enum pst_status pst_import_results(struct pst_import *import) PST_MUST_CHECK;

#endif
