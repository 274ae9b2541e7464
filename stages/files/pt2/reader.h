// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_READER_H
#define PENSTOCK_STAGES_FILES_PT2_READER_H
/*
 * The parts of pst_document_parse, from JSON to records. Records are in the
 * reader's arena; the JSON is not needed afterwards. Messages name the
 * location: a tensor by its name, an argument by its node. One thread.
 */
#include "stages/files/pt2/document.h"
#include "stages/files/pt2/json.h"

struct pst_reader {
    struct pst_arena *arena;  /* arena of the records */
    struct pst_document *doc; /* NULL while a table of payloads is read */
    struct pst_arena scratch; /* memory that is freed after reading */
    struct pst_map texts;     /* text -> its interned copy */
    struct pst_map exprs;     /* text in the file -> struct pst_doc_expr */
    struct pst_map fqns;      /* FQNs of all modules, "" included */
    struct pst_map stacks;    /* text in the file -> struct pst_doc_stack */
    struct pst_map traces;    /* text in the file -> struct pst_doc_trace */
    const struct pst_json *fields; /* type -> {"field_names": [...]} */
    /* place of the last node that had a place */
    const struct pst_doc_place *place;
    struct pst_diag *diag;
};

void pst_reader_init(struct pst_reader *r, struct pst_document *doc,
                     struct pst_arena *arena, struct pst_diag *diag);
void pst_reader_fini(struct pst_reader *r);

/* --- reader.c ----------------------------------------------------------- */

/* Returns the interned copy of a text. */
enum pst_status pst_read_text(struct pst_reader *r, const char *text,
                              const char **ret) PST_MUST_CHECK;
/* Reads the text of a required member. */
enum pst_status pst_read_member(struct pst_reader *r,
                                const struct pst_json *object, const char *key,
                                const char *where,
                                const char **ret) PST_MUST_CHECK;
/* Allocates n zeroed elements; never NULL for n = 0. */
enum pst_status pst_reader_alloc(struct pst_reader *r, size_t n, size_t size,
                                 void *ret) PST_MUST_CHECK;

/* --- tensors: sizes.c --------------------------------------------------- */

/* Reads an expression {"expr_str", "hint"}. */
enum pst_status pst_read_expr(struct pst_reader *r, const struct pst_json *json,
                              const char *where,
                              const struct pst_doc_expr **ret) PST_MUST_CHECK;
/* Reads an expression from its text. */
enum pst_status pst_read_expr_text(struct pst_reader *r, const char *text,
                                   const char *where,
                                   struct pst_doc_expr **ret) PST_MUST_CHECK;
/* Reads the TensorMeta of the value or stored tensor `name`. */
enum pst_status pst_read_tensor(struct pst_reader *r,
                                const struct pst_json *json, const char *name,
                                struct pst_doc_tensor *ret) PST_MUST_CHECK;
/* Reads a SymInt, SymBool or SymFloat of a graph. */
enum pst_status pst_read_number(struct pst_reader *r,
                                const struct pst_json *json, const char *name,
                                struct pst_doc_number *ret) PST_MUST_CHECK;

/* --- args.c ------------------------------------------------------------- */

/* Reads an argument. For messages, `where` names the union and `what` its
 * payload. */
enum pst_status pst_read_arg(struct pst_reader *r, const struct pst_json *json,
                             const char *where, const char *what,
                             struct pst_doc_arg *ret) PST_MUST_CHECK;
/* Reads a list of arguments; NULL counts as an empty one. */
enum pst_status pst_read_args(struct pst_reader *r, const struct pst_json *list,
                              const char *where, unsigned *ret_n,
                              struct pst_doc_arg **ret) PST_MUST_CHECK;
/* Reads {"name": ...} as an argument of kind TENSOR. */
enum pst_status pst_read_named(struct pst_reader *r,
                               const struct pst_json *json, const char *where,
                               struct pst_doc_arg *ret) PST_MUST_CHECK;

/* --- traces.c ----------------------------------------------------------- */

/* Facts about a node from its Python traceback. */
struct pst_doc_trace {
    const char *source; /* such as "file.py:12"; "" if unknown */
    /* the node was inside the forward of an autograd.Function */
    bool lost;
    /* forwards: number of frames of user-defined forwards, less those that
     * another forward calls by name. others: there are other frames, too, so
     * the number is not reliable. */
    unsigned forwards;
    bool others;
};

enum pst_status pst_read_trace(struct pst_reader *r, const char *text,
                               const struct pst_doc_trace **ret) PST_MUST_CHECK;

/* --- provenance.c ------------------------------------------------------- */

/* Sets r->place from a node's metadata; keeps the place of the previous node if
 * there is no metadata. */
enum pst_status pst_read_place(struct pst_reader *r,
                               const struct pst_json *metadata) PST_MUST_CHECK;

/* --- calls.c ------------------------------------------------------------ */

/* Reads module_call_graph into the document and r->fqns. */
enum pst_status pst_read_calls(struct pst_reader *r,
                               const struct pst_json *module) PST_MUST_CHECK;
/* Reads a treespec from its JSON text. */
enum pst_status pst_read_tree(struct pst_reader *r, const char *text,
                              const struct pst_doc_tree **ret) PST_MUST_CHECK;

/* --- graphs.c ----------------------------------------------------------- */

enum pst_status pst_read_graph(struct pst_reader *r,
                               const struct pst_json *json,
                               struct pst_doc_graph **ret) PST_MUST_CHECK;

#endif
