// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_IMPORT_H
/*
 * The parts of pst_model_open: from the JSON document to a functional graph.
 * Nodes are imported in program order straight through the builder and the
 * functionaliser; sub-graphs are inlined on the way. One thread.
 */
#include "stages/files/zip.h"
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/model_json.h"
#include "stages/frontend/model.h"
#include "stages/graph/build.h"

/* Where a node comes from; texts live in the model's arena. */
struct pst_place {
    const char *module; /* FQN of the innermost module, "" at the top */
    unsigned call;      /* which call of that module */
    const char *source; /* "file.py:12" or "" */
    /* The module's class is one of torch.nn, whose forward asks self.training
     * whether to drop; and one of its dropouts. */
    bool library, dropout;
};

/* What is known of a storage, by the id of the value that owns it. */
struct pst_storage_note {
    const char *origin; /* key of the name from which on its strides are not
                           PyTorch's; NULL: they are */
    bool doubtful;      /* a view or a copy: ours may not be PyTorch's */
    bool written;
    int64_t shift; /* of an input: where PyTorch's storage had it begin */
};

/* Names whose results get storages in the recorded order (layout.c); they stay
 * from one import of a document to the next. */
struct pst_layouts {
    struct pst_map wanted; /* keys */
    bool again;            /* one was added */
};

struct pst_import {
    struct pst_model *model;
    struct pst_zip *zip;
    const json_t *module; /* GraphModule; borrowed */
    struct pst_build build;
    struct pst_functionalise *functional;
    struct pst_diag *diag;
    struct pst_map fqns;    /* of all modules, "" included */
    struct pst_map used;    /* value names that the outer graph reads */
    struct pst_map numbers; /* names of numbers that tensors depend on */
    struct pst_map state;   /* FQN of parameter, buffer, constant -> value */
    struct pst_map shared;  /* FQN -> FQN of another window on its memory */
    struct pst_layouts *layouts;
    struct PST_VEC(struct pst_storage_note) notes;
    struct pst_place place;
};

/* The names of one graph of the document. Values stand for themselves through
 * all writes: readers go through pst_functionalise_read. */
struct pst_scope {
    struct pst_map values;  /* name -> struct pst_value */
    struct pst_map read;    /* name of a number read from data -> its tensor */
    struct pst_map numbers; /* name of a number -> JSON of its node */
    const json_t *graph;    /* of the document; borrowed */
    const json_t *metas;    /* its tensor_values */
    bool no_grad;
    bool autocast; /* products take dtype `low` */
    enum pst_dtype low;
    bool pure; /* a branch: what stands before it may not be written */
};

/* --- weights.c ---------------------------------------------------------- */

/* Reads data/<folder>/<model>_<folder>_config.json into model->weights. The
 * text's digest is added to *digests. */
enum pst_status pst_import_weights(struct pst_model *model, struct pst_zip *zip,
                                   const char *name, const char *folder,
                                   struct pst_str *digests,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* --- symbols.c ---------------------------------------------------------- */

/* Symbols, their values at export and their ranges into model->symbols. */
enum pst_status pst_import_symbols(struct pst_model *model,
                                   const json_t *program,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The number that goes by that name in the graph, with its expression. */
enum pst_status pst_import_symbol(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const char *name, const char *where,
                                  struct pst_arg *ret) PST_MUST_CHECK;
/* Does a SymInt of the document not depend on data? */
bool pst_import_is_known(const struct pst_import *import, const json_t *size);
/* Does something need the number that a node has as a result? */
bool pst_import_number_needed(const struct pst_import *import,
                              const json_t *output);
/* A number read from data on which nothing depends but the exporter's
 * assertions; import->numbers must be filled. */
bool pst_import_is_idle(const struct pst_import *import, const json_t *node);
/* The number of that name in the graph at hand, NULL if there is none. */
const json_t *pst_import_find_symbol(const struct pst_scope *scope,
                                     const char *name);

/* --- asserts.c ---------------------------------------------------------- */

/* Remembers where a number comes from: a read of data, or arithmetic. */
enum pst_status pst_import_note_number(struct pst_import *import,
                                       struct pst_scope *scope,
                                       const json_t *node) PST_MUST_CHECK;
/* What a node of kind PST_TARGET_ASSERT demands of a number. */
enum pst_status pst_import_assert(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const json_t *node) PST_MUST_CHECK;

/* --- place.c ------------------------------------------------------------ */

/* Updates import->place from a node's metadata; nodes that say nothing keep
 * the module of the node before. */
enum pst_status pst_import_place(struct pst_import *import,
                                 const json_t *node) PST_MUST_CHECK;

/* Puts "node "add" (aten.add.Tensor) in MODULE at FILE:LINE: " before the
 * message, unless a node (of a sub-graph) stands there already. */
void pst_import_blame(struct pst_import *import, const json_t *node,
                      const char *target);

/* --- pytree.c ----------------------------------------------------------- */

struct pst_paths {
    const char **at; /* one per leaf, depth first; in the given arena */
    size_t n, cap;
};

/* Paths of the leaves of a treespec ("x", "d.b.c", "0"). args: the tree is
 * (positional, keywords) and `names` (JSON list, may be NULL) names both.
 * fields: treespec_namedtuple_fields (may be NULL). */
enum pst_status pst_pytree_paths(const char *spec, bool args,
                                 const json_t *names, const json_t *fields,
                                 struct pst_arena *arena, struct pst_paths *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* --- target.c ----------------------------------------------------------- */

enum pst_target_kind {
    PST_TARGET_OP,       /* a row */
    PST_TARGET_INPLACE,  /* op is the functional twin */
    PST_TARGET_OUT,      /* op returns what this one writes to `out` */
    PST_TARGET_CONVERT,  /* to.*, type_as: nothing if the dtype is there */
    PST_TARGET_METADATA, /* an assert on sizes and dtype: checked, no node */
    PST_TARGET_ASSERT,   /* of a number: of a size, or read from data */
    PST_TARGET_SIZE,     /* arithmetic on sizes: the file has its results */
    PST_TARGET_SET_GRAD, /* sub-graph to inline */
    PST_TARGET_AUTOCAST, /* the same, with casts if it is enabled */
    PST_TARGET_COND,     /* two sub-graphs, of which a bool chooses */
    PST_TARGET_NONE,     /* not supported: reason */
};

struct pst_target {
    enum pst_target_kind kind;
    const char *name; /* "aten.add.Tensor" as in the file */
    const struct pst_op *op;
    const char *reason;
    unsigned tier; /* of what is not supported: 2 of an operator whose form
                      is not, 3 refused, 0 unknown */
    bool pairs;    /* operands are complex: pst_import_pairs */
};

/* Why sizes that are not known are refused. */
extern const char pst_import_unbacked[];

/* What a node of the document is to us; metas: its graph's tensor_values. */
struct pst_target pst_import_target(const json_t *node, const json_t *metas);
/* Payload of argument `name` if it has that tag, else NULL. */
const json_t *pst_import_arg(const json_t *node, const char *name,
                             const char *tag);

/* --- effects.c ---------------------------------------------------------- */

/* Makes of each with_effects(token, operator, ...) among the nodes of a graph
 * the operator itself: the order that tokens keep is the order of nodes. */
enum pst_status pst_import_unwrap(json_t *nodes,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* --- complex.c ---------------------------------------------------------- */

/* Does it read or make complex numbers? */
bool pst_import_complex(const json_t *node, const json_t *metas);
/* The row that does to pairs what that operator does to complex numbers. */
const struct pst_op *pst_import_complex_row(const char *name);
/* Changes bound arguments of such a node to what its row takes. */
enum pst_status pst_import_pairs(struct pst_import *import,
                                 const struct pst_scope *scope,
                                 const json_t *node,
                                 const struct pst_target *target,
                                 struct pst_arg *args) PST_MUST_CHECK;

/* --- scan.c ------------------------------------------------------------- */

/* One look at all nodes before anything is built: everything that is not
 * supported is named in one message. Fills import->used. */
enum pst_status pst_import_scan(struct pst_import *import) PST_MUST_CHECK;

/* --- state.c ------------------------------------------------------------ */

/* Makes the values of parameters, buffers and constants, one per tensor. */
enum pst_status pst_import_state(struct pst_import *import,
                                 struct pst_scope *scope) PST_MUST_CHECK;

/* --- bind.c ------------------------------------------------------------- */

/* One argument of the document as a value or literal. */
enum pst_status pst_import_value(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *json,
                                 const char *where,
                                 struct pst_arg *ret) PST_MUST_CHECK;
/* Index of the schema's argument; other names of rows and in-place forms name
 * some arguments differently. -1: there is none. */
int pst_import_find_arg(const struct pst_schema *schema, const char *name);
/* The node's arguments in the order of the schema; *ret in the graph's arena.
 * raw: values as they stand, for a write; else their newest versions. */
enum pst_status pst_import_bind(struct pst_import *import,
                                struct pst_scope *scope, const json_t *node,
                                const struct pst_target *target, bool raw,
                                struct pst_arg **ret) PST_MUST_CHECK;

/* --- autocast.c --------------------------------------------------------- */

/* Casts the arguments of the operator as the scope's region says. */
enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const char *target, struct pst_arg *args,
                                    unsigned n_args) PST_MUST_CHECK;
/* Of a region's node; false if it is of another kind than ours. */
bool pst_import_autocast_mode(const json_t *node, bool *enabled,
                              enum pst_dtype *dtype) PST_MUST_CHECK;

/* --- nodes.c ------------------------------------------------------------ */

/* Imports all nodes of a Graph of the document into the builder's graph. */
enum pst_status pst_import_nodes(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const json_t *graph) PST_MUST_CHECK;

/* --- layout.c ----------------------------------------------------------- */

void pst_layouts_init(struct pst_layouts *l);
void pst_layouts_fini(struct pst_layouts *l);
/* Before *value gets its name: it is laid out as recorded if an import before
 * wanted that; else it is noted where its strides are other ones. */
enum pst_status pst_import_lay_out(struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const char *name,
                                   const struct pst_json_tensor *t,
                                   struct pst_value **value) PST_MUST_CHECK;
/* The same of all inputs of the graph, state included. */
enum pst_status pst_import_lay_out_inputs(
    struct pst_import *import, struct pst_scope *scope) PST_MUST_CHECK;
/* The node reads the storage of its `self` by strides of its own. */
enum pst_status pst_import_reads_storage(struct pst_import *import,
                                         const struct pst_scope *scope,
                                         const json_t *node) PST_MUST_CHECK;
/* Something is written through v. */
enum pst_status pst_import_writes_storage(struct pst_import *import,
                                          struct pst_value *v) PST_MUST_CHECK;

/* --- probe.c ------------------------------------------------------------ */

/* Finds numbers of model->graph that depend on free sizes but have no
 * expression; gives them one, or sets model->fixed. */
enum pst_status pst_import_probe(struct pst_model *model, struct pst_zip *zip,
                                 const json_t *graph_module,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* --- import.c ----------------------------------------------------------- */

/* model->graph from the document's graph_module. */
enum pst_status pst_import_graph(struct pst_model *model, struct pst_zip *zip,
                                 const json_t *graph_module,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
