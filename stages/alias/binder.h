// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_BINDER_H
#define PENSTOCK_STAGES_ALIAS_BINDER_H
/*
 * A program on its way to a graph. Private to this folder: pass.c passes
 * operands, emit.c and set.c emit operators, history.c knows whose gradients
 * are where, bind.c does all that twice and reads the results. One thread.
 */
#include "stages/alias/program.h"
#include "stages/frontend/functional/functionalise.h"

/* A value that owns memory of the caller's. */
struct pst_owner {
    const struct pst_value *value;
    unsigned operand; /* one whose storage it is */
    int64_t begin;    /* where it lies there, bytes */
    int stage;        /* that has written it; -1: none */
    bool leaf;        /* it has the storage alone */
    bool expanded;    /* that leaf's elements share memory */
};

/* A window of an owner that has been written. */
struct pst_write {
    struct pst_value *value;
    size_t owner;
};

/* A view of an operand. */
struct pst_family {
    const struct pst_value *value;
    unsigned operand;
};

struct pst_binder {
    const struct pst_program *program;
    struct pst_program_operand *operands;
    unsigned n;
    const struct pst_alias *alias; /* NULL: they share nothing */
    bool absolute;                 /* pst_program_is_absolute() */
    bool learning; /* not the last pass: operands may be widened */
    bool widened;  /* an operand is reached beyond its range; do it again */
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *functional;
    struct pst_map names;      /* -> struct pst_value */
    struct pst_value **values; /* of the operands */
    struct PST_VEC(struct pst_owner) owners;
    struct PST_VEC(struct pst_write) writes;
    struct PST_VEC(struct pst_family) families;
    struct PST_VEC(struct pst_family) carriers; /* windows with gradients */
    unsigned stage;
    struct pst_diag *diag;
};

/* PST_ERR_NOMEM, said. */
enum pst_status pst_binder_no_memory(const struct pst_binder *b);
/* name may be NULL. */
enum pst_status pst_binder_name(struct pst_binder *b, const char *name,
                                struct pst_value *value) PST_MUST_CHECK;
/* NULL, a failure of the builder, if there is no tensor of that name. */
struct pst_value *pst_binder_find(struct pst_binder *b, const char *name);
/* The storage of value is that of the operand, `begin` bytes on. */
enum pst_status pst_binder_own(struct pst_binder *b,
                               const struct pst_value *value, unsigned operand,
                               int64_t begin, bool leaf) PST_MUST_CHECK;
/* Who owns the storage that v lies in; NULL: an intermediate, or a failure of
 * the builder. */
struct pst_owner *pst_binder_owner(struct pst_binder *b, struct pst_value *v);

/* --- pass.c --------------------------------------------------------------- */

/* Values of all operands but those that are made before the call. Bases come
 * first, then what stays, both in the order of operands. */
enum pst_status pst_binder_pass(struct pst_binder *b) PST_MUST_CHECK;

/* --- emit.c --------------------------------------------------------------- */

enum pst_status pst_binder_emit(struct pst_binder *b,
                                const struct pst_program_op *ops,
                                unsigned n) PST_MUST_CHECK;

/* --- history.c ------------------------------------------------------------ */

/* v is operand's, or a view of it; nothing is known of operand n. */
enum pst_status pst_binder_adopt(struct pst_binder *b,
                                 const struct pst_value *v,
                                 unsigned operand) PST_MUST_CHECK;
/* The same if v lies where `of` lies. */
enum pst_status pst_binder_inherit(struct pst_binder *b, struct pst_value *v,
                                   struct pst_value *of) PST_MUST_CHECK;
/* Refuses v if another operand has numbers with a gradient there. */
enum pst_status pst_binder_check_history(struct pst_binder *b,
                                         struct pst_value *v) PST_MUST_CHECK;
/* v as it stands, and its gradient. NULL after a failure. */
struct pst_value *pst_binder_read(struct pst_binder *b, struct pst_value *v);
/* Remembers that the window of v is written, and asks whether it may be. */
enum pst_status pst_binder_note_write(struct pst_binder *b,
                                      struct pst_value *v) PST_MUST_CHECK;
/* `source` has gone into the window of `written`. */
enum pst_status pst_binder_note_history(
    struct pst_binder *b, struct pst_value *written,
    struct pst_value *source) PST_MUST_CHECK;

/* --- set.c ---------------------------------------------------------------- */

/* A tensor goes to another storage, under all of its names. */
enum pst_status pst_binder_set(struct pst_binder *b,
                               const struct pst_program_op *op) PST_MUST_CHECK;

#endif
