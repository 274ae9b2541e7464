// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_BINDER_H
#define PENSTOCK_STAGES_ALIAS_BINDER_H
/*
 * State while a program is bound to a graph. Private to this folder:
 * pass_operands.c passes operands, emit.c and set.c emit operators, history.c
 * tracks the operand that gets the gradient of a view, bind.c runs these steps
 * twice and reads the results. One thread.
 */
#include "stages/alias/program.h"
#include "stages/frontend/functional/functionalise.h"

/* A storage of the caller's, or one that was made before the call. */
struct pst_owner {
    const struct pst_value *value; /* the storage in the graph */
    unsigned operand;              /* an operand with that storage */
    int64_t begin; /* byte of the storage at which value begins */
    int stage;     /* stage that has written to it; -1: none */
    /* a leaf has this storage, and no other operand overlaps the leaf */
    bool leaf;
    bool expanded; /* elements of the leaf share memory with each other */
};

/* A write to the storage of an owner. */
struct pst_write {
    struct pst_value *value; /* the view that was written */
    size_t owner;            /* index in owners */
};

/* A value that is a view of an operand, by the operand's number. */
struct pst_family {
    const struct pst_value *value;
    unsigned operand;
};

struct pst_binder {
    const struct pst_alias_program *program;
    struct pst_alias_program_operand *operands;
    unsigned n;
    const struct pst_alias *alias; /* NULL: assume that nothing is shared */
    bool absolute;                 /* pst_alias_program_is_absolute() */
    bool learning; /* not the last pass: ranges of operands may grow */
    bool widened;  /* a range grew; another pass is needed */
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *functional;
    struct pst_map names;      /* tensor name -> struct pst_value */
    struct pst_value **values; /* values of the operands; NULL: not yet made */
    struct PST_VEC(struct pst_owner) owners;
    struct PST_VEC(struct pst_write) writes;
    struct PST_VEC(struct pst_family) families;
    /* views of memory to which a value with a gradient was written */
    struct PST_VEC(struct pst_family) carriers;
    unsigned stage;
    struct pst_diag *diag;
};

/* Reports and returns PST_ERR_NOMEM. */
enum pst_status pst_binder_no_memory(const struct pst_binder *b);
/* Names a value; name may be NULL. */
enum pst_status pst_binder_name(struct pst_binder *b, const char *name,
                                struct pst_value *value) PST_MUST_CHECK;
/* Finds a tensor by name; NULL and an error in the builder if there is none. */
struct pst_value *pst_binder_find(struct pst_binder *b, const char *name);
/* Records that the value's storage is the operand's, from byte `begin` on. */
enum pst_status pst_binder_set_owner(struct pst_binder *b,
                                     const struct pst_value *value,
                                     unsigned operand, int64_t begin,
                                     bool leaf) PST_MUST_CHECK;
/* Returns the owner of v's storage; NULL for an intermediate, or after an error
 * in the builder. */
struct pst_owner *pst_binder_owner(struct pst_binder *b, struct pst_value *v);

/* --- pass_operands.c ------------------------------------------------------ */

/* Makes the values of all operands except those made before the call. Bases
 * come first, then the other operands, both in the order of operands. */
enum pst_status pst_binder_make_values(struct pst_binder *b) PST_MUST_CHECK;

/* --- emit.c --------------------------------------------------------------- */

enum pst_status pst_binder_emit(struct pst_binder *b,
                                const struct pst_alias_program_op *ops,
                                unsigned n) PST_MUST_CHECK;

/* --- history.c ------------------------------------------------------------ */

/* Records that v is a view of the operand; does nothing for operand n
 * (unknown). */
enum pst_status pst_binder_note_view(struct pst_binder *b,
                                     const struct pst_value *v,
                                     unsigned operand) PST_MUST_CHECK;
/* Records that v, a view of `of`, is a view of the same operand. */
enum pst_status pst_binder_inherit(struct pst_binder *b, struct pst_value *v,
                                   struct pst_value *of) PST_MUST_CHECK;
/* Fails if values with a gradient were written to the memory of v through an
 * unrelated operand: v would not get that gradient in PyTorch. */
enum pst_status pst_binder_check_history(struct pst_binder *b,
                                         struct pst_value *v) PST_MUST_CHECK;
/* Returns the current value of v, with its gradient; NULL after an error. */
struct pst_value *pst_binder_read(struct pst_binder *b, struct pst_value *v);
/* Records a write to v and checks that it is allowed. */
enum pst_status pst_binder_note_write(struct pst_binder *b,
                                      struct pst_value *v) PST_MUST_CHECK;
/* Records that `source`, if it carries a gradient, was written to the memory of
 * `written`. */
enum pst_status pst_binder_note_history(
    struct pst_binder *b, struct pst_value *written,
    struct pst_value *source) PST_MUST_CHECK;

/* --- set.c ---------------------------------------------------------------- */

/* Emits set_(): moves a tensor to another storage, under all its names. */
enum pst_status pst_binder_set(
    struct pst_binder *b, const struct pst_alias_program_op *op) PST_MUST_CHECK;

#endif
